//! `uxfs fallocate`: allocates and frees the space of a file.

use std::ffi::OsString;

use clap::Args;
use uxfs::format::Ino;
use uxfs::format::inode::S_IFREG;
use uxfs::{Fallocate, Fs, space};

use crate::edit;
use crate::image::Images;
use crate::number;
use crate::place::Inside;
use crate::session::{Result, Session};
use crate::tree;

/// Allocate or free the space of a file
///
/// Without a mode option, fallocate allocates space for the range, and the file grows to contain it.
/// The modes are those of fallocate(2).
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs fallocate -l 10M disk.img:/database\n  \
                  uxfs fallocate -p -o 1M -l 64K disk.img:/sparse\n  \
                  uxfs fallocate -d disk.img:/disk.raw\n  \
                  uxfs fallocate -u -n -o 0 -l 1G disk.img:/clone")]
pub(crate) struct Options {
    /// Remove the range; the content after it moves down
    #[arg(short, long, group = "mode", conflicts_with = "keep_size")]
    collapse_range: bool,
    /// Replace blocks of zeroes by holes
    #[arg(short, long, group = "mode")]
    dig_holes: bool,
    /// Insert a hole; the content after it moves up
    #[arg(short, long, group = "mode", conflicts_with = "keep_size")]
    insert_range: bool,
    /// Make the range a hole; the file keeps its length
    #[arg(short, long, group = "mode")]
    punch_hole: bool,
    /// Replace shared blocks by copies that belong to this file only
    #[arg(short, long, group = "mode")]
    unshare_range: bool,
    /// Zero the range, with space allocated
    #[arg(short, long, group = "mode")]
    zero_range: bool,
    /// Keep the length of the file
    #[arg(short = 'n', long)]
    keep_size: bool,
    #[command(flatten)]
    _log: crate::cli::LongOptions,
    /// Start of the range (`--offset` is the start of the volume)
    #[arg(id = "from", short = 'o', value_name = "BYTES", default_value = "0", value_parser = bytes)]
    offset: u64,
    /// Length of the range
    #[arg(short, long, value_name = "BYTES", value_parser = bytes,
          required_unless_present = "dig_holes")]
    length: Option<u64>,
    /// Report what was done
    #[arg(short, long)]
    verbose: bool,
    /// The file
    #[arg(value_name = "IMAGE:/FILE")]
    file: OsString,
}

fn bytes(text: &str) -> std::result::Result<u64, String> {
    number::size(text).ok_or_else(|| format!("invalid number: '{text}'"))
}

impl Options {
    /// The mode, and the word for it in the report; `None` for `--dig-holes`.
    fn mode(&self) -> Option<(Fallocate, &'static str)> {
        let keep_size = self.keep_size;
        if self.dig_holes {
            return None;
        }
        Some(if self.collapse_range {
            (Fallocate::CollapseRange, "removed")
        } else if self.insert_range {
            (Fallocate::InsertRange, "inserted")
        } else if self.punch_hole {
            (Fallocate::PunchHole, "hole created")
        } else if self.zero_range {
            (Fallocate::ZeroRange { keep_size }, "zeroed")
        } else if self.unshare_range {
            (Fallocate::Unshare { keep_size }, "unshared")
        } else {
            (Fallocate::Allocate { keep_size }, "allocated")
        })
    }

    /// Does this mode create a missing file?
    fn creates(&self) -> bool {
        !(self.collapse_range || self.insert_range || self.punch_hole || self.dig_holes)
    }

    fn apply(&self, fs: &Fs, ino: Ino) -> uxfs::Result<(u64, &'static str)> {
        match self.mode() {
            Some((mode, done)) => {
                let len = self.length.unwrap_or(0);
                fs.fallocate(ino, mode, self.offset, len).map(|()| (len, done))
            }
            None => {
                let len = self.length.unwrap_or(u64::MAX);
                let dug = space::dig_holes(fs, ino, self.offset, len)?;
                Ok((dug, "converted to sparse holes"))
            }
        }
    }
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let place = Inside::parse(&options.file);
    let image = images.get(&place.image, true)?;
    let ino = match image.fs.resolve(&place.path, true) {
        Ok(ino) => ino,
        Err(uxfs::Error::NotFound) if options.creates() => {
            let slot = tree::slot(images, &place)?;
            if slot.wants_dir {
                return Err(slot.failed(uxfs::Error::IsDir));
            }
            let made =
                edit::caller().create(slot.fs(), slot.dir, &slot.name, S_IFREG | 0o666, (0, 0));
            made.map_err(|error| slot.failed(error))?
        }
        Err(error) => return Err(tree::at(&place, error)),
    };
    let done = options.apply(&image.fs, ino).map_err(|error| tree::at(&place, error))?;
    if options.verbose {
        let text = format!(": {} ({} bytes) {}\n", number::human(done.0), done.0, done.1);
        session.print([&tree::shown(&place), text.as_bytes()].concat())?;
    }
    Ok(())
}
