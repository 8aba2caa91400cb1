//! A new file beside an old one, which replaces the old one when it is complete.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A new file. It is removed when dropped without [`ReplacementFile::replace`].
pub(super) struct ReplacementFile {
    path: PathBuf,
    old: PathBuf,
    kept: bool,
}

impl ReplacementFile {
    /// Creates an empty file in the directory of `old`, readable by its owner only.
    ///
    /// # Errors
    /// Errors of the host; [`io::ErrorKind::InvalidInput`] if `old` has several hard links, of
    /// which only one would be replaced.
    pub(super) fn new(old: &Path) -> io::Result<Self> {
        if std::fs::metadata(old)?.nlink() > 1 {
            let problem = "has several hard links, and shrinking would replace only this one: copy the file first";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let name = old.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let own = std::process::id();
        for attempt in 0..100 {
            let path = old.with_file_name(format!(".{name}.resize-{own}-{attempt}"));
            let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&path);
            match made {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    let replacement = Self { path, old: old.to_owned(), kept: false };
                    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
                    return Ok(replacement);
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Path of the new file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the new file the owner and mode of the old one, syncs it and renames it over the old
    /// one.
    ///
    /// # Errors
    /// Errors of the host; the old file is then unchanged.
    pub(super) fn replace(mut self) -> io::Result<()> {
        let old = std::fs::metadata(&self.old)?;
        let file = File::open(&self.path)?;
        let new = file.metadata()?;
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            // Only root can change the owner; other users' files differ at most in the group.
            let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
        }
        file.set_permissions(old.permissions())?;
        file.sync_all()?;
        std::fs::rename(&self.path, &self.old)?;
        self.kept = true;
        if let Some(dir) = self.old.parent() {
            File::open(dir)?.sync_all()?;
        }
        Ok(())
    }
}

impl Drop for ReplacementFile {
    fn drop(&mut self) {
        if !self.kept {
            // Drop cannot return an error. The name of a leftover file shows where it came from.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
