//! Blocks of 4 KiB of a file, read and written one at a time in random order.
//!
//! 1. Accesses bypass the page cache (`O_DIRECT`), because otherwise the figures depend on how much
//!    of the file it happens to hold: so each is a request to a server, or one to the loop device.
//! 2. The image and the pass-through server's file stay in the host's page cache for all.
//! 3. Every block that is read is the one that was asked for.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use rustix::fs::OFlags;
use uxfs_testkit::Rng;

use super::options::Options;
use super::subject::{self, KERNEL, MOUNT, THROUGH};
use crate::host::Scratch;
use crate::settings::alternating;
use crate::{BenchError, Report, Result, Row};

const BLOCK: usize = 4096;
/// Blocks of a call that fills the file.
const FILL: u64 = 256;
/// Default length of the file.
const BYTES: u64 = 256 << 20;
/// Accesses of a round: one for this many blocks of the file.
const SHARE: u64 = 2;
const SEED: u64 = 18;
const READ: &str = "nothing written";
const STABLE: &str = "on stable storage at the end (one fsync included)";

/// Accesses a second: reads, writes.
type Rates = [f64; 2];

pub(super) fn run_all(
    options: &Options,
    scratch: &Scratch,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Report>> {
    let names = [MOUNT, THROUGH, KERNEL];
    let mut rows = [READ, STABLE].map(|cost| names.map(|name| Row::new(name, cost)));
    let blocks = (options.bytes.unwrap_or(BYTES) / BLOCK as u64).next_multiple_of(FILL).max(FILL);
    for round in 1..=options.rounds {
        say(&format!("random accesses, round {round} of {}", options.rounds));
        for (at, name) in alternating(round, [0, 1, 2].map(|at| (at, names[at]))) {
            let (rates, memory) = subject::with(name, options, scratch, |subject| {
                let rates = access(&subject.dir().join("random"), blocks, round)?;
                Ok((rates, subject.memory_kib()))
            })?;
            for (rows, rate) in rows.iter_mut().zip(rates) {
                rows[at].samples.push(rate);
                rows[at].memory_kib = rows[at].memory_kib.max(memory);
            }
        }
    }
    let size = (blocks * BLOCK as u64) >> 20;
    let reports = rows.into_iter().zip(["read", "written"]).map(|(rows, what)| Report {
        title: format!(
            "{} blocks of 4 KiB of a file of {size} MiB {what} in random order, one thread, O_DIRECT",
            blocks / SHARE
        ),
        unit: "/s",
        rows: rows.into(),
        base: THROUGH.into(),
        notes: vec!["the host's page cache holds the image or the backing file in all rows".into()],
    });
    Ok(reports.collect())
}

/// Fills a file, then reads and writes its blocks.
fn access(path: &Path, blocks: u64, round: u32) -> Result<Rates> {
    let fail = |e: std::io::Error| BenchError::new(path.display().to_string(), e);
    let mut call = vec![0x5a; BLOCK * FILL as usize];
    let mut file = File::create_new(path).map_err(fail)?;
    for first in (0..blocks).step_by(FILL as usize) {
        for (number, block) in (first..).zip(call.chunks_exact_mut(BLOCK)) {
            mark(block, number);
        }
        file.write_all(&call).map_err(fail)?;
    }
    file.sync_all().map_err(fail)?;
    drop(file);
    let flags = OFlags::DIRECT.bits().cast_signed();
    let file = File::options().read(true).write(true).custom_flags(flags).open(path);
    let file = file.map_err(fail)?;
    // O_DIRECT wants memory of this alignment.
    let mut room = vec![0; 2 * BLOCK];
    let start = room.as_ptr().align_offset(BLOCK);
    let block = room.get_mut(start..start + BLOCK);
    let block = block.ok_or_else(|| BenchError::new("memory", "cannot be aligned"))?;
    let count = (blocks / SHARE).max(1);
    let rate = |begun: Instant| count as f64 / begun.elapsed().as_secs_f64();
    // All rows of a round access the same blocks.
    let mut rng = Rng::spread(SEED + u64::from(round));
    let begun = Instant::now();
    for _ in 0..count {
        let number = rng.below(blocks);
        file.read_exact_at(block, number * BLOCK as u64).map_err(fail)?;
        if !is_marked(block, number) {
            return Err(BenchError::new(
                path.display().to_string(),
                format!("block {number} holds something else"),
            ));
        }
    }
    let read = rate(begun);
    let begun = Instant::now();
    for _ in 0..count {
        let number = rng.below(blocks);
        mark(block, number);
        file.write_all_at(block, number * BLOCK as u64).map_err(fail)?;
    }
    file.sync_all().map_err(fail)?;
    Ok([read, rate(begun)])
}

/// The start of a block.
fn label(number: u64) -> String {
    format!("{number:016}")
}

/// Writes a block's number into it.
fn mark(block: &mut [u8], number: u64) {
    let label = label(number);
    block[..label.len()].copy_from_slice(label.as_bytes());
}

fn is_marked(block: &[u8], number: u64) -> bool {
    block.starts_with(label(number).as_bytes())
}
