//! Replays buffer items, and stamps and verifies the replayed buffers.

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::dquot::{self, Dquot, QuotaType};
use uxfs_format::log::{BufFlags, BufItem, BufType, CHUNK, DquotItem};
use uxfs_format::verify::{self, BufKind};
use uxfs_format::{BASIC_BLOCK, Check, Daddr, Lsn, Place, crc, inode};

use super::{Replayer, Touched};
use crate::recovery::error::{Error, Result};

/// Most bytes of a buffer.
const BYTES_MAX: usize = 64 << 10;
/// Buffer types with a magic number of their own, which have an LSN and a checksum.
const KINDS: [BufType; 14] = [
    BufType::Btree,
    BufType::Agf,
    BufType::Agfl,
    BufType::Agi,
    BufType::Symlink,
    BufType::DirBlock,
    BufType::DirData,
    BufType::DirFree,
    BufType::DirLeaf1,
    BufType::DirLeafN,
    BufType::DaNode,
    BufType::AttrLeaf,
    BufType::AttrRemote,
    BufType::Superblock,
];

/// The kind of a buffer by its magic number.
fn identify(bytes: &[u8]) -> Option<BufKind> {
    KINDS.iter().find_map(|kind| BufKind::identify(bytes, kind.kinds()))
}

impl Replayer<'_> {
    /// The LSN of a buffer, if it has one that can be trusted.
    fn lsn_of(&mut self, bytes: &[u8]) -> Option<Lsn> {
        let kind = identify(bytes)?;
        let layout = kind.layout()?;
        let uuid = bytes.get(layout.uuid..layout.uuid + 16)?;
        if kind != BufKind::Superblock && *uuid != self.geo.meta_uuid.0 {
            return None;
        }
        let lsn = layout.lsn(bytes);
        if lsn.0 == 0 || lsn.is_null() {
            return None;
        }
        if !verify::checksum_matches(bytes, kind) {
            self.report.torn += 1;
            return None;
        }
        Some(lsn)
    }

    /// The bytes of a buffer, and its state.
    fn touch(&mut self, lsn: Lsn, format: &BufItem) -> Result<(Vec<u8>, Touched)> {
        let len = format.bytes();
        if len == 0 || len > BYTES_MAX {
            return Err(Error::item(lsn, format!("a buffer has an invalid length of {len} bytes")));
        }
        let mut bytes = vec![0; len];
        self.read(format.blkno, &mut bytes)?;
        let key = (format.blkno, len as u32);
        let known = self.touched.get(&key).copied();
        let touched = known.unwrap_or_else(|| Touched {
            bytes: len as u32,
            kind: format.kind,
            replayed: None,
            lsn: self.lsn_of(&bytes),
        });
        Ok((bytes, Touched { kind: format.kind, ..touched }))
    }

    pub(super) fn replay_buffer(
        &mut self,
        lsn: Lsn,
        format: &BufItem,
        pieces: &[(usize, &[u8])],
    ) -> Result<()> {
        if self.is_cancelled(format.blkno, format.len) {
            self.report.cancelled += 1;
            return Ok(());
        }
        if format.flags.intersects(BufFlags::DQUOT) && self.quota_is_off(format.flags) {
            return Ok(());
        }
        let (mut bytes, touched) = self.touch(lsn, format)?;
        let newer =
            touched.lsn.is_some_and(|on_disk| on_disk >= lsn) && !planted(Fault::LsnIgnored);
        if newer && touched.replayed != Some(lsn) {
            self.report.newer += 1;
            return Ok(());
        }
        for (chunk, piece) in pieces {
            let at = chunk * CHUNK;
            match bytes.get_mut(at..at + piece.len()) {
                Some(target) => target.copy_from_slice(piece),
                None => {
                    let len = bytes.len();
                    let problem = format!("chunk {chunk} lies outside a buffer of {len} bytes");
                    return Err(Error::item(lsn, problem));
                }
            }
        }
        self.write(format.blkno, &bytes)?;
        let key = (format.blkno, touched.bytes);
        self.touched.insert(key, Touched { replayed: Some(lsn), lsn: Some(lsn), ..touched });
        self.report.replayed += 1;
        // Items after this one belong to the volume's new geometry.
        if format.kind == BufType::Superblock && format.blkno == Daddr(0) {
            self.finish_buffer(format.blkno, key.1)?;
            self.refresh_geometry()?;
        }
        Ok(())
    }

    /// Replays an inode buffer: only the links of unlinked lists.
    pub(super) fn replay_unlinked_list(
        &mut self,
        lsn: Lsn,
        format: &BufItem,
        pieces: &[(usize, &[u8])],
    ) -> Result<()> {
        if self.is_cancelled(format.blkno, format.len) {
            self.report.cancelled += 1;
            return Ok(());
        }
        let size = self.geo.inode_size as usize;
        let len = format.bytes();
        if len == 0 || len > BYTES_MAX || !len.is_multiple_of(size) {
            let problem = format!("a buffer of inodes has an invalid length of {len} bytes");
            return Err(Error::item(lsn, problem));
        }
        let mut bytes = vec![0; len];
        self.read(format.blkno, &mut bytes)?;
        for raw in bytes.chunks_exact_mut(size).enumerate() {
            let (index, raw) = raw;
            let at = index * size + inode::NEXT_UNLINKED_OFFSET;
            let Some(next) = logged(pieces, at) else { continue };
            if next == [0; 4] {
                let problem = format!("an inode at daddr {} has unlinked pointer 0", format.blkno);
                return Err(Error::item(lsn, problem));
            }
            let field = inode::NEXT_UNLINKED_OFFSET;
            raw[field..field + 4].copy_from_slice(&next);
            crc::stamp(raw, inode::CRC_OFFSET);
        }
        self.report.replayed += 1;
        self.write(format.blkno, &bytes)
    }

    pub(super) fn replay_dquot(
        &mut self,
        lsn: Lsn,
        format: &DquotItem,
        record: &[u8],
    ) -> Result<()> {
        let bad = |problem: &str| {
            Error::item(lsn, format!("the quota record of id {} is invalid: {problem}", format.id))
        };
        let all = [
            (QuotaType::User, BufFlags::UDQUOT),
            (QuotaType::Project, BufFlags::PDQUOT),
            (QuotaType::Group, BufFlags::GDQUOT),
        ];
        let of_record =
            |(kind, _): &(QuotaType, _)| Dquot::decode(record, *kind, format.id).is_ok();
        let Some((_, kind)) = all.into_iter().find(of_record) else {
            return Err(bad("wrong magic number, version, type or id"));
        };
        let len =
            u64::try_from(format.len).unwrap_or(0).min(BYTES_MAX as u64) << self.geo.block_log;
        let sectors = u16::try_from(len / BASIC_BLOCK as u64).unwrap_or(0);
        if self.quota_is_off(kind) || self.is_cancelled(format.blkno, sectors) {
            return Ok(());
        }
        let at = format.boffset as usize;
        let len = (len as usize).min(BYTES_MAX);
        if record.len() > dquot::LEN || at.saturating_add(dquot::LEN) > len {
            return Err(bad("it lies outside its block"));
        }
        let mut bytes = vec![0; len];
        self.read(format.blkno, &mut bytes)?;
        let raw = &mut bytes[at..at + dquot::LEN];
        let on_disk = dquot::LSN.get(raw);
        // All transactions of one log record have one LSN, and each is replayed.
        if on_disk.0 != 0 && !on_disk.is_null() && on_disk > lsn {
            if crc::matches(raw, dquot::CRC_OFFSET) {
                self.report.newer += 1;
                return Ok(());
            }
            // A record may lie in two sectors, of which one was written.
            self.report.torn += 1;
        }
        raw[..record.len()].copy_from_slice(record);
        // A newer LSN would keep out the later changes, which later transactions hold.
        dquot::LSN.set(raw, lsn);
        crc::stamp(raw, dquot::CRC_OFFSET);
        self.report.replayed += 1;
        self.write(format.blkno, &bytes)
    }

    fn quota_is_off(&self, flags: BufFlags) -> bool {
        let off = |flag: BufFlags, bit: u32| flags.contains(flag) && self.quota_off & bit != 0;
        off(BufFlags::UDQUOT, 0x1) || off(BufFlags::PDQUOT, 0x8) || off(BufFlags::GDQUOT, 0x40)
    }

    /// Stamps and verifies all replayed buffers.
    pub(super) fn finish_buffers(&mut self) -> Result<()> {
        let mut keys: Vec<_> = self.touched.keys().copied().collect();
        keys.sort_unstable();
        keys.into_iter().try_for_each(|(daddr, len)| self.finish_buffer(daddr, len))
    }

    fn finish_buffer(&mut self, daddr: Daddr, len: u32) -> Result<()> {
        let Some(touched) = self.touched.get(&(daddr, len)).copied() else { return Ok(()) };
        let Some(lsn) = touched.replayed else { return Ok(()) };
        let kinds = touched.kind.kinds();
        let mut bytes = vec![0; len as usize];
        self.read(daddr, &mut bytes)?;
        let corrupt = |check: Check, detail: String| {
            let name = kinds.first().map_or("buffer", |kind| kind.name());
            Err(uxfs_format::Corrupt::new(name, Place::Device(daddr), check, detail).into())
        };
        match touched.kind {
            BufType::Unknown => {
                return corrupt(Check::Format, format!("it was logged at {lsn} without a type"));
            }
            BufType::RtBitmap | BufType::RtSummary => return Ok(()),
            _ => {}
        }
        let Some(kind) = BufKind::identify(&bytes, kinds) else {
            return corrupt(
                Check::Magic,
                format!("wrong magic number; it was logged as {}", touched.kind.name()),
            );
        };
        if self.is_piece(touched.kind, len) {
            return corrupt(
                Check::Range,
                "the filesystem blocks of a directory block are not contiguous".into(),
            );
        }
        if let Some(layout) = kind.layout() {
            if kind != BufKind::AttrRemote && bytes.len() >= layout.lsn + size_of::<Lsn>() {
                layout.set_lsn(&mut bytes, lsn);
            }
            verify::stamp_checksum(&mut bytes, kind);
        }
        verify::check(&bytes, kind, daddr, &self.geo)?;
        self.write(daddr, &bytes)
    }

    /// Is it only a part of a directory block?
    fn is_piece(&self, kind: BufType, len: u32) -> bool {
        let dir = matches!(
            kind,
            BufType::DirBlock
                | BufType::DirData
                | BufType::DirFree
                | BufType::DirLeaf1
                | BufType::DirLeafN
        );
        dir && len < self.geo.dir_block_size()
    }
}

/// Four bytes at `at`, if they were logged.
fn logged(pieces: &[(usize, &[u8])], at: usize) -> Option<[u8; 4]> {
    let (chunk, bytes) = pieces.iter().rev().find(|(chunk, _)| chunk * CHUNK <= at)?;
    let at = at - chunk * CHUNK;
    bytes.get(at..at + 4)?.first_chunk().copied()
}
