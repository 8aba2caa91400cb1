//! What is known of every inode: whether it is in use, its type, its links as counted.
//!
//! Built from the inode btrees after phase 1; filled by all threads of phase 2 at once, inode by
//! inode and entry by entry; looked through in phase 4.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use uxfs_format::btree::InodeChunk;
use uxfs_format::geometry::CHUNK_INODES;
use uxfs_format::{AgIno, AgNo, Geometry, Ino};

use crate::ctx::Ctx;
use crate::group::Group;

/// The type, as directory entries tell it, in the low bits of [`Slot::state`].
const TYPE: u32 = 0xf;
/// The inode is in use and could be read.
const READ: u32 = 1 << 4;
/// The inode is in use by the inode btree.
const USED: u32 = 1 << 5;
/// The inode is one that the superblock names.
const META: u32 = 1 << 6;
/// From this bit on, one for each type that entries told.
const TOLD: u32 = 8;

/// What is known of one inode.
#[derive(Default)]
pub(crate) struct Slot {
    state: AtomicU32,
    nlink: AtomicU32,
    seen: AtomicU32,
    parent: AtomicU64,
}

impl Slot {
    /// Is it in use by the inode btree?
    pub(crate) fn is_used(&self) -> bool {
        self.state.load(Ordering::Relaxed) & USED != 0
    }

    /// Could it be read?
    pub(crate) fn is_read(&self) -> bool {
        self.state.load(Ordering::Relaxed) & READ != 0
    }

    /// Does the superblock name it?
    pub(crate) fn is_meta(&self) -> bool {
        self.state.load(Ordering::Relaxed) & META != 0
    }

    /// Marks it as one that the superblock names.
    pub(crate) fn set_meta(&self) {
        self.state.fetch_or(META, Ordering::Relaxed);
    }

    /// Takes down type and link count.
    pub(crate) fn set_read(&self, ftype: u8, nlink: u32) {
        self.state.fetch_or(READ | u32::from(ftype), Ordering::Relaxed);
        self.nlink.store(nlink, Ordering::Relaxed);
    }

    /// Takes down an entry in `parent` that leads here.
    pub(crate) fn see(&self, ftype: u8, parent: Ino) {
        self.parent.store(parent.0, Ordering::Relaxed);
        self.seen.fetch_add(1, Ordering::Relaxed);
        self.state.fetch_or(1 << (TOLD + u32::from(ftype)), Ordering::Relaxed);
    }

    /// A directory with an entry that leads here.
    pub(crate) fn parent(&self) -> Option<Ino> {
        Some(Ino(self.parent.load(Ordering::Relaxed))).filter(|ino| ino.0 != 0)
    }

    /// The type.
    pub(crate) fn ftype(&self) -> u8 {
        (self.state.load(Ordering::Relaxed) & TYPE) as u8
    }

    /// The link count that it tells.
    pub(crate) fn nlink(&self) -> u32 {
        self.nlink.load(Ordering::Relaxed)
    }

    /// Entries that lead here.
    pub(crate) fn seen(&self) -> u32 {
        self.seen.load(Ordering::Relaxed)
    }

    /// A type that an entry told and that is not the inode's.
    pub(crate) fn wrong_type(&self) -> Option<u8> {
        let told = self.state.load(Ordering::Relaxed) >> TOLD & !(1 << self.ftype());
        (told != 0).then(|| told.trailing_zeros() as u8)
    }
}

/// The inodes of one group.
struct Part {
    /// First inode of each chunk, in order.
    starts: Vec<u32>,
    slots: Vec<Slot>,
    /// With parent pointers: what entries add and parent pointers take away.
    links: Vec<AtomicU64>,
}

/// The inodes of the volume.
pub(crate) struct Table {
    parts: Vec<Part>,
    geo: Geometry,
}

impl Table {
    /// Of the chunks that phase 1 found.
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

    /// What is known of an inode; `None` if there is no such inode.
    pub(crate) fn get(&self, ino: Ino) -> Option<&Slot> {
        let (part, index) = self.index(ino)?;
        part.slots.get(index)
    }

    /// Adds to what tells entries and parent pointers of an inode apart.
    pub(crate) fn add_link(&self, ino: Ino, hash: u64) {
        if let Some((part, index)) = self.index(ino)
            && let Some(links) = part.links.get(index)
        {
            links.fetch_add(hash, Ordering::Relaxed);
        }
    }

    /// Calls `each` with every inode in use, and whether its parent pointers differ from the
    /// entries.
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
        if !ctx.keep(each * CHUNK_INODES as usize) {
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
