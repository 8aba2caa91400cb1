//! Open handles, each with the errors of its file's data that were reported to it.
//!
//! 1. Number 0 is no handle: the kernel uses it for a file that it opened without a request.
//! 2. A handle exists from its open to its release.
//!
//! Only with `strict_open`. Otherwise the kernel opens files itself, and an error of a file's data
//! is reported to the first caller that asks. Data that could not be written stays in memory and is
//! written again with every fsync, so in both cases a caller that gets success has all of it on
//! stable storage.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use uxfs::ErrorCursor;
use uxfs_transport::Handle;

/// The errors that were reported to a handle.
pub(crate) type Cursor = Arc<Mutex<ErrorCursor>>;

/// Most handles: more than the files that a kernel lets all its processes open.
const HANDLES_MAX: usize = 4 << 20;

#[derive(Default)]
pub(crate) struct Handles {
    last: AtomicU64,
    open: Mutex<HashMap<u64, Cursor>>,
}

impl Handles {
    /// A new handle; number 0 if there are too many.
    pub(crate) fn open(&self, cursor: ErrorCursor) -> Handle {
        let mut open = self.open.lock();
        if open.len() >= HANDLES_MAX {
            return Handle(0);
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        open.insert(number, Arc::new(Mutex::new(cursor)));
        Handle(number)
    }

    /// The cursor of a handle; `None` if there is no such handle.
    pub(crate) fn cursor(&self, handle: Handle) -> Option<Cursor> {
        if handle.0 == 0 {
            return None;
        }
        self.open.lock().get(&handle.0).cloned()
    }

    pub(crate) fn release_all(&self) {
        self.open.lock().clear();
    }

    pub(crate) fn release(&self, handle: Handle) {
        if handle.0 != 0 {
            self.open.lock().remove(&handle.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_opened_and_released() {
        let handles = Handles::default();
        let (one, two) =
            (handles.open(ErrorCursor::default()), handles.open(ErrorCursor::default()));
        assert!(one != two && one.0 != 0);
        assert!(handles.cursor(one).is_some() && handles.cursor(Handle(0)).is_none());
        handles.release(one);
        handles.release(Handle(0));
        assert!(handles.cursor(one).is_none() && handles.cursor(two).is_some());
    }
}
