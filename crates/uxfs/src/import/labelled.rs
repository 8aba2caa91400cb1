//! A source whose entries have their SELinux labels.
//!
//! 1. A label replaces the one that the entry had. Another name of a file has no attributes.
//! 2. It is a source of its own so that a thread which reads ahead finds the labels too.
//!
//! Called by the import of a layer.

use std::sync::Arc;

use uxfs_archive::{ArchiveError, Entry, Kind, Source};
use uxfs_selinux::{FileContexts, FileKind};

use super::forward::forward_data;
use crate::labels::Labeller;

/// A source, and the rules for its labels.
pub(super) struct Labelled {
    source: Box<dyn Source>,
    labeller: Labeller<Arc<FileContexts>>,
}

impl Labelled {
    pub(super) fn new(source: Box<dyn Source>, contexts: &Arc<FileContexts>) -> Self {
        Self { source, labeller: Labeller::new(Arc::clone(contexts)) }
    }
}

impl Source for Labelled {
    fn next(&mut self) -> Result<Option<Entry>, ArchiveError> {
        let Some(mut entry) = self.source.next()? else { return Ok(None) };
        if let Some(kind) = file_kind(&entry.kind) {
            let labelled = self.labeller.set(&mut entry.meta.xattrs, &entry.path, kind);
            labelled.map_err(|error| ArchiveError::Other(Box::new(error)))?;
        }
        Ok(Some(entry))
    }

    forward_data!(source);

    fn warnings(&mut self) -> Vec<String> {
        self.source.warnings()
    }
}

/// The type of an entry's file; `None` for another name of a file.
fn file_kind(kind: &Kind) -> Option<FileKind> {
    Some(match kind {
        Kind::File { .. } => FileKind::File,
        Kind::Dir => FileKind::Dir,
        Kind::Symlink { .. } => FileKind::Symlink,
        Kind::Char { .. } => FileKind::Char,
        Kind::Block { .. } => FileKind::Block,
        Kind::Fifo => FileKind::Fifo,
        Kind::Socket => FileKind::Socket,
        Kind::Hardlink { .. } => return None,
    })
}
