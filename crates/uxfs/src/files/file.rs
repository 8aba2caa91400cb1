//! An open file: data by position, and durability.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use uxfs_core::{AtomicRange, Error, ErrorCursor, Fs, SyncKind};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFDIR, S_IFMT, S_IFREG};

use super::error::{Fault, PathError, Result};
use super::lookup::{self, Last};
use super::metadata::{FileTimes, Metadata, Permissions};
use super::options::{Creation, FileOptions};
use super::volume::{Shared, Ticket, Volume};

/// Most symbolic links followed to the place of a new file.
const LINKS_MAX: u32 = 40;

/// A reference to an inode: it stays after its last name is removed.
pub(super) struct Held {
    pub(super) shared: Arc<Shared>,
    pub(super) ino: Ino,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.release(self.ino);
    }
}

/// An open file or directory of a [`Volume`]. Reading, writing and seeking also work on `&File`; the
/// position is shared.
pub struct File {
    held: Held,
    path: PathBuf,
    read: bool,
    write: bool,
    append: bool,
    position: Mutex<u64>,
    /// What was reported of errors in writing data back.
    errors: Mutex<ErrorCursor>,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.path).field("ino", &self.held.ino).finish()
    }
}

impl Volume {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// Those of looking the path up.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_file_with(path, &FileOptions::new().read(true))
    }

    /// Opens a file for writing: creates it, or empties an existing one.
    ///
    /// # Errors
    /// Those of looking the path up and of [`Fs::create`]; EISDIR for a directory.
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_file_with(path, &FileOptions::new().write(true).create(true).truncate(true))
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As [`Volume::create_file`]; EEXIST with [`FileOptions::create_new`]; EINVAL for options that
    /// exclude each other, and for devices, FIFOs and sockets.
    pub fn open_file_with(&self, path: impl AsRef<Path>, options: &FileOptions) -> Result<File> {
        let path = path.as_ref();
        self.on_path("open", path, |fs, bytes| {
            let how = options.creation()?;
            let (held, new) = self.open_inode(fs, bytes, how, options.mode)?;
            let write = options.write || options.append;
            let kind = fs.stat(held.ino)?.mode & S_IFMT;
            if kind == S_IFDIR && (write || how.create) {
                return Err(Error::IsDir.into());
            }
            if kind != S_IFDIR && kind != S_IFREG {
                return Err(Fault::invalid("devices, FIFOs and sockets have no content here"));
            }
            if write && self.0.options.engine.read_only {
                return Err(Error::ReadOnly.into());
            }
            if how.truncate && !new {
                let _beside = self.0.change(held.ino);
                fs.truncate(held.ino, 0)?;
            }
            let errors = Mutex::new(fs.error_cursor(held.ino));
            Ok(File {
                held,
                path: path.to_owned(),
                read: options.read,
                write,
                append: options.append,
                position: Mutex::new(0),
                errors,
            })
        })
    }

    /// Takes a reference to the file at `path`. Returns whether it was created.
    fn open_inode(
        &self,
        fs: &Fs,
        path: &[u8],
        how: Creation,
        mode: u16,
    ) -> core::result::Result<(Held, bool), Fault> {
        if !how.create {
            let found = self.hold(fs, || lookup::inode(fs, path, true))?;
            return Ok((found, false));
        }
        let (mut base, mut path) = (fs.root(), path.to_vec());
        let mut links = 0;
        while links <= LINKS_MAX {
            let place = lookup::place(fs, base, &path)?;
            let name = match place.last {
                _ if place.slash && place.last != Last::Root => return Err(Error::IsDir.into()),
                Last::Name(name) => name,
                _ if how.exclusive => return Err(Error::Exists.into()),
                _ => return Err(Error::IsDir.into()),
            };
            let Some(ino) = lookup::entry(fs, place.dir, name)? else {
                match self.0.options.creator.create(fs, place.dir, name, S_IFREG | mode, (0, 0)) {
                    Ok(ino) => {
                        // Another thread may have removed or replaced it already.
                        let held = self.hold_at(fs, ino);
                        if lookup::entry(fs, place.dir, name)? == Some(ino) {
                            return Ok((held, true));
                        }
                    }
                    Err(Error::Exists) if !how.exclusive => {}
                    Err(error) => return Err(error.into()),
                }
                continue;
            };
            if how.exclusive {
                return Err(Error::Exists.into());
            }
            let held = self.hold_at(fs, ino);
            if lookup::entry(fs, place.dir, name)? != Some(ino) {
                // Another thread removed or replaced it meanwhile.
                continue;
            }
            if !lookup::is_symlink(fs, ino)? {
                return Ok((held, false));
            }
            links += 1;
            (base, path) = (place.dir, fs.readlink(ino)?);
        }
        Err(Error::Loop.into())
    }

    fn hold_at(&self, fs: &Fs, ino: Ino) -> Held {
        fs.hold(ino);
        Held { shared: Arc::clone(&self.0), ino }
    }

    /// Takes a reference to the inode that `find` finds, and makes sure that it was not freed between
    /// the two.
    pub(super) fn hold(
        &self,
        fs: &Fs,
        find: impl Fn() -> core::result::Result<Ino, Fault>,
    ) -> core::result::Result<Held, Fault> {
        Ok(Held { shared: Arc::clone(&self.0), ino: fs.hold_found(find)? })
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// As [`Volume::open_file`], and those of [`Fs::read_at`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open_file(path.as_ref())?;
        let mut content = Vec::new();
        file.call("read", |fs| {
            let size = usize::try_from(fs.stat(file.held.ino)?.size);
            let size = size.map_err(|_| Error::FileTooBig)?;
            let reserved = content.try_reserve_exact(size);
            reserved.map_err(|_| Fault::Refused(12, "the file does not fit into memory"))?;
            content.resize(size, 0);
            let len = fs.read_at(file.held.ino, 0, &mut content)?;
            content.truncate(len);
            file.accessed(fs)
        })?;
        Ok(content)
    }

    /// Reads a whole file as text.
    ///
    /// # Errors
    /// As [`Volume::read`]; EINVAL if it is not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        let not_text = |_| {
            let fault = Fault::Host(io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8"));
            PathError::new("read_to_string", path, fault)
        };
        String::from_utf8(self.read(path)?).map_err(not_text)
    }

    /// Writes a whole file: creates it, or replaces its content.
    ///
    /// # Errors
    /// As [`Volume::create_file`], and those of [`Fs::write_at`].
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        self.create_file(path)?.write_all_at(content.as_ref(), 0)
    }

    /// Writes ranges of files of this volume wholly or not at all: each a file, an offset, and the new
    /// content. After a crash all ranges have the new content, or all have the old one. To make the write
    /// durable, sync one of the files, or wait for a [`Volume::ticket`].
    ///
    /// ```
    /// use uxfs::{Volume, VolumeOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("store.img");
    /// let volume = Volume::create(&image, 512 << 20)?;
    /// let (table, index) = (volume.create_file("table")?, volume.create_file("index")?);
    /// volume.write_atomic(&[(&table, 0, &[1; 4096]), (&table, 1 << 20, &[2; 4096]), (&index, 0, &[3; 8])])?;
    /// table.sync_data()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// EBADF if a file is not open for writing; EXDEV if it is one of another volume; the errors of
    /// [`Fs::write_atomic`]. A failed call has changed nothing.
    pub fn write_atomic(&self, ranges: &[(&File, u64, &[u8])]) -> Result<()> {
        for (file, ..) in ranges {
            let own = match Arc::ptr_eq(&file.held.shared, &self.0) {
                true => file.may_write(),
                false => Err(Fault::Refused(18, "is a file of another volume")),
            };
            own.map_err(|fault| PathError::new("write_atomic", &file.path, fault))?;
        }
        let mut all = Vec::with_capacity(ranges.len());
        for (file, offset, data) in ranges {
            all.push(AtomicRange { ino: file.held.ino, offset: *offset, data });
        }
        self.on_image("write_atomic", |fs| {
            let _beside: Vec<_> = all.iter().map(|range| self.0.change(range.ino)).collect();
            Ok(fs.write_atomic(&all)?)
        })
    }
}

impl File {
    /// The path with which the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The volume.
    pub fn volume(&self) -> Volume {
        Volume(Arc::clone(&self.held.shared))
    }

    fn call<R>(
        &self,
        call: &'static str,
        f: impl FnOnce(&Fs) -> core::result::Result<R, Fault>,
    ) -> Result<R> {
        self.held.shared.run(f).map_err(|fault| PathError::new(call, &self.path, fault))
    }

    fn may_read(&self) -> core::result::Result<(), Fault> {
        if self.read { Ok(()) } else { Err(Fault::Refused(9, "not open for reading")) }
    }

    fn may_write(&self) -> core::result::Result<(), Fault> {
        if self.write { Ok(()) } else { Err(Fault::Refused(9, "not open for writing")) }
    }

    /// Updates the access time. As in Linux, one that cannot be updated stays as it is: a full host
    /// does not keep files from being read. A volume that has stopped answers nothing.
    fn accessed(&self, fs: &Fs) -> core::result::Result<(), Fault> {
        if self.held.shared.options.engine.read_only {
            return Ok(());
        }
        match fs.accessed(self.held.ino, self.held.shared.options.atime) {
            Err(error) if fs.stopped_by().is_some() => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Reads at `offset`, and leaves the position alone. Returns the number of bytes, which is
    /// smaller than asked for only at the end of the file.
    ///
    /// # Errors
    /// EBADF if the file is not open for reading; EISDIR; the errors of [`Fs::read_at`].
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.call("read", |fs| {
            self.may_read()?;
            let len = fs.read_at(self.held.ino, offset, buf)?;
            self.accessed(fs)?;
            Ok(len)
        })
    }

    /// Writes all of `data` at `offset`, and leaves the position alone. With
    /// [`FileOptions::append`] it writes at the end, as pwrite(2) does on Linux.
    ///
    /// # Errors
    /// EBADF if the file is not open for writing; the errors of [`Fs::write_at`]. A failed call may
    /// have written a part of the data.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.put(data, offset).map(drop)
    }

    /// Writes, and returns the offset behind the data.
    fn put(&self, data: &[u8], offset: u64) -> Result<u64> {
        self.call("write", |fs| {
            self.may_write()?;
            let (shared, ino) = (&self.held.shared, self.held.ino);
            let (_alone, _beside);
            let at = if self.append {
                _alone = shared.append_to(ino);
                fs.stat(ino)?.size
            } else {
                _beside = shared.change(ino);
                offset
            };
            fs.write_at(ino, at, data)?;
            Ok(at + data.len() as u64)
        })
    }

    /// Makes the file durable: its data and all metadata, with its name.
    ///
    /// # Errors
    /// The errors of [`Fs::write_for_fsync`] and of waiting.
    pub fn sync_all(&self) -> Result<()> {
        self.sync("sync_all", SyncKind::All)
    }

    /// Makes the file's data durable, with the metadata needed to read it.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.sync("sync_data", SyncKind::Data)
    }

    fn sync(&self, call: &'static str, kind: SyncKind) -> Result<()> {
        self.call(call, |fs| {
            if self.held.shared.options.engine.read_only {
                return Ok(fs.wait(fs.ticket())?);
            }
            let ticket = fs.write_for_fsync(self.held.ino, kind);
            fs.check_data_errors(self.held.ino, &mut self.errors.lock())?;
            Ok(fs.wait(ticket?)?)
        })
    }

    /// A ticket for the file, its data and metadata: begins to make it durable, and does not wait.
    /// See [`Volume::wait`] and [`Volume::is_durable`].
    ///
    /// # Errors
    /// The errors of [`Fs::begin_fsync`].
    pub fn ticket(&self) -> Result<Ticket> {
        self.call("ticket", |fs| {
            let ticket = match self.held.shared.options.engine.read_only {
                true => fs.ticket(),
                false => fs.begin_fsync(self.held.ino, SyncKind::All, &mut self.errors.lock())?,
            };
            Ok(self.held.shared.ticket(ticket))
        })
    }

    /// Changes the length; what is added reads as zeroes.
    ///
    /// # Errors
    /// EINVAL if the file is not open for writing; the errors of [`Fs::truncate`].
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.call("set_len", |fs| {
            if !self.write {
                return Err(Fault::invalid("not open for writing"));
            }
            let _beside = self.held.shared.change(self.held.ino);
            Ok(fs.truncate(self.held.ino, len)?)
        })
    }

    /// The attributes.
    ///
    /// # Errors
    /// The errors of [`Fs::stat`].
    pub fn metadata(&self) -> Result<Metadata> {
        self.call("metadata", |fs| {
            Ok(Metadata { stat: fs.stat(self.held.ino)?, block_size: fs.geo.block_size })
        })
    }

    /// Changes the permissions, and the access list with them.
    ///
    /// # Errors
    /// The errors of [`Fs::set_attr`].
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        let (ino, bits) = (self.held.ino, permissions.bits());
        self.call("set_permissions", |fs| Ok(crate::posix::change_mode(fs, ino, bits)?))
    }

    /// Changes the times.
    ///
    /// # Errors
    /// The errors of [`Fs::set_attr`].
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        self.call("set_times", |fs| super::names::set_times(fs, self.held.ino, times))
    }

    /// The inode number, for calls of the engine. The inode stays while the file is open.
    pub fn ino(&self) -> Ino {
        self.held.ino
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position.lock();
        let len = self.read_at(buf, *position)?;
        *position += len as u64;
        Ok(len)
    }
}

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut position = self.position.lock();
        *position = self.put(data, *position)?;
        Ok(data.len())
    }

    /// Does nothing: there is no buffer. [`File::sync_all`] makes data durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.position.lock();
        let moved = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => position.checked_add_signed(by),
            SeekFrom::End(by) => self.metadata()?.len().checked_add_signed(by),
        };
        let Some(at) = moved.filter(|at| i64::try_from(*at).is_ok()) else {
            let fault = Fault::invalid("seek to a negative or too large offset");
            return Err(PathError::new("seek", &self.path, fault).into());
        };
        *position = at;
        Ok(at)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
