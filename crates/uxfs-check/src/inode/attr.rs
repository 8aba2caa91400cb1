//! Checks extended attributes and parent pointers, in all forms.
//!
//! Kernels set, replace and remove an attribute with a remote value in several transactions. A
//! crash between them leaves an entry marked incomplete. Its name may equal another entry's, its
//! blocks may hold no value, and the fork may map blocks that belong to no entry. Readers ignore
//! such an entry and the next change of the attribute removes it, so the check reports a warning.

use rustc_hash::FxHashSet;
use twox_hash::XxHash3_64;
use uxfs_format::acl::Acl;
use uxfs_format::attr::leaf::{self, Record, Value};
use uxfs_format::attr::remote::{self, RemoteHeader};
use uxfs_format::attr::{AttrFlags, PARENT_VALUE_LEN, hash, sf};
use uxfs_format::dir::name_problem;
use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::verify::BufKind;
use uxfs_format::{FsBlock, Ino};

use super::da::{Reader, Tree};
use super::dir::{blocks_from, link_hash};
use super::fork::Map;
use super::pass::{Inode, Pass};
use crate::bytes::{be32, be64};
use crate::code;
use crate::ctx::Reservation;

/// Names of the attributes that hold access control lists.
const ACLS: [&[u8]; 2] = [b"SGI_ACL_FILE", b"SGI_ACL_DEFAULT"];

/// Offset in a leaf block of the flag that there is free space between names.
const HOLES: usize = 62;

/// State of the check of one inode's attributes.
struct Attrs<'d, 'p, 'a> {
    pass: &'d Pass<'p, 'a>,
    inode: &'d Inode<'d>,
    /// Hashes of the names seen.
    names: FxHashSet<u64>,
    /// Memory reserved for `names` and `values`.
    memory: Reservation<'d, 'a>,
    /// Remote values, by offset in the fork.
    values: Vec<Place>,
    /// Was an incomplete attribute found?
    has_incomplete: bool,
}

/// Location of a remote value in the fork.
struct Place {
    block: u32,
    len: u32,
    /// Is it an access control list?
    acl: bool,
}

/// Checks the attributes of an inode.
pub(crate) fn check(pass: &Pass<'_, '_>, inode: &Inode<'_>, map: &Map) {
    if !inode.core.has_attr_fork() {
        return;
    }
    let memory = pass.ctx.reservation();
    let (names, values) = (FxHashSet::default(), Vec::new());
    let mut attrs = Attrs { pass, inode, names, memory, values, has_incomplete: false };
    match inode.core.aformat {
        ForkFormat::Local => attrs.short(),
        _ if map.extents().is_empty() => {}
        _ if map.sound => attrs.tree(map),
        _ => {}
    }
}

impl Attrs<'_, '_, '_> {
    fn short(&mut self) {
        let fork = self.inode.fork(Fork::Attr);
        if let Err(problem) = sf::verify(fork) {
            self.pass.ctx.find(code::ATTR, self.inode.place(), problem.detail);
            return;
        }
        for entry in sf::entries(fork) {
            self.name(entry.flags, entry.name, entry.value);
            self.value(entry.flags, entry.name, entry.value);
        }
    }

    /// Checks a name, which must be unique; the value is part of a parent pointer's name.
    fn name(&mut self, flags: AttrFlags, name: &[u8], value: &[u8]) {
        let ctx = self.pass.ctx;
        let mut bytes = vec![flags.namespace().bits()];
        bytes.extend_from_slice(name);
        if flags.contains(AttrFlags::PARENT) {
            bytes.push(0);
            bytes.extend_from_slice(value);
        }
        let show = String::from_utf8_lossy(name).escape_debug().to_string();
        if !self.names.insert(XxHash3_64::oneshot_with_seed(ctx.seed, &bytes)) {
            let message = format!("attribute \"{show}\" occurs twice");
            ctx.find(code::ATTR_DOUBLE, self.inode.place(), message);
        }
        if name.contains(&0) {
            ctx.find(code::ATTR, self.inode.place(), format!("invalid attribute name \"{show}\""));
        }
        if flags.contains(AttrFlags::PARENT) {
            self.parent(flags, name, value);
        }
    }

    fn parent(&self, flags: AttrFlags, name: &[u8], value: &[u8]) {
        let ctx = self.pass.ctx;
        let parent = Ino(be64(value, 0));
        let dots = matches!(name, b"." | b"..");
        let right = value.len() == PARENT_VALUE_LEN
            && ctx.geo.has_parent()
            && ctx.geo.ino_valid(parent)
            && name_problem(name).is_none()
            && !dots
            && !flags.contains(AttrFlags::INCOMPLETE);
        if !right {
            let show = String::from_utf8_lossy(name).escape_debug().to_string();
            let message = format!(
                "invalid parent pointer \"{show}\" to inode {parent}, {} bytes",
                value.len()
            );
            ctx.find(code::PARENT_RECORD, self.inode.place(), message);
            return;
        }
        let hash = link_hash(ctx.seed, parent, be32(value, 8), name);
        self.pass.table.add_link(self.inode.ino, hash.wrapping_neg());
    }

    /// Checks a value whose format is known.
    fn value(&self, flags: AttrFlags, name: &[u8], value: &[u8]) {
        if flags.namespace() == AttrFlags::ROOT
            && ACLS.contains(&name)
            && let Err(e) = Acl::from_xfs(value)
        {
            let message = format!("access control list: {e}");
            self.pass.ctx.find(code::ATTR_VALUE, self.inode.place(), message);
        }
    }

    /// Checks leaf blocks and the nodes above them.
    fn tree(&mut self, map: &Map) {
        let (ctx, inode) = (self.pass.ctx, self.inode);
        let mut reader = Reader::new(ctx, inode, map, 1, code::ATTR_BLOCK);
        let mut tree = Tree::new(&mut reader, BufKind::AttrLeaf);
        tree.run(0, &mut |bytes, fsb| self.leaf(bytes, fsb));
        let (complete, blocks) = (tree.complete, tree.seen.len() as u64);
        let mapped = blocks_from(map, uxfs_format::FileBlock(0), u64::MAX);
        let mut whole = complete;
        let mut taken = 0;
        for Place { block, len, acl } in core::mem::take(&mut self.values) {
            taken += remote::blocks(len as usize, ctx.geo.block_size as usize);
            // Values that share blocks would take too long to read.
            if blocks + taken > mapped {
                break;
            }
            whole &= self.remote(&mut reader, block, len as usize, acl);
        }
        // All, some or no blocks of an incomplete attribute may be mapped.
        let right =
            if self.has_incomplete { mapped >= blocks + taken } else { mapped == blocks + taken };
        if whole && !right {
            let message =
                format!("{mapped} blocks mapped, {blocks} used by the tree, {taken} by values");
            ctx.find(code::ATTR_EXTRA, inode.place(), message);
        }
    }

    fn leaf(&mut self, bytes: &[u8], fsb: FsBlock) {
        let ctx = self.pass.ctx;
        let place = ctx.place(fsb).of(self.inode.ino);
        let header = leaf::Header::decode(bytes);
        if !self.memory.grow(header.count * 2 * size_of::<Place>()) {
            return;
        }
        let lowest = leaf::records(bytes).map(|r| r.entry.at).min().unwrap_or(bytes.len());
        // If there is free space between names, kernels may leave `firstused` too low.
        if header.first != lowest && bytes[HOLES] == 0 {
            let message = format!("firstused is {}, lowest name at {lowest}", header.first);
            ctx.find(code::ATTR_BLOCK, place.clone(), message);
        }
        for record in leaf::records(bytes) {
            let Record { entry, name, value, .. } = record;
            let local = if let Value::Local(value) = value { value } else { b"" };
            let wanted = hash(ctx.geo.naming, entry.flags, name, local);
            if entry.hash != wanted {
                let message = format!("attribute hash {:#x}, expected {wanted:#x}", entry.hash);
                ctx.find(code::ATTR_HASH, place.clone(), message);
            }
            let incomplete = entry.flags.contains(AttrFlags::INCOMPLETE);
            if incomplete && !entry.flags.contains(AttrFlags::PARENT) {
                let message = "an attribute is marked incomplete";
                ctx.find(code::ATTR_INCOMPLETE, place.clone(), message);
                self.has_incomplete = true;
                continue;
            }
            self.name(entry.flags, name, local);
            match value {
                Value::Local(value) => self.value(entry.flags, name, value),
                Value::Remote { block, len } => {
                    let acl = entry.flags.namespace() == AttrFlags::ROOT && ACLS.contains(&name);
                    self.values.push(Place { block, len, acl });
                }
            }
        }
    }

    /// Checks the blocks of a remote value.
    fn remote(&self, reader: &mut Reader<'_, '_>, block: u32, len: usize, acl: bool) -> bool {
        let ctx = self.pass.ctx;
        let mut value = Vec::new();
        let blocks = remote::blocks(len, ctx.geo.block_size as usize);
        if len == 0 {
            ctx.find(code::ATTR_VALUE, self.inode.place(), "a remote value is empty");
            return false;
        }
        for number in 0..blocks {
            let offset = u64::from(block) + number;
            let Some((_, fsb, bytes)) = reader.read(offset, &[BufKind::AttrRemote]) else {
                return false;
            };
            let header = RemoteHeader::view(bytes);
            let (at, count) = (header.offset.get() as usize, header.bytes.get() as usize);
            let wanted = (len - value.len()).min(remote::payload(bytes.len()));
            if at != value.len() || count != wanted {
                let message = format!("{count} bytes at offset {at} of a value, expected {wanted}");
                ctx.find(code::ATTR_VALUE, ctx.place(fsb).of(self.inode.ino), message);
                return false;
            }
            value.extend_from_slice(&bytes[remote::HEADER_LEN..remote::HEADER_LEN + wanted]);
        }
        if acl {
            self.value(AttrFlags::ROOT, ACLS[0], &value);
        }
        true
    }
}
