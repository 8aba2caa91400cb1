//! Charts of the report, drawn as SVG in the page.
//!
//! 1. A chart with few values on the horizontal axis has its ticks there: 1, 2, 4, 8 clients.
//! 2. Each chart states the durability of its figures.

use core::fmt::Write;

use super::text;
use crate::outcome::{Chart, Drawn, Series};

pub(super) const WIDTH: f64 = 640.0;
pub(super) const HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;

/// Most values that get a tick each.
const TICKS_MAX: usize = 10;
/// Smallest distance of two ticks, as a fraction of the axis.
const TICK_DISTANCE_MIN: f64 = 0.035;

/// An axis: label, range, and scale.
pub(super) struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone, log: bool) -> Self {
        let values = values.filter(|v| v.is_finite() && (!log || *v > 0.0));
        let high = values.clone().fold(f64::NEG_INFINITY, f64::max);
        let low = values.fold(f64::INFINITY, f64::min);
        if low > high {
            return Self { low: if log { 1.0 } else { 0.0 }, high: 10.0, log };
        }
        if log {
            let high = if high > low { high } else { low * 10.0 };
            return Self { low: low / 1.15, high: high * 1.15, log };
        }
        let high = if high > 0.0 { high * 1.05 } else { 1.0 };
        Self { low: low.min(0.0), high, log }
    }

    /// The position of a value, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        match self.log {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        }
    }

    /// Ticks at the values if they are few, otherwise at round numbers.
    pub(super) fn ticks_at(&self, values: impl Iterator<Item = f64>) -> Vec<f64> {
        let mut all: Vec<f64> = values.filter(|v| v.is_finite()).collect();
        all.sort_unstable_by(f64::total_cmp);
        all.dedup();
        if all.is_empty() || all.len() > TICKS_MAX {
            return self.ticks();
        }
        let mut last = f64::NEG_INFINITY;
        all.retain(|value| {
            let place = self.place(*value);
            let apart = place - last >= TICK_DISTANCE_MIN;
            if apart {
                last = place;
            }
            apart
        });
        all
    }

    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.log {
            let mut all = Vec::new();
            let mut decade = 10f64.powf(self.low.log10().floor());
            while decade <= self.high && all.len() < 60 {
                all.extend([1.0, 2.0, 5.0].iter().map(|m| m * decade));
                decade *= 10.0;
            }
            all.retain(|tick| (self.low..=self.high).contains(tick));
            if all.len() > 7 {
                let whole = |t: &f64| (t.log10() - t.log10().round()).abs() < 1e-9;
                all.retain(whole);
            }
            return all;
        }
        let rough = (self.high - self.low) / 5.0;
        let unit = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].iter().map(|m| m * unit).find(|s| *s >= rough);
        let step = step.unwrap_or(unit);
        let first = (self.low / step).ceil() as i64;
        (first..).map(|n| n as f64 * step).take_while(|tick| *tick <= self.high).collect()
    }
}

pub(super) fn label(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        v if v >= 1e4 => format!("{}k", trimmed(value / 1e3)),
        v if v >= 1e-3 || v == 0.0 => trimmed(value),
        _ => format!("{value:.0e}"),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A series as the legend names it.
pub(super) struct Entry {
    /// The class that gives its colour.
    pub(super) class: String,
    pub(super) name: String,
    /// Its durability, where series differ in it.
    pub(super) worth: Option<String>,
}

/// Draws a chart, with a title above and the legend below.
pub(super) fn draw(out: &mut String, chart: &Chart) -> core::fmt::Result {
    writeln!(
        out,
        "<figure><figcaption>{}</figcaption>{}<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{0}\">",
        text(&chart.title),
        durability_line(chart).map_or_else(String::new, |words| {
            format!("<p class=\"small\">{}</p>", text(&words))
        })
    )?;
    let mut legend = String::new();
    for Entry { class, name, worth } in plot(out, chart)? {
        let worth =
            worth.map_or_else(String::new, |worth| format!(" <small>({})</small>", text(&worth)));
        write!(legend, "<li class=\"{class}\"><span></span>{}{worth}</li>", text(&name))?;
    }
    writeln!(out, "</svg><ul class=\"legend\">{legend}</ul></figure>")
}

/// Draws axes and series in a box of [`WIDTH`] by [`HEIGHT`]. Returns the legend.
pub(super) fn plot(
    out: &mut String,
    chart: &Chart,
) -> core::result::Result<Vec<Entry>, core::fmt::Error> {
    let points = || chart.series.iter().flat_map(|s| s.points.iter());
    let x = Axis::of(points().map(|p| p.0), chart.log.0);
    let tops = if chart.drawn == Drawn::Shares { tops(&chart.series) } else { Vec::new() };
    let y = Axis::of(points().map(|p| p.1).chain(tops.iter().copied()), chart.log.1);
    frame(out, chart, &x, &y)?;
    let common = common_durability(chart).is_some();
    let mut colour = 0;
    let mut legend = Vec::new();
    let mut below = vec![0.0; tops.len()];
    for series in &chart.series {
        // The post's line has the colour of the measured one before it.
        if !series.post {
            colour += 1;
        }
        let class =
            format!("c{}{}", (colour - 1).max(0) % 8, if series.post { " post" } else { "" });
        match chart.drawn {
            Drawn::Shares => draw_shares(out, series, &mut below, &class, &x, &y)?,
            drawn => draw_series(out, series, drawn, &class, &x, &y)?,
        }
        let worth = (!common).then(|| durability_of(series).to_owned());
        legend.push(Entry { class, name: series.name.clone(), worth });
    }
    Ok(legend)
}

/// The durability of a series.
fn durability_of(series: &Series) -> &str {
    match (series.post, series.worth.as_str()) {
        (true, _) => "the post's; at what durability, nobody checked",
        (false, "") => "not checked",
        (false, worth) => worth,
    }
}

/// The durability of all measured series, if it is the same.
fn common_durability(chart: &Chart) -> Option<&str> {
    let mut ours = chart.series.iter().filter(|series| !series.post).map(durability_of);
    let first = ours.next()?;
    ours.all(|worth| worth == first).then_some(first)
}

/// The durability of all series, if it is one and the same.
pub(super) fn durability_line(chart: &Chart) -> Option<String> {
    let worth = common_durability(chart)?;
    let post = match chart.series.iter().any(|series| series.post) {
        true => "; dashed: the post's, at what durability nobody checked",
        false => "",
    };
    Some(format!("What was acknowledged was on: {worth}{post}"))
}

fn to_x(x: &Axis, value: f64) -> f64 {
    LEFT + x.place(value) * (WIDTH - LEFT - RIGHT)
}

fn to_y(y: &Axis, value: f64) -> f64 {
    HEIGHT - BOTTOM - y.place(value) * (HEIGHT - TOP - BOTTOM)
}

fn frame(out: &mut String, chart: &Chart, x: &Axis, y: &Axis) -> core::fmt::Result {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tick in y.ticks() {
        let at = to_y(y, tick);
        writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            label(tick)
        )?;
    }
    let places = chart.series.iter().flat_map(|series| series.points.iter().map(|point| point.0));
    for tick in x.ticks_at(places) {
        let at = to_x(x, tick);
        writeln!(
            out,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 17.0,
            label(tick)
        )?;
    }
    writeln!(
        out,
        "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <text class=\"axis\" transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}\
         </text>",
        (LEFT + right) / 2.0,
        HEIGHT - 8.0,
        text(&chart.axes.0),
        (TOP + bottom) / 2.0,
        text(&chart.axes.1)
    )
}

fn draw_series(
    out: &mut String,
    series: &Series,
    drawn: Drawn,
    class: &str,
    x: &Axis,
    y: &Axis,
) -> core::fmt::Result {
    let places: Vec<(f64, f64)> =
        series.points.iter().map(|p| (to_x(x, p.0), to_y(y, p.1))).collect();
    writeln!(out, "<g class=\"{class}\">")?;
    if drawn == Drawn::Lines {
        let line: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        writeln!(out, "<polyline points=\"{}\"/>", line.join(" "))?;
    }
    let size = match drawn {
        Drawn::Shares => 0.0,
        Drawn::Points => 4.5,
        Drawn::Lines if places.len() > 24 => 0.0,
        Drawn::Lines => 3.2,
    };
    // Many points are one path of round dots: a tenth of the bytes.
    if places.len() > 60 && drawn == Drawn::Points {
        let dots: String = places.iter().map(|(x, y)| format!("M{x:.1} {y:.1}h0")).collect();
        write!(out, "<path class=\"dots\" d=\"{dots}\"/>")?;
    } else if size > 0.0 {
        for (x, y) in places {
            write!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{size}\"/>")?;
        }
    }
    writeln!(out, "</g>")
}

/// The height of all series together in each column.
fn tops(series: &[Series]) -> Vec<f64> {
    let columns = series.iter().map(|s| s.points.len()).max().unwrap_or(0);
    let top = |at: usize| series.iter().filter_map(|s| Some(s.points.get(at)?.1)).sum();
    (0..columns).map(top).collect()
}

/// The columns of one series, on top of those drawn before.
fn draw_shares(
    out: &mut String,
    series: &Series,
    below: &mut [f64],
    class: &str,
    x: &Axis,
    y: &Axis,
) -> core::fmt::Result {
    writeln!(out, "<g class=\"{class}\">")?;
    let wide = match &series.points[..] {
        [first, second, ..] => to_x(x, second.0) - to_x(x, first.0),
        _ => WIDTH - RIGHT - LEFT,
    };
    for (point, low) in series.points.iter().zip(below) {
        let high = *low + point.1;
        let left = to_x(x, point.0);
        let (top, bottom) = (to_y(y, high), to_y(y, *low));
        if point.1 > 0.0 {
            write!(
                out,
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                wide.max(0.5),
                bottom - top
            )?;
        }
        *low = high;
    }
    writeln!(out, "</g>")
}
