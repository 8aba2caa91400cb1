//! Checks symbolic links: the target is in the inode, or in blocks with one header per extent.

use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::symlink::{HEADER_LEN, MAX_TARGET, SymlinkHeader};
use uxfs_format::verify::{self, BufKind, Owner};
use uxfs_format::{Extent, Lsn};

use super::fork::Map;
use super::pass::Inode;
use crate::code;
use crate::ctx::Ctx;

/// Checks the target of a symbolic link.
pub(crate) fn check(ctx: &Ctx<'_>, inode: &Inode<'_>, map: &Map) {
    let bad = |message: String| ctx.find(code::SYMLINK, inode.place(), message);
    let size = inode.core.size;
    if size == 0 || size > MAX_TARGET as u64 {
        bad(format!("target length {size}"));
        return;
    }
    let target = if inode.core.format == ForkFormat::Local {
        inode.fork(Fork::Data).get(..size as usize).map(<[u8]>::to_vec)
    } else if map.sound {
        remote(ctx, inode, map)
    } else {
        None
    };
    let Some(target) = target else { return };
    if target.len() as u64 != size {
        bad(format!("{} bytes in a target of {size}", target.len()));
    }
    if target.contains(&0) {
        bad("a NUL in the target".into());
    }
}

fn remote(ctx: &Ctx<'_>, inode: &Inode<'_>, map: &Map) -> Option<Vec<u8>> {
    let mut target = Vec::new();
    let mut next = 0;
    for extent in map.extents() {
        if extent.offset.0 != next || extent.end().0 << ctx.geo.block_log > 1 << 17 {
            let message = format!("the target's extent at offset {} is misplaced", extent.offset);
            ctx.find(code::SYMLINK, inode.place(), message);
            return None;
        }
        next = extent.end().0;
        target.extend(piece(ctx, inode, extent, target.len())?);
    }
    Some(target)
}

/// The part of the target in one extent.
fn piece(ctx: &Ctx<'_>, inode: &Inode<'_>, extent: &Extent, before: usize) -> Option<Vec<u8>> {
    let place = ctx.place(extent.start).of(inode.ino);
    let daddr = ctx.geo.fsb_daddr(extent.start);
    let mut bytes = vec![0; (extent.len as usize) << ctx.geo.block_log];
    if !ctx.read(daddr, &mut bytes, &place) {
        return None;
    }
    let kind = BufKind::Symlink;
    let checked = verify::check(&bytes, kind, daddr, &ctx.geo)
        .and_then(|()| verify::check_owner(&bytes, kind, daddr, Owner::Inode(inode.ino)));
    if let Err(e) = checked {
        ctx.find(code::SYMLINK, place, e.detail);
        return None;
    }
    if !verify::checksum_matches(&bytes, kind) {
        ctx.find(code::SYMLINK, place.clone(), "checksum does not match");
    }
    let header = SymlinkHeader::view(&bytes);
    ctx.check_lsn(Lsn(header.lsn.get()), &place);
    let (offset, len) = (header.offset.get() as usize, header.bytes.get() as usize);
    let part = bytes.get(HEADER_LEN..HEADER_LEN.saturating_add(len));
    if offset != before || part.is_none() {
        let message =
            format!("{len} bytes at offset {offset} of the target, behind {before} bytes");
        ctx.find(code::SYMLINK, place, message);
        return None;
    }
    part.map(<[u8]>::to_vec)
}
