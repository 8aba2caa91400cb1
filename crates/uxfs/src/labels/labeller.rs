//! Labels for files that are being made.

use std::ops::Deref;

use uxfs_selinux::{ContextsError, FileContexts, FileKind, Lookup, XATTR};

/// Adds labels to attributes.
pub(crate) struct Labeller<C> {
    lookup: Lookup<C>,
    path: Vec<u8>,
}

impl<C: Deref<Target = FileContexts>> Labeller<C> {
    pub(crate) fn new(contexts: C) -> Self {
        Self { lookup: Lookup::new(contexts), path: Vec::new() }
    }

    /// The attribute's value for the file at this path, which has no leading slash.
    pub(crate) fn value(
        &mut self,
        path: &[u8],
        kind: FileKind,
    ) -> Result<Option<Vec<u8>>, ContextsError> {
        self.path.clear();
        self.path.push(b'/');
        self.path.extend_from_slice(path);
        Ok(self.lookup.label(&self.path, kind)?.map(stored))
    }

    /// Sets the label among a file's attributes, which are sorted by name.
    pub(crate) fn set(
        &mut self,
        xattrs: &mut Vec<(Vec<u8>, Vec<u8>)>,
        path: &[u8],
        kind: FileKind,
    ) -> Result<(), ContextsError> {
        if let Some(value) = self.value(path, kind)? {
            match xattrs.binary_search_by(|(name, _)| name.as_slice().cmp(XATTR)) {
                Ok(at) => xattrs[at].1 = value,
                Err(at) => xattrs.insert(at, (XATTR.to_vec(), value)),
            }
        }
        Ok(())
    }
}

/// A label as the attribute's value.
pub(super) fn stored(label: &[u8]) -> Vec<u8> {
    [label, b"\0"].concat()
}
