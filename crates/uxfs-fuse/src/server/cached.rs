//! What the kernel has cached of inodes, invalidated where a request changes it and the kernel does not
//! know: ioctls, and extended attributes that stand for something else.
//!
//! 1. The invalidation comes after the change and before the reply. Attributes that were asked for
//!    before the change and answered after the invalidation are not cached: the kernel compares versions.
//! 2. Only attributes and access lists are invalidated from a request, never data. Invalidating data waits
//!    for pages that other requests hold, and these may wait for the thread that invalidates.

use std::sync::{Arc, OnceLock};

use fuser::{INodeNo, Notifier};

/// The way to the kernel, once there is one.
#[derive(Clone, Default)]
pub(crate) struct Cached(Arc<OnceLock<Notifier>>);

impl Cached {
    /// Connects it. Requests are answered after this.
    pub(crate) fn connect(&self, notifier: Notifier) {
        // A session is connected once.
        let _ = self.0.set(notifier);
    }

    /// The attributes and access lists of an inode are asked for again.
    pub(super) fn invalidate_attributes(&self, node: INodeNo) {
        // A negative offset leaves the data alone.
        const NO_DATA: i64 = -1;
        if let Some(notifier) = self.0.get() {
            // It fails if the kernel does not know the inode, or the mount has ended.
            let _ = notifier.inval_inode(node, NO_DATA, 0);
        }
    }
}
