//! Workloads: the operations of simulated clients on a volume, in virtual time.

pub mod age;
pub mod build;
pub mod database;
pub mod dbench;
pub mod fs_mark;
pub mod mail;
pub mod overwrites;
pub mod recording;
pub mod replay;
pub mod syncs;
pub mod tree;

use std::sync::Arc;

use parking_lot::Mutex;
use uxfs::Result;

use crate::setup::Lab;

/// The word that fills the file of this number, so that a page on the disk identifies its file. No
/// byte of it is zero, so that the end of the content is visible.
pub fn word(number: u64) -> u64 {
    let digits = (0..5).map(|at| ((number >> (7 * at)) & 0x7f | 0x80) << (8 * at));
    digits.fold(0x4c41_4200_0000_0000, |word, digit| word | digit)
}

/// `len` bytes that repeat a word.
pub fn fill(word: u64, len: usize) -> Vec<u8> {
    let bytes = word.to_le_bytes();
    let mut all = vec![0; len];
    for chunk in all.chunks_mut(8) {
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
    all
}

/// Runs `count` clients at the same time and waits for all of them.
///
/// # Errors
/// The first error of a client.
pub fn clients(
    lab: &Arc<Lab>,
    count: u32,
    client: impl Fn(&Arc<Lab>, u32) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let client = Arc::new(client);
    let failed: Arc<Mutex<Option<uxfs::Error>>> = Arc::default();
    let joins: Vec<_> = (0..count)
        .map(|number| {
            let (lab2, client, failed) =
                (Arc::clone(lab), Arc::clone(&client), Arc::clone(&failed));
            lab.sim.start(move || {
                if let Err(error) = client(&lab2, number) {
                    failed.lock().get_or_insert(error);
                }
            })
        })
        .collect();
    joins.into_iter().for_each(|join| join());
    match failed.lock().take() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
