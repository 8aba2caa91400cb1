//! Replays inode items and new inode chunks.

use uxfs_format::btree::{self, BmapNode, TreeKind};
use uxfs_format::inode::{self, CORE_LEN, Fork, ForkFormat, InodeCore};
use uxfs_format::log::{Icreate, InodeFields, InodeItem, LOG_CORE_LEN};
use uxfs_format::log::{core_has_magic, core_to_disk, root_to_disk};
use uxfs_format::verify::{self, BufKind};
use uxfs_format::{AgIno, Daddr, FsBlock, Ino, Lsn, crc};

use super::Replayer;
use crate::recovery::error::{Error, Result};

impl Replayer<'_> {
    pub(super) fn replay_icreate(&mut self, lsn: Lsn, new: &Icreate) -> Result<()> {
        let geo = &self.geo;
        let blocks = geo.chunk_blocks();
        let inodes = u64::from(new.length) << geo.inopb_log;
        let fits = new.isize == geo.inode_size
            && new.length != 0
            && new.length <= blocks
            && inodes == u64::from(new.count)
            && geo.fsb_valid(geo.fsb(new.ag, new.agbno), new.length.into())
            && geo.agblock_valid(new.ag, new.agbno);
        if !fits {
            return Err(Error::item(lsn, format!("an invalid inode chunk: {new:?}")));
        }
        let cluster = geo.cluster_blocks().min(new.length);
        let len = (cluster << geo.block_log >> 9) as u16;
        let start = geo.ag_daddr(new.ag, new.agbno);
        for part in (0..new.length).step_by(cluster as usize) {
            let daddr = Daddr(start.0 + (u64::from(part) << (geo.block_log - 9)));
            // The chunk was freed later, and its blocks may hold something else.
            if self.is_cancelled(daddr, len) {
                self.report.cancelled += 1;
                return Ok(());
            }
        }
        let size = geo.inode_size as usize;
        // Buffers replayed at these addresses are not verified at the end: inodes take their place.
        // A cancel of the same address and length would be one of the inodes' buffers.
        for part in (0..new.length).step_by(cluster as usize) {
            let daddr = Daddr(start.0 + (u64::from(part) << (geo.block_log - 9)));
            self.touched.remove(&(daddr, cluster << geo.block_log));
        }
        let geo = &self.geo;
        let mut bytes = vec![0; (new.length as usize) << geo.block_log];
        let first = geo.ino(new.ag, AgIno(new.agbno.0 << geo.inopb_log));
        for (ino, raw) in (first.0..).zip(bytes.chunks_exact_mut(size)) {
            InodeCore::encode_free(raw, Ino(ino), &geo.meta_uuid, new.generation);
        }
        self.report.replayed += 1;
        self.write(start, &bytes)
    }

    pub(super) fn replay_inode(
        &mut self,
        lsn: Lsn,
        item: &InodeItem,
        core: &[u8; LOG_CORE_LEN],
        data: Option<&[u8]>,
        attr: Option<&[u8]>,
    ) -> Result<()> {
        let bad = |problem: String| Error::item(lsn, format!("inode {}: {problem}", item.ino));
        let len = u16::try_from(item.len).unwrap_or(0);
        if self.is_cancelled(item.blkno, len) {
            self.report.cancelled += 1;
            return Ok(());
        }
        let size = self.geo.inode_size as usize;
        let at = usize::try_from(item.boffset).unwrap_or(usize::MAX);
        let fits = at.is_multiple_of(size) && at < usize::from(len) * 512;
        if !fits || !self.geo.ino_valid(item.ino) {
            let offset = item.boffset;
            return Err(bad(format!("invalid number, or offset {offset} in {len} basic blocks")));
        }
        let daddr = Daddr(item.blkno.0.saturating_add((at / 512) as u64));
        let mut raw = vec![0; size];
        self.read(daddr, &mut raw)?;
        if !inode::has_magic(&raw) || !core_has_magic(core) {
            return Err(bad("there is none on the volume, or in the log".into()));
        }
        let on_disk = inode::LSN.get(&raw);
        let has_lsn = on_disk.0 != 0 && !on_disk.is_null();
        if has_lsn && on_disk > lsn {
            if crc::matches(&raw, inode::CRC_OFFSET) {
                self.report.newer += 1;
                return Ok(());
            }
            self.report.torn += 1;
        }
        let Some(old) = raw.first_chunk::<LOG_CORE_LEN>() else { return Ok(()) };
        let new = core_to_disk(core, old, lsn);
        raw[..CORE_LEN].copy_from_slice(&new);
        let decoded = InodeCore::decode_unchecked(&raw, item.ino)?;
        let literal = size - CORE_LEN;
        if item.fields.contains(InodeFields::DEV) {
            inode::DEV.set(&mut raw[CORE_LEN..], item.rdev);
        }
        let forks = [
            (Fork::Data, data, item.fields.contains(InodeFields::DBROOT)),
            (Fork::Attr, attr, item.fields.contains(InodeFields::ABROOT)),
        ];
        for (fork, region, is_root) in forks {
            let Some(region) = region else { continue };
            let range = decoded.fork_range(fork, literal);
            let target = &mut raw[CORE_LEN..][range];
            if is_root {
                target.copy_from_slice(&root_to_disk(region, target.len()).map_err(bad)?);
            } else if let Some(target) = target.get_mut(..region.len()) {
                target.copy_from_slice(region);
            } else {
                let (len, room) = (region.len(), target.len());
                return Err(bad(format!("{len} bytes logged for a {fork:?} fork of {room} bytes")));
            }
        }
        crc::stamp(&mut raw, inode::CRC_OFFSET);
        InodeCore::decode(&raw, item.ino, &self.geo.meta_uuid)?;
        self.write(daddr, &raw)?;
        self.report.replayed += 1;
        let owners = [(Fork::Data, InodeFields::DOWNER), (Fork::Attr, InodeFields::AOWNER)];
        for (fork, flag) in owners {
            if item.fields.contains(flag) && decoded.fork_format(fork) == ForkFormat::Btree {
                let root = raw[CORE_LEN..][decoded.fork_range(fork, literal)].to_vec();
                self.change_owner(lsn, item.ino, &root)?;
            }
        }
        Ok(())
    }

    /// Sets the owner of all blocks of the extent btree below `root` in a fork.
    fn change_owner(&mut self, lsn: Lsn, ino: Ino, root: &[u8]) -> Result<()> {
        let bad = |problem: String| Error::item(lsn, format!("inode {ino}: {problem}"));
        let level = btree::ROOT_LEVEL.get(root);
        let count = usize::from(btree::ROOT_NUMRECS.get(root));
        let node = BmapNode::root(root.len());
        if level == 0 || usize::from(level) >= btree::MAX_LEVELS || count > node.max() {
            return Err(bad(format!("a btree root has level {level} and {count} records")));
        }
        let children = node.entries(root, count);
        let mut todo: Vec<(u16, FsBlock)> = children.map(|(_, child)| (level - 1, child)).collect();
        let mut bytes = vec![0; self.geo.block_size as usize];
        let mut left = self.geo.dblocks;
        while let Some((level, fsb)) = todo.pop() {
            if !self.geo.fsb_valid(fsb, 1) || left == 0 {
                return Err(bad(format!("a btree block pointer is invalid: {fsb}")));
            }
            left -= 1;
            let daddr = self.geo.fsb_daddr(fsb);
            self.read(daddr, &mut bytes)?;
            let count = usize::from(btree::NUMRECS.get(&bytes));
            let known = btree::MAGIC.get(&bytes) == TreeKind::Bmap.magic();
            if !known || btree::LEVEL.get(&bytes) != level {
                return Err(bad(format!("no btree block of level {level} at {fsb}")));
            }
            if level > 0 {
                let children = BmapNode::block(bytes.len()).entries(&bytes, count);
                todo.extend(children.map(|(_, child)| (level - 1, child)));
            }
            btree::BMAP_OWNER.set(&mut bytes, ino);
            verify::stamp_checksum(&mut bytes, BufKind::Btree(TreeKind::Bmap));
            self.write(daddr, &bytes)?;
        }
        Ok(())
    }
}
