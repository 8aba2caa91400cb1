//! Collecting the changes of a recovery step as the items of one log transaction.
//!
//! 1. Every metadata block that differs from the device becomes an item with the chunks that differ.
//!    Before that, the transaction's LSN is stamped into the block and into every inode that differs.
//! 2. Of a block of quota records, each record that differs becomes an item of its own.
//! 3. Blocks that are not metadata were written only to blocks that are free on the device. They are
//!    written in place before the transaction.

use std::collections::BTreeSet;
use std::sync::Arc;

use uxfs_disk::{BlockDev, Overlay};
use uxfs_format::dquot;
use uxfs_format::log::{BufItem, BufType, CHUNK, DquotItem, Item};
use uxfs_format::verify::{self, BufKind};
use uxfs_format::{BASIC_BLOCK, Daddr, Lsn, crc, inode};

use crate::error::{Error, Result};
use crate::fs::Fs;

/// The changes to be written.
pub(super) struct Changes {
    /// The transaction's items, each a list of regions.
    pub(super) items: Vec<Vec<Vec<u8>>>,
    data: Vec<(Daddr, Vec<u8>)>,
}

impl Changes {
    /// Writes blocks that are not metadata, and flushes if there were any.
    pub(super) fn write_data(&self, dev: &Arc<dyn BlockDev>) -> Result<()> {
        for (daddr, bytes) in &self.data {
            let io = |source| Error::Io { what: "writing", daddr: *daddr, source };
            dev.write_at(daddr.bytes(), bytes).map_err(io)?;
        }
        if self.data.is_empty() {
            return Ok(());
        }
        let io = |source| Error::Io { what: "flushing", daddr: Daddr(0), source };
        dev.flush().map_err(io)
    }
}

/// A metadata block that may have changed.
struct Block {
    daddr: Daddr,
    len: usize,
    kind: BufKind,
    /// The block is a part of a directory block whose checksum may lie in another part.
    part: bool,
}

/// Stamps all changed metadata with `lsn` and returns it as items.
pub(super) fn collect(fs: &Fs, overlay: &Arc<Overlay>, lsn: Lsn) -> Result<Changes> {
    let changed = changed_sectors(overlay)?;
    let mut items = Vec::new();
    let mut covered = BTreeSet::new();
    for block in blocks(fs) {
        let sectors = block.daddr.0..block.daddr.0 + (block.len / BASIC_BLOCK) as u64;
        if changed.range(sectors.clone()).next().is_none() {
            continue;
        }
        covered.extend(sectors);
        match block.kind {
            BufKind::Dquot(_) => items.extend(records(fs, overlay, &block, lsn)?),
            _ => items.extend(item(fs, overlay, &block, lsn)?),
        }
    }
    let mut data = Vec::new();
    for sector in changed.difference(&covered) {
        let mut bytes = vec![0; BASIC_BLOCK];
        read(&**overlay, Daddr(*sector), &mut bytes)?;
        data.push((Daddr(*sector), bytes));
    }
    Ok(Changes { items, data })
}

/// The item of a superblock, as it is on the device.
pub(super) fn superblock(sector: &[u8]) -> Vec<Vec<u8>> {
    let mut format = BufItem::new(BufType::Superblock, Daddr(0), sector.len());
    let len = sector.len().min(4 * CHUNK);
    (0..len / CHUNK).for_each(|chunk| format.set_chunk(chunk));
    Item::Buf(format, vec![(0, &sector[..len])]).encode()
}

fn read(dev: &dyn BlockDev, daddr: Daddr, bytes: &mut [u8]) -> Result<()> {
    let io = |source| Error::Io { what: "reading", daddr, source };
    dev.read_at(daddr.bytes(), bytes).map_err(io)
}

/// Basic blocks that differ from the device.
fn changed_sectors(overlay: &Overlay) -> Result<BTreeSet<u64>> {
    let mut changed = BTreeSet::new();
    let gathered = overlay.for_changes(|offset, old, new| {
        let pairs = old.chunks(BASIC_BLOCK).zip(new.chunks(BASIC_BLOCK));
        changed.extend((offset >> 9..).zip(pairs).filter(|(_, (a, b))| a != b).map(|(s, _)| s));
        Ok::<_, std::io::Error>(())
    });
    gathered.map_err(|source| Error::Io { what: "reading", daddr: Daddr(0), source })?;
    Ok(changed)
}

/// All metadata blocks that the engine has cached, in ascending order.
fn blocks(fs: &Fs) -> Vec<Block> {
    let sector = fs.geo.sector_size as usize;
    let first = Block { daddr: Daddr(0), len: sector, kind: BufKind::Superblock, part: false };
    let mut all = vec![first];
    for buf in fs.bufs.all() {
        let (kind, pieces) = (buf.kind(), buf.pieces());
        all.extend(pieces.iter().map(|piece| Block {
            daddr: piece.daddr,
            len: piece.len as usize,
            kind,
            part: pieces.len() > 1,
        }));
    }
    all.sort_unstable_by_key(|block| block.daddr);
    all.dedup_by_key(|block| block.daddr);
    all
}

/// Stamps the quota records of a block that differ, and makes them items.
fn records(fs: &Fs, overlay: &Arc<Overlay>, block: &Block, lsn: Lsn) -> Result<Vec<Vec<Vec<u8>>>> {
    let (mut old, mut new) = (vec![0; block.len], vec![0; block.len]);
    read(&**overlay.below(), block.daddr, &mut old)?;
    read(&**overlay, block.daddr, &mut new)?;
    let mut items = Vec::new();
    let pairs = old.chunks_exact(dquot::LEN).zip(new.chunks_exact_mut(dquot::LEN));
    for (index, (_, new)) in pairs.enumerate().filter(|(_, (old, new))| old != new) {
        dquot::LSN.set(new, lsn);
        crc::stamp(new, dquot::CRC_OFFSET);
        let format = DquotItem {
            id: dquot::ID.get(new),
            blkno: block.daddr,
            len: (block.len >> fs.geo.block_log) as i32,
            boffset: (index * dquot::LEN) as u32,
        };
        items.push(Item::Dquot(format, &new[..dquot::LOGGED_LEN]).encode());
    }
    let io = |source| Error::Io { what: "keeping in memory", daddr: block.daddr, source };
    overlay.write_at(block.daddr.bytes(), &new).map_err(io)?;
    Ok(items)
}

/// Stamps a block and makes it an item; `None` if the block does not differ.
fn item(fs: &Fs, overlay: &Arc<Overlay>, block: &Block, lsn: Lsn) -> Result<Option<Vec<Vec<u8>>>> {
    let (mut old, mut new) = (vec![0; block.len], vec![0; block.len]);
    read(&**overlay.below(), block.daddr, &mut old)?;
    read(&**overlay, block.daddr, &mut new)?;
    if old == new {
        return Ok(None);
    }
    if block.kind == BufKind::InodeCluster {
        let size = fs.geo.inode_size as usize;
        for (old, new) in old.chunks(size).zip(new.chunks_mut(size)).filter(|(o, n)| o != n) {
            debug_assert_eq!(old.len(), size);
            inode::LSN.set(new, lsn);
            crc::stamp(new, inode::CRC_OFFSET);
        }
    } else if let Some(layout) = block.kind.layout()
        && !block.part
    {
        if block.kind != BufKind::AttrRemote {
            layout.set_lsn(&mut new, lsn);
        }
        verify::stamp_checksum(&mut new, block.kind);
    }
    let io = |source| Error::Io { what: "keeping in memory", daddr: block.daddr, source };
    overlay.write_at(block.daddr.bytes(), &new).map_err(io)?;
    let mut format = BufItem::new(BufType::of(block.kind), block.daddr, block.len);
    for (chunk, (old, new)) in old.chunks(CHUNK).zip(new.chunks(CHUNK)).enumerate() {
        if old != new {
            format.set_chunk(chunk);
        }
    }
    let runs: Vec<_> = format.runs().collect();
    let piece =
        |(chunk, count): (usize, usize)| (chunk, &new[chunk * CHUNK..(chunk + count) * CHUNK]);
    let pieces = runs.into_iter().map(piece).collect();
    Ok(Some(Item::Buf(format, pieces).encode()))
}
