//! A large file, written and read from start to end: the mount against a server that forwards to
//! files of the host.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use super::options::Options;
use super::subject::{self, MOUNT, THROUGH};
use crate::host::{Scratch, drop_from_cache};
use crate::{BenchError, Report, Result, Row};

/// Default length of the file.
const BYTES: u64 = 1 << 30;
const HOST: &str = "host file, no FUSE";
const STABLE: &str = "on stable storage (fsync included)";
const READ: &str = "nothing written";
/// Bytes of one call.
const CALL: usize = 1 << 20;

/// Rates of a file in MB/s: written, read from the server, read from the page cache.
type Rates = [f64; 3];

pub(super) fn run_all(
    options: &Options,
    scratch: &Scratch,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Report>> {
    let titles = ["written, with fsync", "read from the server", "read again, from the page cache"];
    let mut rows: Vec<Vec<Row>> = [STABLE, READ, READ]
        .iter()
        .map(|cost| [MOUNT, THROUGH, HOST].iter().map(|name| Row::new(*name, *cost)).collect())
        .collect();
    for round in 1..=options.rounds {
        say(&format!("a large file, round {round} of {}", options.rounds));
        for (at, name) in [MOUNT, THROUGH, HOST].iter().enumerate() {
            let (rates, memory) = one(options, scratch, name)?;
            for (rows, rate) in rows.iter_mut().zip(rates) {
                rows[at].samples.push(rate);
                rows[at].memory_kib = rows[at].memory_kib.max(memory);
            }
        }
    }
    let size = options.bytes.unwrap_or(BYTES) >> 20;
    let reports = rows.into_iter().zip(titles).map(|(rows, what)| Report {
        title: format!("a file of {size} MiB {what}, {} KiB a call", CALL >> 10),
        unit: "MB/s",
        rows,
        base: if what.contains("again") { HOST.into() } else { THROUGH.into() },
        notes: vec!["the host's page cache holds the backing file in all rows".into()],
    });
    Ok(reports.collect())
}

fn one(options: &Options, scratch: &Scratch, name: &str) -> Result<(Rates, Option<u64>)> {
    let bytes = options.bytes.unwrap_or(BYTES);
    fill_page_cache(&scratch.file("warm"), 2 * bytes)?;
    if name == HOST {
        return Ok((stream(&scratch.file("large"), bytes)?, None));
    }
    subject::with(name, options, scratch, |subject| {
        Ok((stream(&subject.dir().join("large"), bytes)?, subject.memory_kib()))
    })
}

/// Fills the page cache with data that is dropped at once. In a virtual machine, memory that was
/// not used for some time belongs to its host, and the first use costs many times a copy. A mount
/// takes twice the file: in its own cache and in the host file's.
fn fill_page_cache(path: &Path, bytes: u64) -> Result<()> {
    let fail = |e: std::io::Error| BenchError::new(path.display().to_string(), e);
    let call = vec![0x5a_u8; CALL];
    let mut file = File::create(path).map_err(fail)?;
    for _ in 0..bytes.div_ceil(CALL as u64) {
        file.write_all(&call).map_err(fail)?;
    }
    std::fs::remove_file(path).map_err(fail)
}

fn stream(path: &Path, bytes: u64) -> Result<Rates> {
    let fail = |e: std::io::Error| BenchError::new(path.display().to_string(), e);
    let rate = |begun: Instant| bytes as f64 / 1e6 / begun.elapsed().as_secs_f64();
    let mut call = vec![0x5a_u8; CALL];
    let begun = Instant::now();
    let mut file = File::create(path).map_err(fail)?;
    let mut left = bytes;
    while left > 0 {
        let len = left.min(CALL as u64) as usize;
        file.write_all(&call[..len]).map_err(fail)?;
        left -= len as u64;
    }
    file.sync_all().map_err(fail)?;
    let written = rate(begun);
    drop(file);
    drop_from_cache(path)?;
    let mut read = || -> Result<f64> {
        let mut file = File::open(path).map_err(fail)?;
        let begun = Instant::now();
        while file.read(&mut call).map_err(fail)? > 0 {}
        Ok(rate(begun))
    };
    let rates = [written, read()?, read()?];
    std::fs::remove_file(path).map_err(fail)?;
    Ok(rates)
}
