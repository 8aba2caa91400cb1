//! Inodes in memory whose chunk was given back: they are not logged and not written any more.
//!
//! Told by their place in memory, because whoever gives a chunk back may not wait for the locks of
//! its inodes: one of them may be that of a chain between two links.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::inode::InodeRef;
use crate::turns::Mutex;

/// The inodes. Those that nobody else follows are forgotten when others come.
#[derive(Default)]
pub(crate) struct Dead {
    cells: Mutex<FxHashMap<usize, InodeRef>>,
}

fn place(cell: &InodeRef) -> usize {
    Arc::as_ptr(cell).addr()
}

impl Dead {
    /// The inode's chunk was given back.
    pub(crate) fn add(&self, cell: &InodeRef) {
        let mut cells = self.cells.lock();
        cells.retain(|_, cell| Arc::strong_count(cell) > 1);
        cells.insert(place(cell), Arc::clone(cell));
    }

    /// Was its chunk given back?
    pub(crate) fn contains(&self, cell: &InodeRef) -> bool {
        self.cells.lock().contains_key(&place(cell))
    }
}
