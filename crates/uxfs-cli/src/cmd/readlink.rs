//! `uxfs readlink`.

use std::ffi::OsString;

use clap::Args;

use crate::image::Images;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree;

/// Print where symbolic links lead
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs readlink disk.img:/etc/localtime\n  uxfs readlink -f disk.img:/bin/sh")]
pub(crate) struct Options {
    /// The path with every link followed; all but the last name must be there
    #[arg(short = 'f', long, conflicts_with = "existing")]
    canonicalize: bool,
    /// The path with every link followed; all of it must be there
    #[arg(short = 'e', long = "canonicalize-existing", id = "existing")]
    existing: bool,
    /// No newline behind the last
    #[arg(short, long)]
    no_newline: bool,
    /// End each with a zero byte instead of a newline
    #[arg(short, long)]
    zero: bool,
    /// Say what is wrong with what is no link
    #[arg(short, long)]
    verbose: bool,
    /// The links
    #[arg(value_name = "IMAGE:/FILE", required = true)]
    files: Vec<OsString>,
}

/// As many links as the kernel follows.
const LINKS_MAX: usize = 40;

/// Prints them.
pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let end: &[u8] = match (options.zero, options.no_newline && options.files.len() == 1) {
        (true, _) => b"\0",
        (false, true) => b"",
        (false, false) => b"\n",
    };
    let followed = options.canonicalize || options.existing;
    for file in &options.files {
        let place = Inside::parse(file);
        let text = match followed {
            true => canonical(images, &place, options.existing),
            false => target(images, &place),
        };
        match text {
            Ok(text) => session.print([&text, end].concat())?,
            // As in coreutils: without -v the exit code says it alone.
            Err(failure) if options.verbose => session.fail(failure),
            Err(_) => session.set_code(1),
        }
    }
    Ok(())
}

fn target(images: &Images, place: &Inside) -> Result<Vec<u8>> {
    let found = tree::find(images, place, false, false)?;
    if !tree::is_link(&found.stat) {
        return Err(Failure::at(&place.shown(), "is not a symbolic link"));
    }
    found.fs().readlink(found.stat.ino).map_err(|error| tree::at(place, error))
}

/// The path in the image, written as an argument.
fn canonical(images: &Images, place: &Inside, existing: bool) -> Result<Vec<u8>> {
    let image = images.get(&place.image, false)?;
    let fs = &image.fs;
    let failed = |error| tree::at(place, error);
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        path.split(|b| *b == b'/').rev().filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect()
    };
    let mut left = names(&place.path);
    let (mut path, mut links) = (Vec::new(), 0);
    while let Some(name) = left.pop() {
        match name.as_slice() {
            b"." => continue,
            b".." => {
                let end = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
                path.truncate(end);
                continue;
            }
            _ => {}
        }
        let next = [&path, b"/".as_slice(), &name].concat();
        let stat = match fs.resolve(&next, false).and_then(|ino| fs.stat(ino)) {
            Ok(stat) => stat,
            Err(uxfs::Error::NotFound) if !existing && left.is_empty() => {
                path = next;
                break;
            }
            Err(error) => return Err(failed(error)),
        };
        if tree::is_link(&stat) {
            links += 1;
            if links > LINKS_MAX {
                return Err(failed(uxfs::Error::Loop));
            }
            let target = fs.readlink(stat.ino).map_err(failed)?;
            if target.starts_with(b"/") {
                path.clear();
            }
            left.extend(names(&target));
        } else if !left.is_empty() && !tree::is_dir(&stat) {
            return Err(failed(uxfs::Error::NotDir));
        } else {
            path = next;
        }
    }
    if path.is_empty() {
        path.push(b'/');
    }
    Ok(Inside { image: place.image.clone(), path }.shown())
}
