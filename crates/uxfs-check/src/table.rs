//! Records about every inode: whether it is in use, its type, its links as counted.
//!
//! The inode btrees of phase 1 determine the size. All threads of phase 2 fill the table in
//! parallel; phase 4 evaluates it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use uxfs_format::btree::InodeChunk;
use uxfs_format::geometry::CHUNK_INODES;
use uxfs_format::{AgIno, AgNo, Geometry, Ino};

use crate::ctx::Ctx;
use crate::group::Group;

/// The inode's type in directory entry encoding, in the low bits of [`Slot::state`].
const TYPE: u32 = 0xf;
/// The inode is in use and was readable.
const READ: u32 = 1 << 4;
/// The inode is in use according to the inode btree.
const USED: u32 = 1 << 5;
/// The superblock names the inode.
const META: u32 = 1 << 6;
/// First of the bits that record the types in entries, one bit for each type.
const ENTRY_TYPES: u32 = 8;

/// Records about one inode.
#[derive(Default)]
pub(crate) struct Slot {
    state: AtomicU32,
    nlink: AtomicU32,
    seen: AtomicU32,
    parent: AtomicU64,
}

impl Slot {
    /// Is the inode in use according to the inode btree?
    pub(crate) fn is_used(&self) -> bool {
        self.state.load(Ordering::Relaxed) & USED != 0
    }

    /// Was the inode readable?
    pub(crate) fn is_read(&self) -> bool {
        self.state.load(Ordering::Relaxed) & READ != 0
    }

    /// Does the superblock name the inode?
    pub(crate) fn is_meta(&self) -> bool {
        self.state.load(Ordering::Relaxed) & META != 0
    }

    /// Records that the superblock names the inode.
    pub(crate) fn set_meta(&self) {
        self.state.fetch_or(META, Ordering::Relaxed);
    }

    /// Records the inode's type and link count.
    pub(crate) fn set_read(&self, ftype: u8, nlink: u32) {
        self.state.fetch_or(READ | u32::from(ftype), Ordering::Relaxed);
        self.nlink.store(nlink, Ordering::Relaxed);
    }

    /// Records an entry in `parent` that leads to this inode.
    pub(crate) fn see(&self, ftype: u8, parent: Ino) {
        self.parent.store(parent.0, Ordering::Relaxed);
        self.seen.fetch_add(1, Ordering::Relaxed);
        self.state.fetch_or(1 << (ENTRY_TYPES + u32::from(ftype)), Ordering::Relaxed);
    }

    /// A directory with an entry that leads to this inode.
    pub(crate) fn parent(&self) -> Option<Ino> {
        Some(Ino(self.parent.load(Ordering::Relaxed))).filter(|ino| ino.0 != 0)
    }

    /// The inode's type in directory entry encoding.
    pub(crate) fn ftype(&self) -> u8 {
        (self.state.load(Ordering::Relaxed) & TYPE) as u8
    }

    /// The inode's link count.
    pub(crate) fn nlink(&self) -> u32 {
        self.nlink.load(Ordering::Relaxed)
    }

    /// Number of entries that lead to this inode.
    pub(crate) fn seen(&self) -> u32 {
        self.seen.load(Ordering::Relaxed)
    }

    /// A type in an entry that differs from the inode's.
    pub(crate) fn wrong_type(&self) -> Option<u8> {
        let state = self.state.load(Ordering::Relaxed);
        let wrong = state >> ENTRY_TYPES & !(1 << self.ftype());
        (wrong != 0).then(|| wrong.trailing_zeros() as u8)
    }
}

/// The inodes of one group.
struct Part {
    /// First inode of each chunk, in order.
    starts: Vec<u32>,
    slots: Vec<Slot>,
    /// On volumes with parent pointers: the sum of entry hashes minus parent pointer hashes.
    links: Vec<AtomicU64>,
}

/// The inodes of the volume.
pub(crate) struct Table {
    parts: Vec<Part>,
    geo: Geometry,
}

impl Table {
    /// Makes a table of the chunks that phase 1 found.
    pub(crate) fn new(ctx: &Ctx<'_>, groups: &[Group]) -> Self {
        let geo = ctx.geo.clone();
        let links = geo.has_parent();
        let parts = groups.iter().map(|group| part(ctx, &group.chunks, links)).collect();
        Self { parts, geo }
    }

    fn index(&self, ino: Ino) -> Option<(&Part, usize)> {
        let part = self.parts.get(self.geo.ino_ag(ino).0 as usize)?;
        let agino = self.geo.ino_agino(ino).0;
        let chunk = part.starts.partition_point(|start| *start <= agino).checked_sub(1)?;
        let inside = agino - part.starts[chunk];
        let index = chunk * CHUNK_INODES as usize + inside as usize;
        (inside < CHUNK_INODES).then_some((part, index))
    }

    /// The records about an inode; `None` if it does not exist.
    pub(crate) fn get(&self, ino: Ino) -> Option<&Slot> {
        let (part, index) = self.index(ino)?;
        part.slots.get(index)
    }

    /// Adds a hash to the sum that compares entries with parent pointers.
    pub(crate) fn add_link(&self, ino: Ino, hash: u64) {
        if let Some((part, index)) = self.index(ino)
            && let Some(links) = part.links.get(index)
        {
            links.fetch_add(hash, Ordering::Relaxed);
        }
    }

    /// Calls `each` for every inode in use; the flag says whether the inode's parent pointers
    /// differ from its entries.
    pub(crate) fn for_each(&self, each: &mut dyn FnMut(Ino, &Slot, bool)) {
        for (ag, part) in self.parts.iter().enumerate() {
            for (index, slot) in part.slots.iter().enumerate() {
                if !slot.is_used() {
                    continue;
                }
                let chunk = index / CHUNK_INODES as usize;
                let agino = part.starts[chunk] + (index % CHUNK_INODES as usize) as u32;
                let ino = self.geo.ino(AgNo(ag as u32), AgIno(agino));
                let links = part.links.get(index);
                each(ino, slot, links.is_some_and(|l| l.load(Ordering::Relaxed) != 0));
            }
        }
    }
}

fn part(ctx: &Ctx<'_>, chunks: &[InodeChunk], links: bool) -> Part {
    let mut part = Part { starts: Vec::new(), slots: Vec::new(), links: Vec::new() };
    let each = size_of::<Slot>() + if links { 8 } else { 0 };
    for chunk in chunks {
        if !ctx.reserve(each * CHUNK_INODES as usize) {
            break;
        }
        part.starts.push(chunk.start.0);
        let used = chunk.present() & !chunk.free;
        for bit in 0..CHUNK_INODES {
            let state = if used >> bit & 1 != 0 { USED } else { 0 };
            part.slots.push(Slot { state: AtomicU32::new(state), ..Slot::default() });
            if links {
                part.links.push(AtomicU64::new(0));
            }
        }
    }
    part
}
