//! Tables of several settings at several numbers of threads or clients, with the traffic to the
//! device and the cost of a crash.

use core::fmt;

use crate::traffic::{Durability, Traffic, crash_cost};

#[derive(Clone, Debug)]
pub struct Run {
    /// The figure that the table shows.
    pub rate: f64,
    /// The longest step, in milliseconds, if it was measured.
    pub worst_ms: Option<f64>,
    pub seconds: f64,
    pub steps: u64,
    /// The traffic to the device meanwhile.
    pub during: Traffic,
    /// The same, including that of a sync afterwards.
    pub all: Traffic,
}

/// A setting at a number of threads.
#[derive(Clone, Debug)]
pub struct Line {
    /// Threads or clients.
    pub threads: u32,
    pub name: &'static str,
    pub durability: Durability,
    pub runs: Vec<Run>,
}

impl Line {
    fn median(&self, of: impl Fn(&Run) -> f64) -> f64 {
        median(self.runs.iter().map(of).collect())
    }

    /// The median of the rounds' rates.
    pub fn rate(&self) -> f64 {
        self.median(|run| run.rate)
    }

    pub fn log_bytes_per_step(&self) -> f64 {
        self.median(|run| run.all.log_bytes as f64 / run.steps.max(1) as f64)
    }

    /// Writes of the log a second.
    pub fn log_iops(&self) -> f64 {
        self.median(|run| run.during.log_writes as f64 / run.seconds)
    }

    /// Megabytes of the log a second.
    pub fn log_mb(&self) -> f64 {
        self.median(|run| run.during.log_bytes as f64 / run.seconds / 1e6)
    }

    /// The cost of a crash at the end.
    pub fn crash_cost(&self) -> String {
        // The median round stands for all.
        let rate = self.rate();
        let off = |run: &&Run| (run.rate - rate).abs();
        let middle = self.runs.iter().min_by(|a, b| off(a).total_cmp(&off(b)));
        middle.map_or_else(String::new, |run| {
            crash_cost(self.durability, run.steps, run.during, run.all)
        })
    }
}

/// The middle of these, or between the two in the middle; 0 of none.
pub(crate) fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    let middle = |at: usize| all.get(at).copied().unwrap_or(0.0);
    f64::midpoint(middle(all.len() / 2), middle(all.len().saturating_sub(1) / 2))
}

#[derive(Clone, Debug)]
pub struct Table {
    pub title: String,
    /// The axis that lines differ in, apart from their setting: `threads` or `clients`.
    pub axis: &'static str,
    /// Unit of the rates.
    pub unit: &'static str,
    pub step: &'static str,
    pub lines: Vec<Line>,
    /// The setting that the others are compared with.
    pub base: &'static str,
    /// What was omitted, and why; other remarks.
    pub notes: Vec<String>,
}

impl Table {
    /// Adds a run to the line of a setting, and creates the line if it is missing.
    pub fn add(&mut self, threads: u32, name: &'static str, durability: Durability, run: Run) {
        let same = |line: &&mut Line| line.threads == threads && line.name == name;
        match self.lines.iter_mut().find(same) {
            Some(line) => line.runs.push(run),
            None => self.lines.push(Line { threads, name, durability, runs: vec![run] }),
        }
    }

    /// The base setting if it was measured, otherwise the first one.
    fn base(&self) -> &'static str {
        let measured = self.lines.iter().any(|line| line.name == self.base);
        self.lines.first().filter(|_| !measured).map_or(self.base, |line| line.name)
    }

    /// Ratio of a line's rate to that of the base at the same number of threads: the median of the
    /// rounds' ratios, because changes of the machine affect both sides of a round.
    pub fn ratio(&self, line: &Line) -> Option<f64> {
        let name = self.base();
        let base = self.lines.iter().find(|l| l.threads == line.threads && l.name == name)?;
        let pairs = line.runs.iter().zip(&base.runs).filter(|(_, base)| base.rate > 0.0);
        let ratios: Vec<f64> = pairs.map(|(run, base)| run.rate / base.rate).collect();
        (!ratios.is_empty()).then(|| median(ratios))
    }

    pub fn json(&self) -> serde_json::Value {
        let lines: Vec<serde_json::Value> = self
            .lines
            .iter()
            .map(|line| {
                let samples: Vec<f64> = line.runs.iter().map(|run| run.rate).collect();
                serde_json::json!({
                    self.axis: line.threads,
                    "name": line.name,
                    "samples": samples,
                    "median": line.rate(),
                    "ratio": self.ratio(line),
                    "max_latency_ms": line.runs.iter().filter_map(|r| r.worst_ms).reduce(f64::max),
                    "log_bytes_per_step": line.log_bytes_per_step(),
                    "log_writes_per_s": line.log_iops(),
                    "log_mb_per_s": line.log_mb(),
                    "device_writes_per_s":
                        line.median(|run| run.during.writes as f64 / run.seconds),
                    "device_mb_per_s":
                        line.median(|run| run.during.bytes as f64 / run.seconds / 1e6),
                    "flushes_per_s": line.median(|run| run.during.flushes as f64 / run.seconds),
                    "a_crash_could_cost": line.crash_cost(),
                })
            })
            .collect();
        serde_json::json!({
            "schema": "uxfs-bench-table",
            "version": 1,
            "title": self.title,
            "unit": self.unit,
            "step": self.step,
            "base": self.base(),
            "rows": lines,
            "notes": self.notes,
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let width = self.lines.iter().map(|l| l.name.len()).max().unwrap_or(0);
        let worst = self.lines.iter().any(|l| l.runs.iter().any(|r| r.worst_ms.is_some()));
        let log = format!("log B/{}", self.step);
        write!(f, "  {:>7}  {:width$}  {:>9}  {:>21}", self.axis, "", self.unit, "low to high")?;
        write!(f, "  {:>6}", "ratio")?;
        if worst {
            write!(f, "  {:>9}", "worst ms")?;
        }
        writeln!(
            f,
            "  {log:>12}  {:>9}  {:>8}  {:>9}  a crash at the end could cost",
            "log IOPS", "log MB/s", "flushes/s"
        )?;
        let mut threads = None;
        for line in &self.lines {
            if threads.replace(line.threads).is_some_and(|before| before != line.threads) {
                writeln!(f)?;
            }
            let places = if line.rate() >= 1000.0 { 0 } else { 1 };
            let rates = || line.runs.iter().map(|run| run.rate);
            let low = rates().reduce(f64::min).unwrap_or(0.0);
            let high = rates().reduce(f64::max).unwrap_or(0.0);
            let spread = format!("{low:.places$} to {high:.places$}");
            let rate = line.rate();
            write!(
                f,
                "  {:>7}  {:width$}  {rate:>9.places$}  {spread:>21}",
                line.threads, line.name
            )?;
            match self.ratio(line) {
                Some(ratio) => write!(f, "  {ratio:>5.2}x")?,
                None => write!(f, "  {:>6}", "")?,
            }
            if worst {
                let worst = line.runs.iter().filter_map(|run| run.worst_ms).reduce(f64::max);
                write!(f, "  {:>9.1}", worst.unwrap_or(0.0))?;
            }
            let flushes = line.median(|run| run.during.flushes as f64 / run.seconds);
            writeln!(
                f,
                "  {:>12.0}  {:>9.0}  {:>8.1}  {flushes:>9.0}  {}",
                line.log_bytes_per_step(),
                line.log_iops(),
                line.log_mb(),
                line.crash_cost(),
            )?;
        }
        writeln!(
            f,
            "  (medians of the rounds and of their ratios to {} with as many {})",
            self.base(),
            self.axis
        )?;
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
    fn a_change_that_affects_both_sides_of_a_round_cancels_out() {
        let during = Traffic::default();
        let run = |rate| Run { rate, worst_ms: None, seconds: 1.0, steps: 1, during, all: during };
        let (axis, unit, step) = ("threads", "/s", "create");
        let mut table = Table {
            title: "creates".into(),
            axis,
            unit,
            step,
            lines: vec![],
            base: "kernel",
            notes: vec![],
        };
        for (ours, theirs) in [(10.0, 5.0), (100.0, 50.0), (12.0, 6.0), (30.0, 10.0), (80.0, 20.0)]
        {
            table.add(1, "ours", Durability::Each, run(ours));
            table.add(1, "theirs", Durability::Each, run(theirs));
        }
        // Without the base, the first line is the base.
        assert_eq!(table.ratio(&table.lines[1]), Some(0.5));
        assert_eq!(table.ratio(&table.lines[0]), Some(1.0));
        assert!(table.to_string().contains("ratios to ours"), "{table}");
    }

    #[test]
    fn lines_are_compared_at_the_same_number_of_threads() {
        let mut table = Table {
            title: "creates".into(),
            axis: "threads",
            unit: "/s",
            step: "create",
            lines: vec![],
            base: "kernel",
            notes: vec![],
        };
        let run = |rate, log_bytes| {
            let during = Traffic { log_bytes, log_writes: 10, flushes: 2, ..Traffic::default() };
            Run { rate, worst_ms: None, seconds: 2.0, steps: 100, during, all: during }
        };
        let durability = Durability::Within(30);
        for (threads, rate) in [(1, 10.0), (2, 40.0)] {
            table.add(threads, "ours", durability, run(4.0 * rate, 1000));
            table.add(threads, "kernel", durability, run(rate, 3000));
            table.add(threads, "ours", durability, run(4.0 * rate, 1000));
        }
        assert_eq!(table.lines.len(), 4);
        assert_eq!(table.ratio(&table.lines[2]), Some(4.0));
        assert_eq!(table.lines[0].log_bytes_per_step(), 10.0);
        assert_eq!(table.json()["rows"][3]["log_writes_per_s"], 5.0);
        let text = table.to_string();
        assert!(text.contains("4.00x") && text.contains("the last 0 (0 %)"), "{text}");
    }
}
