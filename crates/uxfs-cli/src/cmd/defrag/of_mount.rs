//! `uxfs defrag` on a mounted volume: the server moves the data, part by part.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use uxfs_fuse::{control, defrag};

use super::{Outcome, Run};
use crate::session::{Failure, Result};

/// Is this a path on a mount of uxfs?
pub(super) fn is_mounted(path: &Path) -> bool {
    control::ask(path, control::STATUS).is_ok()
}

impl Run<'_> {
    pub(super) fn in_mount(&mut self, path: &Path) -> Result<()> {
        let failed = |error| Failure::host(path, &error);
        let meta = std::fs::symlink_metadata(path).map_err(failed)?;
        self.may_enter(path.as_os_str().as_bytes(), meta.is_dir(), self.options.recursive)?;
        if !meta.is_dir() && !meta.is_file() {
            return Err(Failure::new(path, "not a regular file or directory"));
        }
        let mut todo = vec![(path.to_owned(), meta)];
        let device = todo[0].1.dev();
        let mut named = true;
        while let Some((path, meta)) = todo.pop() {
            if meta.is_file() {
                let done = self.in_server(&path);
                let done = done.map_err(|error| Failure::host(&path, &error));
                if let Some(outcome) = self.session.ok(done) {
                    self.report(path.as_os_str().as_bytes(), named, &outcome)?;
                }
            } else if meta.is_dir() && meta.dev() == device {
                let listed = list(&path).map_err(|error| Failure::host(&path, &error));
                todo.extend(self.session.ok(listed).unwrap_or_default());
            }
            named = false;
        }
        Ok(())
    }

    fn in_server(&mut self, path: &Path) -> std::io::Result<Outcome> {
        let before = defrag::fragmentation(path)?;
        let mut outcome = Outcome { before, after: None, moved: 0, kept: None };
        if self.options.dry_run || before.extents == before.possible {
            return Ok(outcome);
        }
        let mut next = Some(0);
        while let Some(from) = next {
            let part = defrag::part(path, from, self.options.shared)?;
            outcome.moved += part.moved;
            (outcome.kept, next) = (part.kept, part.next);
            self.bar.show(self.moved + outcome.moved);
        }
        outcome.after = Some(defrag::fragmentation(path)?.extents);
        Ok(outcome)
    }
}

/// The entries of a directory, in reverse order of their names.
fn list(dir: &Path) -> std::io::Result<Vec<(std::path::PathBuf, std::fs::Metadata)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // What was removed meanwhile needs no work.
        if let Ok(meta) = entry.metadata() {
            all.push((entry.path(), meta));
        }
    }
    all.sort_by(|one, other| other.0.cmp(&one.0));
    Ok(all)
}
