//! A timeline drawn as SVG: what the program did, what it acknowledged, and what the disk was
//! given, in columns from left to right.
//!
//! 1. A mark further right happened later. Marks of one lane do not overlap.
//! 2. Each mark has a title with the words of its events.
//! 3. All text is escaped and cut off: it comes from the program under test.
//! 4. The same timeline gives the same bytes. Colours follow the reader's light or dark mode.

use core::fmt::{self, Write};

use crate::junit::clipped;
use crate::stretch::Stretch;
use crate::timeline::{MomentKind, Timeline};

/// Rules for the page or the picture that a chart stands in.
pub(crate) const STYLE: &str = include_str!("chart.css");

/// Stretches of a chart that fits a page.
pub(crate) const FOCUS: usize = 30;

const LEFT: f64 = 118.0;
const MARGIN: f64 = 14.0;
const COLUMN: f64 = 26.0;
/// A column of a folded stretch, which has a number below.
const FOLDED: f64 = 58.0;
const LEAST_WIDTH: f64 = 760.0;
const LANE: f64 = 52.0;
const ROW: f64 = 20.0;
const BAR: f64 = 20.0;
/// Height of a line of a picture's title, and width of its letters.
const TITLE_LINE: f64 = 22.0;
const TITLE_LETTER: f64 = 9.4;
/// Width of a letter, larger than that of most.
const LETTER: f64 = 7.4;
/// Most labels of what matters, and most of one kind.
const LABELS_MAX: usize = 7;
const LIKE_LABELS_MAX: usize = 2;
/// Most bytes of a title.
const TITLE_MAX: usize = 200;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    Program,
    Acknowledged,
    Disk,
}

impl Lane {
    fn of(stretch: &Stretch, has_program: bool) -> Self {
        use MomentKind::{
            Acknowledged, Changed, Cut, Fault, Flush, Forced, Kept, Later, Lost, Missing,
            Reordered, Synced, Torn, Unsynced,
        };
        match stretch.kind {
            Some(Changed | Synced | Unsynced | Fault | Later) => Self::Program,
            Some(Missing) if has_program => Self::Program,
            Some(Acknowledged) | None => Self::Acknowledged,
            Some(Kept | Forced | Reordered | Torn | Lost | Flush | Missing | Cut) => Self::Disk,
        }
    }
}

/// A chart and its place.
struct Chart<'a> {
    stretches: &'a [Stretch],
    /// The first event that no flush covers, if that is shown.
    at_risk: Option<usize>,
    /// The middle of each column.
    columns: Vec<f64>,
    lanes: Vec<Lane>,
    width: f64,
    /// The first line of the lanes.
    top: f64,
}

/// An element `svg` for a page that has [`STYLE`].
pub(crate) fn inline(stretches: &[Stretch], at_risk: Option<usize>, name: &str) -> String {
    let (body, width, height) = Chart::new(stretches, at_risk, 0.0).drawn();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"timeline\" width=\"{width:.0}\" \
         height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
         aria-label=\"{}\">\n{body}</svg>\n",
        clipped(name, TITLE_MAX)
    )
}

impl Timeline {
    /// The timeline as an SVG file, with a title: for pages that show it as an image.
    pub fn picture(&self, title: &str) -> String {
        let stretches = self.stretches(FOCUS);
        let at_risk = Some(self.at_risk);
        let width = Chart::new(&stretches, at_risk, 0.0).width;
        let lines = wrapped(title, ((width - 2.0 * MARGIN) / TITLE_LETTER) as usize);
        let mut head = String::new();
        for (at, line) in lines.iter().enumerate() {
            let y = 26.0 + at as f64 * TITLE_LINE;
            head += &format!(
                "<text x=\"{MARGIN}\" y=\"{y}\" style=\"fill: var(--fg); font-size: 16px; \
                 font-weight: 600\">{}</text>\n",
                clipped(line, TITLE_MAX)
            );
        }
        let above = lines.len() as f64 * TITLE_LINE + 16.0;
        let (body, width, height) = Chart::new(&stretches, at_risk, above).drawn();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"timeline\" width=\"{width:.0}\" \
             height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
             aria-label=\"{0}\" \
             font-family=\"system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif\">\n\
             <style>\n{STYLE}</style>\n\
             <rect width=\"100%\" height=\"100%\" style=\"fill: var(--bg); stroke: none\"/>\n\
             {head}{body}</svg>\n",
            clipped(title, TITLE_MAX)
        )
    }
}

impl<'a> Chart<'a> {
    /// Lays it out, with so much space above.
    fn new(stretches: &'a [Stretch], at_risk: Option<usize>, above: f64) -> Self {
        let has_program = stretches
            .iter()
            .any(|stretch| stretch.kind.is_some() && Lane::of(stretch, false) == Lane::Program);
        let mut lanes = vec![Lane::Acknowledged, Lane::Disk];
        if has_program {
            lanes.insert(0, Lane::Program);
        }
        let wide = |stretch: &Stretch| if stretch.kind.is_some() { COLUMN } else { FOLDED };
        let needed: f64 = stretches.iter().map(wide).sum();
        let width = (LEFT + needed + MARGIN).max(LEAST_WIDTH);
        // Few columns share the least width.
        let spread = ((width - LEFT - MARGIN) / needed.max(COLUMN)).min(3.0);
        let mut end = LEFT;
        let columns = stretches.iter().map(|stretch| {
            let wide = wide(stretch) * spread;
            end += wide;
            end - wide / 2.0
        });
        let columns = columns.collect();
        let mut chart = Self { stretches, at_risk, columns, lanes, width, top: 0.0 };
        let labels = chart.labelled().len() as f64;
        chart.top = above + if labels > 0.0 { labels * ROW + 30.0 } else { 4.0 };
        chart
    }

    fn has_program(&self) -> bool {
        self.lanes.contains(&Lane::Program)
    }

    /// The middle line of a stretch's lane.
    fn y(&self, stretch: &Stretch) -> f64 {
        let lane = Lane::of(stretch, self.has_program());
        let number = self.lanes.iter().position(|other| *other == lane).unwrap_or(0);
        self.top + (number as f64 + 0.5) * LANE
    }

    /// The last line of the lanes.
    fn bottom(&self) -> f64 {
        self.top + self.lanes.len() as f64 * LANE
    }

    /// The stretches with a label, rightmost first: so no label's line crosses another label.
    fn labelled(&self) -> Vec<usize> {
        let last_ack =
            self.stretches.iter().rposition(|s| s.kind == Some(MomentKind::Acknowledged));
        let fails = self.stretches.iter().any(|s| s.kind == Some(MomentKind::Cut));
        let matters = |at: &usize| {
            let kind = self.stretches[*at].kind;
            fails && (last_ack == Some(*at) || kind.is_some_and(MomentKind::is_failure))
        };
        let mut found: Vec<usize> = Vec::new();
        for at in (0..self.stretches.len()).rev().filter(matters) {
            let kind = self.stretches[at].kind;
            let like = found.iter().filter(|other| self.stretches[**other].kind == kind).count();
            if like < LIKE_LABELS_MAX && found.len() < LABELS_MAX {
                found.push(at);
            }
        }
        found
    }

    /// The elements, the width and the height.
    fn drawn(&self) -> (String, f64, f64) {
        let mut out = String::new();
        // Writing to a string does not fail.
        let height = self.body(&mut out).unwrap_or(0.0);
        (out, self.width, height)
    }

    fn body(&self, out: &mut String) -> Result<f64, fmt::Error> {
        for (at, lane) in self.lanes.iter().enumerate() {
            let y = self.top + (at as f64 + 0.5) * LANE;
            let name = match lane {
                Lane::Program => "program",
                Lane::Acknowledged => "acknowledged",
                Lane::Disk => "disk",
            };
            writeln!(
                out,
                "<text x=\"{MARGIN}\" y=\"{:.1}\">{name}</text><line class=\"lane\" x1=\"{LEFT}\" \
                 x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                y + 4.0,
                self.width - MARGIN
            )?;
        }
        let mut y = self.bottom() + 4.0;
        if let Some(at_risk) = self.at_risk {
            self.bar(out, y, at_risk)?;
            y += BAR + 6.0;
        }
        let labelled = self.labelled();
        for (row, at) in labelled.iter().enumerate() {
            self.leader(out, *at, labelled.len() - row)?;
        }
        for at in 0..self.stretches.len() {
            self.mark(out, at)?;
        }
        for (row, at) in labelled.iter().enumerate() {
            self.label(out, *at, labelled.len() - row)?;
        }
        self.legend(out, y)
    }

    /// Which of the disk's writes a flush covered.
    fn bar(&self, out: &mut String, y: f64, at_risk: usize) -> fmt::Result {
        let is_cut = |stretch: &Stretch| stretch.kind == Some(MomentKind::Cut);
        let cut = self.stretches.iter().position(is_cut).unwrap_or(self.stretches.len());
        let flushed = self.stretches[..cut].iter().filter(|s| s.events.1 < at_risk).count();
        let edge = |at: usize| match (at.checked_sub(1), self.columns.get(at)) {
            (None, _) => LEFT,
            (Some(before), Some(x)) => (self.columns[before] + x) / 2.0,
            (Some(_), None) => self.width - MARGIN,
        };
        let end = self.columns.get(cut).copied().unwrap_or(self.width - MARGIN);
        let middle = edge(flushed).min(end);
        writeln!(out, "<text x=\"{MARGIN}\" y=\"{:.1}\">durable</text>", y + 14.0)?;
        let wrote = self.stretches[flushed.min(cut)..cut].iter().any(|stretch| {
            stretch.kind.is_none_or(|kind| kind.is_write() && kind != MomentKind::Forced)
        });
        let (class, words) = match wrote {
            true => ("risk", ["not flushed: a power cut may lose it", "not flushed"]),
            false => ("idle", ["nothing written", "nothing"]),
        };
        for (class, left, right, words) in [
            ("durable", LEFT, middle, ["flushed: on stable storage", "flushed"]),
            (class, middle, end, words),
        ] {
            let wide = right - left;
            if wide < 1.0 {
                continue;
            }
            let fits = |words: &&&str| words.len() as f64 * LETTER < wide;
            let short = words.iter().find(fits).copied().unwrap_or_default();
            writeln!(
                out,
                "<g class=\"{class}\"><title>{}</title><rect x=\"{left:.1}\" y=\"{y:.1}\" \
                 width=\"{wide:.1}\" height=\"{BAR}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\">{short}</text></g>",
                words[0],
                (left + right) / 2.0,
                y + 14.5
            )?;
        }
        Ok(())
    }

    fn mark(&self, out: &mut String, at: usize) -> fmt::Result {
        let (stretch, x) = (&self.stretches[at], self.columns[at]);
        let (first, last) = stretch.events;
        let class = class(stretch.kind);
        let mut y = self.y(stretch);
        let mut shape = symbol(stretch.kind).to_owned();
        if stretch.kind == Some(MomentKind::Cut) {
            y = self.top - 14.0;
            write!(shape, "<path class=\"l\" d=\"M0 14V{:.1}\"/>", self.bottom() + 4.0 - y)?;
        }
        let event = match first == last {
            true => format!("event {first}"),
            false => format!("events {first} to {last}"),
        };
        let said = said(stretch.kind);
        let words = Some(stretch.words.as_str()).filter(|words| *words != said);
        let words = words.map_or_else(String::new, |words| format!(": {words}"));
        let title = format!("{event}: {said}{words}");
        write!(
            out,
            "<g class=\"{class}\" data-event=\"{first}\" transform=\"translate({x:.1} {y:.1})\">\
             <title>{}</title>{shape}",
            clipped(&title, TITLE_MAX)
        )?;
        if stretch.kind.is_none() {
            write!(out, "<text class=\"n\" y=\"20\">{}</text>", stretch.count)?;
        } else if stretch.count > 1 {
            write!(out, "<text class=\"n\" y=\"25\">×{}</text>", stretch.count)?;
        }
        writeln!(out, "</g>")
    }

    /// The line of text of a row, counted from the lanes up.
    fn row_y(&self, row: usize) -> f64 {
        self.top - 30.0 - (row as f64 - 1.0) * ROW
    }

    fn leader(&self, out: &mut String, at: usize, row: usize) -> fmt::Result {
        let (stretch, x) = (&self.stretches[at], self.columns[at]);
        let end = match stretch.kind {
            Some(MomentKind::Cut) => self.top - 28.0,
            _ => self.y(stretch) - 14.0,
        };
        writeln!(
            out,
            "<path class=\"lead {}\" d=\"M{x:.1} {:.1}V{end:.1}\"/>",
            class(stretch.kind),
            self.row_y(row) + 3.0
        )
    }

    fn label(&self, out: &mut String, at: usize, row: usize) -> fmt::Result {
        let (stretch, x) = (&self.stretches[at], self.columns[at]);
        let words = match stretch.kind {
            Some(MomentKind::Cut) => stretch.words.clone(),
            Some(MomentKind::Acknowledged) => format!("acknowledged: {}", stretch.words),
            kind => format!("{}: {}", said(kind), stretch.words),
        };
        let (left, right) = (x - MARGIN, self.width - x - MARGIN);
        // To its left, a label crosses no line of those below.
        let to_left = words.chars().count() as f64 * LETTER < left || left > right;
        let (anchor, x, space) = match to_left {
            true => ("end", x + 5.0, left),
            false => ("start", x - 5.0, right),
        };
        let most = (space / LETTER) as usize;
        let short: String = match words.chars().nth(most) {
            None => words,
            Some(_) => words.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        };
        writeln!(
            out,
            "<text class=\"label {}\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            class(stretch.kind),
            self.row_y(row),
            clipped(&short, 4 * TITLE_MAX)
        )
    }

    /// What the marks mean. Returns the height of all.
    fn legend(&self, out: &mut String, y: f64) -> Result<f64, fmt::Error> {
        let mut seen: Vec<Option<MomentKind>> = Vec::new();
        for stretch in self.stretches {
            if !seen.contains(&stretch.kind) {
                seen.push(stretch.kind);
            }
        }
        let (mut x, mut y) = (MARGIN + 10.0, y + 24.0);
        for kind in seen {
            let words = said(kind);
            let wide = 24.0 + words.len() as f64 * LETTER + 20.0;
            if x + wide > self.width {
                (x, y) = (MARGIN + 10.0, y + 32.0);
            }
            writeln!(
                out,
                "<g class=\"key {}\" transform=\"translate({x:.1} {y:.1}) scale(.8)\">{}</g>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{words}</text>",
                class(kind),
                symbol(kind),
                x + 17.0,
                y + 4.5
            )?;
            x += wide;
        }
        Ok(y + 22.0)
    }
}

/// Text in lines of at most so many letters, where words allow it.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn class(kind: Option<MomentKind>) -> &'static str {
    kind.map_or("folded", MomentKind::name)
}

/// A kind in the words of the legend.
pub(crate) fn said(kind: Option<MomentKind>) -> &'static str {
    match kind {
        None => "left out",
        Some(MomentKind::Kept) => "write, kept",
        Some(MomentKind::Forced) => "write, forced (FUA)",
        Some(MomentKind::Reordered) => "write, out of order",
        Some(MomentKind::Torn) => "write, torn",
        Some(MomentKind::Lost) => "write, lost",
        Some(MomentKind::Flush) => "flush",
        Some(MomentKind::Acknowledged) => "acknowledgement",
        Some(MomentKind::Changed) => "change",
        Some(MomentKind::Synced) => "sync",
        Some(MomentKind::Unsynced) => "not durable",
        Some(MomentKind::Fault) => "at fault",
        Some(MomentKind::Missing) => "missing",
        Some(MomentKind::Cut) => "power cut",
        Some(MomentKind::Later) => "only after the cut",
    }
}

/// The shape of a mark, around 0,0. In its classes, `o` is hollow, `d` dashed, `l` a line, `w` a
/// line on a filled shape.
fn symbol(kind: Option<MomentKind>) -> &'static str {
    match kind {
        None => "<circle cx=\"-9\" r=\"2\"/><circle r=\"2\"/><circle cx=\"9\" r=\"2\"/>",
        Some(MomentKind::Kept) => "<rect x=\"-6\" y=\"-11\" width=\"12\" height=\"22\" rx=\"2\"/>",
        Some(MomentKind::Forced) => {
            "<rect x=\"-6\" y=\"-11\" width=\"12\" height=\"22\" rx=\"2\"/>\
             <path class=\"w\" d=\"M-3 4H3\"/>"
        }
        Some(MomentKind::Reordered) => {
            "<rect x=\"-6\" y=\"-11\" width=\"12\" height=\"22\" rx=\"2\"/>\
             <path class=\"w\" d=\"M4 0H-4L0-4M-4 0 0 4\"/>"
        }
        Some(MomentKind::Torn) => {
            "<rect class=\"o\" x=\"-6\" y=\"-11\" width=\"12\" height=\"22\" rx=\"2\"/>\
             <path d=\"M-6-11H6V-3L2 2-2-3-6 2Z\"/>"
        }
        Some(MomentKind::Lost) => {
            "<rect class=\"o d\" x=\"-6\" y=\"-11\" width=\"12\" height=\"22\" rx=\"2\"/>\
             <path class=\"l\" d=\"M-4-5 4 5M4-5-4 5\"/>"
        }
        Some(MomentKind::Flush) => "<path class=\"l\" d=\"M-7-13H7M0-13V13M-7 13H7\"/>",
        Some(MomentKind::Acknowledged) => {
            "<circle r=\"9\"/><path class=\"w\" d=\"M-4 0-1 3.5 4.5-3.5\"/>"
        }
        Some(MomentKind::Changed) => {
            "<rect class=\"o\" x=\"-7\" y=\"-7\" width=\"14\" height=\"14\" rx=\"4\"/>"
        }
        Some(MomentKind::Synced) => "<path d=\"M0-9 9 0 0 9-9 0Z\"/>",
        Some(MomentKind::Unsynced) => {
            "<rect class=\"o\" x=\"-7\" y=\"-7\" width=\"14\" height=\"14\" rx=\"4\"/>\
             <path class=\"l\" d=\"M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5\"/>"
        }
        Some(MomentKind::Fault) => {
            "<rect class=\"o\" x=\"-7\" y=\"-7\" width=\"14\" height=\"14\" rx=\"4\"/>\
             <path class=\"l\" d=\"M0-4V1.5M0 3.2V4.4\"/>"
        }
        Some(MomentKind::Missing) => {
            "<path class=\"o d\" d=\"M0-10 10 0 0 10-10 0Z\"/>\
             <path class=\"l\" d=\"M0-4.5V4.5M-4.5 0H4.5\"/>"
        }
        Some(MomentKind::Cut) => "<path d=\"M2-12-6 2H-1L-3 12 6-3H1Z\"/>",
        Some(MomentKind::Later) => {
            "<rect class=\"o d\" x=\"-7\" y=\"-7\" width=\"14\" height=\"14\" rx=\"4\"/>"
        }
    }
}
