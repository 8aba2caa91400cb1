//! `uxfs touch`: creates files and changes their times.

use std::ffi::OsString;

use clap::Args;
use uxfs::SetAttr;
use uxfs::format::inode::S_IFREG;
use uxfs::format::timestamp::Timestamp;

use crate::edit;
use crate::image::Images;
use crate::place::{Inside, Place};
use crate::session::{Failure, Result, Session};
use crate::{time, tree};

/// Create empty files, or change times of files
///
/// Without -a and -m, both times change. Without -d, -t and -r, they change to now. DATE is `2026-11-23`,
/// `2026-11-23 14:05`, `2026-11-23T14:05:06.25+01:00`, `@1700000000.5` or `now`; without a zone it is
/// local time.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs touch disk.img:/etc/firstboot\n  \
                  uxfs touch -d '2026-01-01 12:00' disk.img:/a disk.img:/b")]
pub(crate) struct Options {
    /// Change only the time of the last access
    #[arg(short = 'a')]
    access: bool,
    /// Change only the time of the last modification
    #[arg(short = 'm')]
    modify: bool,
    /// Do not create files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Use this time instead of now
    #[arg(short, long, value_name = "DATE", conflicts_with_all = ["stamp", "reference"])]
    date: Option<String>,
    /// Use this time instead of now
    #[arg(
        short = 't',
        id = "stamp",
        value_name = "[[CC]YY]MMDDhhmm[.ss]",
        conflicts_with = "reference"
    )]
    stamp: Option<String>,
    /// Use the times of this file instead of now
    #[arg(short, long, value_name = "FILE")]
    reference: Option<OsString>,
    /// Do not follow symbolic links
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// The files
    #[arg(value_name = "IMAGE:/FILE", required = true)]
    files: Vec<OsString>,
}

/// Access and modification time; `None` for now.
type Times = Option<(Timestamp, Timestamp)>;

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let times = times(options, images)?;
    for file in &options.files {
        session.ok(touch(options, images, &Inside::parse(file), times));
    }
    Ok(())
}

fn times(options: &Options, images: &Images) -> Result<Times> {
    let invalid = |text: &str| Failure::bare(format!("invalid date format '{text}'"));
    let both = |time| Some((time, time));
    match (&options.date, &options.stamp, &options.reference) {
        (Some(text), ..) if text == "now" => Ok(None),
        (Some(text), ..) => time::parse(text).map(both).ok_or_else(|| invalid(text)),
        (_, Some(text), _) => time::parse_stamp(text).map(both).ok_or_else(|| invalid(text)),
        (.., Some(file)) => reference(options, images, file).map(Some),
        _ => Ok(None),
    }
}

/// The times of a file of the host or of an image.
fn reference(
    options: &Options,
    images: &Images,
    file: &OsString,
) -> Result<(Timestamp, Timestamp)> {
    match Place::parse(file) {
        Place::Host(path) => {
            let [atime, mtime, _] = time::of_host_file(&path, !options.no_dereference)
                .map_err(|error| Failure::host(&path, &error))?;
            Ok((atime, mtime))
        }
        Place::Image(place) => {
            let stat = tree::find(images, &place, true, !options.no_dereference)?.stat;
            Ok((stat.atime, stat.mtime))
        }
    }
}

fn touch(options: &Options, images: &Images, place: &Inside, times: Times) -> Result<()> {
    let image = images.get(&place.image, true)?;
    let fs = &image.fs;
    let ino = match fs.resolve(&place.path, !options.no_dereference) {
        Ok(ino) => ino,
        Err(uxfs::Error::NotFound) if options.no_create || options.no_dereference => {
            return match options.no_create {
                true => Ok(()),
                false => Err(tree::at(place, uxfs::Error::NotFound)),
            };
        }
        Err(uxfs::Error::NotFound) if place.path.ends_with(b"/") => {
            return Err(tree::at(place, uxfs::Error::NotFound));
        }
        Err(uxfs::Error::NotFound) => {
            let slot = tree::slot_following_links(images, place)?;
            let mode = S_IFREG | 0o666;
            let made = edit::caller().create(slot.fs(), slot.dir, &slot.name, mode, (0, 0));
            made.map_err(|error| slot.failed(error))?
        }
        Err(error) => return Err(tree::at(place, error)),
    };
    let both = options.access == options.modify;
    let now = uxfs::clock::Clock::Real.now();
    let (atime, mtime) = times.unwrap_or((now, now));
    let change = SetAttr {
        atime: (both || options.access).then_some(atime),
        mtime: (both || options.modify).then_some(mtime),
        touch: both && times.is_none(),
        ..SetAttr::default()
    };
    fs.set_attr(ino, &change).map_err(|error| tree::at(place, error))
}
