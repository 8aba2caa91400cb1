//! Counting what all files of a volume use (XFS' quotacheck), and correcting the records.
//!
//! Nothing else uses the volume meanwhile: it is being opened, and all inodes are on the device or in buffers.

use rustc_hash::FxHashMap;
use uxfs_format::dquot::{self, QuotaType};
use uxfs_format::inode::InodeCore;
use uxfs_format::{AgIno, AgNo};

use super::records;
use crate::btree::{Cursor, Env, InoTree};
use crate::dquot::{Change, DquotRef, Quota};
use crate::engine::Engine;
use crate::error::Result;
use crate::inode::read_cluster;
use crate::journal::Op;
use crate::tx::Tx;

/// Records corrected in one transaction.
const RECORDS_A_STEP: usize = 7;

/// Blocks and inodes that are used.
type Used = (u64, u64);

/// Counts the usage of these types, and corrects their records.
pub(super) fn count(fs: &Engine, quota: &Quota, kinds: &[QuotaType]) -> Result<()> {
    let mut all = FxHashMap::default();
    for ag in (0..fs.geo.ag_count).map(AgNo) {
        count_group(fs, quota, ag, kinds, &mut all)?;
    }
    for kind in kinds {
        let mut ids: Vec<u32> = all.keys().filter(|(k, _)| k == kind).map(|(_, id)| *id).collect();
        // The record of id 0 holds the defaults of all others.
        ids.push(0);
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            if quota.get(&fs.bufs, *kind, id)?.is_none() {
                records::make(fs, *kind, id)?;
            }
        }
        // A record that says far too much takes two changes: each is at most 2^63.
        loop {
            let wrong = wrong_records(fs, quota, *kind, &all)?;
            for step in wrong.changes.chunks(RECORDS_A_STEP) {
                let mut tx = Tx::begin_for(fs, Op::Inode, 0)?;
                step.iter().for_each(|(dquot, change)| tx.change_dquot(dquot.clone(), *change));
                tx.commit()?;
            }
            if wrong.whole {
                break;
            }
        }
    }
    Ok(())
}

/// Changes of records.
struct Wrong {
    changes: Vec<(DquotRef, Change)>,
    /// Do the changes correct all that is wrong?
    whole: bool,
}

/// Compares the records of a type with what is used.
fn wrong_records(
    fs: &Engine,
    quota: &Quota,
    kind: QuotaType,
    all: &FxHashMap<(QuotaType, u32), Used>,
) -> Result<Wrong> {
    let mut wrong = Wrong { changes: Vec::new(), whole: true };
    let mut next = quota.block_from(kind, 0);
    while let Some(number) = next {
        let each = dquot::records(fs.geo.block_size);
        for id in (0..each).filter_map(|index| number.checked_mul(each)?.checked_add(index)) {
            let used = all.get(&(kind, id)).copied().unwrap_or_default();
            wrong.changes.extend(correction(fs, quota, kind, id, used, &mut wrong.whole)?);
        }
        next = number.checked_add(1).and_then(|number| quota.block_from(kind, number));
    }
    Ok(wrong)
}

/// The change that makes a record say what is used, or brings it nearer, which clears `whole`; `None` if it
/// says so.
fn correction(
    fs: &Engine,
    quota: &Quota,
    kind: QuotaType,
    id: u32,
    (blocks, inodes): Used,
    whole: &mut bool,
) -> Result<Option<(DquotRef, Change)>> {
    let dquot = quota.get_counted(&fs.bufs, kind, id)?;
    let (blocks, inodes) = {
        let record = &dquot.state.lock().record;
        let mut difference = |new: u64, old: u64| {
            let all = i128::from(new) - i128::from(old);
            let part = all.clamp(i64::MIN.into(), i64::MAX.into());
            *whole &= part == all;
            part as i64
        };
        (difference(blocks, record.blocks.used), difference(inodes, record.inodes.used))
    };
    let change = Change { blocks, inodes, ..Change::default() };
    Ok((change != Change::default()).then_some((dquot, change)))
}

fn count_group(
    fs: &Engine,
    quota: &Quota,
    ag: AgNo,
    kinds: &[QuotaType],
    all: &mut FxHashMap<(QuotaType, u32), Used>,
) -> Result<()> {
    let mut tx = Tx::begin_for(fs, Op::Inode, 0)?;
    tx.lock_ag(ag)?;
    let (env, tree) = (Env::Tx(&tx), InoTree::new(ag));
    let mut cursor = Cursor::<InoTree>::first(env, &tree)?;
    while let Some(chunk) = cursor.rec(env, &tree) {
        let used = chunk.present() & !chunk.free;
        for bit in (0..64).filter(|bit| used >> bit & 1 != 0) {
            let ino = fs.geo.ino(ag, AgIno(chunk.start.0.saturating_add(bit)));
            if !fs.geo.ino_valid(ino) || quota.is_quota_inode(ino) {
                continue;
            }
            let (buf, offset) = read_cluster(fs, ino)?;
            let raw = &buf.read()[offset..offset + fs.geo.inode_size as usize];
            let core = InodeCore::decode(raw, ino, &fs.geo.meta_uuid)?;
            if core.mode == 0 {
                continue;
            }
            for kind in kinds {
                let used = all.entry((*kind, kind.id_of(&core))).or_default();
                *used = (used.0.saturating_add(core.nblocks), used.1 + 1);
            }
        }
        if !cursor.next(env, &tree)? {
            break;
        }
    }
    Ok(())
}
