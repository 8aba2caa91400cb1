//! The result of an experiment, as stored in a file, printed, and shown in the report.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::durability::{Durability, DurabilityLevel, Fsyncs};
use crate::setup::Cpu;
pub use crate::verdict::Shape;

/// Which figure of a column is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Best {
    High,
    Low,
    /// None: the figure is only information.
    None,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Key of the figure in a row.
    pub key: String,
    pub label: String,
    pub digits: usize,
    /// Which figure of a group is the best.
    pub best: Best,
}

impl Column {
    pub fn new(key: &str, label: &str, digits: usize, best: Best) -> Self {
        Self { key: key.into(), label: label.into(), digits, best }
    }
}

/// A figure, and the post's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub ours: Option<f64>,
    /// The post's figure, from hardware of its day.
    pub post: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The group. Its rows are compared with each other.
    pub group: String,
    pub name: String,
    pub cells: Vec<Cell>,
    /// The durability of the figures.
    pub durability: Option<Durability>,
    /// The durability as text.
    pub worth: String,
    /// The result of the check.
    pub checked: String,
    /// The promised durability was refuted.
    pub failed: bool,
    /// The command that repeats it.
    pub repeat: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Drawn {
    /// Lines with a mark at each point.
    Lines,
    Points,
    /// Stacked columns: where they begin, and their heights.
    Shares,
}

/// A series of points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// The points are the post's.
    pub post: bool,
    /// Their durability; empty if unknown.
    pub worth: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    pub title: String,
    /// Labels of the horizontal and vertical axis.
    pub axes: (String, String),
    /// Whether each axis is logarithmic.
    pub log: (bool, bool),
    pub drawn: Drawn,
    pub series: Vec<Series>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskNote {
    pub name: String,
    pub about: String,
}

/// The schema of outcomes, and its version.
pub const SCHEMA: (&str, u32) = ("uxfs-lab", 2);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// `uxfs-lab`.
    pub schema: String,
    /// Version of the schema.
    pub version: u32,
    pub name: String,
    pub title: String,
    /// Its subject, and what it does not show.
    pub about: String,
    /// The post that it answers, cited, or that there is none.
    pub source: String,
    pub seed: u64,
    pub disks: Vec<DiskNote>,
    /// Processor time of the operations.
    pub cpu: Option<Cpu>,
    /// Headings of the rows' names.
    pub heads: (String, String),
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    pub charts: Vec<Chart>,
    pub shapes: Vec<Shape>,
    pub notes: Vec<String>,
}

impl Row {
    /// What its figures are compared by: where data is kept when it is acknowledged, and what an fsync does; the
    /// words, where that was not derived.
    fn level(&self) -> Result<(DurabilityLevel, Fsyncs), &str> {
        match &self.durability {
            Some(found) => Ok((found.found.min(found.promised), found.fsyncs)),
            None => Err(&self.worth),
        }
    }

    /// Did power cuts check it?
    pub fn is_checked(&self) -> bool {
        self.durability.as_ref().is_some_and(|durability| durability.cuts > 0)
    }
}

pub fn figure(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_once('.').map_or((&text[..], ""), |(w, r)| (w, r));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |w| ("-", w));
    let mut out = String::from(sign);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 && whole.len() > 4 {
            out.push(',');
        }
        out.push(digit);
    }
    if !rest.is_empty() {
        out.push('.');
        out.push_str(rest);
    }
    out
}

impl Experiment {
    /// The best figure of a column among the rows of a row's group that are as durable.
    pub fn best(&self, row: &Row, column: usize) -> Option<f64> {
        let group = self.rows.iter().filter(|other| other.group == row.group && !other.failed);
        let all = group
            .filter(|other| other.level() == row.level())
            .filter_map(|other| other.cells.get(column)?.ours);
        match self.columns.get(column)?.best {
            Best::High => all.reduce(f64::max),
            Best::Low => all.reduce(f64::min),
            Best::None => None,
        }
    }

    /// Was the durability of any row refuted?
    pub fn failed(&self) -> bool {
        self.rows.iter().any(|row| row.failed)
    }

    /// The table as lines of comma-separated values.
    pub fn csv(&self) -> String {
        let quote = |text: &str| match text.contains([',', '"', '\n']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_owned(),
        };
        let mut out = format!("{},{}", quote(&self.heads.0), quote(&self.heads.1));
        for column in &self.columns {
            out += &format!(",{0},{0}_post", column.key);
        }
        out += ",worth,promised,exposed_s,acknowledged,flushes,forced,cuts,looked_for,lost,unsound,failed,mixed,late,oldest_s\n";
        for row in &self.rows {
            out += &format!("{},{}", quote(&row.group), quote(&row.name));
            for (cell, column) in row.cells.iter().zip(&self.columns) {
                let text = |value: Option<f64>| {
                    value.map_or_else(String::new, |v| format!("{v:.0$}", column.digits))
                };
                out += &format!(",{},{}", text(cell.ours), text(cell.post));
            }
            match &row.durability {
                Some(d) => {
                    let moments = d.moments.map_or_else(
                        || ",,".into(),
                        |found| format!("{},{},{:.6}", found.mixed, found.late, found.oldest_s),
                    );
                    out += &format!(
                        ",{:?},{:?},{:.6},{},{},{},{},{},{},{},{},{moments}\n",
                        d.found.min(d.promised),
                        d.promised,
                        d.exposed_s,
                        d.acknowledged,
                        d.flushes,
                        d.forced,
                        d.cuts,
                        d.looked_for,
                        d.lost,
                        d.unsound,
                        d.failed
                    );
                }
                None => out += &format!(",{},,,,,,,,,,,,,\n", quote(&row.worth)),
            }
        }
        out
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} (random seed {})", self.name, self.title, self.seed)?;
        let wide = |of: fn(&Row) -> &str, head: &str| {
            let widths = self.rows.iter().map(|row| of(row).chars().count());
            widths.chain([head.chars().count()]).max().unwrap_or(0)
        };
        let (first, second) = (wide(|r| &r.group, &self.heads.0), wide(|r| &r.name, &self.heads.1));
        write!(f, "  {:first$}  {:second$}", self.heads.0, self.heads.1)?;
        for column in &self.columns {
            write!(f, "  {:>16}", column.label)?;
        }
        writeln!(f, "  worth")?;
        let mut group = None;
        for row in &self.rows {
            let shown = if group.replace(&row.group) == Some(&row.group) { "" } else { &row.group };
            write!(f, "  {shown:first$}  {:second$}", row.name)?;
            for (at, (cell, column)) in row.cells.iter().zip(&self.columns).enumerate() {
                let ours = cell.ours.map_or_else(|| "-".into(), |v| figure(v, column.digits));
                let star =
                    if cell.ours.is_some() && cell.ours == self.best(row, at) { "*" } else { "" };
                let post = cell
                    .post
                    .map_or_else(String::new, |v| format!(" ({})", figure(v, column.digits)));
                write!(f, "  {:>16}", format!("{star}{ours}{post}"))?;
            }
            writeln!(f, "  {}; {}", row.worth, row.checked)?;
        }
        writeln!(
            f,
            "  (* best of its group among rows as durable; the post's figure in brackets)"
        )?;
        if !self.source.is_empty() {
            writeln!(f, "  answers {}", self.source)?;
        }
        for shape in &self.shapes {
            writeln!(f, "  {shape}")?;
        }
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        Ok(())
    }
}
