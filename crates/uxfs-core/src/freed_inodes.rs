//! Inodes in memory whose chunk was freed: they are not logged and not written any more.
//!
//! They are known by their address in memory, because the thread that frees a chunk may not wait for the
//! locks of its inodes: a rolling transaction may hold one.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use uxfs_sync::Mutex;

/// Number of inodes below which none are dropped.
const FEW: usize = 256;

/// The set: `C` is an inode in memory. Inodes without other references are dropped when as many
/// others were added.
#[derive(Debug)]
pub(crate) struct FreedInodes<C> {
    cells: Mutex<Cells<C>>,
}

#[derive(Debug)]
struct Cells<C> {
    map: FxHashMap<usize, Arc<C>>,
    /// Size at which unreferenced inodes are dropped.
    sweep_at: usize,
}

impl<C> Default for FreedInodes<C> {
    fn default() -> Self {
        Self { cells: Mutex::new(Cells { map: FxHashMap::default(), sweep_at: 0 }) }
    }
}

fn address<C>(cell: &Arc<C>) -> usize {
    Arc::as_ptr(cell).addr()
}

impl<C> FreedInodes<C> {
    /// Adds an inode whose chunk was freed.
    pub(crate) fn add(&self, cell: &Arc<C>) {
        let mut cells = self.cells.lock();
        if cells.map.len() >= cells.sweep_at.max(FEW) {
            cells.map.retain(|_, cell| Arc::strong_count(cell) > 1);
            cells.sweep_at = 2 * cells.map.len();
        }
        cells.map.insert(address(cell), Arc::clone(cell));
    }

    /// Was the inode's chunk freed?
    pub(crate) fn contains(&self, cell: &Arc<C>) -> bool {
        self.cells.lock().map.contains_key(&address(cell))
    }
}
