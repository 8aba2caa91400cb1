//! The formats of other hypervisors' disk images, VMDK, VHDX and dynamic VHD, which are known also in builds
//! that do not read them.

use std::fs::File;
use std::io;

use uxfs_host::FileExt;

/// A format that is only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// VMware's, in one file with tables (sparse, or stream-optimized).
    Vmdk,
    /// Hyper-V's, fixed or dynamic.
    Vhdx,
    /// Hyper-V's older one with a table of blocks. Images of fixed length are no foreign ones:
    /// [`vhd_len`](crate::vhd_len) is asked before.
    DynamicVhd,
}

/// The formats' magic numbers, at the beginning of a file.
const MAGICS: [(&[u8], Foreign); 3] =
    [(b"KDMV", Foreign::Vmdk), (b"vhdxfile", Foreign::Vhdx), (b"conectix", Foreign::DynamicVhd)];

impl Foreign {
    /// The format of the image in a file; `None` if it is in neither.
    ///
    /// # Errors
    /// The errors of reading the file.
    pub fn of(file: &File) -> io::Result<Option<Self>> {
        let mut start = [0; 8];
        match file.read_exact_at(&mut start, 0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        Ok(MAGICS.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, format)| *format))
    }

    /// The format's name, as users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Vmdk => "VMDK",
            Self::Vhdx => "VHDX",
            Self::DynamicVhd => "dynamic VHD",
        }
    }
}

/// The error of a build without the feature.
#[must_use]
pub fn not_built(format: Foreign) -> io::Error {
    let text =
        format!("a {} image, which this build does not read (feature 'vm-images')", format.name());
    io::Error::new(io::ErrorKind::Unsupported, text)
}
