//! Overwriting with `fdatasync`: each client has a fully written file, overwrites its blocks one after
//! the other, and calls `fdatasync` after each.
//!
//! None of this needs the log. An `fdatasync` is the write of one block and a flush of the device,
//! and only the policy decides whether callers share a flush.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use uxfs::{Fs, NewInode, Result};
use uxfs_testkit::Rng;

use super::syncs::Load;
use super::{clients, fill, word};
use crate::durability::Ack;
use crate::setup::Lab;

/// Bytes of a write.
const PIECE: usize = 4096;
const DIR: &str = "overwrites";

/// The word that fills an overwritten block of a client's file.
fn mark(client: u32, block: u32) -> u64 {
    word(1 + (u64::from(client) << 20 | u64::from(block)))
}

fn blocks(load: Load) -> u32 {
    load.warmup + load.syncs
}

/// Creates the files and writes each from its first byte to its last.
///
/// # Errors
/// An error of the volume.
pub fn populate(fs: &Fs, load: Load) -> Result<()> {
    let home = fs.create(fs.root(), DIR.as_bytes(), &NewInode::dir(0o755))?;
    let content = fill(word(0), PIECE * blocks(load) as usize);
    for client in 0..load.clients {
        let ino = fs.create(home, client.to_string().as_bytes(), &NewInode::file(0o644))?;
        fs.write_at(ino, 0, &content)?;
    }
    Ok(())
}

/// Overwrites the files and returns syncs per second: the sum of the clients' own rates. With `direct`,
/// each block is written to the disk or its cache before the fdatasync.
///
/// # Errors
/// An error of the volume.
pub fn run(lab: &Arc<Lab>, load: Load, direct: bool) -> Result<f64> {
    let dir: Arc<str> = DIR.into();
    let home = lab.fs.lookup(lab.fs.root(), DIR.as_bytes())?;
    lab.begin();
    let sum = Arc::new(Mutex::new(0.0));
    let all = Arc::clone(&sum);
    clients(lab, load.clients, move |lab, client| {
        let name = client.to_string();
        let ino = lab.fs.lookup(home, name.as_bytes())?;
        let mut rng = Rng::spread(lab.seed ^ u64::from(client) << 9);
        let mut begun = lab.now();
        for block in 0..blocks(load) {
            if block == load.warmup {
                begun = lab.now();
                if client == 0 {
                    lab.begin();
                }
            }
            let half = load.think_us * 500;
            lab.sim.rest(Duration::from_nanos(half + rng.scaled(2 * half + 1)));
            let began = lab.now();
            let (word, from) = (mark(client, block), u64::from(block) * PIECE as u64);
            lab.write(ino, from, &fill(word, PIECE))?;
            if direct {
                lab.fs.write_back_file(ino)?;
            }
            lab.fdatasync(ino)?;
            if block >= load.warmup {
                lab.took(began);
            }
            let (at, until, dir, name) = (lab.now(), u64::MAX, Arc::clone(&dir), name.clone());
            let size = from + PIECE as u64;
            let logged = false;
            lab.ack(Ack { began, at, until, synced: true, dir, name, from, size, word, logged });
        }
        *all.lock() += f64::from(load.syncs) / ((lab.now() - begun) as f64 / 1e9);
        Ok(())
    })?;
    lab.end();
    let rate = *sum.lock();
    Ok(rate)
}
