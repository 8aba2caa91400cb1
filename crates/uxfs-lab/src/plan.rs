//! Runs experiments: rows in parallel, and the result made from them.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::durability::{Durability, judge};
use crate::outcome::{Cell, Column, Row, Series};
use crate::setup::{RunResult, Setup};
use crate::sim::Kind;
use crate::{LabError, Result};

/// Bytes of stack of a thread that runs a row.
const STACK: usize = 64 << 20;

#[derive(Clone, Debug, Default)]
pub struct Found {
    pub figures: BTreeMap<String, f64>,
    pub durability: Option<Durability>,
    pub points: BTreeMap<String, Vec<(f64, f64)>>,
    /// The durability of the figures, where none was derived.
    pub worth: Option<String>,
}

impl Found {
    /// The figures common to all runs: rates of requests, bytes and the log; latencies; durability.
    pub fn of<R>(ran: &RunResult<R>, setup: &Setup) -> Self {
        let mut found = Self::default();
        let seconds = ran.seconds().max(1e-9);
        let during =
            ran.trace.events.iter().filter(|e| e.asked >= ran.begun && e.asked <= ran.ended);
        let (mut requests, mut bytes, mut reads) = (0u64, 0u64, 0u64);
        let (mut log_requests, mut log_during, mut seek, mut last) = (0u64, 0u64, 0u64, None);
        for event in during.filter(|e| e.kind != Kind::Flush) {
            requests += 1;
            bytes += event.len;
            reads += u64::from(event.kind == Kind::Read);
            if event.kind != Kind::Read && ran.log.contains(&event.at) {
                log_requests += 1;
                log_during += event.len;
            }
            if let Some(last) = last.replace(event.at + event.len) {
                seek += event.at.abs_diff(last);
            }
        }
        // The log bytes of the work, even if written after its end. Rates are of the measured part.
        let log =
            ran.trace.writes().filter(|(_, e)| ran.log.contains(&e.at) && e.asked >= ran.begun);
        let log_bytes: u64 = log.map(|(_, e)| e.len).sum();
        let per_s = |n: u64| n as f64 / seconds;
        found.set("seconds", seconds);
        found.set("iops", per_s(requests));
        found.set("mb_s", per_s(bytes) / 1e6);
        found.set("reads", reads as f64);
        found.set("requests", requests as f64);
        found.set("log_iops", per_s(log_requests));
        found.set("log_bytes", log_bytes as f64);
        found.set("log_mb_s", per_s(log_during) / 1e6);
        found.set("seek_gb", seek as f64 / requests.max(1) as f64 / 1e9);
        found.set("cpu", ran.busy_ns as f64 / 1e7 / seconds);
        for (key, percent) in [("p50_ms", 50.0), ("p99_ms", 99.0), ("max_ms", 100.0)] {
            if !ran.latencies.is_empty() {
                found.set(key, ran.percentile_ms(percent));
            }
        }
        let durability = judge(ran, setup.cuts, setup.seed);
        found.set("flushes_s", per_s(durability.flushes));
        found.set("flushes", durability.flushes as f64);
        found.durability = Some(durability);
        found
    }

    /// The figures of runs that differ only by the seed: means, of `max_ms` the greatest, the lowest
    /// durability, and as `low` and `high` the least and the greatest value of one figure. Charts are
    /// of the first run.
    pub fn mean(mut all: Vec<Self>, of: &str) -> Self {
        let range = |most: fn(f64, f64) -> f64| all.iter().filter_map(|f| f.get(of)).reduce(most);
        let (low, high) = (range(f64::min), range(f64::max));
        let durability = all.iter_mut().filter_map(|f| f.durability.take()).reduce(Durability::and);
        let mut mean = all.first().cloned().unwrap_or_default();
        for (key, value) in &mut mean.figures {
            let values: Vec<f64> = all.iter().filter_map(|f| f.get(key)).collect();
            *value = match key.as_str() {
                "max_ms" => values.iter().copied().fold(*value, f64::max),
                _ => values.iter().sum::<f64>() / values.len() as f64,
            };
        }
        mean.durability = durability;
        for (key, value) in [("low", low), ("high", high)] {
            value.into_iter().for_each(|value| mean.set(key, value));
        }
        mean
    }

    pub fn set(&mut self, key: &str, value: f64) {
        self.figures.insert(key.into(), value);
    }

    pub fn get(&self, key: &str) -> Option<f64> {
        self.figures.get(key).copied()
    }

    /// Stores, for charts, the requests over time: seconds and offset in gigabytes. At most some
    /// hundred, evenly chosen.
    pub fn store_offsets<R>(&mut self, ran: &RunResult<R>) {
        let all: Vec<_> = ran
            .trace
            .events
            .iter()
            .filter(|e| e.kind != Kind::Flush && e.asked >= ran.begun && e.asked <= ran.ended)
            .collect();
        let step = all.len().div_ceil(700).max(1);
        let offset = |e: &&crate::sim::Event| {
            let seconds = (e.asked - ran.begun) as f64 / 1e9;
            (rounded(seconds), rounded(e.at as f64 / 1e9))
        };
        self.points.insert("places".into(), all.iter().step_by(step).map(offset).collect());
    }

    /// Stores, for charts, requests and megabytes per second over time, in this many steps.
    pub fn store_throughput<R>(&mut self, ran: &RunResult<R>, steps: usize) {
        let span = (ran.ended - ran.begun).max(1);
        let mut counts = vec![(0u64, 0u64); steps];
        let during = ran
            .trace
            .events
            .iter()
            .filter(|e| e.kind != Kind::Flush && e.asked >= ran.begun && e.asked < ran.ended);
        for event in during {
            let at = u128::from(event.asked - ran.begun) * steps as u128 / u128::from(span);
            let step = &mut counts[at as usize];
            *step = (step.0 + 1, step.1 + event.len);
        }
        let length = span as f64 / 1e9 / steps as f64;
        let points = |of: fn(&(u64, u64)) -> f64| -> Vec<(f64, f64)> {
            let point = |(at, step): (usize, &(u64, u64))| {
                (rounded((at as f64 + 0.5) * length), rounded(of(step) / length))
            };
            counts.iter().enumerate().map(point).collect()
        };
        self.points.insert("iops".into(), points(|step| step.0 as f64));
        self.points.insert("mb_s".into(), points(|step| step.1 as f64 / 1e6));
    }

    /// Stores, for charts, the distribution of latencies in milliseconds.
    pub fn store_latencies<R>(&mut self, ran: &RunResult<R>) {
        let mut all = ran.latencies.clone();
        all.sort_unstable();
        let point = |at: usize| {
            let part = (at * (all.len() - 1)) / 60;
            (rounded(all[part] as f64 / 1e6), rounded((part + 1) as f64 / all.len() as f64 * 100.0))
        };
        if !all.is_empty() {
            self.points.insert("latency".into(), (0..=60).map(point).collect());
        }
    }
}

/// Four digits are enough for a chart.
pub fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

pub struct Job {
    pub group: String,
    pub name: String,
    pub run: Box<dyn FnOnce() -> Result<Found> + Send>,
}

impl Job {
    pub fn new(
        group: impl Into<String>,
        name: impl Into<String>,
        run: impl FnOnce() -> Result<Found> + Send + 'static,
    ) -> Self {
        Self { group: group.into(), name: name.into(), run: Box::new(run) }
    }
}

#[derive(Clone, Debug)]
pub struct Done {
    pub group: String,
    pub name: String,
    pub found: Found,
}

#[derive(Clone, Debug, Default)]
pub struct Rows(pub Vec<Done>);

impl Rows {
    pub fn get(&self, group: &str, name: &str, key: &str) -> Option<f64> {
        let row = self.0.iter().find(|row| row.group == group && row.name == name)?;
        row.found.get(key)
    }

    /// The quotient of two figures.
    pub fn ratio(&self, key: &str, over: (&str, &str), under: (&str, &str)) -> Option<f64> {
        let under = self.get(under.0, under.1, key)?;
        let over = self.get(over.0, over.1, key)?;
        (under > 0.0).then_some(over / under)
    }

    /// The series of a group for a chart: the points with this key of each of its rows.
    pub fn series(&self, group: &str, key: &str) -> Vec<Series> {
        let of = self.0.iter().filter(|row| row.group == group);
        of.filter_map(|row| {
            let points = row.found.points.get(key)?.clone();
            let worth = self.worth(|other| other.group == group && other.name == row.name);
            Some(Series { name: row.name.clone(), points, post: false, worth })
        })
        .collect()
    }

    /// The lowest durability of some rows.
    pub fn worth(&self, wanted: impl Fn(&Done) -> bool) -> String {
        let rows = || self.0.iter().filter(|row| wanted(row));
        let derived = rows().filter_map(|row| row.found.durability.clone());
        match derived.reduce(Durability::and) {
            Some(all) => all.label(),
            None => rows().find_map(|row| row.found.worth.clone()).unwrap_or_default(),
        }
    }

    /// As rows of a table.
    pub fn table(
        &self,
        how: &How,
        experiment: &str,
        columns: &[Column],
        post: impl Fn(&str, &str, &str) -> Option<f64>,
    ) -> Vec<Row> {
        let row = |done: &Done| {
            let cell = |column: &Column| Cell {
                ours: done.found.get(&column.key).map(|value| round_to(value, column.digits)),
                post: post(&done.group, &done.name, &column.key),
            };
            let durability = done.found.durability.clone();
            Row {
                group: done.group.clone(),
                name: done.name.clone(),
                cells: columns.iter().map(cell).collect(),
                worth: match (&durability, &done.found.worth) {
                    (Some(d), _) => d.label(),
                    (None, Some(worth)) => worth.clone(),
                    (None, None) => String::new(),
                },
                checked: durability
                    .as_ref()
                    .map_or_else(|| "not checked".into(), Durability::checked),
                failed: durability.as_ref().is_some_and(|d| d.failed),
                durability,
                repeat: format!(
                    "uxfs lab run {experiment} --seed {} --only '{} / {}'",
                    how.seed, done.group, done.name
                ),
            }
        };
        self.0.iter().map(row).collect()
    }
}

fn round_to(value: f64, digits: usize) -> f64 {
    let scale = (0..digits).fold(1.0, |scale, _| scale * 10.0);
    (value * scale).round() / scale
}

#[derive(Clone, Debug)]
pub struct How {
    /// The seed of all random numbers.
    pub seed: u64,
    /// Rows run in parallel. The result does not depend on it.
    pub jobs: NonZeroUsize,
    /// Only rows whose group and name contain this.
    pub only: String,
    /// Power cuts per row.
    pub cuts: u32,
    /// dbench's load, if not the one found or the lab's own.
    pub load: Option<std::path::PathBuf>,
    /// The trace of `git` and `compile`, if not the lab's own.
    pub trace: Option<std::path::PathBuf>,
    /// The archive whose tree `tar-star` extracts, if not the lab's own tree.
    pub tar: Option<std::path::PathBuf>,
    /// The file systems to compare in real time; none for modelled disks in virtual time.
    pub on: Vec<crate::real::Peer>,
    /// The directory of the files for real time.
    pub dir: std::path::PathBuf,
}

impl How {
    /// This seed, with all defaults.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            jobs: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            only: String::new(),
            cuts: 8,
            load: None,
            trace: None,
            tar: None,
            on: Vec::new(),
            dir: ".".into(),
        }
    }
}

/// Receives progress.
pub trait Progress: Sync {
    fn expect(&self, rows: usize);
    fn ran(&self, row: &str);
    /// Should the run stop?
    fn stop(&self) -> bool {
        false
    }
}

/// Ignores progress.
pub struct NoProgress;

impl Progress for NoProgress {
    fn expect(&self, _rows: usize) {}
    fn ran(&self, _row: &str) {}
}

/// Runs rows, several in parallel.
///
/// # Errors
/// The first error of a row.
pub fn run(how: &How, jobs: Vec<Job>, progress: &dyn Progress) -> Result<Rows> {
    let wanted = |job: &Job| format!("{} / {}", job.group, job.name).contains(&how.only);
    let jobs: Vec<Job> = jobs.into_iter().filter(wanted).collect();
    progress.expect(jobs.len());
    let count = jobs.len();
    let jobs: Vec<Mutex<Option<Job>>> = jobs.into_iter().map(|job| Mutex::new(Some(job))).collect();
    let done: Vec<Mutex<Option<Result<Done>>>> = (0..count).map(|_| Mutex::default()).collect();
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..how.jobs.get().min(count) {
            let worker = || loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= count || failed.load(Ordering::Relaxed) || progress.stop() {
                    break;
                }
                let Some(job) = jobs[at].lock().take() else { break };
                let Job { group, name, run } = job;
                let label = format!("{group} / {name}");
                let found = run().map_err(|e| LabError::new(format!("{label}: {}", e.what), e.why));
                failed.fetch_or(found.is_err(), Ordering::Relaxed);
                *done[at].lock() = Some(found.map(|found| Done { group, name, found }));
                progress.ran(&label);
            };
            let spawned = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, worker);
            // Without a new thread, this one runs the row.
            if spawned.is_err() {
                worker();
            }
        }
    });
    let mut rows = Vec::new();
    for slot in done {
        match slot.into_inner() {
            Some(row) => rows.push(row?),
            None if progress.stop() => {
                return Err(LabError::new("the experiment", "was interrupted"));
            }
            None => {}
        }
    }
    Ok(Rows(rows))
}

/// Writes the result of an experiment into a directory: as JSON, from which the report is made, and
/// as CSV.
///
/// # Errors
/// If it cannot be written.
pub fn keep(dir: &std::path::Path, found: &crate::outcome::Experiment) -> Result<()> {
    let failed = |e: std::io::Error| LabError::new(dir.display().to_string(), e);
    std::fs::create_dir_all(dir).map_err(failed)?;
    let json = serde_json::to_string_pretty(found).map_err(|e| LabError::new("JSON", e))?;
    // Atomically, so that an interrupt leaves nothing half written.
    for (end, content) in [("json", json + "\n"), ("csv", found.csv())] {
        let path = dir.join(format!("{}.{end}", found.name));
        let part = dir.join(format!(".{}.{end}.part", found.name));
        std::fs::write(&part, content).map_err(failed)?;
        std::fs::rename(&part, &path).map_err(failed)?;
    }
    Ok(())
}
