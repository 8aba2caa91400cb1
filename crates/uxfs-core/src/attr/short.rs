//! Attributes in short form, inside the inode.

use uxfs_format::FileBlock;
use uxfs_format::attr::{leaf, sf};
use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::verify::BufKind;

use super::{Form, Key, form, room, tree};
use crate::dabuf;
use crate::error::Result;
use crate::inode::InodeState;
use crate::tx::{InodeSlot, Tx};

/// Finds the entry of `key` in a verified fork.
pub(super) fn find<'a>(inode: &'a InodeState, key: &Key<'_>) -> Option<sf::Entry<'a>> {
    sf::entries(inode.fork(Fork::Attr)).find(|e| key.matches(e.flags, e.name, Some(e.value)))
}

/// Sets an attribute if short form has space for it. Otherwise changes nothing and returns `false`.
pub(super) fn set(tx: &mut Tx<'_>, slot: InodeSlot, key: &Key<'_>, value: &[u8]) -> Result<bool> {
    if !sf::may_hold(key.name.len(), value.len()) {
        return Ok(false);
    }
    let inode = tx.inode(slot);
    let (total, old) = match form(inode)? {
        Form::Short => {
            let old = find(inode, key).map(|e| (e.at, e.len()));
            if old.is_none() && !sf::countable(inode.fork(Fork::Attr)) {
                return Ok(false);
            }
            (sf::total(inode.fork(Fork::Attr)), old)
        }
        Form::Empty | Form::Tree => (sf::HEADER_LEN, None),
    };
    let freed = old.map_or(0, |(_, len)| len);
    let need = total - freed + sf::entry_len(key.name.len(), value.len());
    if !room::make(tx, slot, need)? {
        return Ok(false);
    }
    begin(tx, slot);
    let fork = tx.fork_mut(slot, Fork::Attr);
    if let Some((at, len)) = old {
        sf::remove(fork, at, len);
    }
    sf::push(fork, key.flags, key.name, value);
    Ok(true)
}

/// Gives an empty fork the short form.
fn begin(tx: &mut Tx<'_>, slot: InodeSlot) {
    if tx.inode(slot).core.aformat != ForkFormat::Local {
        tx.core_mut(slot).aformat = ForkFormat::Local;
        sf::clear(tx.fork_mut(slot, Fork::Attr));
    }
}

/// Removes an attribute, and with the last attribute the fork.
pub(super) fn remove(tx: &mut Tx<'_>, slot: InodeSlot, key: &Key<'_>) -> bool {
    let inode = tx.inode(slot);
    let Some((at, len)) = find(inode, key).map(|e| (e.at, e.len())) else { return false };
    let last = sf::count(inode.fork(Fork::Attr)) == 1;
    sf::remove(tx.fork_mut(slot, Fork::Attr), at, len);
    // With parent pointers every inode keeps an attribute fork, even an empty one.
    if last && !tx.fs().geo.has_parent() {
        room::drop_fork(tx, slot);
    }
    true
}

/// Moves the fork's attributes except `but` into a leaf block, which may stay empty. Afterwards the
/// inode has an attribute fork with space for extents.
pub(super) fn to_tree(tx: &mut Tx<'_>, slot: InodeSlot, but: &Key<'_>) -> Result<()> {
    let inode = tx.inode(slot);
    let naming = tx.fs().geo.naming;
    let mut items = Vec::new();
    if form(inode)? == Form::Short {
        for e in sf::entries(inode.fork(Fork::Attr)) {
            if !but.matches(e.flags, e.name, Some(e.value)) {
                let hash = uxfs_format::attr::hash(naming, e.flags, e.name, e.value);
                items.push(leaf::Item::local(hash, e.flags, e.name, e.value));
            }
        }
    }
    items.sort_by_key(|item| item.hash);
    // Empty the fork before moving it: an extent list needs less space than the old content.
    if inode.core.has_attr_fork() {
        tx.core_mut(slot).aformat = ForkFormat::Extents;
        tx.fork_mut(slot, Fork::Attr).fill(0);
    }
    room::for_blocks(tx, slot)?;
    let buf = dabuf::grow(tx, slot, Fork::Attr, FileBlock(0), BufKind::AttrLeaf)?;
    let fits = items.iter().map(leaf::Item::room).sum::<usize>() <= leaf::capacity(buf.len());
    if fits {
        leaf::fill(&mut tx.edit_all(&buf), &items);
        return Ok(());
    }
    // Entries are longer in a leaf, so very many very short entries can take more than a block.
    leaf::fill(&mut tx.edit_all(&buf), &[]);
    items.into_iter().try_for_each(|item| tree::insert(tx, slot, item))
}

/// Moves the attributes of the only leaf back into the inode if they fit.
pub(super) fn fold(tx: &mut Tx<'_>, slot: InodeSlot) -> Result<()> {
    let fs = tx.fs();
    let inode = tx.inode(slot);
    let room = inode.fork(Fork::Attr).len();
    let Some(buf) = super::single_leaf(fs, inode)? else { return Ok(()) };
    let Some(image) = short_form(&buf.read(), room) else { return Ok(()) };
    let done = tree::free_blocks(tx, slot, u64::MAX)?;
    debug_assert!(done, "all extents go at once");
    tx.core_mut(slot).aformat = ForkFormat::Local;
    let fork = tx.fork_mut(slot, Fork::Attr);
    fork.fill(0);
    fork[..image.len()].copy_from_slice(&image);
    Ok(())
}

/// The attributes of a leaf in short form, if all of them may have it and take at most `room`
/// bytes.
fn short_form(block: &[u8], room: usize) -> Option<Vec<u8>> {
    let header = leaf::Header::decode(block);
    // Padding is less than four bytes per name.
    if header.used.saturating_sub(3 * header.count) + sf::HEADER_LEN > room {
        return None;
    }
    let mut image = vec![0; room];
    sf::clear(&mut image);
    for record in leaf::records(block) {
        let leaf::Value::Local(value) = record.value else { return None };
        let len = sf::entry_len(record.name.len(), value.len());
        let incomplete = record.entry.flags.contains(super::AttrFlags::INCOMPLETE);
        let may = sf::may_hold(record.name.len(), value.len()) && sf::countable(&image);
        if incomplete || !may || sf::total(&image) + len > room {
            return None;
        }
        sf::push(&mut image, record.entry.flags.namespace(), record.name, value);
    }
    Some(image)
}
