//! Moving a fork's records between the inode and a btree.

use uxfs_format::btree::{BmapNode, LEVEL, NUMRECS, ROOT_LEVEL, ROOT_NUMRECS, TreeKind};
use uxfs_format::extent::RECORD_LEN;
use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::verify::{BufKind, Owner};
use uxfs_format::{Check, Extent, FileBlock, FsBlock};

use super::btree::Bmbt;
use super::records::List;
use crate::alloc::{self, Goal};
use crate::btree::{Cursor, Env, Tree};
use crate::buf::{BufRef, Piece, Pieces};
use crate::error::Result;
use crate::tx::{InodeSlot, Tx};

/// Key and pointer of a root entry.
type RootEntry = (FileBlock, FsBlock);

/// Fits the data fork into a literal area of `room` bytes: moves extent records that no longer fit
/// into a btree, or lays out a btree's root for the new length.
/// The caller sets the inode's `forkoff` right afterwards, in the same transaction.
///
/// # Errors
/// [`crate::Error::NoSpace`], or a damaged structure on the way.
pub fn fit(tx: &mut Tx<'_>, slot: InodeSlot, fork: Fork, room: usize) -> Result<()> {
    let inode = tx.inode(slot);
    let count = inode.core.fork_extents(fork) as usize;
    match inode.core.fork_format(fork) {
        ForkFormat::Extents if count * RECORD_LEN > room => to_btree(tx, slot, fork, room),
        ForkFormat::Btree => {
            let (level, mut entries) = read_root(inode.fork(fork));
            let mut level = level;
            if entries.len() > BmapNode::root(room).max() {
                let near = entries[0].1;
                let (buf, fsb) = new_block(tx, slot, fork, level, near)?;
                let bytes: Vec<RootEntry> = core::mem::take(&mut entries);
                fill_node(tx, &buf, &bytes);
                entries = vec![(bytes[0].0, fsb)];
                level += 1;
            }
            write_root(tx, slot, fork, room, level, &entries);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn read_root(root: &[u8]) -> (u16, Vec<RootEntry>) {
    let entries = BmapNode::root(root.len()).entries(root, ROOT_NUMRECS.get(root).into());
    (ROOT_LEVEL.get(root), entries.collect())
}

fn write_root(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    fork: Fork,
    room: usize,
    level: u16,
    entries: &[RootEntry],
) {
    // A growing fork does not have its new length yet, so write through the inode's whole literal
    // area.
    let bytes = tx.literal_mut(slot, fork, room);
    bytes.fill(0);
    ROOT_LEVEL.set(bytes, level);
    ROOT_NUMRECS.set(bytes, entries.len() as u16);
    BmapNode::root(room).put_entries(bytes, entries);
}

fn new_block(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    fork: Fork,
    level: u16,
    near: FsBlock,
) -> Result<(BufRef, FsBlock)> {
    let ino = tx.inode(slot).ino;
    let goal = if tx.fs().geo.fsb_valid(near, 1) { near } else { tx.fs().inode_goal(ino) };
    let owner = alloc::Owner::Bmbt { ino, fork };
    let (fsb, _) = alloc::alloc_anywhere(tx, Goal::Near(goal), 1, 1, owner)?;
    tx.count_blocks(slot, 1)?;
    let geo = &tx.fs().geo;
    let piece = Piece { daddr: geo.fsb_daddr(fsb), len: geo.block_size };
    let kind = BufKind::Btree(TreeKind::Bmap);
    let buf = tx.make_buf(Pieces::from_buf([piece]), kind);
    crate::tx::label(tx, &buf, kind, ino.0);
    let header = 0..TreeKind::Bmap.header().len;
    TreeKind::Bmap.put_header(&mut tx.edit(&buf, header), level);
    Ok((buf, fsb))
}

fn fill_node(tx: &mut Tx<'_>, buf: &BufRef, entries: &[RootEntry]) {
    let mut bytes = tx.edit_all(buf);
    NUMRECS.set(&mut bytes, entries.len() as u16);
    BmapNode::block(bytes.len()).put_entries(&mut bytes, entries);
}

/// Moves the records of a fork in extents form into the first block of a btree whose root takes
/// `room` bytes.
pub(super) fn to_btree(tx: &mut Tx<'_>, slot: InodeSlot, fork: Fork, room: usize) -> Result<()> {
    if BmapNode::root(room).max() == 0 {
        let problem = format!("{fork:?} fork of {room} bytes has no room for a btree's root");
        return Err(tx.inode(slot).corrupt(Check::Size, problem));
    }
    let list = List::of(tx.inode(slot), fork);
    let records: Vec<Extent> = (0..list.len()).filter_map(|i| list.get(i)).collect();
    let first = records.first();
    let (near, first) = first.map_or((FsBlock::NULL, FileBlock(0)), |r| (r.start, r.offset));
    let (buf, fsb) = new_block(tx, slot, fork, 0, near)?;
    let mut bytes = tx.edit_all(&buf);
    let header = TreeKind::Bmap.header().len;
    NUMRECS.set(&mut bytes, records.len() as u16);
    for (i, record) in records.iter().enumerate() {
        let at = header + i * RECORD_LEN;
        bytes[at..at + RECORD_LEN].copy_from_slice(&record.pack());
    }
    drop(bytes);
    write_root(tx, slot, fork, room, 1, &[(first, fsb)]);
    tx.core_mut(slot).set_fork_format(fork, ForkFormat::Btree);
    Ok(())
}

/// Moves the records of a btree back into the inode if they fit there.
pub(super) fn to_extents_if_fitting(tx: &mut Tx<'_>, slot: InodeSlot, fork: Fork) -> Result<()> {
    let inode = tx.inode(slot);
    let (count, room) = (inode.core.fork_extents(fork) as usize, inode.fork(fork).len());
    if count * RECORD_LEN > room {
        return Ok(());
    }
    let tree = Bmbt::new(slot, fork);
    let mut records = Vec::with_capacity(count);
    let mut cursor = Cursor::<Bmbt>::first(Env::Tx(tx), &tree)?;
    while let Some(record) = cursor.rec(Env::Tx(tx), &tree) {
        if record.len == 0 {
            return Err(tx.inode(slot).corrupt(Check::Size, "an extent of no blocks in its tree"));
        }
        records.push(record);
        if records.len() > count || !cursor.next(Env::Tx(tx), &tree)? {
            break;
        }
    }
    if records.len() != count {
        let problem = format!("{} extents in a tree that should have {count}", records.len());
        return Err(tx.inode(slot).corrupt(Check::Count, problem));
    }
    let (level, entries) = read_root(tx.inode(slot).fork(fork));
    for (_, block) in entries {
        free_below(tx, &tree, block.0, level.saturating_sub(1))?;
    }
    let bytes = tx.fork_mut(slot, fork);
    bytes.fill(0);
    for (i, record) in records.iter().enumerate() {
        bytes[i * RECORD_LEN..(i + 1) * RECORD_LEN].copy_from_slice(&record.pack());
    }
    tx.core_mut(slot).set_fork_format(fork, ForkFormat::Extents);
    Ok(())
}

/// Frees a block of a tree and all blocks below it.
fn free_below(tx: &mut Tx<'_>, tree: &Bmbt, block: u64, level: u16) -> Result<()> {
    let daddr = tree.daddr(tx.fs(), block)?;
    let owner: Owner = tree.owner(Env::Tx(tx));
    let kinds = [BufKind::Btree(TreeKind::Bmap)];
    let buf = tx.fs().bufs.get(daddr, tx.fs().geo.block_size, &kinds, owner)?;
    let seen = buf.get(LEVEL);
    if seen != level {
        return Err(buf.corrupt(Check::Level, format!("is at level {seen}, not {level}")));
    }
    if level > 0 {
        let children: Vec<FsBlock> = {
            let bytes = buf.read();
            let entries = BmapNode::block(bytes.len()).entries(&bytes, NUMRECS.get(&bytes).into());
            entries.map(|(_, child)| child).collect()
        };
        for child in children {
            free_below(tx, tree, child.0, level - 1)?;
        }
    }
    tree.free(tx, &buf)
}
