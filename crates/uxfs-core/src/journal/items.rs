//! Log items: what is logged of each object of a checkpoint.
//!
//! They are formatted when a transaction commits, while it still holds the object: with delayed logging into
//! a copy ([`super::copies`]), else into the log buffers ([`super::immediate`]).

use std::borrow::Cow;

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::inode::{CORE_LEN, Fork, ForkFormat, NEXT_UNLINKED_OFFSET};
use uxfs_format::log::{
    BufFlags, BufItem, BufType, CHUNK, InodeFields, InodeItem, core_to_log, root_to_log,
};
use uxfs_format::verify::BufKind;
use uxfs_format::{BASIC_BLOCK, Daddr, Place};
use uxfs_journal::Records;

use crate::buf::{BufRef, Piece};
use crate::error::{Error, Result};
use crate::inode::Changed;
use crate::inode::{self, InodeState};
use crate::mount::Mount;

/// Bytes of the superblock that are logged: all of it, in whole chunks.
const SUPERBLOCK_LOGGED: usize = 384;

/// A receiver of the regions of log items.
pub(super) trait Regions {
    /// Adds a region.
    fn region(&mut self, bytes: &[u8]);
}

impl Regions for Records {
    fn region(&mut self, bytes: &[u8]) {
        Records::region(self, bytes);
    }
}

/// Writes a cancel item.
pub(super) fn cancel(daddr: Daddr, len: usize, records: &mut Records) {
    records.region(&BufItem::cancel(daddr, len).encode());
}

/// Writes the items of a buffer in its present state.
pub(super) fn buffer(buf: &BufRef, records: &mut Records) {
    let content = buf.read();
    if content.log.died == 0 && content.kind != BufKind::InodeCluster {
        let kind = BufType::of(content.kind);
        chunks(buf.pieces(), kind, &content.log.chunks, &content.bytes, records);
    }
}

/// Writes an item for each of these pieces of a buffer that has logged chunks.
pub(super) fn chunks(
    pieces: &[Piece],
    kind: BufType,
    logged: &[u64],
    bytes: &[u8],
    records: &mut Records,
) {
    let logged = |chunk: usize| {
        logged.get(chunk / 64).is_some_and(|word| word >> (chunk % 64) & 1 != 0)
            && !(planted(Fault::ChunkLost) && chunk % 4 == 3)
    };
    let mut first = 0;
    for piece in pieces {
        let len = piece.len as usize;
        let mut item = BufItem::new(kind, piece.daddr, len);
        (0..len / CHUNK).filter(|chunk| logged(first + chunk)).for_each(|c| item.set_chunk(c));
        if item.runs().next().is_some() {
            records.region(&item.encode());
            for (chunk, count) in item.runs() {
                let from = (first + chunk) * CHUNK;
                records.region(&bytes[from..from + count * CHUNK]);
            }
        }
        first += len / CHUNK;
    }
}

/// Writes the superblock item.
pub(super) fn superblock(fs: &Mount, records: &mut dyn Regions) {
    let sector = fs.edit_superblock(|_| {});
    let mut item = BufItem::new(BufType::Superblock, Daddr(0), sector.len());
    (0..SUPERBLOCK_LOGGED / CHUNK).for_each(|chunk| item.set_chunk(chunk));
    records.region(&item.encode());
    records.region(&sector[..SUPERBLOCK_LOGGED]);
}

/// Writes an inode item, and the buffer item of its unlinked list pointer.
pub(super) fn inode(fs: &Mount, state: &InodeState, records: &mut dyn Regions) -> Result<()> {
    let core_only = !state.log.parts.intersects(Changed::DATA | Changed::ATTR);
    if core_only && planted(Fault::CoreNotLogged) {
        return Ok(());
    }
    let (daddr, offset) = inode::locate(&fs.geo, state.ino);
    let cluster = (fs.geo.cluster_blocks() << fs.geo.block_log) as usize;
    let mut raw = [0; CORE_LEN];
    state.logged_core().encode_core(&mut raw, state.ino, &fs.geo.meta_uuid);
    let data = region(fs, state, Fork::Data)?;
    let attr = region(fs, state, Fork::Attr)?;
    let mut fields = InodeFields::CORE;
    fields |= data.as_ref().map_or(InodeFields::empty(), |r| r.field);
    fields |= attr.as_ref().map_or(InodeFields::empty(), |r| r.field);
    let mut rdev = 0;
    if state.core.format == ForkFormat::Dev {
        fields |= InodeFields::DEV;
        rdev = state.literal.first_chunk().map_or(0, |raw| u32::from_be_bytes(*raw));
    }
    let len = |fork: &Option<Region>| fork.as_ref().map_or(0, |r| r.len as u16);
    let item = InodeItem {
        regions: InodeItem::regions_of(fields),
        fields,
        asize: len(&attr),
        dsize: len(&data),
        ino: state.ino,
        rdev,
        blkno: daddr,
        len: (cluster / BASIC_BLOCK) as i32,
        boffset: offset as i32,
    };
    records.region(&item.encode());
    records.region(&core_to_log(&raw));
    for fork in data.iter().chain(&attr) {
        records.region(&fork.bytes);
    }
    if state.log.unlinked && !planted(Fault::UnlinkedNotLogged) {
        let mut item = BufItem::new(BufType::Dino, daddr, cluster);
        item.flags |= BufFlags::INODE;
        item.set_chunk(offset / CHUNK);
        records.region(&item.encode());
        const { assert!(NEXT_UNLINKED_OFFSET + 4 <= CHUNK) };
        records.region(&raw[..CHUNK]);
    }
    Ok(())
}

/// Upper bounds of the regions and bytes of an inode's items in its present state.
pub(super) fn inode_size(state: &InodeState) -> (u32, u32) {
    let core = &state.core;
    let fork = |part, fork, format, extents: u64| -> u32 {
        if !state.log.parts.contains(part) {
            return 0;
        }
        let most = state.fork(fork).len().next_multiple_of(4) as u32;
        match format {
            ForkFormat::Extents => extents.saturating_mul(16).min(most.into()) as u32,
            ForkFormat::Local if fork == Fork::Data => (core.size.min(most.into()) as u32 + 3) & !3,
            // A btree root is logged with the header of a btree block.
            ForkFormat::Btree => most + ROOT_HEADER,
            ForkFormat::Local | ForkFormat::Dev => most,
        }
    };
    let data = fork(Changed::DATA, Fork::Data, core.format, core.nextents);
    let attr = match core.forkoff {
        0 => 0,
        _ => fork(Changed::ATTR, Fork::Attr, core.aformat, core.anextents.into()),
    };
    let (mut regions, mut bytes) = (2 + u32::from(data > 0) + u32::from(attr > 0), data + attr);
    bytes += INODE_ITEM + INODE_CORE;
    if state.log.unlinked {
        regions += 2;
        bytes += UNLINKED_ITEM + CHUNK as u32;
    }
    (regions, bytes)
}

/// Bytes of an inode item's format; of the core that follows; of the header that a btree root gets;
/// of the item of an unlinked list pointer.
const INODE_ITEM: u32 = 56;
const INODE_CORE: u32 = 176;
const ROOT_HEADER: u32 = 72;
const UNLINKED_ITEM: u32 = 44;

/// A fork's region of an inode's item.
struct Region<'a> {
    field: InodeFields,
    /// Length without padding.
    len: usize,
    bytes: Cow<'a, [u8]>,
}

/// The logged region of a fork, if it changed and is not empty.
fn region<'a>(fs: &Mount, state: &'a InodeState, fork: Fork) -> Result<Option<Region<'a>>> {
    let core = &state.core;
    let (part, format) = match fork {
        Fork::Data => (Changed::DATA, core.format),
        Fork::Attr => (Changed::ATTR, core.aformat),
    };
    if !state.log.parts.contains(part) || (fork == Fork::Attr && core.forkoff == 0) {
        return Ok(None);
    }
    let bytes = state.fork(fork);
    let pick = |data: InodeFields, attr| if fork == Fork::Data { data } else { attr };
    let extents = match fork {
        Fork::Data => core.nextents,
        Fork::Attr => core.anextents.into(),
    };
    let damaged = |problem: String| Error::corrupt("inode", Place::Inode(state.ino), problem);
    let (field, used) = match format {
        ForkFormat::Dev => return Ok(None),
        ForkFormat::Local => {
            let len = match fork {
                Fork::Data => core.size as usize,
                Fork::Attr => usize::from(u16::from_be_bytes([bytes[0], bytes[1]])),
            };
            (pick(InodeFields::DDATA, InodeFields::ADATA), len)
        }
        ForkFormat::Extents => (pick(InodeFields::DEXT, InodeFields::AEXT), extents as usize * 16),
        ForkFormat::Btree => {
            let root = root_to_log(bytes, state.ino, &fs.geo.meta_uuid).map_err(damaged)?;
            let field = pick(InodeFields::DBROOT, InodeFields::ABROOT);
            return Ok(Some(Region { field, len: root.len(), bytes: root.into() }));
        }
    };
    let Some(used) = bytes.get(..used) else {
        return Err(damaged(format!("{fork:?} fork of {used} bytes in {}", bytes.len())));
    };
    if used.is_empty() {
        return Ok(None);
    }
    let mut bytes = Cow::Borrowed(used);
    if !used.len().is_multiple_of(4) {
        bytes.to_mut().resize(used.len().next_multiple_of(4), 0);
    }
    Ok(Some(Region { field, len: used.len(), bytes }))
}
