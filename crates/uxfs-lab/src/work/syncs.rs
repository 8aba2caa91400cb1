//! Appending with `fsync`: each client appends a block to its own file, calls `fsync`, pauses, and
//! repeats.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use uxfs::{NewInode, Result};
use uxfs_testkit::Rng;

use super::{clients, fill, word};
use crate::durability::Ack;
use crate::setup::Lab;

/// The parameters of the workload.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub clients: u32,
    /// Counted syncs per client.
    pub syncs: u32,
    /// Syncs before these that are not counted, in which an adaptive policy can learn.
    pub warmup: u32,
    /// Mean pause between two syncs, in microseconds.
    pub think_us: u64,
}

/// Bytes of a write.
const PIECE: usize = 4096;

/// Runs the workload and returns syncs per second: the sum of the clients' own rates.
///
/// # Errors
/// An error of the volume.
pub fn run(lab: &Arc<Lab>, load: Load) -> Result<f64> {
    let dir: Arc<str> = "syncs".into();
    let home = lab.fs.create(lab.fs.root(), dir.as_bytes(), &NewInode::dir(0o755))?;
    let mut files = Vec::new();
    for number in 0..load.clients {
        files.push(lab.fs.create(home, number.to_string().as_bytes(), &NewInode::file(0o644))?);
    }
    let ticket = lab.fs.begin_sync()?;
    lab.fs.wait(ticket)?;
    lab.begin();
    let sum = Arc::new(Mutex::new(0.0));
    let all = Arc::clone(&sum);
    clients(lab, load.clients, move |lab, number| {
        let (ino, mut rng) =
            (files[number as usize], Rng::spread(lab.seed ^ u64::from(number) << 8));
        let mut begun = lab.now();
        let word = word(u64::from(number));
        for sync in 0..load.warmup + load.syncs {
            if sync == load.warmup {
                begun = lab.now();
                if number == 0 {
                    lab.begin();
                }
            }
            if load.think_us > 0 {
                let half = load.think_us * 500;
                lab.sim.rest(Duration::from_nanos(half + rng.scaled(2 * half)));
            }
            let began = lab.now();
            lab.write(ino, u64::from(sync) * PIECE as u64, &fill(word, PIECE))?;
            lab.fsync(ino)?;
            if sync >= load.warmup {
                lab.took(began);
            }
            let size = u64::from(sync + 1) * PIECE as u64;
            let (at, until, dir, name) =
                (lab.now(), u64::MAX, Arc::clone(&dir), number.to_string());
            // All blocks of a file hold the same word, so content cannot prove a sync; the size can.
            lab.touch(&dir, &name);
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
        }
        *all.lock() += f64::from(load.syncs) / ((lab.now() - begun) as f64 / 1e9);
        Ok(())
    })?;
    lab.end();
    let rate = *sum.lock();
    Ok(rate)
}
