//! Directories: names to inodes, in all four forms.
//!
//! 1. The fork determines the form. A local fork is short form; a single block of kind `XDB3` is block
//!    form; otherwise the kind of the block at the leaf offset tells leaf form from node form.
//! 2. A directory changes to the next form when an entry does not fit, and changes back as soon as it
//!    fits. An empty directory is therefore in short form again.
//! 3. An entry keeps its offset in the data space through all forms. Readers use the offset as a
//!    cookie to continue ([`read_dir`]).
//! 4. Names compare by the volume's rule ([`uxfs_format::Naming`]). An entry keeps the spelling
//!    with which it was inserted, and [`stored_name`] returns it.
//! 5. These functions change blocks, fork, format and size, and through the mapping the block
//!    count. The caller updates link counts and times.
//!
//! Called by the operations, which hold the directory's lock and have checked permissions and names.

mod block;
mod data;
mod form;
mod leaf;
mod node;
mod read;
mod search;
mod short;

use std::borrow::Cow;

use uxfs_format::dir::{self as format, FileType};
use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::verify::BufKind;
use uxfs_format::{Check, FileBlock, Geometry, Ino, da};

use form::{Form, Hit, New, form};
pub use read::{DirEntry, is_empty, read_dir};

use search::search;

use crate::buf::BufRef;
use crate::da::Path;
use crate::dabuf;
use crate::error::{Error, Result};
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::tx::{InodeSlot, Tx};

/// Finds a name in block, leaf or node form; in node form also returns the path to its leaf.
fn find(
    fs: &Mount,
    inode: &InodeState,
    form: &Form,
    name: &[u8],
) -> Result<Option<(Hit, Option<Path>)>> {
    let hash = fs.geo.naming.hash(name);
    let in_one = |buf: &BufRef, slots| {
        let (hit, _) = search(fs, inode, buf, slots, name, hash)?;
        Ok(hit.map(|hit| (hit, None)))
    };
    match form {
        Form::Short => Ok(None),
        Form::Block(buf) => in_one(buf, block::slots(buf)),
        Form::Leaf(buf) => in_one(buf, leaf::slots(buf)),
        Form::Node(root) => {
            let found = node::find(fs, inode, root, name, hash)?;
            Ok(found.map(|(hit, path)| (hit, Some(path))))
        }
    }
}

/// Returns the inode of a name, and the file type that the entry stores. `.` and `..` are valid
/// names.
///
/// # Errors
/// [`Error::NotDir`], [`Error::NameTooLong`], or a damaged structure on the way.
pub fn lookup(fs: &Mount, inode: &InodeState, name: &[u8]) -> Result<Option<(Ino, FileType)>> {
    if name.len() > format::MAX_NAME {
        return Err(Error::NameTooLong);
    }
    let form = form(fs, inode)?;
    if let Form::Short = form {
        return short::lookup(fs, inode, name);
    }
    Ok(find(fs, inode, &form, name)?.map(|(hit, _)| (hit.ino, hit.ftype)))
}

/// Returns a name as its entry spells it, which differs from `name` only where names compare
/// without case; `name` itself if there is no such entry.
///
/// # Errors
/// As [`lookup`].
pub fn stored_name<'n>(fs: &Mount, inode: &InodeState, name: &'n [u8]) -> Result<Cow<'n, [u8]>> {
    if !fs.geo.naming.folds() {
        return Ok(Cow::Borrowed(name));
    }
    if name.len() > format::MAX_NAME {
        return Err(Error::NameTooLong);
    }
    let form = form(fs, inode)?;
    if let Form::Short = form {
        return short::stored_name(fs, inode, name);
    }
    let Some((hit, _)) = find(fs, inode, &form, name)?.filter(|(hit, _)| !hit.exact) else {
        return Ok(Cow::Borrowed(name));
    };
    let block = hit.data.read();
    let entry = fs.geo.dir.entry_at(&block, hit.at, block.len());
    Ok(entry.map_or(Cow::Borrowed(name), |entry| Cow::Owned(entry.name.to_vec())))
}

/// Returns the parent directory, as `..` names it.
///
/// # Errors
/// [`Error::NotDir`], or a damaged structure on the way.
pub fn parent(fs: &Mount, inode: &InodeState) -> Result<Ino> {
    if !inode.core.is_dir() {
        return Err(Error::NotDir);
    }
    if inode.core.format == ForkFormat::Local {
        return Ok(short::parse(fs, inode)?.parent());
    }
    let kinds = [BufKind::DirBlock, BufKind::DirData];
    let buf = dabuf::read(fs, inode, Fork::Data, FileBlock(0), &kinds)?;
    let entry = {
        let bytes = buf.read();
        let shape = fs.geo.dir;
        let entry = shape.entry_at(&bytes, shape.dotdot(), bytes.len());
        entry.filter(|entry| entry.name == b"..").map(|entry| entry.ino)
    };
    entry.ok_or_else(|| buf.corrupt(Check::Missing, "has no \"..\""))
}

/// Makes a new inode an empty directory in short form.
pub fn init(tx: &mut Tx<'_>, slot: InodeSlot, parent: Ino) {
    short::write(tx, slot, &format::sf::build(parent, core::iter::empty()));
}

fn check_new_name(name: &[u8]) -> Result<()> {
    if name.len() > format::MAX_NAME {
        return Err(Error::NameTooLong);
    }
    match format::name_problem(name) {
        Some(problem) => Err(Error::Invalid(problem)),
        None => Ok(()),
    }
}

/// Inserts a name. The caller has checked that it does not exist. The transaction must have
/// reserved [`insert_blocks`].
///
/// # Errors
/// [`Error::NoSpace`]; [`Error::NameTooLong`] or [`Error::Invalid`] for an impossible name; or a
/// damaged structure on the way.
pub fn insert(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    name: &[u8],
    ino: Ino,
    ftype: FileType,
) -> Result<()> {
    check_new_name(name)?;
    let fs = tx.fs();
    let new = New { name, hash: fs.geo.naming.hash(name), ino, ftype };
    // Each round either inserts the name or converts to the next form. There are four forms.
    loop {
        match form(fs, tx.inode(slot))? {
            Form::Short => {
                if short::insert(tx, slot, new)? {
                    return Ok(());
                }
                short::to_block(tx, slot)?;
            }
            Form::Block(buf) => {
                if block::insert(tx, &buf, new) {
                    return Ok(());
                }
                block::to_leaf(tx, slot, &buf)?;
            }
            Form::Leaf(buf) => {
                if leaf::insert(tx, slot, &buf, new)? {
                    return Ok(());
                }
                leaf::to_node(tx, slot, &buf)?;
            }
            Form::Node(root) => return node::insert(tx, slot, root, new),
        }
    }
}

/// Removes a name and returns its inode, or `None` if there is no such name. The transaction must
/// have reserved [`remove_blocks`].
///
/// # Errors
/// A damaged structure on the way.
pub fn remove(tx: &mut Tx<'_>, slot: InodeSlot, name: &[u8]) -> Result<Option<Ino>> {
    if name == b"." || name == b".." {
        return Err(Error::Invalid("\".\" and \"..\" cannot be removed"));
    }
    let fs = tx.fs();
    let form = form(fs, tx.inode(slot))?;
    if let Form::Short = form {
        return short::remove(tx, slot, name);
    }
    let Some((hit, path)) = find(fs, tx.inode(slot), &form, name)? else { return Ok(None) };
    let ino = hit.ino;
    match (form, path) {
        (Form::Block(buf), _) => block::remove(tx, slot, &buf, &hit)?,
        (Form::Leaf(buf), _) => leaf::remove(tx, slot, &buf, &hit)?,
        (_, Some(path)) => node::remove(tx, slot, path, &hit)?,
        _ => {}
    }
    Ok(Some(ino))
}

/// Changes the inode of a name; for `..` this sets the parent. The transaction must have reserved
/// [`insert_blocks`].
///
/// # Errors
/// [`Error::NotFound`], [`Error::NoSpace`], or a damaged structure on the way.
pub fn replace(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    name: &[u8],
    ino: Ino,
    ftype: FileType,
) -> Result<()> {
    let fs = tx.fs();
    if let Form::Short = form(fs, tx.inode(slot))? {
        if short::replace(tx, slot, name, ino, ftype)? {
            return Ok(());
        }
        short::to_block(tx, slot)?;
    }
    let form = form(fs, tx.inode(slot))?;
    let Some((hit, _)) = find(fs, tx.inode(slot), &form, name)? else {
        return Err(Error::NotFound);
    };
    let type_at = hit.at + format::data::ftype_at(name.len());
    tx.set(&hit.data, format::data::ino_at(hit.at), ino);
    tx.edit(&hit.data, type_at..type_at + 1)[0] = ftype as u8;
    Ok(())
}

/// Converts a directory in short form to block form, because its space in the inode is needed for
/// something else. Other forms stay unchanged. The transaction must have reserved
/// [`insert_blocks`].
///
/// # Errors
/// [`Error::NoSpace`], or a damaged structure on the way.
pub fn to_block(tx: &mut Tx<'_>, slot: InodeSlot) -> Result<()> {
    match form(tx.fs(), tx.inode(slot))? {
        Form::Short => short::to_block(tx, slot),
        _ => Ok(()),
    }
}

/// Maximum number of levels of a directory's extent map.
const MAP_LEVELS: u64 = 5;

/// Most blocks that inserting a name may take.
pub fn insert_blocks(geo: &Geometry) -> u64 {
    // A data block, a free index block, a leaf, a node for every level, and a block for the root's
    // content. Each block may need an extent of its own, for which the map grows.
    let blocks = 2 + da::MAX_DEPTH as u64 + 1;
    blocks * (geo.dir_block_fsbs() + MAP_LEVELS)
}

/// Most blocks that removing a name may take: the map may split if a block in the middle of an
/// extent is freed.
pub fn remove_blocks(_geo: &Geometry) -> u64 {
    2 * MAP_LEVELS
}

// xfsprogs judges these tests, and it is not on other systems than Unix.
#[cfg(test)]
#[cfg(unix)]
mod tests;
