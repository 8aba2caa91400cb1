//! Compares the usage of users, groups and projects with the quota records.
//!
//! 1. A quota type is compared only if the superblock's flags say that its usage was counted.
//!    Otherwise the kernel counts it again at the next mount. A note says what was not compared, and why.
//! 2. Every inode in use counts, except the quota inodes.

use rustc_hash::FxHashMap;
use uxfs_format::Ino;
use uxfs_format::inode::InodeCore;
use uxfs_format::superblock::Superblock;

use crate::code;
use crate::ctx::Ctx;
use crate::finding::Place;

/// Record types, the "usage was counted" flag in the superblock, and names.
const KINDS: [(u8, u16, &str); 3] =
    [(1, 0x0004, "user"), (2, 0x0400, "project"), (4, 0x0100, "group")];

/// A subject of quota: record type, id.
type QuotaId = (u8, u32);

/// Used blocks and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Blocks of data and metadata.
    pub(crate) blocks: u64,
    /// Inodes.
    pub(crate) inodes: u64,
}

/// Results of one thread.
#[derive(Default)]
pub(crate) struct Usage {
    counted: FxHashMap<QuotaId, Used>,
    recorded: FxHashMap<QuotaId, Used>,
}

fn kinds(sb: &Superblock) -> impl Iterator<Item = (u8, &'static str)> {
    let flags = if crate::sb::quota_inodes(sb).next().is_some() { sb.qflags.get() } else { 0 };
    let kinds = KINDS.into_iter().filter(move |(_, checked, _)| flags & checked != 0);
    kinds.map(|(kind, _, name)| (kind, name))
}

/// The types that have records and whose usage was not counted.
fn uncounted(sb: &Superblock) -> impl Iterator<Item = &'static str> {
    let records = [(1, sb.uquotino.get()), (2, sb.pquotino.get()), (4, sb.gquotino.get())];
    let exists = move |kind: u8| {
        let mut own = records.into_iter().filter(|(other, _)| *other == kind);
        own.any(|(_, quota)| crate::sb::quota_inodes(sb).any(|ino| ino.0 == quota))
    };
    let counted: Vec<_> = kinds(sb).map(|(kind, _)| kind).collect();
    let others = KINDS.into_iter().filter(move |(kind, ..)| !counted.contains(kind));
    others.filter(move |(kind, ..)| exists(*kind)).map(|(.., name)| name)
}

/// Notes that the records of these types were not compared.
fn note_skipped(ctx: &Ctx<'_>, kinds: impl Iterator<Item = &'static str>, why: &str) {
    for name in kinds {
        let message = format!("{name} quota: the records were not compared with the usage: {why}");
        ctx.find(code::QUOTA_SKIPPED, Place::VOLUME, message);
    }
}

/// Notes that no records are compared because files without a name are in use, which may count or not.
pub(crate) fn skip(ctx: &Ctx<'_>) {
    note_skipped(ctx, kinds(&ctx.sb).map(|(_, name)| name), "files without a name are in use");
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

    /// Records the usage in a quota record.
    pub(crate) fn note(&mut self, kind: u8, id: u32, used: Used) {
        if used != Used::default() {
            self.recorded.insert((kind, id), used);
        }
    }

    /// Adds the results of another thread.
    fn add(&mut self, other: &Self) {
        for (id, more) in &other.counted {
            let used = self.counted.entry(*id).or_default();
            used.inodes += more.inodes;
            used.blocks = used.blocks.saturating_add(more.blocks);
        }
        self.recorded.extend(&other.recorded);
    }
}

/// Compares the results of all threads; call only if they are complete.
pub(crate) fn check<'u>(ctx: &Ctx<'_>, parts: impl Iterator<Item = &'u Usage>) {
    let mut all = Usage::default();
    parts.for_each(|part| all.add(part));
    let mut ids: Vec<QuotaId> = all.counted.keys().chain(all.recorded.keys()).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    let why = "it was not counted while the quota was off, and is by the next mount with quotas";
    note_skipped(ctx, uncounted(&ctx.sb), why);
    for (kind, name) in kinds(&ctx.sb) {
        for (_, id) in ids.iter().filter(|(other, _)| *other == kind) {
            let of = |map: &FxHashMap<QuotaId, Used>| map.get(&(kind, *id)).copied();
            let stored = of(&all.recorded).unwrap_or_default();
            let found = of(&all.counted).unwrap_or_default();
            // The blocks of a realtime device are counted separately.
            let blocks = ctx.sb.rblocks.get() == 0 && stored.blocks != found.blocks;
            if blocks || stored.inodes != found.inodes {
                let message = format!(
                    "{name} {id}: {} blocks and {} inodes recorded, {} and {} counted",
                    stored.blocks, stored.inodes, found.blocks, found.inodes
                );
                ctx.find(code::QUOTA_USAGE, Place::VOLUME, message);
            }
        }
    }
}
