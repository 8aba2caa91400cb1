//! A database's commits: connections append records to one log file and call `fdatasync`. From time to
//! time each writes random pages of a table and calls `fsync` on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use uxfs::format::Ino;
use uxfs::{NewInode, Result};
use uxfs_testkit::Rng;

use super::{clients, fill, word};
use crate::durability::Ack;
use crate::setup::Lab;

/// The parameters of the workload.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The number of connections.
    pub clients: u32,
    /// Counted commits per connection.
    pub commits: u32,
    /// Commits before these that are not counted, in which an adaptive policy can learn.
    pub warmup: u32,
    /// Mean time between two commits, in microseconds.
    pub think_us: u64,
}

/// Connections begin at random times within this many nanoseconds.
const START: u64 = 200_000_000;
/// Bytes of a log record.
const RECORD: u64 = 4096;
/// Bytes of a table's page, and the number of pages.
const PAGE: u64 = 8192;
const PAGES: u64 = 4096;
/// A connection writes pages after each `EVERY` commits, and `DIRTY` of them.
const EVERY: u32 = 50;
const DIRTY: u32 = 8;

/// Runs the workload and returns commits per second: the sum of the connections' own rates.
///
/// # Errors
/// An error of the volume.
pub fn run(lab: &Arc<Lab>, load: Load) -> Result<f64> {
    let dir: Arc<str> = "db".into();
    let home = lab.put(lab.fs.root(), &dir, &NewInode::dir(0o700))?;
    let log = lab.put(home, "log", &NewInode::file(0o600))?;
    let table = lab.put(home, "table", &NewInode::file(0o600))?;
    // Write the whole table, because overwriting written blocks changes no metadata.
    let piece = fill(word(0), (PAGE * 32) as usize);
    for number in 0..PAGES / 32 {
        lab.fill(table, number * PAGE * 32, &piece)?;
    }
    lab.durable()?;
    lab.begin();
    let (next, durable) = (AtomicU64::new(0), AtomicU64::new(0));
    let sum = Arc::new(Mutex::new(0.0));
    let all = Arc::clone(&sum);
    clients(lab, load.clients, move |lab, number| {
        let mut rng = Rng::spread(lab.seed ^ u64::from(number) << 10);
        let record = fill(word(1 + u64::from(number)), RECORD as usize);
        let mut begun = lab.now();
        // Connections that began at the same time would stay in step.
        lab.sim.rest(Duration::from_nanos(rng.scaled(START)));
        for commit in 0..load.warmup + load.commits {
            if commit == load.warmup {
                begun = lab.now();
                if number == 0 {
                    lab.begin();
                }
            }
            let half = load.think_us * 500;
            lab.sim.rest(Duration::from_nanos(half + rng.scaled(2 * half + 1)));
            let began = lab.now();
            let at = next.fetch_add(RECORD, Ordering::Relaxed);
            lab.write(log, at, &record)?;
            lab.fdatasync(log)?;
            if commit >= load.warmup {
                lab.took(began);
            }
            let end = at + RECORD;
            let size = durable.fetch_max(end, Ordering::Relaxed).max(end);
            // All records of a connection hold the same word, so content cannot prove a commit; the size can.
            lab.touch(&dir, "log");
            let (at, until, dir, name) = (lab.now(), u64::MAX, Arc::clone(&dir), "log".into());
            lab.ack(Ack {
                began,
                at,
                until,
                synced: true,
                dir,
                name,
                from: 0,
                size,
                word: 0,
                logged: true,
            });
            if commit % EVERY == EVERY - 1 {
                pages(lab, table, number, commit, &mut rng)?;
            }
        }
        *all.lock() += f64::from(load.commits) / ((lab.now() - begun) as f64 / 1e9);
        Ok(())
    })?;
    lab.end();
    let rate = *sum.lock();
    Ok(rate)
}

/// Overwrites random pages of the table and syncs it. The content tells the commit after which it was written.
fn pages(lab: &Arc<Lab>, table: Ino, number: u32, commit: u32, rng: &mut Rng) -> Result<()> {
    let page = fill(word(1 << 32 | u64::from(number) << 16 | u64::from(commit)), PAGE as usize);
    for _ in 0..DIRTY {
        lab.write(table, rng.scaled(PAGES) * PAGE, &page)?;
    }
    lab.fsync(table)
}
