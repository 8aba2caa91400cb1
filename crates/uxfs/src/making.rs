//! Files of the host while they are made: what is given up does not stay behind.
//!
//! 1. Only a file that this process made is removed, and only while its name leads to it.
//! 2. A file is made and noted in one step, and [`abandon`] lets no step be taken after it: whatever
//!    the moment at which another thread calls it, no file is missed.
//!
//! Called by import, and by commands that make files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file that is being made, with the number of its device and its inode.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    path: PathBuf,
    id: (u64, u64),
}

static NOTES: Mutex<Vec<Note>> = Mutex::new(Vec::new());

fn notes() -> MutexGuard<'static, Vec<Note>> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is being made. When this goes without [`Making::keep`], so does the file.
#[derive(Debug)]
#[must_use = "the file is removed when this goes"]
pub struct Making {
    /// `None` if the file was there before.
    note: Option<Note>,
}

impl Making {
    /// Makes an empty file, unless there is one.
    ///
    /// # Errors
    /// Those of making a file.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let mut notes = notes();
        let note = match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => Some(Note { path: path.to_owned(), id: id(&file)? }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) => return Err(error),
        };
        notes.extend(note.clone());
        Ok(Self { note })
    }

    /// Was there no file before?
    pub fn is_new(&self) -> bool {
        self.note.is_some()
    }

    /// The file is as it is to be, and stays.
    pub fn keep(mut self) {
        if let Some(note) = self.note.take() {
            notes().retain(|other| *other != note);
        }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if let Some(note) = self.note.take() {
            let mut notes = notes();
            notes.retain(|other| *other != note);
            remove(&note);
        }
    }
}

fn id(file: &File) -> io::Result<(u64, u64)> {
    let meta = file.metadata()?;
    Ok((meta.dev(), meta.ino()))
}

fn remove(note: &Note) {
    let same =
        std::fs::symlink_metadata(&note.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == note.id);
    if same {
        // If it cannot be removed, there is nobody to tell but the next user of the name.
        let _ = std::fs::remove_file(&note.path);
    }
}

/// Removes all files that are being made, for a process that is about to end; gives their paths. No
/// file can be begun or finished after that: whoever tries waits for ever.
pub fn abandon() -> Vec<PathBuf> {
    let notes = notes();
    let paths = notes.iter().map(|note| {
        remove(note);
        note.path.clone()
    });
    let paths = paths.collect();
    std::mem::forget(notes);
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_made_and_not_kept_goes() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        std::fs::write(&old, "old").unwrap();
        drop(Making::begin(&old).unwrap());
        assert!(old.exists());
        let making = Making::begin(&new).unwrap();
        assert!(making.is_new() && new.exists());
        drop(making);
        assert!(!new.exists());
        Making::begin(&new).unwrap().keep();
        assert!(new.exists());
        std::fs::remove_file(&new).unwrap();
        // Somebody else put another file in its place meanwhile.
        let making = Making::begin(&new).unwrap();
        std::fs::rename(&old, &new).unwrap();
        drop(making);
        assert_eq!(std::fs::read(&new).unwrap(), b"old");
    }
}
