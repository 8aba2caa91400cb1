//! The result of a benchmark: samples, medians, spread, and the durability of each row.

use core::fmt;
use std::borrow::Cow;

use crate::table::median;

/// A measured row: its samples and their durability.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub samples: Vec<f64>,
    /// What a power cut right after it would cost.
    pub durability: Cow<'static, str>,
    /// Largest resident memory in KiB, if it was measured.
    pub memory_kib: Option<u64>,
}

impl Row {
    pub fn new(name: impl Into<String>, durability: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: name.into(),
            samples: Vec::new(),
            durability: durability.into(),
            memory_kib: None,
        }
    }

    /// The median of the samples; 0 without any.
    pub fn median(&self) -> f64 {
        median(self.samples.clone())
    }

    fn spread(&self) -> (f64, f64) {
        let pick = |f: fn(f64, f64) -> f64| self.samples.iter().copied().reduce(f).unwrap_or(0.0);
        (pick(f64::min), pick(f64::max))
    }
}

#[derive(Clone, Debug)]
pub struct Report {
    pub title: String,
    /// Unit of the figures, such as `s`.
    pub unit: &'static str,
    /// The rows; ratios are against the one named by `base`.
    pub rows: Vec<Row>,
    /// Name of the row that the others are compared with.
    pub base: String,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

impl Report {
    /// Ratio of a row's median to the base's; `None` if either is missing.
    pub fn ratio(&self, row: &Row) -> Option<f64> {
        let base = self.rows.iter().find(|r| r.name == self.base)?.median();
        (base > 0.0).then(|| row.median() / base)
    }

    pub fn json(&self) -> serde_json::Value {
        let rows: Vec<serde_json::Value> = self
            .rows
            .iter()
            .map(|row| {
                serde_json::json!({
                    "name": row.name,
                    "samples": row.samples,
                    "median": row.median(),
                    "ratio": self.ratio(row),
                    "durability": row.durability,
                    "memory_kib": row.memory_kib,
                })
            })
            .collect();
        serde_json::json!({
            "schema": "uxfs-bench",
            "version": 1,
            "title": self.title,
            "unit": self.unit,
            "base": self.base,
            "rows": rows,
            "notes": self.notes,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let width = self.rows.iter().map(|r| r.name.len()).max().unwrap_or(0);
        for row in &self.rows {
            let (low, high) = row.spread();
            let places = if row.median() >= 1000.0 { 0 } else { 2 };
            write!(
                f,
                "  {:width$}  {:>9.places$} {}  ({low:.places$} to {high:.places$})",
                row.name,
                row.median(),
                self.unit,
            )?;
            if let Some(ratio) = self.ratio(row) {
                write!(f, "  {ratio:>5.2}x")?;
            }
            if let Some(kib) = row.memory_kib {
                write!(f, "  {} MiB", kib / 1024)?;
            }
            writeln!(f, "  [{}]", row.durability)?;
        }
        writeln!(f, "  (median of the rounds, lowest and highest, ratio to: {})", self.base)?;
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_two_rounds_lies_between_them() {
        let mut row = Row::new("row", "");
        assert_eq!(row.median(), 0.0);
        for (sample, median) in [(1.0, 1.0), (3.0, 2.0), (8.0, 3.0)] {
            row.samples.push(sample);
            assert_eq!(row.median(), median);
        }
    }

    #[test]
    fn ratios_are_of_medians() {
        let mut fast = Row::new("fast", "on stable storage");
        fast.samples = vec![1.0, 9.0, 2.0];
        let mut slow = Row::new("slow", "on stable storage");
        slow.samples = vec![8.0, 7.0, 100.0];
        let report = Report {
            title: "race".into(),
            unit: "s",
            rows: vec![fast, slow],
            base: "slow".into(),
            notes: vec![],
        };
        assert_eq!(report.ratio(&report.rows[0]), Some(0.25));
        assert!(report.to_string().contains("0.25x"));
        assert_eq!(report.json()["rows"][1]["median"], 8.0);
    }
}
