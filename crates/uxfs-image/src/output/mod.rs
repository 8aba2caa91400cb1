//! Image formats that a raw image is converted to.
//!
//! 1. The raw image is a sparse file beside the result. The conversion reads it once, in order, and
//!    skips its holes; memory is bounded.
//! 2. The same raw image gives the same bytes.

mod qcow2;
mod vhd;
mod zst;

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use uxfs::format::Uuid;
use uxfs::new_file::WorkDir;

use crate::error::{ImageError, Result};

/// The format of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Byte for byte, with holes.
    Raw,
    /// A raw image compressed by zstd.
    RawZst,
    /// qemu's format.
    Qcow2 {
        /// Compress clusters, by zlib.
        compress: bool,
    },
    /// Microsoft's format of fixed length.
    Vhd,
}

/// Formats that are not written, by the end of their names.
const FOREIGN: [&str; 5] = ["vmdk", "vhdx", "vdi", "qcow", "qed"];

impl Format {
    /// The format that a file's name asks for.
    ///
    /// # Errors
    /// [`ImageError::Usage`] for the name of a format that is not written.
    pub fn of_name(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        if FOREIGN.contains(&ending) {
            let problem = format!(
                "{}: uxfs does not write {ending} images: write a raw image, then use 'qemu-img convert \
                 -O {ending}'; or give the format by its option",
                path.display()
            );
            return Err(ImageError::Usage(problem));
        }
        Ok(match ending {
            "qcow2" => Self::Qcow2 { compress: false },
            "vhd" | "vpc" => Self::Vhd,
            "zst" => Self::RawZst,
            _ => Self::Raw,
        })
    }

    /// The format of a name on the command line.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "raw" => Self::Raw,
            "raw.zst" => Self::RawZst,
            "qcow2" => Self::Qcow2 { compress: false },
            "vhd" => Self::Vhd,
            _ => return None,
        })
    }

    /// The name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::RawZst => "raw.zst",
            Self::Qcow2 { .. } => "qcow2",
            Self::Vhd => "vhd",
        }
    }

    /// The same with compressed clusters.
    ///
    /// # Errors
    /// [`ImageError::Usage`] for formats other than qcow2.
    pub fn compressed(self) -> Result<Self> {
        match self {
            Self::Qcow2 { .. } => Ok(Self::Qcow2 { compress: true }),
            Self::RawZst => Ok(self),
            _ => Err(ImageError::Usage(format!("a {} image is not compressed", self.name()))),
        }
    }
}

/// What some formats record besides the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Identifies the image.
    pub uuid: Uuid,
    /// When the image was made, seconds since 1970.
    pub time: i64,
}

/// Converts the raw image `raw`, a file in `work`, and returns the path of the result, also in `work`.
/// The raw image may be changed.
///
/// # Errors
/// The errors of the host.
pub fn convert(raw: &Path, work: &WorkDir, format: Format, label: &Label) -> Result<PathBuf> {
    let path = work.path().join("image");
    let create = || {
        let options = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        options.map_err(ImageError::host(&path))
    };
    let open = || File::open(raw).map_err(ImageError::host(raw));
    match format {
        Format::Raw => return Ok(raw.to_owned()),
        Format::Vhd => {
            vhd::append_footer(raw, label).map_err(ImageError::host(raw))?;
            return Ok(raw.to_owned());
        }
        Format::RawZst => zst::write(&open()?, create()?).map_err(ImageError::host(&path))?,
        Format::Qcow2 { compress } => {
            qcow2::write(&open()?, create()?, compress).map_err(ImageError::host(&path))?;
        }
    }
    std::fs::remove_file(raw).map_err(ImageError::host(raw))?;
    Ok(path)
}

/// Checks that an image can be made at `path`, which [`WorkDir::release`] would replace.
///
/// # Errors
/// [`ImageError::Usage`] if the file is not a regular one, or has content and `force` is not set.
pub fn check_target(path: &Path, force: bool) -> Result<()> {
    let refused = |problem: &str| Err(ImageError::Usage(format!("{}: {problem}", path.display())));
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(ImageError::host(path)(error)),
        Ok(meta) if !meta.is_file() => {
            refused("is not a regular file: write an image file, then copy it to the device")
        }
        Ok(meta) if meta.len() > 0 && !force => refused("exists: use the -f option to replace it"),
        Ok(_) => Ok(()),
    }
}
