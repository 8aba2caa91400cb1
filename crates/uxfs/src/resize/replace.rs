//! A new file beside an old one, which takes its place when it is whole.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file that is being made. Dropped without [`Beside::replace`] it is removed.
pub(super) struct Beside {
    path: PathBuf,
    old: PathBuf,
    kept: bool,
}

impl Beside {
    /// A new empty file in the directory of `old`, which only its owner may look at.
    ///
    /// # Errors
    /// Of the host; [`io::ErrorKind::InvalidInput`] if `old` has several names, one of which alone
    /// would be replaced.
    pub(super) fn new(old: &Path) -> io::Result<Self> {
        if std::fs::metadata(old)?.nlink() > 1 {
            let problem = "has several names (hard links), and has to be replaced to be shrunk";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let name = old.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let own = std::process::id();
        for turn in 0..100 {
            let path = old.with_file_name(format!(".{name}.resize-{own}-{turn}"));
            let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&path);
            match made {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    let beside = Self { path, old: old.to_owned(), kept: false };
                    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
                    return Ok(beside);
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file the owner and mode of the old one and puts it in its place, all on stable
    /// storage.
    ///
    /// # Errors
    /// Of the host; the old file is as it was then.
    pub(super) fn replace(mut self) -> io::Result<()> {
        let old = std::fs::metadata(&self.old)?;
        let file = File::open(&self.path)?;
        let new = file.metadata()?;
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            // Only root can; everybody else's files are their own anyway, but for the group.
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

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.kept {
            // Nobody can be told; what is left has a name that says whose it was.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
