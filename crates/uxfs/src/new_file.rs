//! New files on the host that are removed unless they are finished, and directories for files that
//! are needed only while a larger one is made.
//!
//! 1. Only a file or directory that this process created is removed, and only while its path still
//!    leads to it.
//! 2. Creating a file and recording it is one step under one lock, and [`remove_unfinished`] never
//!    releases that lock. So no file is missed, whatever other threads do at that moment.
//! 3. Files that existed before are never removed. They are recorded while they are overwritten, so that an
//!    interrupted command can say what became of them.
//! 4. An image is locked from its creation until it is opened, so that no other process takes the empty file
//!    for its own. One that another process has locked is that process's: it stays.
//!
//! Used by import, by the commands that create files, and by those that build disk images.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uxfs_host::id_of;

/// A new file or directory: its path, device number and inode number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    path: PathBuf,
    id: (u64, u64),
    dir: bool,
}

static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());

/// Paths of files that existed and are being overwritten.
static OVERWRITTEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn records() -> MutexGuard<'static, Vec<Record>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn overwritten() -> MutexGuard<'static, Vec<PathBuf>> {
    OVERWRITTEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Is the file overwritten by this process and not finished? Files that this process created do not count.
pub fn is_overwritten(path: &Path) -> bool {
    overwritten().iter().any(|other| other == path)
}

/// A new file on the host. Dropping it removes the file, unless [`NewFile::keep`] was called.
#[derive(Debug)]
#[must_use = "dropping this removes the file"]
pub struct NewFile {
    /// `None` if the file existed before.
    record: Option<Record>,
    /// The path of a file that existed before.
    overwritten: Option<PathBuf>,
    /// The new file, locked until [`NewFile::open`].
    lock: Option<File>,
}

impl NewFile {
    /// Creates an empty file, or leaves an existing file alone.
    ///
    /// # Errors
    /// The errors of creating a file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut new = Self::create_image(path)?;
        new.lock = None;
        Ok(new)
    }

    /// As [`NewFile::create`], for a file that [`NewFile::open`] opens as a disk image.
    ///
    /// # Errors
    /// As [`NewFile::create`].
    pub fn create_image(path: &Path) -> io::Result<Self> {
        let mut records = records();
        let mut lock = None;
        let record = match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => {
                let id = id_of(path, &file.metadata()?);
                // Not on Windows, whose locks would keep this process from filling the file.
                let taken = cfg!(unix) && matches!(file.try_lock(), Err(TryLockError::WouldBlock));
                lock = Some(file);
                (!taken).then(|| Record { path: path.to_owned(), id, dir: false })
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) => return Err(error),
        };
        records.extend(record.clone());
        let existed = record.is_none().then(|| path.to_owned());
        overwritten().extend(existed.clone());
        Ok(Self { record, overwritten: existed, lock })
    }

    /// Opens the file with `open`, which locks it. If another process has it locked, the file is no longer
    /// this one's to remove.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open<T>(&mut self, open: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.lock = None;
        let opened = open();
        if matches!(&opened, Err(error) if error.kind() == io::ErrorKind::ResourceBusy) {
            self.forget();
        }
        opened
    }

    fn forget(&mut self) {
        if let Some(record) = self.record.take() {
            records().retain(|other| *other != record);
        }
    }

    /// True if the file did not exist before.
    pub fn is_new(&self) -> bool {
        self.record.is_some()
    }

    /// Marks the file as finished: it stays.
    pub fn keep(mut self) {
        self.forget();
    }

    /// Marks the file as finished, after its name is on stable storage. Its content is the caller's to sync.
    ///
    /// # Errors
    /// The errors of syncing the directory; the file is then removed.
    pub fn keep_durably(self) -> io::Result<()> {
        if let Some(record) = &self.record {
            uxfs_host::sync_dir(uxfs_host::dir_of(&record.path))?;
        }
        self.keep();
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(path) = self.overwritten.take() {
            let mut all = overwritten();
            let at = all.iter().position(|other| *other == path);
            at.map(|at| all.swap_remove(at));
        }
        if let Some(record) = self.record.take() {
            let mut records = records();
            records.retain(|other| *other != record);
            remove(&record);
        }
    }
}

/// A directory beside a file that is being made, for its parts. Only its owner may enter it. Dropping
/// it removes the directory with everything in it.
#[derive(Debug)]
#[must_use = "dropping this removes the directory"]
pub struct WorkDir {
    record: Record,
}

impl WorkDir {
    /// Creates a directory on the file system that `file` lies on, or will lie on, with a hidden name.
    ///
    /// # Errors
    /// The errors of creating a directory.
    pub fn beside(file: &Path) -> io::Result<Self> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        // The longest name leaves room for what is added.
        let name: String = name.chars().take(40).collect();
        let process = std::process::id();
        let mut records = records();
        for attempt in 0..100 {
            let path = file.with_file_name(format!(".{name}.{process}-{attempt}"));
            match private_dir().create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    let id = id_of(&path, &std::fs::symlink_metadata(&path)?);
                    let record = Record { path, id, dir: true };
                    records.push(record.clone());
                    return Ok(Self { record });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.record.path
    }

    /// Gives a file of this directory its place: syncs it and renames it to `target`, which it
    /// replaces.
    ///
    /// # Errors
    /// The errors of the host; an existing target is then unchanged.
    pub fn release(&self, file: &Path, target: &Path) -> io::Result<()> {
        uxfs_host::sync(file)?;
        // An interruption now finds either name.
        let records = records();
        std::fs::rename(file, target)?;
        drop(records);
        uxfs_host::sync_dir(uxfs_host::dir_of(target))
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let mut records = records();
        records.retain(|other| *other != self.record);
        remove(&self.record);
    }
}

/// Makes directories that only their owner may enter, where the host has owners.
fn private_dir() -> DirBuilder {
    let builder = DirBuilder::new();
    #[cfg(unix)]
    let builder = {
        let mut builder = builder;
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder
    };
    builder
}

/// How often the removal of a directory is tried: other threads may still create files in it.
const ATTEMPTS: usize = 100;

fn remove(record: &Record) {
    let same = std::fs::symlink_metadata(&record.path)
        .is_ok_and(|meta| id_of(&record.path, &meta) == record.id);
    // The error has no reader: the process is on an error path already.
    if same && record.dir {
        let _ = (0..ATTEMPTS).any(|_| std::fs::remove_dir_all(&record.path).is_ok());
    } else if same {
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
    fn unfinished_new_files_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        std::fs::write(&old, "old").unwrap();
        drop(NewFile::create(&old).unwrap());
        assert!(old.exists());
        let (one, two) = (NewFile::create(&old).unwrap(), NewFile::create(&old).unwrap());
        drop(one);
        assert!(is_overwritten(&old));
        two.keep();
        assert!(!is_overwritten(&old));
        let new_file = NewFile::create(&new).unwrap();
        assert!(new_file.is_new() && new.exists() && !is_overwritten(&new));
        drop(new_file);
        assert!(!new.exists());
        NewFile::create(&new).unwrap().keep_durably().unwrap();
        assert!(new.exists());
        std::fs::remove_file(&new).unwrap();
        // Another process put another file in its place meanwhile.
        let new_file = NewFile::create(&new).unwrap();
        std::fs::rename(&old, &new).unwrap();
        drop(new_file);
        assert_eq!(std::fs::read(&new).unwrap(), b"old");
    }

    /// Another process opens the image between its creation and its opening here.
    #[test]
    fn an_image_of_another_process_stays() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let theirs = || File::options().write(true).open(&image).unwrap();
        let mut ours = NewFile::create_image(&image).unwrap();
        assert!(ours.is_new());
        assert!(theirs().try_lock().is_err(), "the new file is not locked");
        let other = theirs();
        let refused = ours.open(|| {
            other.try_lock().unwrap();
            Err::<(), _>(io::Error::from(io::ErrorKind::ResourceBusy))
        });
        refused.unwrap_err();
        drop(ours);
        assert!(image.exists(), "the other's image was removed");
        std::fs::remove_file(&image).unwrap();
        // An image that could not be opened for another reason is removed.
        let mut ours = NewFile::create_image(&image).unwrap();
        ours.open(|| Err::<(), _>(io::Error::from(io::ErrorKind::StorageFull))).unwrap_err();
        drop(ours);
        assert!(!image.exists());
    }

    #[test]
    fn a_work_directory_is_removed_with_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        let work = WorkDir::beside(&target).unwrap();
        let part = work.path().join("part");
        std::fs::write(&part, "content").unwrap();
        std::fs::write(work.path().join("other"), "").unwrap();
        work.release(&part, &target).unwrap();
        drop(work);
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(names.len(), 1);
        assert_eq!(std::fs::read(target).unwrap(), b"content");
    }
}
