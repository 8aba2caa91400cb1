//! A volume: its paths are bytes, its results plain tuples.

use std::fs::File as HostFile;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use uxfs::copy::{CopyOptions, Event, Preserve};
use uxfs::files::{FileTimes, Metadata, Permissions};
use uxfs::format::timestamp::Timestamp;
use uxfs::new_file::WorkDir;
use uxfs::posix::Creator;
use uxfs::volume::Location;
use uxfs::{FileOptions, RenameFlags, VolumeOptions, WritebackOptions, XattrMode, mkfs};

use crate::file::File;
use crate::{error, free, path};

/// Mode, inode, links, owner, group, size, atime, mtime, ctime, birth time in nanoseconds, blocks of
/// 512 bytes, block size, major and minor number.
pub(crate) type Stat =
    (u32, u64, u64, u32, u32, u64, (i128, i128, i128, i128), u64, u64, (u32, u32));

fn nanoseconds(stamp: Timestamp) -> i128 {
    i128::from(stamp.sec) * 1_000_000_000 + i128::from(stamp.nsec)
}

fn stamp(nanoseconds: i128) -> Timestamp {
    let sec = nanoseconds.div_euclid(1_000_000_000);
    let nsec = nanoseconds.rem_euclid(1_000_000_000) as u32;
    let most = i128::from(i64::MAX);
    Timestamp { sec: sec.clamp(-most, most) as i64, nsec }
}

pub(crate) fn stat_of(meta: &Metadata) -> Stat {
    let stat = meta.stat();
    let times = (stat.atime, stat.mtime, stat.ctime, stat.crtime);
    let times =
        (nanoseconds(times.0), nanoseconds(times.1), nanoseconds(times.2), nanoseconds(times.3));
    (
        meta.mode(),
        meta.ino(),
        meta.nlink(),
        meta.uid(),
        meta.gid(),
        meta.len(),
        times,
        meta.blocks(),
        meta.blksize(),
        meta.rdev(),
    )
}

/// The durability of everything up to a moment.
#[pyclass(frozen, module = "uxfs._uxfs")]
pub(crate) struct Ticket(pub(crate) uxfs::files::Ticket);

/// An open volume.
#[pyclass(frozen, module = "uxfs._uxfs")]
pub(crate) struct Volume(Mutex<Option<uxfs::Volume>>);

impl Volume {
    fn new(volume: uxfs::Volume) -> Self {
        Self(Mutex::new(Some(volume)))
    }

    fn open_one(&self) -> PyResult<uxfs::Volume> {
        let volume = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        volume.clone().ok_or_else(|| PyValueError::new_err("the volume is closed"))
    }

    /// Runs a call without the GIL.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&uxfs::Volume) -> uxfs::files::Result<T> + Send,
    ) -> PyResult<T> {
        let volume = self.open_one()?;
        free(py, || call(&volume))
    }
}

fn options(creator: (u32, u32, u16), background: bool, delayed: bool) -> VolumeOptions {
    let (uid, gid, umask) = creator;
    let options = VolumeOptions::new().creator(Creator { uid, gid, umask }).background(background);
    if delayed { options.delayed(WritebackOptions::default()) } else { options }
}

/// The mode of `open`: letters of r, w, a, x, and +.
fn file_options(mode: &str, permissions: u16) -> PyResult<FileOptions> {
    let has = |letter| mode.contains(letter);
    let first = ['r', 'w', 'a', 'x'].into_iter().filter(|letter| has(*letter)).count();
    if first != 1 {
        return Err(PyValueError::new_err(
            "must have exactly one of create/read/write/append mode",
        ));
    }
    let options = FileOptions::new().mode(permissions);
    let both = has('+');
    Ok(match () {
        () if has('r') => options.read(true).write(both),
        () if has('w') => options.write(true).read(both).create(true).truncate(true),
        () if has('a') => options.append(true).read(both).create(true),
        () => options.write(true).read(both).create_new(true),
    })
}

fn preserve() -> CopyOptions {
    let mut options = CopyOptions::default();
    (options.recursive, options.preserve) = (true, Preserve::all());
    options
}

/// Collects the failures of a copy.
fn failures(event: Event<'_>, failed: &mut Vec<(Vec<u8>, String)>) {
    if let Event::Failed(path, error) = event {
        failed.push((path.to_vec(), error.to_string()));
    }
}

type Failed = Vec<(Vec<u8>, String)>;

/// The regular file of the host that a new archive replaces, or its place if there is none. `None` for
/// what is written to as it is: devices, FIFOs, links that lead nowhere.
fn replaced(host: &Path) -> io::Result<Option<PathBuf>> {
    match std::fs::canonicalize(host) {
        Ok(target) => Ok(std::fs::metadata(&target)?.is_file().then_some(target)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let link = std::fs::symlink_metadata(host).is_ok();
            Ok((!link && host.file_name().is_some()).then(|| host.to_owned()))
        }
        Err(error) => Err(error),
    }
}

/// Exports the tree at `at`. Returns entries and bytes.
fn export_to(
    volume: &uxfs::Volume,
    at: &[u8],
    out: HostFile,
    host: &Path,
) -> PyResult<(u64, u64)> {
    let exported = volume.with_fs(|fs| {
        let root = fs.resolve(at, true)?;
        Ok(uxfs::export::export(fs, root, out))
    });
    match exported.map_err(error::of_path)? {
        Ok((_, summary)) => Ok((summary.entries, summary.data_bytes)),
        Err(e) => Err(error::other(&e, host)),
    }
}

#[pymethods]
impl Volume {
    #[staticmethod]
    #[pyo3(signature = (image, read_only, offset, partition, creator, background, delayed))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn open(
        py: Python<'_>,
        image: &[u8],
        read_only: bool,
        offset: Option<u64>,
        partition: Option<String>,
        creator: (u32, u32, u16),
        background: bool,
        delayed: bool,
    ) -> PyResult<Self> {
        let location = match (offset, partition) {
            (Some(_), Some(_)) => {
                return Err(PyValueError::new_err("give either an offset or a partition"));
            }
            (Some(offset), None) => Location::offset(offset),
            (None, Some(wanted)) => Location::partition(wanted),
            (None, None) => Location::whole(),
        };
        let options = options(creator, background, delayed).location(location).read_only(read_only);
        free(py, || uxfs::Volume::open_with(path(image), &options)).map(Self::new)
    }

    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn mkfs(
        py: Python<'_>,
        image: &[u8],
        size: u64,
        settings: Vec<(char, String)>,
        unsupported: bool,
        creator: (u32, u32, u16),
        background: bool,
        delayed: bool,
    ) -> PyResult<Self> {
        let mut wanted = mkfs::Options::default();
        wanted.unsupported = unsupported;
        for (letter, text) in settings {
            let applied = wanted.apply(letter, &text);
            applied.map_err(|e| PyValueError::new_err(e.to_string()))?;
        }
        let options = options(creator, background, delayed);
        let made = || uxfs::Volume::create_with(path(image), size, &wanted, &options);
        free(py, made).map(Self::new)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let volume = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match volume {
            Some(volume) => free(py, || volume.close()),
            None => Ok(()),
        }
    }

    fn is_closed(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |volume| volume.sync_all())
    }

    fn ticket(&self, py: Python<'_>) -> PyResult<Ticket> {
        self.call(py, |volume| volume.ticket()).map(Ticket)
    }

    fn is_durable(&self, py: Python<'_>, ticket: &Ticket) -> PyResult<bool> {
        let ticket = ticket.0;
        self.call(py, |volume| volume.is_durable(ticket))
    }

    fn wait(&self, py: Python<'_>, ticket: &Ticket) -> PyResult<()> {
        let ticket = ticket.0;
        self.call(py, |volume| volume.wait(ticket))
    }

    /// Block size, blocks, free blocks, files, free files, UUID, label.
    fn statfs(&self, py: Python<'_>) -> PyResult<(u32, u64, u64, u64, u64, String, Vec<u8>)> {
        let totals = self.call(py, |volume| volume.statfs())?;
        let uuid = totals.uuid.to_string();
        let (blocks, free) = (totals.blocks, totals.free_blocks);
        let (files, free_files) = (totals.files, totals.free_files);
        Ok((totals.block_size, blocks, free, files, free_files, uuid, totals.label))
    }

    fn open_file(&self, py: Python<'_>, at: &[u8], mode: &str, permissions: u16) -> PyResult<File> {
        let options = file_options(mode, permissions)?;
        self.call(py, |volume| volume.open_file_with(path(at), &options)).map(File::new)
    }

    /// Name, inode number and type bits of each entry.
    fn entries(&self, py: Python<'_>, at: &[u8]) -> PyResult<Vec<(Vec<u8>, u64, u16)>> {
        use std::os::unix::ffi::OsStrExt;
        self.call(py, |volume| {
            let entries = volume.read_dir(path(at))?.map(|entry| {
                let entry = entry?;
                let name = entry.file_name().as_bytes().to_vec();
                Ok((name, entry.ino(), entry.file_type()?.bits()))
            });
            entries.collect()
        })
    }

    fn stat(&self, py: Python<'_>, at: &[u8], follow: bool) -> PyResult<Stat> {
        let meta = self.call(py, |volume| match follow {
            true => volume.metadata(path(at)),
            false => volume.symlink_metadata(path(at)),
        });
        meta.map(|meta| stat_of(&meta))
    }

    fn mkdir(&self, py: Python<'_>, at: &[u8], mode: u16) -> PyResult<()> {
        self.call(py, |volume| volume.create_dir_with_mode(path(at), mode))
    }

    fn mknod(&self, py: Python<'_>, at: &[u8], mode: u16, rdev: (u32, u32)) -> PyResult<()> {
        self.call(py, |volume| volume.mknod(path(at), mode, rdev))
    }

    fn unlink(&self, py: Python<'_>, at: &[u8]) -> PyResult<()> {
        self.call(py, |volume| volume.remove_file(path(at)))
    }

    fn rmdir(&self, py: Python<'_>, at: &[u8]) -> PyResult<()> {
        self.call(py, |volume| volume.remove_dir(path(at)))
    }

    fn rmtree(&self, py: Python<'_>, at: &[u8]) -> PyResult<()> {
        self.call(py, |volume| volume.remove_dir_all(path(at)))
    }

    fn rename(&self, py: Python<'_>, from: &[u8], to: &[u8], replace: bool) -> PyResult<()> {
        let flags = if replace { RenameFlags::Replace } else { RenameFlags::NoReplace };
        let volume = self.open_one()?;
        let renamed = py.detach(|| volume.rename_with(path(from), path(to), flags));
        renamed.map_err(|error| error::of_paths(error, path(from), path(to)))
    }

    fn link(&self, py: Python<'_>, from: &[u8], to: &[u8]) -> PyResult<()> {
        let volume = self.open_one()?;
        let linked = py.detach(|| volume.hard_link(path(from), path(to)));
        linked.map_err(|error| error::of_paths(error, path(from), path(to)))
    }

    fn symlink(&self, py: Python<'_>, target: &[u8], at: &[u8]) -> PyResult<()> {
        let volume = self.open_one()?;
        let linked = py.detach(|| volume.symlink(path(target), path(at)));
        linked.map_err(|error| error::of_paths(error, path(target), path(at)))
    }

    fn readlink(&self, py: Python<'_>, at: &[u8]) -> PyResult<Vec<u8>> {
        use std::os::unix::ffi::OsStringExt;
        let target = self.call(py, |volume| volume.read_link(path(at)))?;
        Ok(target.into_os_string().into_vec())
    }

    fn chmod(&self, py: Python<'_>, at: &[u8], mode: u32) -> PyResult<()> {
        self.call(py, |volume| volume.set_permissions(path(at), Permissions::from_mode(mode)))
    }

    fn chown(
        &self,
        py: Python<'_>,
        at: &[u8],
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> PyResult<()> {
        self.call(py, |volume| volume.chown(path(at), uid, gid, follow))
    }

    fn utime(
        &self,
        py: Python<'_>,
        at: &[u8],
        accessed: i128,
        modified: i128,
        follow: bool,
    ) -> PyResult<()> {
        let times = FileTimes::stamps(Some(stamp(accessed)), Some(stamp(modified)));
        self.call(py, |volume| volume.set_times(path(at), times, follow))
    }

    fn truncate(&self, py: Python<'_>, at: &[u8], size: u64) -> PyResult<()> {
        self.call(py, |volume| volume.truncate(path(at), size))
    }

    fn copy(&self, py: Python<'_>, from: &[u8], to: &[u8]) -> PyResult<u64> {
        self.call(py, |volume| volume.copy(path(from), path(to)))
    }

    fn copy_in(&self, py: Python<'_>, host: &[u8], to: &[u8]) -> PyResult<Failed> {
        self.call(py, |volume| {
            let mut failed = Failed::new();
            let mut listen = |event: Event<'_>| failures(event, &mut failed);
            volume.copy_in(path(host), path(to), preserve(), &mut listen)?;
            Ok(failed)
        })
    }

    fn copy_out(&self, py: Python<'_>, from: &[u8], host: &[u8]) -> PyResult<Failed> {
        self.call(py, |volume| {
            let mut failed = Failed::new();
            let mut listen = |event: Event<'_>| failures(event, &mut failed);
            volume.copy_out(path(from), path(host), preserve(), &mut listen)?;
            Ok(failed)
        })
    }

    /// Writes the tree below `at` as a PAX tar to a file of the host, which is replaced when the archive
    /// is complete. Returns entries and bytes.
    fn export(&self, py: Python<'_>, at: &[u8], host: &[u8]) -> PyResult<(u64, u64)> {
        let volume = self.open_one()?;
        let host: &Path = path(host);
        py.detach(|| {
            let failed = |e: io::Error| {
                error::os_error(e.raw_os_error().unwrap_or(5), e.to_string(), host)
            };
            volume.metadata(path(at)).map_err(error::of_path)?;
            let Some(target) = replaced(host).map_err(failed)? else {
                return export_to(&volume, at, HostFile::create(host).map_err(failed)?, host);
            };
            let work = WorkDir::beside(&target).map_err(failed)?;
            let part = work.path().join("archive");
            let out = HostFile::create(&part).map_err(failed)?;
            if let Ok(old) = std::fs::metadata(&target) {
                out.set_permissions(old.permissions()).map_err(failed)?;
            }
            let done = export_to(&volume, at, out, host)?;
            work.release(&part, &target).map_err(failed)?;
            Ok(done)
        })
    }

    fn getxattr(&self, py: Python<'_>, at: &[u8], name: &[u8], follow: bool) -> PyResult<Vec<u8>> {
        self.call(py, |volume| volume.get_xattr(path(at), name, follow))
    }

    #[pyo3(signature = (at, name, value, flags, follow))]
    fn setxattr(
        &self,
        py: Python<'_>,
        at: &[u8],
        name: &[u8],
        value: &[u8],
        flags: u32,
        follow: bool,
    ) -> PyResult<()> {
        let mode = match flags {
            0 => XattrMode::Any,
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            _ => return Err(PyValueError::new_err("flags: XATTR_CREATE or XATTR_REPLACE")),
        };
        self.call(py, |volume| volume.set_xattr(path(at), name, value, mode, follow))
    }

    fn removexattr(&self, py: Python<'_>, at: &[u8], name: &[u8], follow: bool) -> PyResult<()> {
        self.call(py, |volume| volume.remove_xattr(path(at), name, follow))
    }

    fn listxattr(&self, py: Python<'_>, at: &[u8], follow: bool) -> PyResult<Vec<Vec<u8>>> {
        self.call(py, |volume| volume.list_xattrs(path(at), follow))
    }
}
