//! Inodes in memory whose chunk was freed: they are not logged and not written any more.
//!
//! They are known by their address in memory, because the thread that frees a chunk may not wait for the
//! locks of its inodes: a rolling transaction may hold one.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::inode::InodeRef;
use crate::sync::Mutex;

/// Inodes that are always few enough.
const FEW: usize = 256;

/// The inodes. Those that nobody else follows are forgotten when as many others have come.
#[derive(Default)]
pub(crate) struct FreedInodes {
    cells: Mutex<Cells>,
}

#[derive(Default)]
struct Cells {
    map: FxHashMap<usize, InodeRef>,
    /// Number of inodes at which to look for some to forget.
    sweep_at: usize,
}

fn place(cell: &InodeRef) -> usize {
    Arc::as_ptr(cell).addr()
}

impl FreedInodes {
    /// The inode's chunk was given back.
    pub(crate) fn add(&self, cell: &InodeRef) {
        let mut cells = self.cells.lock();
        if cells.map.len() >= cells.sweep_at.max(FEW) {
            cells.map.retain(|_, cell| Arc::strong_count(cell) > 1);
            cells.sweep_at = 2 * cells.map.len();
        }
        cells.map.insert(place(cell), Arc::clone(cell));
    }

    /// Was its chunk given back?
    pub(crate) fn contains(&self, cell: &InodeRef) -> bool {
        self.cells.lock().map.contains_key(&place(cell))
    }
}
