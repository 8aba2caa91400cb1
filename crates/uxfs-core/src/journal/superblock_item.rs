//! The superblock in the log: its sector, as a buffer log item.
//!
//! 1. The AIL push writes the sector that was logged last, if its checkpoint is durable: what changed in
//!    memory since must not be in place before it is in the log.

use uxfs_format::Daddr;
use uxfs_format::log::{BufItem, BufType, CHUNK};
use uxfs_journal::Regions;

use super::ImmediateWriter;
use super::item::{Cil, Handle};
use crate::mount::Mount;

/// Bytes of the superblock that are logged: all of it, in whole chunks.
const LOGGED: usize = 384;
/// Bytes of the superblock item.
pub(super) const BYTES: u64 = 24 + LOGGED as u64;

/// Adds the superblock, which changed in more than its counters.
pub(crate) fn add(cil: &mut Cil, fs: &Mount) {
    cil.superblock_now = true;
    let slot = match cil.superblock {
        Some(slot) => slot,
        None => {
            cil.account(2, BYTES);
            let slot = cil.add(Handle::Superblock);
            *cil.superblock.insert(slot)
        }
    };
    let sector = fs.log_superblock(cil.seq.0);
    cil.copy_regions(slot, |regions| {
        write(&sector, regions);
        Ok(())
    });
}

/// Ends a transaction of immediate logging, which holds the superblock if it changed.
pub(crate) fn end(mut writer: ImmediateWriter<'_>, fs: &Mount) {
    if writer.take_superblock()
        && let Some(sector) = fs.logged_superblock(u64::MAX)
    {
        writer.object(|records| {
            write(&sector, records);
            Ok(())
        });
    }
    writer.end();
}

/// Writes the superblock item.
fn write(sector: &[u8], records: &mut dyn Regions) {
    let mut item = BufItem::new(BufType::Superblock, Daddr(0), sector.len());
    (0..LOGGED / CHUNK).for_each(|chunk| item.set_chunk(chunk));
    records.region(&item.encode());
    records.region(&sector[..LOGGED]);
}
