//! Inodes in memory whose chunk was freed: they are not logged and not written any more.
//!
//! They are known by their address in memory, because the thread that frees a chunk may not wait for the
//! locks of its inodes: a rolling transaction may hold one.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use uxfs_sync::Mutex;

use crate::inode::InodeRef;

/// Number of inodes below which none are dropped.
const FEW: usize = 256;

/// The set. Inodes without other references are dropped when as many others were added.
#[derive(Default)]
pub(crate) struct FreedInodes {
    cells: Mutex<Cells>,
}

#[derive(Default)]
struct Cells {
    map: FxHashMap<usize, InodeRef>,
    /// Size at which unreferenced inodes are dropped.
    sweep_at: usize,
}

fn place(cell: &InodeRef) -> usize {
    Arc::as_ptr(cell).addr()
}

impl FreedInodes {
    /// Adds an inode whose chunk was freed.
    pub(crate) fn add(&self, cell: &InodeRef) {
        let mut cells = self.cells.lock();
        if cells.map.len() >= cells.sweep_at.max(FEW) {
            cells.map.retain(|_, cell| Arc::strong_count(cell) > 1);
            cells.sweep_at = 2 * cells.map.len();
        }
        cells.map.insert(place(cell), Arc::clone(cell));
    }

    /// Was the inode's chunk freed?
    pub(crate) fn contains(&self, cell: &InodeRef) -> bool {
        self.cells.lock().map.contains_key(&place(cell))
    }
}
