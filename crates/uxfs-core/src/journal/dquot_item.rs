//! Dquots in the log: the record, without checksum and LSN (XFS' dquot log item).

use uxfs_format::dquot::LOGGED_LEN;
use uxfs_format::log::DquotItem;
use uxfs_journal::Regions;

use super::item::{Cil, Handle};
use crate::dquot::{Change, Dquot, DquotRef, DquotState, Quota};
use crate::mount::Mount;

/// Bytes of a dquot's item.
const BYTES: u64 = 24 + LOGGED_LEN as u64;
/// Regions of a dquot's item.
const REGIONS: u64 = 2;
/// Most log space of a dquot's item, with its operation headers.
pub(crate) const MOST: u64 = BYTES + REGIONS * 12;

/// Changes a dquot, and adds it to the open checkpoint.
pub(crate) fn add(cil: &mut Cil, fs: &Mount, quota: &Quota, dquot: &DquotRef, change: &Change) {
    let mut state = dquot.apply(change, quota, fs.now().sec.max(0) as u64);
    if state.dirty && (cil.is_immediate() || state.changed != cil.seq.0) {
        cil.relog(LOGGED_LEN as u64);
    }
    state.dirty = true;
    if state.changed != cil.seq.0 {
        state.changed = cil.seq.0;
        cil.account(REGIONS, BYTES);
        state.slot = cil.add(Handle::Dquot(dquot.clone()));
    }
    cil.copy_regions(state.slot, |regions| {
        put(fs, dquot, &state, regions);
        Ok(())
    });
}

/// Writes the item of a dquot in its present state.
pub(crate) fn write(fs: &Mount, dquot: &Dquot, regions: &mut dyn Regions) {
    put(fs, dquot, &dquot.state.lock(), regions);
}

fn put(fs: &Mount, dquot: &Dquot, state: &DquotState, regions: &mut dyn Regions) {
    let mut record = [0; LOGGED_LEN];
    state.record.encode(&mut record, &fs.geo);
    let item = DquotItem {
        id: dquot.id,
        blkno: dquot.buf.daddr(),
        len: (dquot.buf.len() >> fs.geo.block_log) as i32,
        boffset: dquot.offset as u32,
    };
    regions.region(&item.encode());
    regions.region(&record);
}
