//! `uxfs truncate`: sets the length of files.

use std::ffi::OsString;

use clap::Args;
use uxfs::format::inode::S_IFREG;

use crate::edit;
use crate::image::Images;
use crate::number;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree;

/// Set the length of files
///
/// SIZE can begin with + or - (extend, shorten by), < or > (at most, at least), / or % (round down, up to
/// a multiple of).
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs truncate -s 1G disk.img:/sparse\n  uxfs truncate -s %4K disk.img:/a\n  \
                  uxfs truncate -o -s 10 disk.img:/ten-blocks")]
pub(crate) struct Options {
    #[command(flatten)]
    _log: crate::cli::LongOptions,
    /// Do not create files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// The length
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true, value_parser = parse,
          required_unless_present = "reference")]
    size: Option<Length>,
    /// SIZE counts file system blocks
    #[arg(short = 'o', long)]
    io_blocks: bool,
    /// Base the new length on the length of this file
    #[arg(short, long, value_name = "IMAGE:/FILE")]
    reference: Option<OsString>,
    /// The files
    #[arg(value_name = "IMAGE:/FILE", required = true)]
    files: Vec<OsString>,
}

/// A length, or a change of one.
#[derive(Clone, Copy, Debug)]
struct Length {
    operator: Option<char>,
    bytes: u64,
}

fn parse(text: &str) -> std::result::Result<Length, String> {
    let operator = text.chars().next().filter(|c| "+-<>/%".contains(*c));
    let digits = &text[usize::from(operator.is_some())..];
    match number::size(digits) {
        Some(0) if matches!(operator, Some('/' | '%')) => Err("division by zero".into()),
        Some(bytes) => Ok(Length { operator, bytes }),
        None => Err(format!("invalid number: '{digits}'")),
    }
}

impl Length {
    /// The new length of a file that has `old` bytes.
    fn of(self, old: u64) -> Option<u64> {
        let n = self.bytes;
        match self.operator {
            None => Some(n),
            Some('+') => old.checked_add(n),
            Some('-') => Some(old.saturating_sub(n)),
            Some('<') => Some(old.min(n)),
            Some('>') => Some(old.max(n)),
            Some('/') => Some(old - old % n),
            Some(_) => old.checked_next_multiple_of(n),
        }
    }
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let reference = match &options.reference {
        Some(file) => Some(tree::find(images, &Inside::parse(file), true, true)?.stat.size),
        None => None,
    };
    for file in &options.files {
        session.ok(truncate(options, images, &Inside::parse(file), reference));
    }
    Ok(())
}

fn truncate(
    options: &Options,
    images: &Images,
    place: &Inside,
    reference: Option<u64>,
) -> Result<()> {
    let image = images.get(&place.image, true)?;
    let ino = match image.fs.resolve(&place.path, true) {
        Ok(ino) => ino,
        Err(uxfs::Error::NotFound) if options.no_create => return Ok(()),
        Err(uxfs::Error::NotFound) => {
            let slot = tree::slot_following_links(images, place)?;
            if slot.wants_dir {
                return Err(slot.failed(uxfs::Error::IsDir));
            }
            let made =
                edit::caller().create(slot.fs(), slot.dir, &slot.name, S_IFREG | 0o666, (0, 0));
            made.map_err(|error| slot.failed(error))?
        }
        Err(error) => return Err(tree::at(place, error)),
    };
    let old = image.fs.stat(ino).map_err(|error| tree::at(place, error))?.size;
    let base = reference.unwrap_or(old);
    let unit = if options.io_blocks { u64::from(image.fs.geo.block_size) } else { 1 };
    let size = match options.size {
        Some(Length { operator, bytes }) => {
            bytes.checked_mul(unit).and_then(|bytes| Length { operator, bytes }.of(base))
        }
        None => Some(base),
    };
    let size = size.ok_or_else(|| Failure::at(&place.shown(), "file too large"))?;
    image.fs.truncate(ino, size).map_err(|error| tree::at(place, error))
}
