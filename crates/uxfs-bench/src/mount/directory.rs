//! One directory with very many files: the cost of an entry, against a directory of ten thousand.

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use super::options::Options;
use super::served::Served;
use super::unsynced::Unsynced;
use crate::host::Scratch;
use crate::{BenchError, Report, Result, Row};

/// Entries of the smaller directory.
const BASE_ENTRIES: u32 = 10_000;
const ACTIONS: [&str; 3] = ["made", "listed", "removed"];

pub(super) fn run_all(
    options: &Options,
    unsynced: Unsynced,
    scratch: &Scratch,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Report>> {
    let counts = [BASE_ENTRIES, options.entries.max(BASE_ENTRIES)];
    let names = counts.map(|count| format!("of {count}"));
    let mut rows: Vec<Vec<Row>> = ACTIONS
        .iter()
        .map(|_| names.iter().map(|name| Row::new(name, unsynced.of_metadata())).collect())
        .collect();
    for round in 1..=options.rounds {
        say(&format!("a large directory, round {round} of {}", options.rounds));
        for (at, count) in counts.into_iter().enumerate() {
            let served = Served::volume(&options.uxfs, scratch, options.size, &options.options)?;
            let costs = fill(&served.dir.join("large"), count, counts[1] / count);
            let memory = served.memory_kib();
            served.done()?;
            for (rows, cost) in rows.iter_mut().zip(costs?) {
                rows[at].samples.push(cost);
                rows[at].memory_kib = rows[at].memory_kib.max(memory);
            }
        }
    }
    let reports = rows.into_iter().zip(ACTIONS).map(|(rows, what)| Report {
        title: format!("an entry of a large directory {what}, one thread, -o {}", options.options),
        unit: "us",
        rows,
        base: names[0].clone(),
        notes: vec!["memory is the largest resident memory of the mount's process".into()],
    });
    Ok(reports.collect())
}

/// Microseconds per entry: create, list, remove. Short lists are repeated to take about as long, so
/// that other work of the machine affects both.
fn fill(dir: &Path, count: u32, times: u32) -> Result<[f64; 3]> {
    let fail = |e: std::io::Error| BenchError::new(dir.display().to_string(), e);
    let cost = |begun: Instant| begun.elapsed().as_secs_f64() * 1e6 / f64::from(count);
    let name = |n: u32| dir.join(format!("entry-{n:08}-of-a-large-directory"));
    std::fs::create_dir(dir).map_err(fail)?;
    let begun = Instant::now();
    for n in 0..count {
        File::create_new(name(n)).map_err(fail)?;
    }
    let made = cost(begun);
    let begun = Instant::now();
    for _ in 0..times {
        let mut seen = 0;
        for entry in std::fs::read_dir(dir).map_err(fail)? {
            entry.map_err(fail)?;
            seen += 1;
        }
        if seen != count {
            return Err(BenchError::new("listing", format!("{seen} of {count} entries")));
        }
    }
    let listed = cost(begun) / f64::from(times);
    let begun = Instant::now();
    for n in 0..count {
        std::fs::remove_file(name(n)).map_err(fail)?;
    }
    Ok([made, listed, cost(begun)])
}
