//! `uxfs tee`: copies standard input to files of an image.

use std::ffi::OsString;
use std::io::Read;
use std::rc::Rc;

use clap::Args;
use uxfs::format::Ino;
use uxfs::format::inode::{S_IFMT, S_IFREG};

use crate::edit;
use crate::image::{Image, Images};
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree;

/// Copy standard input to files, and to standard output
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  hostname | uxfs tee disk.img:/etc/hostname\n  \
                  echo 'tmpfs /tmp tmpfs' | uxfs tee -a disk.img:/etc/fstab > /dev/null")]
pub(crate) struct Options {
    /// Append to the files instead of overwriting them
    #[arg(short, long)]
    append: bool,
    /// The files
    #[arg(value_name = "IMAGE:/FILE", required = true)]
    files: Vec<OsString>,
}

/// Bytes read at a time.
const WINDOW: usize = 1 << 20;

/// An output file and its write position.
struct Open {
    place: Inside,
    image: Rc<Image>,
    ino: Ino,
    at: u64,
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let mut files: Vec<Open> = options
        .files
        .iter()
        .filter_map(|file| session.ok(open(options, images, Inside::parse(file))))
        .collect();
    let mut input = std::io::stdin().lock();
    let mut window = vec![0; WINDOW];
    loop {
        let count = match input.read(&mut window) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Failure::host("standard input", &error)),
        };
        // If standard output fails, go on writing the files.
        session.ok(session.print(&window[..count]).and_then(|()| session.flush()));
        files.retain_mut(|file| {
            let written = file.image.fs.write_at(file.ino, file.at, &window[..count]);
            file.at += count as u64;
            session.ok(written.map_err(|error| tree::at(&file.place, error))).is_some()
        });
    }
}

fn open(options: &Options, images: &Images, place: Inside) -> Result<Open> {
    let image = images.get(&place.image, true)?;
    let failed = |error| tree::at(&place, error);
    let directory = place.path.ends_with(b"/");
    let ino = match image.fs.resolve(&place.path, true) {
        Ok(ino) => ino,
        Err(uxfs::Error::NotFound) if !directory => {
            let slot = tree::slot_following_links(images, &place)?;
            let mode = S_IFREG | 0o666;
            edit::caller().create(slot.fs(), slot.dir, &slot.name, mode, (0, 0)).map_err(failed)?
        }
        Err(error) => return Err(failed(error)),
    };
    let stat = image.fs.stat(ino).map_err(failed)?;
    if tree::is_dir(&stat) {
        return Err(failed(uxfs::Error::IsDir));
    }
    if stat.mode & S_IFMT != S_IFREG {
        return Err(Failure::at(&place.shown(), "is not a regular file"));
    }
    let mut at = stat.size;
    if !options.append {
        image.fs.truncate(ino, 0).map_err(failed)?;
        at = 0;
    }
    Ok(Open { place, image, ino, at })
}
