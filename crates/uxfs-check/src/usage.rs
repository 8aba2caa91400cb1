//! What users, groups and projects use, counted, beside what the quota records say.
//!
//! 1. A kind of quota is compared only if the superblock says that its counts were checked: the
//!    kernel counts anew otherwise.
//! 2. Every inode in use counts, but for the quota inodes themselves.

use rustc_hash::FxHashMap;
use uxfs_format::Ino;
use uxfs_format::inode::InodeCore;
use uxfs_format::superblock::Superblock;

use crate::code;
use crate::ctx::Ctx;
use crate::finding::Place;

/// Types of quota records, with the flag that says that they were counted, and what they are of.
const KINDS: [(u8, u16, &str); 3] =
    [(1, 0x0004, "user"), (2, 0x0400, "project"), (4, 0x0100, "group")];

/// Whose usage: type of record, number.
type Whose = (u8, u32);

/// Blocks and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Blocks of data and metadata.
    pub(crate) blocks: u64,
    /// Inodes.
    pub(crate) inodes: u64,
}

/// What one thread gathers.
#[derive(Default)]
pub(crate) struct Usage {
    counted: FxHashMap<Whose, Used>,
    recorded: FxHashMap<Whose, Used>,
}

fn kinds(sb: &Superblock) -> impl Iterator<Item = (u8, &'static str)> {
    let flags = if crate::sb::quota_inodes(sb).next().is_some() { sb.qflags.get() } else { 0 };
    let kinds = KINDS.into_iter().filter(move |(_, checked, _)| flags & checked != 0);
    kinds.map(|(kind, _, name)| (kind, name))
}

impl Usage {
    /// Counts an inode in use.
    pub(crate) fn count(&mut self, ctx: &Ctx<'_>, ino: Ino, core: &InodeCore) {
        for (kind, _) in kinds(&ctx.sb) {
            if crate::sb::quota_inodes(&ctx.sb).any(|quota| quota == ino) {
                return;
            }
            let id = match kind {
                1 => core.uid,
                2 => core.projid,
                _ => core.gid,
            };
            let used = self.counted.entry((kind, id)).or_default();
            used.inodes += 1;
            used.blocks = used.blocks.saturating_add(core.nblocks);
        }
    }

    /// Notes what a record says.
    pub(crate) fn note(&mut self, kind: u8, id: u32, used: Used) {
        if used != Used::default() {
            self.recorded.insert((kind, id), used);
        }
    }

    /// Adds what another thread gathered.
    fn add(&mut self, other: &Self) {
        for (whose, more) in &other.counted {
            let used = self.counted.entry(*whose).or_default();
            used.inodes += more.inodes;
            used.blocks = used.blocks.saturating_add(more.blocks);
        }
        self.recorded.extend(&other.recorded);
    }
}

/// Compares what all threads gathered, if that is all there is.
pub(crate) fn check<'u>(ctx: &Ctx<'_>, parts: impl Iterator<Item = &'u Usage>) {
    let mut all = Usage::default();
    parts.for_each(|part| all.add(part));
    let mut whose: Vec<Whose> = all.counted.keys().chain(all.recorded.keys()).copied().collect();
    whose.sort_unstable();
    whose.dedup();
    for (kind, name) in kinds(&ctx.sb) {
        for (_, id) in whose.iter().filter(|(other, _)| *other == kind) {
            let of = |map: &FxHashMap<Whose, Used>| map.get(&(kind, *id)).copied();
            let told = of(&all.recorded).unwrap_or_default();
            let found = of(&all.counted).unwrap_or_default();
            // What lies on a realtime device is counted apart.
            let blocks = ctx.sb.rblocks.get() == 0 && told.blocks != found.blocks;
            if blocks || told.inodes != found.inodes {
                let message = format!(
                    "{name} {id}: {} blocks and {} inodes recorded, {} and {} counted",
                    told.blocks, told.inodes, found.blocks, found.inodes
                );
                ctx.find(code::QUOTA_USAGE, Place::VOLUME, message);
            }
        }
    }
}
