//! Volumes in qcow2 images, for reading and writing, with compressed clusters and chains of backing
//! files. The crate `imago`, by developers of qemu's block layer, implements the format.
//!
//! 1. This module checks an image's header before `imago` reads it ([`header`]). No header can make
//!    the process reserve more memory than a valid image needs. Unsupported features are refused
//!    by name.
//! 2. A backing file is opened only if it lies in the directory of the image that names it, or
//!    below: an image from elsewhere must not make uxfs read arbitrary files of the host. A backing
//!    file is opened for reading and locked against writers, as the image itself is.
//! 3. A chain of backing files may have at most [`DEPTH_MAX`] files, which also stops loops.
//! 4. [`BlockDev::flush`] also writes the image's tables, in an order that keeps them consistent at
//!    every moment.
//! 5. The image gives out its clusters in the order of the writes, and of the calls of
//!    [`BlockDev::will_write_bulk`]: data that several threads write has the same clusters again.
//! 6. A write that covers a part of a cluster which nothing has written yet fills that cluster with
//!    zeroes first, in one ordinary write. `imago` would lengthen the file instead, and wait for all
//!    writes in flight each time. Every write passes [`Qcow2Dev::prepare`], so a cluster is filled
//!    before any data is in it.

mod header;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use imago::format::PreallocateMode;
use imago::format::gate::ImplicitOpenGate;
use imago::qcow2::Qcow2;
use imago::{
    FormatAccess, FormatCreateBuilder, FormatDriverBuilder, Mapping, StorageExt, StorageOpenOptions,
};
use parking_lot::Mutex;

use crate::bulk::Bulk;
use crate::flusher::Flusher;
use crate::presence::Presence;
use crate::{BlockDev, host, is_qcow2, lock, storage, sys};

type Image = FormatAccess<imago::file::File>;

/// Maximum number of images in a chain of backing files.
const DEPTH_MAX: u32 = 16;

/// Bytes of the largest cluster that is filled with zeroes. Larger ones may stay sparse on the host.
const FILLED_MAX: u64 = 64 << 10;
static ZEROES: [u8; FILLED_MAX as usize] = [0; FILLED_MAX as usize];

/// A volume or disk in a qcow2 image.
pub struct Qcow2Dev {
    image: Image,
    /// Bytes of a cluster.
    cluster: u64,
    /// Held while clusters are filled with zeroes (invariant 6).
    filling: Mutex<()>,
    /// The image file; its length is checked for truncation.
    file: File,
    /// Bulk data on its way to the disk.
    bulk: Bulk,
    flusher: Flusher,
    presence: Presence,
    len: u64,
    read_only: bool,
}

/// Creates an empty qcow2 image of a disk of `len` bytes in `file`, which was opened as `path` for
/// reading and writing.
///
/// # Errors
/// The errors of writing the file.
pub fn create_qcow2(file: File, path: &Path, len: u64) -> io::Result<()> {
    let options = StorageOpenOptions::new().filename(path).write(true);
    let storage = imago::file::File::from_open_file(file.try_clone()?, options)?;
    Qcow2::<imago::file::File>::create_builder(storage).size(len).create()?;
    header::sort_feature_names(&file)
}

impl Qcow2Dev {
    /// Opens the image in `file`, which was opened as `path` and is locked; for writing if `write`
    /// is set.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] for a damaged image, [`io::ErrorKind::Unsupported`] for an
    /// unsupported feature, which the text names, [`io::ErrorKind::PermissionDenied`] for a backing
    /// file outside the image's directory.
    pub fn open(file: &File, path: &Path, write: bool) -> io::Result<Self> {
        header::check(file, write)?;
        let path = path.canonicalize()?;
        let options = StorageOpenOptions::new().filename(&path).write(write);
        let storage = imago::file::File::from_open_file(file.try_clone()?, options)?;
        let gate = Gate { dir: dir_of(&path), depth: 1 };
        let image = Qcow2::<imago::file::File>::builder(storage).write(write).open(gate)?;
        let image = Image::new(image);
        let len = image.size();
        let (file, flusher) = (file.try_clone()?, Flusher::new(file, write)?);
        let presence = Presence::new(true, file.metadata()?.len());
        Ok(Self {
            image,
            cluster: header::cluster_size(&file)?,
            filling: Mutex::new(()),
            file,
            bulk: Bulk::default(),
            flusher,
            presence,
            len,
            read_only: !write,
        })
    }

    /// Gives the disk another length, durably. What was behind the new end is lost; what is new reads as
    /// zeroes.
    ///
    /// # Errors
    /// The errors of the host; [`io::ErrorKind::Unsupported`] if the image cannot hide a backing file's
    /// content.
    pub fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.check_file()?;
        let before = self.len;
        // Clusters that are zero need tables, so they are made only where something shows through.
        let mode = match header::has_backing(&self.file)? {
            true => PreallocateMode::Zero,
            false => PreallocateMode::None,
        };
        self.image.resize(len, mode)?;
        self.len = self.image.size();
        // A cluster that both ends share may hold what was behind the old one.
        let shared = len.min(before.next_multiple_of(header::CLUSTER_MAX)).saturating_sub(before);
        if shared > 0 {
            self.zero(before, shared)?;
        }
        self.flush()
    }

    /// Checks that the image's file was not truncated. The file grows as the image is filled.
    fn check_file(&self) -> io::Result<()> {
        let len = self.presence.check(&self.file)?;
        self.presence.grew(len);
        Ok(())
    }

    /// Fills the clusters that a range covers in part and that nothing has written yet.
    fn prepare(&self, offset: u64, len: u64) -> io::Result<()> {
        let (cluster, end) = (self.cluster, offset + len);
        if cluster > FILLED_MAX || len == 0 {
            return Ok(());
        }
        let head = (!offset.is_multiple_of(cluster)).then_some(offset - offset % cluster);
        let tail = (!end.is_multiple_of(cluster)).then_some(end - end % cluster);
        for at in head.into_iter().chain(tail.filter(|at| head != Some(*at))) {
            // The last cluster may lie only in part within the disk.
            let size = cluster.min(self.len - at);
            let _filling = self.filling.lock();
            if let (Mapping::Zero { .. }, mapped) = self.image.get_mapping(at, size)?
                && mapped >= size
            {
                self.image.write(&ZEROES[..size as usize], at)?;
            }
        }
        Ok(())
    }

    /// Gives a range that will be overwritten its clusters.
    fn map_whole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, usize::try_from(len).unwrap_or(usize::MAX))?;
        self.check_file()?;
        self.prepare(offset, len)?;
        let mut at = offset;
        while at < offset + len {
            at += self.image.ensure_data_mapping(at, offset + len - at, true)?.2;
        }
        Ok(())
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl BlockDev for Qcow2Dev {
    crate::emulate!(write_vectored_at, write_fua_at);
    crate::without!(has_fua, discard, sector_size, will_read, lengthen, as_file);

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        // Data behind the end of a truncated file would read as zeroes.
        self.check_file()?;
        self.image.read(buf, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len())?;
        self.check_file()?;
        self.prepare(offset, data.len() as u64)?;
        self.image.write(data, offset)
    }

    fn will_write_bulk(&self, offset: u64, len: u64) {
        // The write reports what fails.
        let _ = self.map_whole(offset, len);
    }

    fn write_bulk_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len())?;
        self.check_file()?;
        self.prepare(offset, data.len() as u64)?;
        let (mut rest, mut at) = (data, offset);
        while !rest.is_empty() {
            let len = rest.len() as u64;
            let (storage, start, mapped) = self.image.ensure_data_mapping(at, len, true)?;
            let (piece, behind) = rest.split_at(mapped.min(len) as usize);
            storage.write(piece, start)?;
            self.bulk.written(&self.file, start, piece.len());
            at += piece.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.check_file()?;
        self.image.flush()?;
        // The image is one file: those with external data files are refused.
        self.flusher.flush(self.read_only)?;
        self.check_file()
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, usize::try_from(len).unwrap_or(usize::MAX))?;
        self.check_file()?;
        let mut at = offset;
        while at < offset + len {
            let (_, start, mapped) =
                self.image.ensure_data_mapping(at, offset + len - at, false)?;
            host::check_limit(start + mapped)?;
            // A cluster of an image in a sparse file may be a hole of that file.
            // Hosts without a call for it: nothing to do.
            sys::reserve(&self.file, start, mapped)?;
            at += mapped;
        }
        Ok(())
    }

    fn check_present(&self) -> io::Result<()> {
        self.check_file()
    }

    fn warning(&self) -> Option<String> {
        self.presence.warning(&self.file)
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, usize::try_from(len).unwrap_or(usize::MAX))?;
        match self.image.write_zeroes(offset, len) {
            // Version 2 images have no zero clusters.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
            other => return other,
        }
        let zeroes = vec![0; len.min(1 << 20) as usize];
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(zeroes.len() as u64);
            self.image.write(&zeroes[..piece as usize], offset + done)?;
            done += piece;
        }
        Ok(())
    }

    fn read_only(&self) -> bool {
        self.read_only
    }
}

fn dir_of(path: &Path) -> PathBuf {
    path.parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Decides which backing files may be opened.
struct Gate {
    /// The directory of the image that names them.
    dir: PathBuf,
    depth: u32,
}

impl ImplicitOpenGate<imago::file::File> for Gate {
    fn open_format<F: FormatDriverBuilder<imago::file::File>>(
        &mut self,
        builder: F,
    ) -> io::Result<Image> {
        if self.depth >= DEPTH_MAX {
            let problem = format!("more than {DEPTH_MAX} backing files, or a chain that loops");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let dir = builder.get_image_path().map(|path| dir_of(&path));
        let gate = Self { dir: dir.unwrap_or_else(|| self.dir.clone()), depth: self.depth + 1 };
        Ok(Image::new(builder.open(gate)?))
    }

    fn open_storage(&mut self, builder: StorageOpenOptions) -> io::Result<imago::file::File> {
        let named = builder.get_filename().ok_or(io::ErrorKind::InvalidInput)?;
        let path = named.canonicalize()?;
        if !path.starts_with(&self.dir) {
            let problem = format!(
                "the image names backing file {}, which lies outside of its own directory; uxfs \
                 does not open it, because an image from elsewhere could make it read any of \
                 your files: move both files into one directory",
                named.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
        }
        let backing = |error: io::Error| {
            io::Error::new(error.kind(), format!("backing file {}: {error}", path.display()))
        };
        let mut options = std::fs::OpenOptions::new();
        let file = storage::open(&path, options.read(true), false).map_err(backing)?;
        if !file.metadata()?.is_file() {
            let problem = format!("backing file {} is not a regular file", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        lock::lock(&file, false, &path).map_err(|error| {
            io::Error::new(error.kind(), format!("backing file {}: {error}", path.display()))
        })?;
        if is_qcow2(&file)? {
            header::check(&file, false)?;
        }
        imago::file::File::from_open_file(file, StorageOpenOptions::new().filename(&path))
    }
}

// The images are qemu-img's, which is not on other systems than Unix.
#[cfg(test)]
#[cfg(unix)]
mod tests;
