//! Inodes in the log: the core, the forks that changed, and the unlinked list pointer (XFS' inode log item).

use std::borrow::Cow;

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::attr::sf;
use uxfs_format::inode::{CORE_LEN, DEV, Fork, ForkFormat, NEXT_UNLINKED_OFFSET};
use uxfs_format::log::{
    BufFlags, BufItem, BufType, CHUNK, InodeFields, InodeItem, core_to_log, root_to_log,
};
use uxfs_format::{BASIC_BLOCK, Check, Place};
use uxfs_journal::Regions;

use super::item::{Cil, Handle};
use crate::error::{Error, Result};
use crate::inode::{self, Changed, InodeRef, InodeState};
use crate::mount::Mount;

/// Adds an inode that changed in these parts.
pub(crate) fn add(
    cil: &mut Cil,
    fs: &Mount,
    cell: &InodeRef,
    state: &mut InodeState,
    parts: Changed,
    unlinked: bool,
) {
    let log = &mut state.log;
    if !log.parts.is_empty() && (cil.is_immediate() || log.changed != cil.seq.0) {
        cil.relog(CORE_LEN as u64);
    }
    log.parts |= parts;
    log.unlinked |= unlinked;
    if log.changed != cil.seq.0 {
        log.changed = cil.seq.0;
        log.counted = (0, 0);
        log.slot = cil.add(Handle::Inode(state.ino, cell.clone()));
    }
    // Its present size: the size of a checkpoint is the sum of these, and most inodes have
    // empty forks.
    let (regions, bytes) = size(state);
    let counted = &mut state.log.counted;
    cil.account(regions.saturating_sub(counted.0).into(), bytes.saturating_sub(counted.1).into());
    *counted = (counted.0.max(regions), counted.1.max(bytes));
    cil.copy_regions(state.log.slot, |regions| write(fs, state, regions));
}

/// Writes an inode item, and the buffer item of its unlinked list pointer.
pub(crate) fn write(fs: &Mount, state: &InodeState, records: &mut dyn Regions) -> Result<()> {
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
        rdev = DEV.get(&state.literal);
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
fn size(state: &InodeState) -> (u32, u32) {
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
    let damaged = |check: Check, detail: String| {
        Error::corrupt("inode", Place::Inode(state.ino), check, detail)
    };
    let (field, used) = match format {
        ForkFormat::Dev => return Ok(None),
        ForkFormat::Local => {
            let len = match fork {
                Fork::Data => core.size as usize,
                Fork::Attr => usize::from(sf::TOTAL.get(bytes)),
            };
            (pick(InodeFields::DDATA, InodeFields::ADATA), len)
        }
        ForkFormat::Extents => (pick(InodeFields::DEXT, InodeFields::AEXT), extents as usize * 16),
        ForkFormat::Btree => {
            let root = root_to_log(bytes, state.ino, &fs.geo.meta_uuid)
                .map_err(|detail| damaged(Check::Size, detail))?;
            let field = pick(InodeFields::DBROOT, InodeFields::ABROOT);
            return Ok(Some(Region { field, len: root.len(), bytes: root.into() }));
        }
    };
    let Some(used) = bytes.get(..used) else {
        return Err(damaged(
            Check::Size,
            format!("{fork:?} fork of {used} bytes in {}", bytes.len()),
        ));
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
