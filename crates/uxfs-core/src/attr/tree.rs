//! Attributes in blocks: a single leaf, or leaves under nodes.
//!
//! A single leaf and the leaves of a larger tree are handled alike. [`crate::da`] handles the
//! difference.

use core::ops::Range;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use uxfs_format::attr::AttrFlags;
use uxfs_format::attr::leaf::{self, ENTRY_LEN, HEADER_RANGE, Header, Item, Value};
use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::verify::BufKind;
use uxfs_format::{Check, FileBlock};

use super::{Form, Key, Namespace, Show, form, make_item, remote, room, short};
use crate::buf::BufRef;
use crate::da::{self, Path, Tree};
use crate::error::Result;
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::tx::{InodeSlot, Tx};
use crate::{bmap, dabuf};

/// Extents of a large attribute fork freed in one transaction when the inode is freed.
const EXTENTS_AT_ONCE: u64 = 64;
/// End of the address space of a fork.
const FORK_END: FileBlock = FileBlock((1 << 54) - 1);

/// The location of an attribute.
pub(super) struct Found {
    path: Path,
    index: usize,
}

/// Finds an attribute. Incomplete attributes are found only with `any`.
pub(super) fn find(
    fs: &Mount,
    inode: &InodeState,
    key: &Key<'_>,
    any: bool,
) -> Result<Option<Found>> {
    let mut path = da::find_leaf(fs, inode, Tree::Attr, key.hash)?;
    let mut walk = Walk::default();
    loop {
        let seen = search(&path.leaf.read(), key, any);
        match seen {
            Search::Found(index) => return Ok(Some(Found { path, index })),
            Search::Not => return Ok(None),
            Search::Outside(index) => return Err(outside(&path.leaf, index)),
            Search::GoOn => {}
        }
        if !walk.next(fs, inode, &mut path)? {
            return Ok(None);
        }
    }
}

/// A walk over leaves, which ends also in a damaged tree.
#[derive(Default)]
struct Walk {
    /// The leaves so far. A leaf says which one follows, so one that was seen before leads to no other.
    seen: FxHashSet<u64>,
}

impl Walk {
    /// As [`da::next_leaf`], but refuses a leaf that was seen before.
    fn next(&mut self, fs: &Mount, inode: &InodeState, path: &mut Path) -> Result<bool> {
        if !self.seen.insert(path.leaf_at.0) {
            return Err(inode.corrupt(Check::Loop, "the leaves of its attributes form a cycle"));
        }
        da::next_leaf(fs, inode, Tree::Attr, path)
    }
}

enum Search {
    Found(usize),
    /// The tree does not hold the attribute.
    Not,
    /// The next leaf may hold it.
    GoOn,
    /// The name of this entry lies outside the block.
    Outside(usize),
}

fn outside(buf: &BufRef, index: usize) -> crate::Error {
    buf.corrupt(Check::Range, format!("the name of entry {index} is not inside"))
}

fn search(block: &[u8], key: &Key<'_>, any: bool) -> Search {
    for index in leaf::lower_bound(block, key.hash)..Header::decode(block).count {
        let Some(record) = leaf::record(block, index) else { return Search::Outside(index) };
        let flags = record.entry.flags;
        if record.entry.hash != key.hash {
            return Search::Not;
        }
        let value = match record.value {
            Value::Local(value) => Some(value),
            Value::Remote { .. } => None,
        };
        let visible = any || !flags.contains(AttrFlags::INCOMPLETE);
        if visible && key.matches(flags, record.name, value) {
            return Search::Found(index);
        }
    }
    Search::GoOn
}

/// Reads the value of a found attribute.
pub(super) fn value(fs: &Mount, inode: &InodeState, found: &Found) -> Result<Vec<u8>> {
    let block = found.path.leaf.read();
    let stored = leaf::record(&block, found.index).map(|r| r.value);
    let (at, len) = match stored {
        Some(Value::Local(value)) => return Ok(value.to_vec()),
        Some(Value::Remote { block, len }) => (block, len as usize),
        None => {
            drop(block);
            return Err(outside(&found.path.leaf, found.index));
        }
    };
    drop(block);
    remote::read(fs, inode, at, len)
}

/// Calls `show` for every attribute, in hash order.
pub(super) fn list(fs: &Mount, inode: &InodeState, show: &mut Show<'_>) -> Result<()> {
    let mut path = da::find_leaf(fs, inode, Tree::Attr, 0)?;
    let mut walk = Walk::default();
    loop {
        // Copied first, so that `show` may look attributes up.
        let entries: Vec<_> = leaf::records(&path.leaf.read())
            .filter(|r| !r.entry.flags.contains(AttrFlags::INCOMPLETE))
            .map(|r| (Namespace::of(r.entry.flags), r.name.to_vec(), r.value.len()))
            .collect();
        for (namespace, name, len) in entries {
            if show(namespace, &name, len).is_break() {
                return Ok(());
            }
        }
        if !walk.next(fs, inode, &mut path)? {
            return Ok(());
        }
    }
}

/// Creates an attribute or replaces its value.
pub(super) fn set(tx: &mut Tx<'_>, slot: InodeSlot, key: &Key<'_>, value: &[u8]) -> Result<()> {
    let fs = tx.fs();
    while let Some(found) = find(fs, tx.inode(slot), key, true)? {
        if overwrite(tx, &found, value) {
            return Ok(());
        }
        take_out(tx, slot, found)?;
    }
    let item = make_item(tx, slot, key, value)?;
    insert(tx, slot, item)?;
    short::fold(tx, slot)
}

/// Overwrites a local value with one of the same length. Returns `false` if that is not possible.
fn overwrite(tx: &mut Tx<'_>, found: &Found, value: &[u8]) -> bool {
    let range = {
        let block = found.path.leaf.read();
        match leaf::record(&block, found.index) {
            Some(r) if r.entry.flags.contains(AttrFlags::INCOMPLETE) => return false,
            Some(r) => match r.value {
                Value::Local(old) if old.len() == value.len() => r.value_range(),
                _ => return false,
            },
            None => return false,
        }
    };
    tx.edit(&found.path.leaf, range).copy_from_slice(value);
    true
}

/// Removes an attribute. Returns `false` if there is none.
pub(super) fn remove(tx: &mut Tx<'_>, slot: InodeSlot, key: &Key<'_>) -> Result<bool> {
    let fs = tx.fs();
    let mut removed = false;
    while let Some(found) = find(fs, tx.inode(slot), key, true)? {
        removed |= take_out(tx, slot, found)?;
    }
    if removed {
        shrink_fork(tx, slot)?;
    }
    Ok(removed)
}

/// After a removal: removes an empty fork, or moves the rest back into the inode if it fits.
fn shrink_fork(tx: &mut Tx<'_>, slot: InodeSlot) -> Result<()> {
    let fs = tx.fs();
    let Some(buf) = super::single_leaf(fs, tx.inode(slot))? else { return Ok(()) };
    if Header::decode(&buf.read()).count > 0 || fs.geo.has_parent() {
        return short::fold(tx, slot);
    }
    free_blocks(tx, slot, u64::MAX)?;
    room::drop_fork(tx, slot);
    Ok(())
}

/// Removes an attribute from its leaf, and an empty leaf from the tree. The last leaf stays, empty.
/// Returns `true` if the attribute was complete.
fn take_out(tx: &mut Tx<'_>, slot: InodeSlot, found: Found) -> Result<bool> {
    let Found { path, index } = found;
    let leaf = path.leaf.clone();
    let (name, complete, blocks) = {
        let block = leaf.read();
        let Some(record) = leaf::record(&block, index) else {
            drop(block);
            return Err(outside(&leaf, index));
        };
        let complete = !record.entry.flags.contains(AttrFlags::INCOMPLETE);
        let blocks = match record.value {
            Value::Local(_) => None,
            Value::Remote { block, len } => Some((block, len as usize)),
        };
        (record.range(), complete, blocks)
    };
    if let Some((block, len)) = blocks {
        remote::free(tx, slot, block, len)?;
    }
    let count = Header::decode(&leaf.read()).count;
    if count == 1 && !da::is_only_leaf(&path) {
        da::remove_leaf(tx, slot, Tree::Attr, path)?;
        return Ok(complete);
    }
    cut(tx, &leaf, index, name);
    if index + 1 == count {
        let last = leaf::last_hash(&leaf.read());
        da::fix_hash(tx, &path, last.unwrap_or(0));
    }
    Ok(complete)
}

/// Removes entry `index`, whose name lies at `name`, from a leaf.
fn cut(tx: &mut Tx<'_>, leaf: &BufRef, index: usize, name: Range<usize>) {
    let mut header = Header::decode(&leaf.read());
    tx.edit(leaf, name.clone()).fill(0);
    {
        let end = leaf::entries_end(header.count);
        let mut entries = tx.edit(leaf, leaf::entry_range(index).start..end);
        entries.copy_within(ENTRY_LEN.., 0);
        let keep = entries.len() - ENTRY_LEN;
        entries[keep..].fill(0);
    }
    header.count -= 1;
    header.used -= name.len();
    if header.first == name.start {
        let block = leaf.read();
        header.first = (0..header.count)
            .map(|index| leaf::Entry::decode(&block, index).at)
            .min()
            .unwrap_or(block.len());
    }
    put_header(tx, leaf, header);
}

fn put_header(tx: &mut Tx<'_>, leaf: &BufRef, header: Header) {
    header.encode(&mut tx.edit(leaf, HEADER_RANGE), leaf.len());
}

/// Inserts an item into its leaf, which splits if it is full.
pub(super) fn insert(tx: &mut Tx<'_>, slot: InodeSlot, item: Item) -> Result<()> {
    let path = da::find_leaf(tx.fs(), tx.inode(slot), Tree::Attr, item.hash)?;
    let leaf = path.leaf.clone();
    let (header, index) = {
        let block = leaf.read();
        (Header::decode(&block), leaf::lower_bound(&block, item.hash))
    };
    if header.gap() >= item.room() {
        add(tx, &leaf, header, index, &item);
    } else {
        let mut items = leaf::items(&leaf.read());
        let hash = item.hash;
        let room = item.room();
        items.insert(index.min(items.len()), item);
        if header.free(leaf.len()) < room {
            return split(tx, slot, path, &items, index);
        }
        leaf::fill(&mut tx.edit_all(&leaf), &items);
        debug_assert_eq!(items[index].hash, hash);
    }
    if index == header.count {
        let last = leaf::last_hash(&leaf.read());
        da::fix_hash(tx, &path, last.unwrap_or(0));
    }
    Ok(())
}

/// Adds an item to a leaf with space between entries and names.
fn add(tx: &mut Tx<'_>, leaf: &BufRef, mut header: Header, index: usize, item: &Item) {
    let end = header.first;
    header.first -= item.raw.len();
    header.used += item.raw.len();
    tx.edit(leaf, header.first..end).copy_from_slice(&item.raw);
    {
        let range = leaf::entry_range(index).start..leaf::entries_end(header.count + 1);
        let mut entries = tx.edit(leaf, range);
        let moved = entries.len() - ENTRY_LEN;
        entries.copy_within(..moved, ENTRY_LEN);
        let entry = leaf::Entry { hash: item.hash, at: header.first, flags: item.flags };
        entries[..ENTRY_LEN].copy_from_slice(&entry.encode());
    }
    header.count += 1;
    put_header(tx, leaf, header);
}

/// Distributes `items`, of which the item at `fresh` is new, over the path's leaf and new leaves
/// after it.
fn split(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    mut path: Path,
    items: &[Item],
    fresh: usize,
) -> Result<()> {
    let groups = divide(items, fresh, leaf::capacity(path.leaf.len()));
    for pair in groups.windows(2) {
        let (left, right) = (&items[pair[0].clone()], &items[pair[1].clone()]);
        let (buf, at) = da::new_leaf_after(tx, slot, Tree::Attr, &mut path)?;
        leaf::fill(&mut tx.edit_all(&path.leaf), left);
        leaf::fill(&mut tx.edit_all(&buf), right);
        let last = |items: &[Item]| items.last().map_or(0, |item| item.hash);
        da::insert_after(tx, slot, Tree::Attr, &mut path, at, last(left), last(right))?;
        da::next_leaf(tx.fs(), tx.inode(slot), Tree::Attr, &mut path)?;
    }
    Ok(())
}

/// Divides items into as few runs as fit `capacity` bytes each, as evenly as possible, and if
/// possible not between equal hashes. All items except the one at `fresh` fit into one leaf, so
/// three runs always suffice.
fn divide(items: &[Item], fresh: usize, capacity: usize) -> SmallVec<[Range<usize>; 3]> {
    let all = match best_cut(items, capacity, true).or_else(|| best_cut(items, capacity, false)) {
        Some(at) => [0..at, at..items.len(), 0..0],
        None => [0..fresh, fresh..fresh + 1, fresh + 1..items.len()],
    };
    all.into_iter().filter(|group| !group.is_empty()).collect()
}

/// The best place to divide items in two. With `between`, not between equal hashes.
fn best_cut(items: &[Item], capacity: usize, between: bool) -> Option<usize> {
    let total: usize = items.iter().map(Item::room).sum();
    let mut best: Option<(usize, usize)> = None;
    let mut left = 0;
    for (index, pair) in items.windows(2).enumerate() {
        left += pair[0].room();
        let larger = left.max(total - left);
        let good = larger <= capacity && !(between && pair[0].hash == pair[1].hash);
        if good && best.is_none_or(|(size, _)| larger < size) {
            best = Some((larger, index + 1));
        }
    }
    best.map(|(_, at)| at)
}

/// Frees up to `extents` extents of the attribute fork, from its end. Returns `true` if none is
/// left.
pub(super) fn free_blocks(tx: &mut Tx<'_>, slot: InodeSlot, extents: u64) -> Result<bool> {
    let fs = tx.fs();
    for _ in 0..extents {
        let end = bmap::last_before(fs, tx.inode(slot), Fork::Attr, FORK_END)?;
        if end.0 == 0 {
            return Ok(true);
        }
        let last = FileBlock(end.0 - 1);
        let Some(extent) = bmap::lookup(fs, tx.inode(slot), Fork::Attr, last)? else {
            return Err(tx
                .inode(slot)
                .corrupt(Check::Missing, format!("attribute block {last} is not found")));
        };
        remote::drop_buffers(tx, slot, extent.offset, extent.len, None)?;
        bmap::unmap(tx, slot, Fork::Attr, extent.offset, extent.len, u64::MAX)?;
    }
    Ok(bmap::last_before(fs, tx.inode(slot), Fork::Attr, FORK_END)?.0 == 0)
}

/// Removes all attributes of an inode that is being freed, and the attribute fork. Returns `false`
/// if some are left: then commit and call again in a new transaction. In between the inode has no
/// attributes, but its fork still maps unused blocks.
///
/// If the data fork is a btree, an empty attribute fork stays, because the btree's root is laid out
/// for it.
///
/// # Errors
/// A damaged structure on the way. The caller must then cancel the transaction.
pub fn remove_all(tx: &mut Tx<'_>, slot: InodeSlot) -> Result<bool> {
    let inode = tx.inode(slot);
    if !inode.core.has_attr_fork() {
        return Ok(true);
    }
    if inode.core.aformat == ForkFormat::Local || form(inode)? == Form::Empty {
        room::drop_fork(tx, slot);
        return Ok(true);
    }
    if u64::from(inode.core.anextents) > EXTENTS_AT_ONCE {
        make_empty(tx, slot);
    }
    let done = free_blocks(tx, slot, EXTENTS_AT_ONCE)?;
    if done {
        room::drop_fork(tx, slot);
    }
    Ok(done)
}

/// Makes the fork's first block an empty leaf, so that nothing refers to freed blocks. An
/// unreadable block refers to nothing and is skipped.
fn make_empty(tx: &mut Tx<'_>, slot: InodeSlot) {
    let kinds = [BufKind::AttrLeaf, BufKind::DaNode];
    let root = dabuf::read_opt(tx.fs(), tx.inode(slot), Fork::Attr, FileBlock(0), &kinds);
    let Ok(Some(root)) = root else { return };
    tx.set_kind(&root, BufKind::AttrLeaf);
    leaf::fill(&mut tx.edit_all(&root), &[]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(room: usize) -> Item {
        Item { hash: 0, flags: AttrFlags::LOCAL, raw: vec![0; room - ENTRY_LEN] }
    }

    #[test]
    fn equal_hashes_share_a_leaf_if_they_fit() {
        let mut items: Vec<Item> = (0..10).map(|_| item(100)).collect();
        for (index, item) in items.iter_mut().enumerate() {
            item.hash = u32::from(index > 1) + u32::from(index > 7);
        }
        assert_eq!(divide(&items, 0, 900).as_slice(), [0..2, 2..10]);
        assert_eq!(divide(&items, 0, 700).as_slice(), [0..5, 5..10]);
    }

    #[test]
    fn leaves_split_evenly_and_in_three_if_necessary() {
        let even: Vec<Item> = (0..40).map(|_| item(100)).collect();
        assert_eq!(divide(&even, 7, 3900).as_slice(), [0..20, 20..40]);
        let wide = [item(1500), item(3072), item(1500)];
        assert_eq!(divide(&wide, 1, 4016).as_slice(), [0..1, 1..2, 2..3]);
        let front = [item(3072), item(3000), item(1000)];
        assert_eq!(divide(&front, 0, 4016).as_slice(), [0..1, 1..3]);
    }
}
