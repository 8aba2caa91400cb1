//! A chart as an SVG file, for pages that show it as an image.
//!
//! 1. The picture states the durability of every series.
//! 2. Colours follow the reader's light or dark mode.
//! 3. A picture is a function of its [`Picture`]: the same data give the same bytes.

use core::fmt::Write;

use serde::{Deserialize, Serialize};

use super::chart::{Entry, HEIGHT, WIDTH, durability_line, plot};
use super::{STYLE, text};
use crate::outcome::{Chart, Experiment};

/// Width of a picture, that of a text column on a project's page.
const WIDE: f64 = 830.0;
const MARGIN: f64 = 14.0;
/// Width of a character, as part of the font's size: wider than most are.
const CHARACTER_WIDTH: f64 = 0.56;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    pub name: String,
    /// The post that it answers.
    pub source: String,
    pub seed: u64,
    pub chart: Chart,
}

impl Picture {
    /// The picture of an experiment: its first chart, if it has one.
    pub fn of(experiment: &Experiment) -> Option<Self> {
        Some(Self {
            name: experiment.name.clone(),
            source: experiment.source.clone(),
            seed: experiment.seed,
            chart: experiment.charts.first()?.clone(),
        })
    }

    pub fn svg(&self) -> String {
        let mut inner = String::new();
        // Writing to a string does not fail.
        let height = self.body(&mut inner).unwrap_or(0.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDE}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {WIDE} {height:.0}\" role=\"img\" aria-label=\"{}\" \
             font-family=\"system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif\">\n\
             <style>\n{}</style>\n\
             <rect width=\"100%\" height=\"100%\" style=\"fill: var(--bg)\"/>\n{inner}</svg>\n",
            text(&self.chart.title),
            style()
        )
    }

    fn body(&self, out: &mut String) -> core::result::Result<f64, core::fmt::Error> {
        let mut y = 6.0;
        lines(out, &mut y, &format!("{}: {}", self.name, self.chart.title), "title", 18.0)?;
        if let Some(words) = durability_line(&self.chart) {
            lines(out, &mut y, &words, "small", 14.0)?;
        }
        y += 8.0;
        let wide = WIDE - 2.0 * MARGIN;
        let high = wide * HEIGHT / WIDTH;
        writeln!(
            out,
            "<svg x=\"{MARGIN}\" y=\"{y:.1}\" width=\"{wide}\" height=\"{high:.1}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\">"
        )?;
        let entries = plot(out, &self.chart)?;
        writeln!(out, "</svg>")?;
        y += high + 4.0;
        legend(out, &mut y, &entries)?;
        y += 4.0;
        let seed = format!("uxfs lab run {} --seed {}", self.name, self.seed);
        let source = match self.source.as_str() {
            "" => seed,
            source => format!("{seed}. Answers {source}"),
        };
        lines(out, &mut y, &source, "small", 13.0)?;
        Ok(y + 10.0)
    }
}

/// The style rules of the report that a chart needs.
fn style() -> String {
    let mut out = String::new();
    let colours = STYLE.split_once("* {").map_or(STYLE, |(before, _)| before);
    out += colours;
    for line in STYLE.lines() {
        let of_chart = ["svg text", "svg .", "svg polyline", "svg circle"];
        let colour = line.strip_prefix(".c").is_some_and(|rest| rest.starts_with(char::is_numeric));
        if colour || of_chart.iter().any(|head| line.starts_with(head)) {
            out += line;
            out.push('\n');
        }
    }
    out += "svg text.title { fill: var(--fg); font-size: 18px; font-weight: 600; }\n\
            svg text.small { font-size: 13px; }\n\
            svg text.name { fill: var(--fg); font-size: 15px; }\n\
            svg line.key { stroke: var(--c); stroke-width: 3; }\n\
            svg .post line.key { stroke-dasharray: 6 4; stroke-width: 2; }\n";
    out
}

fn lines(out: &mut String, y: &mut f64, words: &str, class: &str, size: f64) -> core::fmt::Result {
    let most = ((WIDE - 2.0 * MARGIN) / (size * CHARACTER_WIDTH)) as usize;
    let mut line = String::new();
    let mut flush = |line: &mut String| {
        *y += size * 1.35;
        let done = writeln!(
            out,
            "<text class=\"{class}\" x=\"{MARGIN}\" y=\"{y:.1}\">{}</text>",
            text(line)
        );
        line.clear();
        done
    };
    for word in words.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > most {
            flush(&mut line)?;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    flush(&mut line)
}

fn legend(out: &mut String, y: &mut f64, entries: &[Entry]) -> core::fmt::Result {
    const SIZE: f64 = 15.0;
    const KEY: f64 = 32.0;
    let mut x = MARGIN;
    *y += SIZE * 1.4;
    for Entry { class, name, worth } in entries {
        let words = match worth {
            Some(worth) => format!("{name} ({worth})"),
            None => name.clone(),
        };
        let wide = KEY + words.chars().count() as f64 * SIZE * CHARACTER_WIDTH + 18.0;
        if x > MARGIN && x + wide > WIDE - MARGIN {
            x = MARGIN;
            *y += SIZE * 1.4;
        }
        writeln!(
            out,
            "<g class=\"{class}\"><line class=\"key\" x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" \
             y2=\"{1:.1}\"/><text class=\"name\" x=\"{:.1}\" y=\"{y:.1}\">{}</text></g>",
            x + 24.0,
            *y - 5.0,
            x + KEY,
            text(&words)
        )?;
        x += wide;
    }
    Ok(())
}
