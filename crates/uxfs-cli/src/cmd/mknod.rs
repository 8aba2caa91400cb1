//! `uxfs mknod`: makes devices and fifos.

use std::ffi::OsString;

use clap::Args;
use uxfs::format::inode::{S_IFBLK, S_IFCHR, S_IFIFO};
use uxfs::posix;

use crate::edit;
use crate::image::Images;
use crate::mode::Change;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree;

/// Make a device or a FIFO
///
/// Numbers are decimal, octal with a leading 0 or hexadecimal with a leading 0x. Root is not needed: the
/// file acts as a device only if a kernel mounts the image.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs mknod disk.img:/dev/null c 1 3\n  uxfs mknod -m 600 disk.img:/run/pipe p")]
pub(crate) struct Options {
    /// Permissions as for chmod; default: a=rw minus the umask
    #[arg(short, long, value_name = "MODE")]
    mode: Option<String>,
    /// The file
    #[arg(value_name = "IMAGE:/FILE")]
    file: OsString,
    /// b for a block device, c or u for a character device, p for a fifo
    #[arg(value_name = "TYPE", value_parser = ["b", "c", "u", "p"])]
    kind: String,
    /// Major number of a device
    #[arg(value_name = "MAJOR", value_parser = number)]
    major: Option<u32>,
    /// Minor number of a device
    #[arg(value_name = "MINOR", value_parser = number)]
    minor: Option<u32>,
}

fn number(text: &str) -> std::result::Result<u32, String> {
    let parsed = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(hex), _) => u32::from_str_radix(hex, 16),
        (None, Some(octal)) if !octal.is_empty() => u32::from_str_radix(octal, 8),
        _ => text.parse(),
    };
    parsed.map_err(|_| "not a number".into())
}

/// Largest device numbers that XFS and the kernel can store.
const MAJOR_MAX: u32 = (1 << 12) - 1;
const MINOR_MAX: u32 = (1 << 20) - 1;

pub(crate) fn run(options: &Options, _: &Session, images: &Images) -> Result<()> {
    let (kind, rdev) = match (options.kind.as_str(), options.major, options.minor) {
        ("p", None, None) => (S_IFIFO, (0, 0)),
        ("p", ..) => return Err(Failure::bare("fifos do not have major and minor device numbers")),
        ("b", Some(major), Some(minor)) => (S_IFBLK, (major, minor)),
        (_, Some(major), Some(minor)) => (S_IFCHR, (major, minor)),
        _ => return Err(Failure::bare("a device needs a major and a minor device number")),
    };
    if rdev.0 > MAJOR_MAX || rdev.1 > MINOR_MAX {
        return Err(Failure::bare(format!("invalid device {} {}", rdev.0, rdev.1)));
    }
    let invalid = |text: &String| Failure::bare(format!("invalid mode: {text}"));
    let change = match &options.mode {
        Some(text) => Some(Change::parse(text).ok_or_else(|| invalid(text))?),
        None => None,
    };
    let place = Inside::parse(&options.file);
    let slot = tree::slot(images, &place)?;
    let creator = edit::caller();
    let made = creator.create(slot.fs(), slot.dir, &slot.name, kind | 0o666, rdev);
    let ino = made.map_err(|error| slot.failed(error))?;
    if let Some(change) = change {
        let mode = change.apply(kind | 0o666, creator.umask);
        posix::change_mode(slot.fs(), ino, mode).map_err(|error| slot.failed(error))?;
    }
    Ok(())
}
