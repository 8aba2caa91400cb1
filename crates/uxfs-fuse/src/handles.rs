//! Files that were opened with a word to us: what each opener was told of errors of the file's
//! data.
//!
//! 1. Number 0 is no handle: it is what the kernel says of a file that it opened without asking.
//! 2. A handle is there from its opening to its release.
//!
//! Only under `strict_open`; else the kernel opens files by itself, and an error of a file's data is
//! told to whoever asks first. Data that could not be written stays and is tried again with every
//! fsync, so whoever is told of success has all of it on stable storage in either case.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::FileHandle;
use parking_lot::Mutex;
use uxfs::ErrorCursor;

/// What an opener was told.
pub(crate) type Cursor = Arc<Mutex<ErrorCursor>>;

/// All handles.
#[derive(Default)]
pub(crate) struct Handles {
    last: AtomicU64,
    open: Mutex<HashMap<u64, Cursor>>,
}

impl Handles {
    /// A new handle.
    pub(crate) fn open(&self, cursor: ErrorCursor) -> FileHandle {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.lock().insert(number, Arc::new(Mutex::new(cursor)));
        FileHandle(number)
    }

    /// What its opener was told; `None` for what is no handle.
    pub(crate) fn cursor(&self, handle: FileHandle) -> Option<Cursor> {
        if handle.0 == 0 {
            return None;
        }
        self.open.lock().get(&handle.0).cloned()
    }

    /// The end of a handle.
    pub(crate) fn release(&self, handle: FileHandle) {
        if handle.0 != 0 {
            self.open.lock().remove(&handle.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_and_go() {
        let handles = Handles::default();
        let (one, two) =
            (handles.open(ErrorCursor::default()), handles.open(ErrorCursor::default()));
        assert!(one != two && one.0 != 0);
        assert!(handles.cursor(one).is_some() && handles.cursor(FileHandle(0)).is_none());
        handles.release(one);
        handles.release(FileHandle(0));
        assert!(handles.cursor(one).is_none() && handles.cursor(two).is_some());
    }
}
