//! A new file beside an old one, which replaces the old one when it is complete.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use uxfs_host::Stat;

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
        if Stat::of(&std::fs::metadata(old)?).links > 1 {
            let problem = "has several hard links, and shrinking would replace only this one: copy the file first";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let name = old.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let own = std::process::id();
        for attempt in 0..100 {
            let path = old.with_file_name(format!(".{name}.resize-{own}-{attempt}"));
            let made = OpenOptions::new().write(true).create_new(true).open(&path);
            match made {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    let replacement = Self { path, old: old.to_owned(), kept: false };
                    #[cfg(unix)]
                    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
                    drop(file);
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
        #[cfg(unix)]
        {
            let new = Stat::of(&std::fs::metadata(&self.path)?);
            let owner = Stat::of(&old);
            if (owner.uid, owner.gid) != (new.uid, new.gid) {
                // Only root can change the owner; other users' files differ at most in the group.
                let (uid, gid) = (Some(owner.uid), Some(owner.gid));
                let _ = std::os::unix::fs::chown(&self.path, uid, gid);
            }
        }
        uxfs_host::sync(&self.path)?;
        std::fs::set_permissions(&self.path, old.permissions())?;
        std::fs::rename(&self.path, &self.old)?;
        self.kept = true;
        uxfs_host::sync_dir(uxfs_host::dir_of(&self.old))
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
