//! `uxfs rmdir`: removes empty directories.

use std::ffi::OsString;

use clap::Args;

use crate::image::Images;
use crate::place::{Inside, trim};
use crate::session::{Result, Session};
use crate::tree;

/// Remove empty directories
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs rmdir disk.img:/mnt/old\n  uxfs rmdir -p disk.img:/a/b/c")]
pub(crate) struct Options {
    /// No error for a directory that is not empty
    #[arg(long)]
    ignore_fail_on_non_empty: bool,
    /// Remove the parents given in the path too: -p a.img:/x/y removes /x/y and then /x
    #[arg(short, long)]
    parents: bool,
    /// Report each removed directory
    #[arg(short, long)]
    verbose: bool,
    /// The directories
    #[arg(value_name = "IMAGE:/DIRECTORY", required = true)]
    directories: Vec<OsString>,
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    for directory in &options.directories {
        session.ok(remove(options, session, images, Inside::parse(directory)));
    }
    Ok(())
}

fn remove(options: &Options, session: &Session, images: &Images, mut place: Inside) -> Result<()> {
    loop {
        let slot = tree::slot(images, &place)?;
        if options.verbose {
            let shown = tree::shown(&place);
            session.print([b"removing directory, '", &shown[..], b"'\n"].concat())?;
        }
        match slot.fs().rmdir(slot.dir, &slot.name) {
            Ok(()) => {}
            Err(uxfs::Error::NotEmpty) if options.ignore_fail_on_non_empty => return Ok(()),
            Err(error) => return Err(slot.failed(error)),
        }
        let up = trim(place.parent()).to_vec();
        // The root stays.
        if !options.parents || up.is_empty() {
            return Ok(());
        }
        place.path = up;
    }
}
