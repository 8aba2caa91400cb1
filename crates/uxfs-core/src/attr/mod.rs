//! Extended attributes of an inode.
//!
//! 1. Attributes are in short form while they fit into the inode, then in one leaf block, then in
//!    leaves under a tree of nodes ([`crate::da`]). After a removal, attributes that fit into the inode
//!    move back into it.
//! 2. A change is complete within its transaction: no reader finds the old value gone and the new one
//!    missing, and this code never writes an incomplete attribute (`INCOMPLETE`). Incomplete attributes
//!    that other implementations left are invisible, and are removed when an attribute of their name is
//!    set or removed.
//! 3. Entries with equal hashes are adjacent and may span several leaves. A lookup searches all of
//!    them.
//! 4. A parent pointer is identified by name and value, all other attributes by name alone.
//! 5. The data fork's content is never lost. If it leaves no space for attributes, it moves out of the
//!    inode first.
//!
//! Called by the operations, by the freeing of inodes, and by import.

pub mod names;
mod remote;
mod room;
mod short;
// xfsprogs judges these tests, and it is not on other systems than Unix.
#[cfg(test)]
#[cfg(unix)]
mod tests;
mod tree;

use core::ops::ControlFlow;

use uxfs_format::attr::{self as layout, AttrFlags, MAX_NAME, MAX_VALUE, PARENT_VALUE_LEN};
use uxfs_format::attr::{leaf, parent_value};
use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::verify::BufKind;
use uxfs_format::{Check, FileBlock, Geometry, Ino};

use crate::buf::BufRef;
use crate::dabuf;
use crate::error::{Error, Result};
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::tx::{InodeSlot, Tx};

pub use room::default_forkoff;
pub use tree::remove_all;

/// The namespace of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Namespace {
    /// `user`.
    User,
    /// `trusted`, which also holds the access control lists.
    Trusted,
    /// `security`.
    Secure,
    /// Parent pointers: the name is that of the directory entry, the value is the parent.
    Parent,
}

impl Namespace {
    fn flags(self) -> AttrFlags {
        match self {
            Self::User => AttrFlags::empty(),
            Self::Trusted => AttrFlags::ROOT,
            Self::Secure => AttrFlags::SECURE,
            Self::Parent => AttrFlags::PARENT,
        }
    }

    fn of(flags: AttrFlags) -> Self {
        // Verification ensures that at most one of these flags is set.
        if flags.contains(AttrFlags::PARENT) {
            Self::Parent
        } else if flags.contains(AttrFlags::SECURE) {
            Self::Secure
        } else if flags.contains(AttrFlags::ROOT) {
            Self::Trusted
        } else {
            Self::User
        }
    }
}

/// Callback of [`list`]: namespace, name, length of the value.
pub type Show<'a> = dyn FnMut(Namespace, &[u8], usize) -> ControlFlow<()> + 'a;

/// What identifies an attribute.
#[derive(Clone, Copy)]
struct Key<'a> {
    flags: AttrFlags,
    name: &'a [u8],
    /// The value, if it is part of the identity (parent pointers).
    value: Option<&'a [u8]>,
    hash: u32,
}

impl<'a> Key<'a> {
    fn new(
        geo: &Geometry,
        namespace: Namespace,
        name: &'a [u8],
        value: Option<&'a [u8]>,
    ) -> Result<Self> {
        if name.is_empty() {
            return Err(Error::Invalid("an attribute's name is empty"));
        }
        if name.len() > MAX_NAME {
            return Err(Error::NameTooLong);
        }
        let value = match (namespace, value) {
            (Namespace::Parent, Some(v)) if v.len() == PARENT_VALUE_LEN => Some(v),
            (Namespace::Parent, _) => {
                return Err(Error::Invalid("a parent pointer needs its value of 12 bytes"));
            }
            _ => None,
        };
        let flags = namespace.flags();
        let hash = layout::hash(geo.naming, flags, name, value.unwrap_or_default());
        Ok(Self { flags, name, value, hash })
    }

    /// Does an entry match the key? `value` is `None` for remote values, which parent pointers
    /// never have.
    fn matches(&self, flags: AttrFlags, name: &[u8], value: Option<&[u8]>) -> bool {
        flags.namespace() == self.flags
            && name == self.name
            && (self.value.is_none() || self.value == value)
    }
}

/// How an inode stores its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The inode has no attributes.
    Empty,
    /// In short form, verified.
    Short,
    /// In blocks.
    Tree,
}

fn form(inode: &InodeState) -> Result<Form> {
    let core = &inode.core;
    match core.aformat {
        _ if !core.has_attr_fork() => Ok(Form::Empty),
        ForkFormat::Local => match layout::sf::verify(inode.fork(Fork::Attr)) {
            Ok(()) => Ok(Form::Short),
            Err(problem) => Err(inode.corrupt(problem.check, format!("attributes: {problem}"))),
        },
        ForkFormat::Extents if core.anextents == 0 => Ok(Form::Empty),
        ForkFormat::Extents | ForkFormat::Btree => Ok(Form::Tree),
        ForkFormat::Dev => Err(inode.corrupt(Check::Format, "attribute fork of format dev")),
    }
}

/// Returns the value of an attribute; `None` if there is none.
///
/// # Errors
/// [`Error::Invalid`] or [`Error::NameTooLong`] for an impossible name, or a damaged structure on
/// the way. A parent pointer cannot be found by name alone: see [`has_parent`].
pub fn get(
    fs: &Mount,
    inode: &InodeState,
    namespace: Namespace,
    name: &[u8],
) -> Result<Option<Vec<u8>>> {
    let key = Key::new(&fs.geo, namespace, name, None)?;
    match form(inode)? {
        Form::Empty => Ok(None),
        Form::Short => Ok(short::find(inode, &key).map(|e| e.value.to_vec())),
        Form::Tree => match tree::find(fs, inode, &key, false)? {
            Some(found) => tree::value(fs, inode, &found).map(Some),
            None => Ok(None),
        },
    }
}

/// Calls `show` for every attribute, parent pointers included: namespace, name, length of the
/// value.
///
/// # Errors
/// A damaged structure on the way.
pub fn list(fs: &Mount, inode: &InodeState, show: &mut Show<'_>) -> Result<()> {
    match form(inode)? {
        Form::Empty => Ok(()),
        Form::Short => {
            for e in layout::sf::entries(inode.fork(Fork::Attr)) {
                if show(Namespace::of(e.flags), e.name, e.value.len()).is_break() {
                    break;
                }
            }
            Ok(())
        }
        Form::Tree => tree::list(fs, inode, show),
    }
}

/// Creates an attribute or replaces its value. The caller updates the inode's times.
///
/// # Errors
/// [`Error::Invalid`] or [`Error::NameTooLong`] for an impossible name, [`Error::AttrTooBig`],
/// [`Error::NoSpace`], or a damaged structure on the way. The caller must then cancel the
/// transaction.
pub fn set(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    namespace: Namespace,
    name: &[u8],
    value: &[u8],
) -> Result<()> {
    let key = Key::new(&tx.fs().geo, namespace, name, Some(value))?;
    set_key(tx, slot, &key, value)
}

fn set_key(tx: &mut Tx<'_>, slot: InodeSlot, key: &Key<'_>, value: &[u8]) -> Result<()> {
    if value.len() > MAX_VALUE {
        return Err(Error::AttrTooBig);
    }
    if form(tx.inode(slot))? != Form::Tree {
        if short::set(tx, slot, key, value)? {
            return Ok(());
        }
        short::to_tree(tx, slot, key)?;
    }
    tree::set(tx, slot, key, value)
}

/// Removes an attribute. Returns `false` if there is none.
///
/// # Errors
/// [`Error::Invalid`] or [`Error::NameTooLong`] for an impossible name, or a damaged structure on
/// the way. The caller must then cancel the transaction.
pub fn remove(tx: &mut Tx<'_>, slot: InodeSlot, namespace: Namespace, name: &[u8]) -> Result<bool> {
    remove_key(tx, slot, &Key::new(&tx.fs().geo, namespace, name, None)?)
}

fn remove_key(tx: &mut Tx<'_>, slot: InodeSlot, key: &Key<'_>) -> Result<bool> {
    match form(tx.inode(slot))? {
        Form::Empty => Ok(false),
        Form::Short => Ok(short::remove(tx, slot, key)),
        Form::Tree => tree::remove(tx, slot, key),
    }
}

/// Does the inode have this parent pointer?
///
/// # Errors
/// As [`get`].
pub fn has_parent(
    fs: &Mount,
    inode: &InodeState,
    name: &[u8],
    parent: Ino,
    generation: u32,
) -> Result<bool> {
    let value = parent_value(parent, generation);
    let key = Key::new(&fs.geo, Namespace::Parent, name, Some(&value))?;
    match form(inode)? {
        Form::Empty => Ok(false),
        Form::Short => Ok(short::find(inode, &key).is_some()),
        Form::Tree => Ok(tree::find(fs, inode, &key, false)?.is_some()),
    }
}

/// Adds a parent pointer: the inode is now entry `name` of the directory `parent`.
///
/// # Errors
/// As [`set`].
pub fn add_parent(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    name: &[u8],
    parent: Ino,
    generation: u32,
) -> Result<()> {
    set(tx, slot, Namespace::Parent, name, &parent_value(parent, generation))
}

/// Removes a parent pointer. Returns `false` if there is none.
///
/// # Errors
/// As [`remove`].
pub fn remove_parent(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    name: &[u8],
    parent: Ino,
    generation: u32,
) -> Result<bool> {
    let value = parent_value(parent, generation);
    remove_key(tx, slot, &Key::new(&tx.fs().geo, Namespace::Parent, name, Some(&value))?)
}

/// The item for a leaf block. A value that does not fit into the leaf is written to remote blocks.
fn make_item(tx: &mut Tx<'_>, slot: InodeSlot, key: &Key<'_>, value: &[u8]) -> Result<leaf::Item> {
    let block_len = tx.fs().geo.block_size as usize;
    if leaf::is_local(key.name.len(), value.len(), block_len) {
        return Ok(leaf::Item::local(key.hash, key.flags, key.name, value));
    }
    let block = remote::write(tx, slot, value)?;
    // At most `MAX_VALUE`.
    let len = value.len() as u32;
    Ok(leaf::Item::remote(key.hash, key.flags, key.name, block, len))
}

/// Most blocks that setting an attribute with a value of this length may take. Removal takes as
/// many as setting an empty value.
pub fn set_blocks(geo: &Geometry, value_len: usize) -> u64 {
    let value = layout::remote::blocks(value_len.min(MAX_VALUE), geo.block_size as usize);
    // A leaf that splits in three, a split of every node above it, and a new root.
    let tree = 2 + uxfs_format::da::MAX_DEPTH as u64 + 1;
    // Each of these blocks can be an extent of its own. Neighbouring records go into the same
    // blocks of the extent btree. Its path splits once, and for many records its leaves split once
    // more.
    let map = 5 + (value + tree).div_ceil(8);
    // The data fork moves out of the inode, and takes a block of its extent btree.
    let moved = geo.dir_block_fsbs().max(2) + 1;
    value + tree + map + moved
}

/// If the fork's first block is a leaf, and so the whole tree, returns it.
fn single_leaf(fs: &Mount, inode: &InodeState) -> Result<Option<BufRef>> {
    let kinds = [BufKind::AttrLeaf, BufKind::DaNode];
    let buf = dabuf::read(fs, inode, Fork::Attr, FileBlock(0), &kinds)?;
    let is_leaf = buf.kind() == BufKind::AttrLeaf;
    Ok(is_leaf.then_some(buf))
}
