//! Invalidates what the kernel has cached of an inode where a request changes it without the
//! kernel's knowledge: ioctls, and extended attributes that stand for something else.
//!
//! 1. The invalidation follows the change and precedes the reply. Attributes requested before the
//!    change and answered after the invalidation are not cached, because the kernel compares
//!    versions.
//! 2. A request invalidates only attributes and access lists, never data. Invalidating data waits
//!    for pages that other requests hold, and these may wait for the invalidating thread.

use std::sync::{Arc, OnceLock};

use uxfs_transport::{Node, Notifier};

/// The channel to the kernel, once there is one.
#[derive(Clone, Default)]
pub(crate) struct Cached(Arc<OnceLock<Notifier>>);

impl Cached {
    /// Sets the channel. Requests are answered only after this.
    pub(crate) fn connect(&self, notifier: Notifier) {
        // A session is set once.
        let _ = self.0.set(notifier);
    }

    /// Makes the kernel ask again for the attributes and access lists of an inode.
    pub(super) fn invalidate_attributes(&self, node: Node) {
        // A negative offset leaves the data alone.
        const NO_DATA: i64 = -1;
        if let Some(notifier) = self.0.get() {
            // It fails if the kernel does not know the inode, or the mount has ended.
            let _ = notifier.inval_inode(node, NO_DATA, 0);
        }
    }
}
