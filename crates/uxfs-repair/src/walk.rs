//! Reads what is left of a tree inside a group: every block that is reached and is sound.
//!
//! 1. A block is entered once, and only if its magic number, owner, address and level are right.
//! 2. A block whose checksum does not match counts as lost.

use rustc_hash::FxHashSet;
use uxfs_format::btree::{self, MAX_LEVELS, TreeKind};
use uxfs_format::bytes::Field;
use uxfs_format::verify::{self, BufKind, Owner};
use uxfs_format::{AgBlock, AgNo};

use crate::error::Result;
use crate::volume::Volume;

/// What a walk found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walked {
    /// The records of all leaves that were reached, in their order.
    pub(crate) records: Vec<u8>,
    /// Was the whole tree sound?
    pub(crate) whole: bool,
}

/// Walks a tree from its root.
pub(crate) fn tree(
    volume: &Volume,
    ag: AgNo,
    kind: TreeKind,
    root: u32,
    levels: u32,
) -> Result<Walked> {
    let mut walked = Walked { whole: true, ..Walked::default() };
    let mut seen = FxHashSet::default();
    if levels == 0 || levels as usize > MAX_LEVELS {
        walked.whole = false;
        return Ok(walked);
    }
    visit(volume, ag, kind, (root, levels as usize - 1), &mut seen, &mut walked)?;
    Ok(walked)
}

fn visit(
    volume: &Volume,
    ag: AgNo,
    kind: TreeKind,
    (block, level): (u32, usize),
    seen: &mut FxHashSet<u32>,
    walked: &mut Walked,
) -> Result<()> {
    let geo = &volume.geo;
    if !geo.agblock_valid(ag, AgBlock(block)) || !seen.insert(block) {
        walked.whole = false;
        return Ok(());
    }
    let bytes = volume.block(ag, AgBlock(block))?;
    let (buffer, daddr) = (BufKind::Btree(kind), geo.ag_daddr(ag, AgBlock(block)));
    let sound = verify::checksum_matches(&bytes, buffer)
        && verify::check(&bytes, buffer, daddr, geo).is_ok()
        && verify::check_owner(&bytes, buffer, daddr, Owner::Ag(ag)).is_ok()
        && usize::from(btree::LEVEL.get(&bytes)) == level;
    if !sound {
        walked.whole = false;
        return Ok(());
    }
    let (header, count) = (kind.header(), usize::from(btree::NUMRECS.get(&bytes)));
    if level == 0 {
        walked.records.extend_from_slice(&bytes[header.len..header.len + count * kind.rec_len()]);
        return Ok(());
    }
    let pointers = header.len + kind.max_node(bytes.len()) * kind.key_len();
    for index in 0..count {
        let child: Field<u32> = Field::at(pointers + 4 * index);
        visit(volume, ag, kind, (child.get(&bytes), level - 1), seen, walked)?;
    }
    Ok(())
}
