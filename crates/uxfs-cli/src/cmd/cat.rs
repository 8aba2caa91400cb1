//! `uxfs cat`: writes the content of files to standard output.

use std::ffi::OsString;
use std::io::{self, Read};

use clap::Args;

use crate::image::Images;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree;

/// Write the content of files to standard output
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs cat disk.img:/etc/passwd\n  uxfs cat disk.img:/a disk.img:/b > both")]
pub(crate) struct Options {
    /// The files; - is standard input
    #[arg(value_name = "IMAGE:/FILE", required = true)]
    files: Vec<OsString>,
}

const WINDOW: usize = 1 << 20;

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let mut window = vec![0; WINDOW];
    for file in &options.files {
        let done = match file == "-" {
            true => cat_input(session, &mut window),
            false => cat(session, images, &Inside::parse(file), &mut window),
        };
        session.ok(done);
        if session.pipe_closed() {
            break;
        }
    }
    Ok(())
}

fn cat_input(session: &Session, window: &mut [u8]) -> Result<()> {
    let mut input = io::stdin().lock();
    loop {
        match input.read(window) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                session.print(&window[..count])?;
                // Standard input may be interactive, so do not hold output back.
                session.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::host("standard input", &error)),
        }
    }
}

fn cat(session: &Session, images: &Images, place: &Inside, window: &mut [u8]) -> Result<()> {
    let found = tree::find(images, place, false, true)?;
    let mut at = 0;
    loop {
        let read = found.fs().read_at(found.stat.ino, at, window);
        let count = read.map_err(|error| tree::at(place, error))?;
        if count == 0 {
            return Ok(());
        }
        session.print(&window[..count])?;
        at += count as u64;
    }
}
