//! Requests of the kernel, counted by kind: what each step of a program asked a mount.

use std::collections::{BTreeMap, BTreeSet};

use core::fmt;

use crate::table::median;

/// The kind of the request that reads the counts.
const ASKING: &str = "GETXATTR";

/// Kinds with fewer requests for each file, in every step, have no row.
const SHOWN: f64 = 0.001;

/// Numbers of requests, by the protocol's names of their kinds.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests(pub(super) BTreeMap<String, u64>);

impl Requests {
    /// What came between two readings, without the second reading itself.
    pub(super) fn since(mut self, before: &Self) -> Self {
        for (kind, count) in &mut self.0 {
            let own = u64::from(kind == ASKING);
            *count = count.saturating_sub(before.0.get(kind).copied().unwrap_or(0) + own);
        }
        self.0.retain(|_, count| *count > 0);
        self
    }

    fn all(&self) -> u64 {
        self.0.values().sum()
    }
}

/// One step of a program.
#[derive(Clone, Debug)]
struct Step {
    name: &'static str,
    files: u64,
    /// Of each round.
    rounds: Vec<Requests>,
}

impl Step {
    /// The median of the rounds, for each file.
    fn per_file(&self, of: impl Fn(&Requests) -> u64) -> f64 {
        let counts = self.rounds.iter().map(|round| of(round) as f64).collect();
        median(counts) / self.files.max(1) as f64
    }
}

/// The requests of several steps, by kind.
#[derive(Clone, Debug)]
pub struct RequestTable {
    pub title: String,
    steps: Vec<Step>,
    pub notes: Vec<String>,
}

impl RequestTable {
    pub(super) fn new(title: String, notes: Vec<String>) -> Self {
        Self { title, steps: Vec::new(), notes }
    }

    /// Adds what a round's step on `files` files asked.
    pub(super) fn add(&mut self, name: &'static str, files: u64, requests: Requests) {
        match self.steps.iter_mut().find(|step| step.name == name) {
            Some(step) => step.rounds.push(requests),
            None => self.steps.push(Step { name, files, rounds: vec![requests] }),
        }
    }

    fn kinds(&self) -> BTreeSet<&str> {
        let rounds = self.steps.iter().flat_map(|step| &step.rounds);
        rounds.flat_map(|requests| requests.0.keys().map(String::as_str)).collect()
    }

    /// The median number of requests of a kind in a step, for each file.
    pub fn per_file(&self, step: &str, kind: &str) -> Option<f64> {
        let step = self.steps.iter().find(|known| known.name == step)?;
        Some(step.per_file(|requests| requests.0.get(kind).copied().unwrap_or(0)))
    }

    pub fn json(&self) -> serde_json::Value {
        let steps: Vec<serde_json::Value> = self
            .steps
            .iter()
            .map(|step| {
                let count = |kind: &str| {
                    let of = |requests: &Requests| requests.0.get(kind).copied().unwrap_or(0);
                    step.rounds.iter().map(of).collect::<Vec<u64>>()
                };
                let kinds: BTreeMap<&str, Vec<u64>> =
                    self.kinds().into_iter().map(|kind| (kind, count(kind))).collect();
                serde_json::json!({
                    "name": step.name,
                    "files": step.files,
                    "per_file": step.per_file(Requests::all),
                    "requests": kinds,
                })
            })
            .collect();
        serde_json::json!({
            "schema": "uxfs-bench-requests",
            "version": 1,
            "title": self.title,
            "steps": steps,
            "notes": self.notes,
        })
    }
}

impl fmt::Display for RequestTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALL: &str = "all";
        writeln!(f, "{}", self.title)?;
        let kinds = self.kinds();
        let width = kinds.iter().map(|kind| kind.len()).max().unwrap_or(0).max(ALL.len());
        write!(f, "  {:width$}", "")?;
        for step in &self.steps {
            write!(f, "  {:>8}", step.name)?;
        }
        writeln!(f)?;
        let mut row = |kind: &str, of: &dyn Fn(&Requests) -> u64| -> fmt::Result {
            write!(f, "  {kind:width$}")?;
            for step in &self.steps {
                let (count, width) = (step.per_file(of), step.name.len().max(8));
                write!(f, "  {count:>width$.3}")?;
            }
            writeln!(f)
        };
        let mut rare = Vec::new();
        for kind in kinds {
            let count = |requests: &Requests| requests.0.get(kind).copied().unwrap_or(0);
            match self.steps.iter().any(|step| step.per_file(count) >= SHOWN) {
                true => row(kind, &count)?,
                false => rare.push(kind),
            }
        }
        row(ALL, &Requests::all)?;
        if !rare.is_empty() {
            writeln!(f, "  (in less than one of {:.0} files: {})", 1.0 / SHOWN, rare.join(", "))?;
        }
        let files = self.steps.iter().map(|step| format!("{} {}", step.name, step.files));
        let files = files.collect::<Vec<_>>().join(", ");
        writeln!(f, "  (medians of the rounds, for each file; files: {files})")?;
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(kinds: &[(&str, u64)]) -> Requests {
        Requests(kinds.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect())
    }

    #[test]
    fn the_reading_of_the_counts_is_left_out() {
        let before = requests(&[("LOOKUP", 5), (ASKING, 2)]);
        let after = requests(&[("LOOKUP", 5), (ASKING, 3), ("MKNOD", 4)]);
        assert_eq!(after.since(&before).0, requests(&[("MKNOD", 4)]).0);
    }

    #[test]
    fn requests_are_counted_for_each_file() {
        let mut table = RequestTable::new("requests".into(), vec![]);
        table.add("tar x", 2, requests(&[("MKNOD", 2), ("LOOKUP", 3)]));
        table.add("rm -r", 4000, requests(&[("UNLINK", 4000), ("STATFS", 1)]));
        assert_eq!(table.per_file("tar x", "LOOKUP"), Some(1.5));
        assert_eq!(table.per_file("rm -r", "LOOKUP"), Some(0.0));
        assert_eq!(table.per_file("find", "LOOKUP"), None);
        let text = table.to_string();
        assert!(text.contains("LOOKUP     1.500     0.000"), "{text}");
        assert!(text.contains("all        2.500     1.000"), "{text}");
        assert!(text.contains("one of 1000 files: STATFS)"), "{text}");
        assert_eq!(table.json()["steps"][0]["requests"]["MKNOD"][0], 2);
        // Of two rounds, the median lies between.
        table.add("tar x", 2, requests(&[("MKNOD", 4), ("LOOKUP", 3)]));
        assert_eq!(table.per_file("tar x", "MKNOD"), Some(1.5));
    }
}
