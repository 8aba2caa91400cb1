//! When an import gives files their SELinux labels.
//!
//! 1. Rules that are known before the first entry label each entry as it is read: rules from files,
//!    and the policy in a directory that becomes a new volume.
//! 2. Other trees bring their policy along: archives, layers, trees that are added to others. Then
//!    the volume is labelled by the policy that it holds in the end, in a second pass.
//! 3. The root directory of a new volume gets a label even if the source has no entry for it.

use std::sync::Arc;

use uxfs_core::{Fs, XattrMode};
use uxfs_selinux::{FileContexts, FileKind, XATTR};

use super::error::ImportError;
use super::origin::ImportSource;
use crate::labels::{LabelEvent, Labeller, Labels, RelabelError, RelabelOptions, relabel};

/// How the files of an import get their labels.
#[derive(Clone, Debug, Default)]
pub(super) struct Labelling {
    contexts: Option<Arc<FileContexts>>,
    second_pass: bool,
}

impl Labelling {
    pub(super) fn new(
        labels: Option<&Labels>,
        source: &ImportSource,
        fresh: bool,
    ) -> Result<Self, ImportError> {
        let contexts = match (labels, source) {
            (None, _) => return Ok(Self::default()),
            (Some(Labels::Rules(rules)), _) => Arc::clone(rules),
            (Some(labels), ImportSource::Tree(path)) if fresh && path.is_dir() => {
                labels.of_tree(path)?
            }
            (Some(Labels::Auto), _) => return Ok(Self { contexts: None, second_pass: true }),
        };
        Ok(Self { contexts: Some(contexts), second_pass: false })
    }

    /// The rules for entries as they are read.
    pub(super) fn contexts(&self) -> Option<&Arc<FileContexts>> {
        self.contexts.as_ref()
    }

    /// Labels the root directory of a new volume.
    pub(super) fn begin(&self, fs: &Fs) -> Result<(), ImportError> {
        let Some(contexts) = self.contexts() else { return Ok(()) };
        if let Some(value) = Labeller::new(&**contexts).value(b"", FileKind::Dir)? {
            fs.set_xattr(fs.root(), XATTR, &value, XattrMode::Any)?;
        }
        Ok(())
    }

    /// The second pass, if there is one.
    pub(super) fn finish(&self, fs: &Fs) -> Result<(), ImportError> {
        if !self.second_pass {
            return Ok(());
        }
        let contexts = Labels::Auto.of_volume(fs)?;
        let options = RelabelOptions { keep_ctime: true, ..RelabelOptions::default() };
        let mut failed = None;
        let mut listener = |event: LabelEvent<'_>| {
            if let LabelEvent::Failed { path, error } = event {
                failed.get_or_insert(ImportError::Entry { path: path.to_vec(), source: error });
            }
        };
        match relabel(fs, b"/", &contexts, options, &mut listener) {
            Ok(_) => failed.map_or(Ok(()), Err),
            Err(RelabelError::Contexts(error)) => Err(error.into()),
            Err(RelabelError::Volume(error)) => Err(error.into()),
        }
    }
}
