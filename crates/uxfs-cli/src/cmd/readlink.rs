//! `uxfs readlink`: prints the targets of symbolic links.

use std::ffi::OsString;

use clap::Args;

use crate::image::Images;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree;

/// Print the targets of symbolic links
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs readlink disk.img:/etc/localtime\n  uxfs readlink -f disk.img:/bin/sh")]
pub(crate) struct Options {
    /// Resolve every link of the path; all names but the last must exist
    #[arg(short = 'f', long, conflicts_with = "existing")]
    canonicalize: bool,
    /// Resolve every link of the path; all names must exist
    #[arg(short = 'e', long = "canonicalize-existing", id = "existing")]
    existing: bool,
    /// Print no newline after a single path
    #[arg(short, long)]
    no_newline: bool,
    /// End each with a NUL byte instead of a newline
    #[arg(short, long)]
    zero: bool,
    /// Report files that are not links or cannot be read
    #[arg(short, long)]
    verbose: bool,
    /// The links
    #[arg(value_name = "IMAGE:/FILE", required = true)]
    files: Vec<OsString>,
}

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
            true => tree::canonical(images, &place, options.existing).map(|place| place.shown()),
            false => target(images, &place),
        };
        match text {
            Ok(text) => session.print([&text, end].concat())?,
            // As in coreutils: without -v only the exit code shows the failure.
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
