//! Forks of inodes: their extent trees, and the blocks of directories, attributes and links.
//!
//! Extents are followed as they come, so the memory in use does not depend on their number.

use uxfs_format::attr::remote;
use uxfs_format::btree::{BmapNode, LEVEL, NUMRECS, ROOT_LEVEL, ROOT_NUMRECS, TreeKind};
use uxfs_format::extent::RECORD_LEN;
use uxfs_format::features::Version;
use uxfs_format::geometry::{DIR_FREE_OFFSET, DIR_LEAF_OFFSET};
use uxfs_format::inode::{Fork, ForkFormat, InodeCore};
use uxfs_format::symlink::{HEADER_LEN, MAX_TARGET};
use uxfs_format::verify::BufKind;
use uxfs_format::{Daddr, Extent, FsBlock, Ino};

use crate::dump::Dump;
use crate::error::DumpError;
use crate::scrub;

/// What the blocks of a fork hold.
enum Holds {
    /// A directory: the pieces of the block that is being put together, and its number.
    Dir { block: u64, pieces: Vec<Daddr> },
    /// The target of a link: its runs of blocks.
    Link(Vec<(Daddr, Vec<u8>)>),
    /// Attributes.
    Attrs,
    /// Numbers only: quotas, and the realtime device's bitmap and summary.
    Plain,
}

impl Dump<'_> {
    /// Dumps what the forks of an inode lead to.
    pub(crate) fn forks(
        &mut self,
        ino: Ino,
        raw: &[u8],
        core: &InodeCore,
    ) -> Result<(), DumpError> {
        let data = match () {
            () if core.is_dir() => Some(Holds::Dir { block: 0, pieces: Vec::new() }),
            () if core.is_symlink() => Some(Holds::Link(Vec::new())),
            () if self.is_plain(ino) => Some(Holds::Plain),
            () => None,
        };
        self.fork(ino, raw, core, Fork::Data, data)?;
        if core.has_attr_fork() {
            self.fork(ino, raw, core, Fork::Attr, Some(Holds::Attrs))?;
        }
        Ok(())
    }

    /// Is it a file whose data is metadata?
    fn is_plain(&self, ino: Ino) -> bool {
        let sb = &self.sb;
        let quotas = [sb.uquotino.get(), sb.gquotino.get(), sb.pquotino.get()];
        let has_quotas = sb.version_flags().contains(Version::QUOTA);
        self.scrub.geo.rt_inos.contains(&ino) || has_quotas && quotas.contains(&ino.0)
    }

    fn fork(
        &mut self,
        ino: Ino,
        raw: &[u8],
        core: &InodeCore,
        fork: Fork,
        mut holds: Option<Holds>,
    ) -> Result<(), DumpError> {
        let bytes = &raw[scrub::fork_range(core, fork, raw.len())];
        match core.fork_format(fork) {
            ForkFormat::Dev | ForkFormat::Local => return Ok(()),
            ForkFormat::Extents => {
                let count = usize::try_from(core.fork_extents(fork)).unwrap_or(usize::MAX);
                self.extents(ino, bytes, count, &mut holds)?;
            }
            ForkFormat::Btree => {
                let count = usize::from(ROOT_NUMRECS.get(bytes));
                let levels = ROOT_LEVEL.get(bytes);
                for (_, child) in BmapNode::root(bytes.len()).entries(bytes, count) {
                    self.extent_tree(ino, child, levels, &mut holds)?;
                }
            }
        }
        match holds {
            Some(Holds::Dir { pieces, .. }) if !pieces.is_empty() => {
                self.dir_part(ino, &pieces)?;
            }
            Some(Holds::Link(mut runs)) if !runs.is_empty() => {
                let outcome = self.scrub.link(&mut runs);
                for (daddr, run) in &runs {
                    self.put(*daddr, run)?;
                }
                self.note(outcome);
            }
            _ => {}
        }
        Ok(())
    }

    /// Dumps the part of an extent tree below `block`, which has `levels` levels.
    fn extent_tree(
        &mut self,
        ino: Ino,
        block: FsBlock,
        levels: u16,
        holds: &mut Option<Holds>,
    ) -> Result<(), DumpError> {
        let geo = self.scrub.geo;
        let len = geo.block_size as usize;
        if !geo.fsb_valid(block, 1) {
            self.warn(format!("inode {ino}: block {block} of its extent tree does not exist"));
            return Ok(());
        }
        let kind = BufKind::Btree(TreeKind::Bmap);
        let Some(found) = self.block(kind, geo.fsb_daddr(block), len)? else { return Ok(()) };
        let (level, count) = (LEVEL.get(&found), usize::from(NUMRECS.get(&found)));
        if level + 1 != levels {
            let what = format!("inode {ino}: block {block} of its extent tree has level {level}");
            self.warn(what);
            return Ok(());
        }
        if level == 0 {
            return self.extents(ino, &found[TreeKind::Bmap.header().len..], count, holds);
        }
        for (_, child) in BmapNode::block(len).entries(&found, count) {
            self.extent_tree(ino, child, level, holds)?;
        }
        Ok(())
    }

    /// Dumps what the extents at the head of `records` lead to, if that is metadata.
    fn extents(
        &mut self,
        ino: Ino,
        records: &[u8],
        count: usize,
        holds: &mut Option<Holds>,
    ) -> Result<(), DumpError> {
        let Some(holds) = holds else { return Ok(()) };
        for raw in records.chunks_exact(RECORD_LEN).take(count) {
            let Ok(raw) = raw.try_into() else { continue };
            let extent = Extent::unpack(raw);
            let Extent { offset, start, len, .. } = extent;
            let problem = if len == 0 || !self.scrub.geo.fsb_valid(start, len) {
                "which is not inside one group"
            } else if len > self.options.longest_extent {
                "which is longer than metadata may be"
            } else if extent.unwritten {
                "which is unwritten"
            } else {
                self.extent(ino, &extent, holds)?;
                continue;
            };
            self.warn(format!(
                "inode {ino}: the extent at offset {offset}, {len} blocks from {start}, {problem}, is \
                 left out"
            ));
        }
        Ok(())
    }

    fn extent(&mut self, ino: Ino, extent: &Extent, holds: &mut Holds) -> Result<(), DumpError> {
        let geo = self.scrub.geo;
        let len = geo.block_size as usize;
        let first = geo.fsb_daddr(extent.start);
        if let Holds::Link(runs) = holds {
            // Each run of blocks has a header.
            let blocks = (MAX_TARGET + HEADER_LEN).div_ceil(len).max(1);
            let held: usize = runs.iter().map(|(_, run)| run.len() / len).sum();
            let bytes = extent.len as usize * len;
            if held + extent.len as usize > 2 * blocks {
                self.warn(format!("inode {ino}: more blocks than the target of a link has"));
            } else if self.claim(first, bytes, "a link")
                && let Some(run) = self.read(first, bytes)?
            {
                runs.push((first, run));
            }
            return Ok(());
        }
        for at in 0..extent.len {
            let daddr = geo.fsb_daddr(extent.start.plus(at));
            let new = match holds {
                Holds::Dir { block, pieces } => {
                    let offset = extent.offset.0 + at;
                    let number = offset >> geo.dir_blklog;
                    let mut new = true;
                    if number != *block && !pieces.is_empty() {
                        new = self.dir_part(ino, &std::mem::take(pieces))?;
                    }
                    *block = number;
                    pieces.push(daddr);
                    if pieces.len() == 1 << geo.dir_blklog {
                        let kinds = dir_kinds(number << geo.dir_blklog << geo.block_log);
                        new &= self.pieces(kinds, &std::mem::take(pieces), len)?;
                    }
                    new
                }
                Holds::Attrs => self.attr_block(daddr, len)?,
                Holds::Plain => self.plain(daddr, len)?,
                Holds::Link(_) => true,
            };
            // Whatever else claims these blocks, the rest of the extent is theirs, too.
            if !new {
                break;
            }
        }
        Ok(())
    }

    /// Dumps pieces of a directory block of which others are missing.
    fn dir_part(&mut self, ino: Ino, pieces: &[Daddr]) -> Result<bool, DumpError> {
        self.warn(format!("inode {ino}: a part of a directory block is missing"));
        self.pieces(&[BufKind::DirData], pieces, self.scrub.geo.block_size as usize)
    }

    fn attr_block(&mut self, daddr: Daddr, len: usize) -> Result<bool, DumpError> {
        const KINDS: [BufKind; 3] = [BufKind::AttrLeaf, BufKind::DaNode, BufKind::AttrRemote];
        debug_assert!(len > remote::HEADER_LEN, "a block holds a header");
        self.pieces(&KINDS, &[daddr], len)
    }
}

/// The kinds of block that a directory has at this byte of its data space.
fn dir_kinds(offset: u64) -> &'static [BufKind] {
    match offset {
        ..DIR_LEAF_OFFSET => &[BufKind::DirData, BufKind::DirBlock],
        DIR_LEAF_OFFSET..DIR_FREE_OFFSET => {
            &[BufKind::DirLeafN, BufKind::DirLeaf1, BufKind::DaNode]
        }
        _ => &[BufKind::DirFree],
    }
}
