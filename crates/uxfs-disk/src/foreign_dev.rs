//! Disk images in the formats of other hypervisors, VMDK, VHDX and dynamic VHD, for reading. The crates
//! `vmdk-core` and `vhdx-core` implement the first two, `vhd_dynamic` the third.
//!
//! 1. An image is one file. A VMDK that consists of several files, or an image that continues another one,
//!    is refused: an image from elsewhere must not make uxfs read arbitrary files of the host.
//! 2. Reads of VMDK and VHDX take turns: the crates keep a position in the file.
//! 3. The file is locked against writers by its owner, and never written.
//!
//! Used where a volume is opened by path.

use std::fs::File;
use std::io::{self, IoSlice, Read, Seek, SeekFrom};

use parking_lot::Mutex;

use crate::BlockDev;
use crate::foreign::Foreign;
use crate::presence::Presence;
use crate::vhd_dynamic::DynamicVhd;

trait Reader: Read + Seek + Send {}
impl<T: Read + Seek + Send> Reader for T {}

enum Disk {
    Positioned(Mutex<Box<dyn Reader>>),
    DynamicVhd(DynamicVhd),
}

/// The disk in such an image.
pub struct ForeignDev {
    disk: Disk,
    /// The image file; its length is checked for truncation.
    file: File,
    presence: Presence,
    len: u64,
}

impl ForeignDev {
    /// Opens the image in `file`, which is locked.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] for a damaged image, [`io::ErrorKind::Unsupported`] for an image
    /// that continues another one.
    pub fn open(file: &File, format: Foreign) -> io::Result<Self> {
        let (disk, len) = match format {
            Foreign::Vmdk => vmdk(file.try_clone()?)?,
            Foreign::Vhdx => vhdx(file.try_clone()?)?,
            Foreign::DynamicVhd => {
                let image = DynamicVhd::open(file.try_clone()?)?;
                let len = image.len();
                (Disk::DynamicVhd(image), len)
            }
        };
        let file = file.try_clone()?;
        let presence = Presence::new(true, file.metadata()?.len());
        Ok(Self { disk, file, presence, len })
    }
}

type Opened = (Disk, u64);

fn positioned(reader: impl Reader + 'static) -> Disk {
    Disk::Positioned(Mutex::new(Box::new(reader)))
}

fn damaged(format: Foreign, error: &dyn core::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} image: {error}", format.name()))
}

fn vmdk(mut file: File) -> io::Result<Opened> {
    /// The parent of an image that has none.
    const NO_PARENT: u32 = u32::MAX;
    // The crate reads the header from where the file's position is.
    file.rewind()?;
    let reader = vmdk::VmdkReader::open(file).map_err(|error| damaged(Foreign::Vmdk, &error))?;
    if reader.parent_cid() != NO_PARENT {
        let text = "a VMDK image that continues another image, which uxfs does not read: convert it by \
                    qemu-img convert -O raw";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let len = reader.virtual_disk_size();
    Ok((positioned(reader), len))
}

fn vhdx(file: File) -> io::Result<Opened> {
    use vhdx::{Backing, VhdxReader};
    let reader = VhdxReader::from_backing(Backing::File(file), None);
    let reader = reader.map_err(|error| damaged(Foreign::Vhdx, &error))?;
    let len = reader.virtual_disk_size();
    Ok((positioned(reader), len))
}

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl BlockDev for ForeignDev {
    crate::without!(has_fua, discard, sector_size, will_read, will_write_bulk, lengthen, as_file);

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // Data behind the end of a truncated file would read as zeroes.
        self.check_present()?;
        match &self.disk {
            Disk::Positioned(reader) => {
                let mut reader = reader.lock();
                reader.seek(SeekFrom::Start(offset))?;
                reader.read_exact(buf)
            }
            Disk::DynamicVhd(image) => image.read_at(offset, buf),
        }
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        refused()
    }

    fn write_vectored_at(&self, _offset: u64, _pieces: &[IoSlice<'_>]) -> io::Result<()> {
        refused()
    }

    fn write_bulk_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        refused()
    }

    fn write_fua_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        refused()
    }

    fn flush(&self) -> io::Result<()> {
        self.check_present()
    }

    fn zero(&self, _offset: u64, _len: u64) -> io::Result<()> {
        refused()
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        refused()
    }

    fn check_present(&self) -> io::Result<()> {
        self.presence.check(&self.file).map(|_| ())
    }

    fn warning(&self) -> Option<String> {
        self.presence.warning(&self.file)
    }

    fn read_only(&self) -> bool {
        true
    }
}
