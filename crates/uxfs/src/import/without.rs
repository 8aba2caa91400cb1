//! A directory's tree without the files of the host that the import itself makes.
//!
//! 1. What is left out is found by its path. An image that lies in the tree would otherwise be read while it
//!    is written, and no two images of the tree would be the same.
//! 2. Other names of a file that is left out are left out, too.
//!
//! Used by [`Origin`](super::origin::Origin).

use std::path::{Path, PathBuf};

use uxfs_archive::{ArchiveError, Entry, Kind, Source};
use uxfs_host::OsStrExt;

use super::forward::forward_data;

/// A source without some of its entries.
pub(super) struct Without {
    source: Box<dyn Source>,
    /// Their paths in the tree.
    paths: Vec<Vec<u8>>,
    warnings: Vec<String>,
}

impl Without {
    /// The tree of `source`, which was opened at `root`, without the files of the host at `left_out`.
    pub(super) fn wrap(
        source: Box<dyn Source>,
        root: &Path,
        left_out: &[PathBuf],
    ) -> Box<dyn Source> {
        let Ok(root) = root.canonicalize() else { return source };
        let inside = |path: &PathBuf| path_inside(&root, path).filter(|path| !path.is_empty());
        let paths: Vec<_> = left_out.iter().filter_map(inside).collect();
        if paths.is_empty() {
            return source;
        }
        Box::new(Self { source, paths, warnings: Vec::new() })
    }

    fn is_left_out(&self, path: &[u8]) -> bool {
        self.paths.iter().any(|out| path == &**out || lies_in(path, out))
    }

    /// Is the file named, and not only a directory that it lies in?
    fn is_named(&self, path: &[u8]) -> bool {
        self.paths.iter().any(|out| path == &**out)
            && !self.paths.iter().any(|out| lies_in(path, out))
    }
}

fn lies_in(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with(b"/"))
}

/// The path of a file in the tree at `root`, if it lies there. The file need not exist yet.
fn path_inside(root: &Path, path: &Path) -> Option<Vec<u8>> {
    let path = uxfs_host::dir_of(path).canonicalize().ok()?.join(path.file_name()?);
    let names = path.strip_prefix(root).ok()?.iter().map(|name| name.as_bytes().to_vec());
    Some(names.collect::<Vec<_>>().join(&b'/'))
}

impl Source for Without {
    fn next(&mut self) -> Result<Option<Entry>, ArchiveError> {
        while let Some(entry) = self.source.next()? {
            let other_name = match &entry.kind {
                Kind::Hardlink { target } => self.is_left_out(target),
                _ => false,
            };
            if !other_name && !self.is_left_out(&entry.path) {
                return Ok(Some(entry));
            }
            if entry.kind != Kind::Dir && self.is_named(&entry.path) {
                let path = entry.path.escape_ascii();
                self.warnings.push(format!("{path}: left out, because it is the image"));
            }
        }
        Ok(None)
    }

    forward_data!(source);

    fn warnings(&mut self) -> Vec<String> {
        let mut all = self.source.warnings();
        all.append(&mut self.warnings);
        all
    }
}
