//! What becomes longer when a mounted volume grows: its geometry, and tables with an entry for each group.
//!
//! 1. Both are read without a lock, and only appended to: a reference stays valid.
//! 2. A reader sees the geometry of before or that of after a growth, never a mixture, within one borrow.
//! 3. A table is lengthened before the geometry that shows its new entries.
//!
//! Read by the whole engine through [`crate::mount::Mount`]; changed by [`crate::growth`] alone.

use std::ops::Deref;
use std::sync::OnceLock;

use uxfs_format::Geometry;

/// The geometry of an open volume, which dereferences to the present one.
pub struct GrowingGeometry {
    geo: Geometry,
    next: OnceLock<Box<GrowingGeometry>>,
}

impl GrowingGeometry {
    /// A volume that has not grown yet.
    pub fn new(geo: Geometry) -> Self {
        Self { geo, next: OnceLock::new() }
    }

    fn last(&self) -> &Self {
        let mut at = self;
        while let Some(next) = at.next.get() {
            at = next;
        }
        at
    }

    /// Replaces the present geometry. One thread at a time calls it.
    pub(crate) fn replace(&self, geo: Geometry) {
        let _appended = self.last().next.set(Box::new(Self::new(geo)));
    }
}

impl Deref for GrowingGeometry {
    type Target = Geometry;

    fn deref(&self) -> &Geometry {
        &self.last().geo
    }
}

/// A table with an entry for each group.
pub(crate) struct GrowTable<T> {
    entries: Box<[T]>,
    next: OnceLock<Box<GrowTable<T>>>,
}

impl<T> GrowTable<T> {
    /// A table of `len` entries.
    pub(crate) fn new(len: usize, make: impl Fn() -> T) -> Self {
        Self { entries: (0..len).map(|_| make()).collect(), next: OnceLock::new() }
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        let (mut at, mut index) = (self, index);
        loop {
            if let Some(entry) = at.entries.get(index) {
                return Some(entry);
            }
            index -= at.entries.len();
            at = at.next.get()?;
        }
    }

    pub(crate) fn len(&self) -> usize {
        let (mut at, mut len) = (self, self.entries.len());
        while let Some(next) = at.next.get() {
            at = next;
            len += at.entries.len();
        }
        len
    }

    /// Lengthens the table to `len` entries, unless it is as long. One thread at a time calls it.
    pub(crate) fn lengthen(&self, len: usize, make: impl Fn() -> T) {
        let more = len.saturating_sub(self.len());
        let mut at = self;
        while let Some(next) = at.next.get() {
            at = next;
        }
        if more > 0 {
            let _appended = at.next.set(Box::new(Self::new(more, make)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_its_entries_and_gets_more() {
        let table = GrowTable::new(2, || std::sync::atomic::AtomicU32::new(7));
        let first = table.get(1).map(std::ptr::from_ref);
        for len in [2, 3, 3, 10] {
            table.lengthen(len, || std::sync::atomic::AtomicU32::new(8));
            assert_eq!(table.len(), len);
            assert!(table.get(len - 1).is_some() && table.get(len).is_none());
        }
        assert_eq!(table.get(1).map(std::ptr::from_ref), first);
    }
}
