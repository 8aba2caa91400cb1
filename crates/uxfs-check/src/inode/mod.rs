//! Phase 2: checks all inodes, chunk by chunk, with their forks, directories and attributes.
//!
//! 1. Inodes are read in large pieces and in order; threads take pieces in turn.
//! 2. Blocks that an inode owns become claims. Links between inodes are recorded in the [`Table`](crate::table::Table).
//!    Both are compared after all inodes were read.
//! 3. The number of existing blocks bounds every loop. A block of a tree is entered only once, a
//!    fork that maps blocks twice is not read, and a block of another owner is not used.

mod attr;
mod core;
mod da;
mod dir;
mod fork;
mod index;
mod pass;
mod quota;
mod symlink;

use uxfs_format::btree::InodeChunk;
use uxfs_format::dir::FileType;
use uxfs_format::geometry::CHUNK_INODES;
use uxfs_format::inode::{self, InodeCore};
use uxfs_format::{AgIno, AgNo, Ino, crc};

use crate::bytes::{be16, be64};
use crate::code;
use crate::ctx::Ctx;
use crate::finding::Place;
use pass::Inode;
pub(crate) use pass::{DirRecord, Local, Pass};

/// Number of chunks in one piece of work.
pub(crate) const PIECE: usize = 16;
/// Maximum size of one read of inodes in bytes.
const READ_MAX: u64 = 1 << 20;
/// Checks the inodes of some chunks of a group.
pub(crate) fn check(pass: &Pass<'_, '_>, ag: AgNo, chunks: &[InodeChunk], local: &mut Local) {
    let geo = &pass.ctx.geo;
    let mut rest = chunks;
    let mut buf = Vec::new();
    while let Some(first) = rest.first() {
        // Adjacent chunks are read at once.
        let run = 1 + rest.windows(2).take_while(|w| w[0].start.0 + 64 == w[1].start.0).count();
        let most = (READ_MAX / (u64::from(CHUNK_INODES) << geo.inode_log)).max(1) as usize;
        let run = run.min(most);
        let block = geo.agino_block(first.start);
        let skip = (first.start.0 & (geo.inodes_per_block() - 1)) << geo.inode_log;
        let daddr = geo.ag_daddr(ag, block);
        buf.resize((run * CHUNK_INODES as usize) << geo.inode_log, 0);
        let at = uxfs_format::Daddr(daddr.0 + u64::from(skip >> 9));
        if pass.ctx.read(at, &mut buf, &Place::block(ag, block)) {
            let each = (CHUNK_INODES as usize) << geo.inode_log;
            for (chunk, raw) in rest.iter().zip(buf.chunks_exact(each)) {
                check_chunk(pass, ag, chunk, raw, local);
            }
        } else {
            local.incomplete = true;
        }
        rest = &rest[run..];
    }
    local.flush(pass.groups);
}

fn check_chunk(pass: &Pass<'_, '_>, ag: AgNo, chunk: &InodeChunk, raw: &[u8], local: &mut Local) {
    let geo = &pass.ctx.geo;
    let present = chunk.present();
    for (bit, raw) in raw.chunks_exact(geo.inode_size as usize).enumerate() {
        if present >> bit & 1 == 0 {
            continue;
        }
        let ino = geo.ino(ag, AgIno(chunk.start.0 + bit as u32));
        let free = chunk.free >> bit & 1 != 0;
        if !identity(pass.ctx, ino, raw) {
            local.incomplete |= !free;
            continue;
        }
        let mode = be16(raw, 2);
        if (mode == 0) != free {
            let say = |free: bool| if free { "free" } else { "in use" };
            let message =
                format!("{} by its own mode, {} by the inode btree", say(mode == 0), say(free));
            pass.ctx.find(code::INODE_FREE, Place::inode(ino), message);
            local.incomplete |= mode != 0;
        } else if free {
            core::check_free(pass.ctx, ino, raw);
        } else {
            check_inode(pass, ino, raw, local);
        }
    }
}

/// Checks the fields of every inode, free or in use. False if the bytes are no inode.
fn identity(ctx: &Ctx<'_>, ino: Ino, raw: &[u8]) -> bool {
    let place = Place::inode(ino);
    if be16(raw, 0) != inode::MAGIC || raw[4] != 3 {
        let message = format!("magic {:#06x} and version {}", be16(raw, 0), raw[4]);
        ctx.find(code::INODE, place, message);
        return false;
    }
    if !crc::matches(raw, inode::CRC_OFFSET) {
        ctx.find(code::INODE_CRC, place.clone(), "checksum does not match");
    }
    if be64(raw, 152) != ino.0 {
        let message = format!("holds inode number {}", be64(raw, 152));
        ctx.find(code::INODE, place.clone(), message);
    }
    if raw[160..176] != ctx.geo.meta_uuid.0 {
        ctx.find(code::INODE, place.clone(), "UUID is another volume's");
    }
    ctx.check_lsn(inode::LSN.get(raw), &place);
    true
}

fn check_inode(pass: &Pass<'_, '_>, ino: Ino, raw: &[u8], local: &mut Local) {
    let ctx = pass.ctx;
    local.totals.inodes += 1;
    let core = match InodeCore::decode_unchecked(raw, ino) {
        Ok(core) => core,
        Err(e) => {
            ctx.find(code::INODE, Place::inode(ino), e.detail);
            local.incomplete = true;
            return;
        }
    };
    let inode = Inode { ino, core, raw };
    core::check(ctx, &inode);
    local.usage.count(ctx, ino, &inode.core);
    if let Some(slot) = pass.table.get(ino) {
        slot.set_read(FileType::from_mode(inode.core.mode) as u8, inode.core.nlink);
    }
    if inode.core.nlink == 0 || !inode.core.next_unlinked.is_null() {
        local.unlinked.push((ino, inode.core.next_unlinked));
    }
    if inode.core.flags2.contains(inode::Flags2::REFLINK) {
        local.reflinked.push(ino);
    }
    let quota = quota::kind(ctx, ino);
    let keep = inode.core.is_dir() || inode.core.is_symlink() || quota.is_some();
    let (mut data, mut attrs) = (Vec::new(), Vec::new());
    let mut memory = ctx.reservation();
    let wanted = keep.then_some(&mut data);
    let whole = fork::check(pass, &inode, wanted, &mut attrs, &mut memory, local);
    let data = fork::Map::new(ctx, &inode, data, "data");
    let attrs = fork::Map::new(ctx, &inode, attrs, "attribute");
    if inode.core.is_dir() {
        let dotdot = if whole { dir::check(pass, &inode, &data, local) } else { None };
        local.dirs.push(DirRecord { ino, dotdot });
        local.totals.directories += 1;
    } else if inode.core.is_symlink() && whole {
        symlink::check(ctx, &inode, &data);
    }
    if let Some(kind) = quota.filter(|_| whole) {
        quota::check(ctx, &inode, &data, kind, local);
    }
    if whole {
        attr::check(pass, &inode, &attrs);
    }
}

/// Reads one inode again, to record the names in it.
pub(crate) fn reread(pass: &Pass<'_, '_>, ino: Ino, local: &mut Local) {
    let geo = &pass.ctx.geo;
    let agino = geo.ino_agino(ino);
    let skip = (agino.0 & (geo.inodes_per_block() - 1)) << geo.inode_log;
    let daddr = geo.ag_daddr(geo.ino_ag(ino), geo.agino_block(agino));
    let mut raw = vec![0; geo.inode_size as usize];
    let at = uxfs_format::Daddr(daddr.0 + u64::from(skip >> 9));
    if pass.ctx.read(at, &mut raw, &Place::inode(ino)) && be16(&raw, 0) == inode::MAGIC {
        check_inode(pass, ino, &raw, local);
    }
}
