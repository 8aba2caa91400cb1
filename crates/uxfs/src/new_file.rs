//! New files on the host that are removed unless they are finished.
//!
//! 1. Only a file that this process created is removed, and only while its path still leads to it.
//! 2. Creating a file and recording it is one step under one lock, and [`remove_unfinished`] never
//!    releases that lock. So no file is missed, whatever other threads do at that moment.
//!
//! Used by import and by the commands that create files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A new file: its path, device number and inode number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    path: PathBuf,
    id: (u64, u64),
}

static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());

fn records() -> MutexGuard<'static, Vec<Record>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new file on the host. Dropping it removes the file, unless [`NewFile::keep`] was called.
#[derive(Debug)]
#[must_use = "dropping this removes the file"]
pub struct NewFile {
    /// `None` if the file existed before.
    record: Option<Record>,
}

impl NewFile {
    /// Creates an empty file, or leaves an existing file alone.
    ///
    /// # Errors
    /// The errors of creating a file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut records = records();
        let record = match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => Some(Record { path: path.to_owned(), id: id(&file)? }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) => return Err(error),
        };
        records.extend(record.clone());
        Ok(Self { record })
    }

    /// True if the file did not exist before.
    pub fn is_new(&self) -> bool {
        self.record.is_some()
    }

    /// Marks the file as finished: it stays.
    pub fn keep(mut self) {
        if let Some(record) = self.record.take() {
            records().retain(|other| *other != record);
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            let mut records = records();
            records.retain(|other| *other != record);
            remove(&record);
        }
    }
}

fn id(file: &File) -> io::Result<(u64, u64)> {
    let meta = file.metadata()?;
    Ok((meta.dev(), meta.ino()))
}

fn remove(record: &Record) {
    let same = std::fs::symlink_metadata(&record.path)
        .is_ok_and(|meta| (meta.dev(), meta.ino()) == record.id);
    if same {
        // The error has no reader: the process is on an error path already.
        let _ = std::fs::remove_file(&record.path);
    }
}

/// Removes all files that are not finished, and returns their paths. For a process that is about to
/// exit: afterwards every thread that creates or finishes a file blocks for ever.
pub fn remove_unfinished() -> Vec<PathBuf> {
    let records = records();
    let paths = records.iter().map(|record| {
        remove(record);
        record.path.clone()
    });
    let paths = paths.collect();
    std::mem::forget(records);
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_files_that_are_not_kept_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        std::fs::write(&old, "old").unwrap();
        drop(NewFile::create(&old).unwrap());
        assert!(old.exists());
        let new_file = NewFile::create(&new).unwrap();
        assert!(new_file.is_new() && new.exists());
        drop(new_file);
        assert!(!new.exists());
        NewFile::create(&new).unwrap().keep();
        assert!(new.exists());
        std::fs::remove_file(&new).unwrap();
        // Another process put another file in its place meanwhile.
        let new_file = NewFile::create(&new).unwrap();
        std::fs::rename(&old, &new).unwrap();
        drop(new_file);
        assert_eq!(std::fs::read(&new).unwrap(), b"old");
    }
}
