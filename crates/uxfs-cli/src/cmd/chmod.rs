//! `uxfs chmod`: changes permissions.

use std::ffi::OsString;

use clap::Args;
use uxfs::posix;
use uxfs_host::os_str;

use crate::image::Images;
use crate::mode::{Change, letters};
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree::{self, Next, WalkOptions};

/// Change permissions
///
/// MODE is octal, or symbolic as in u+x,go-w. The file's ACL is updated to match.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs chmod 755 disk.img:/bin/x\n  uxfs chmod -R u=rwX,go=rX disk.img:/srv")]
pub(crate) struct Options {
    /// Descend into directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Report each file
    #[arg(short, long)]
    verbose: bool,
    /// Report each file that changes
    #[arg(short, long)]
    changes: bool,
    /// The permissions
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    mode: String,
    /// The files
    #[arg(value_name = "IMAGE:/FILE", required = true)]
    files: Vec<OsString>,
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let change = Change::parse(&options.mode)
        .ok_or_else(|| Failure::bare(format!("invalid mode: '{}'", options.mode)))?;
    let umask = uxfs_host::umask();
    for file in &options.files {
        let place = Inside::parse(file);
        session.ok(change_one(options, session, images, &place, (&change, umask)));
    }
    Ok(())
}

fn change_one(
    options: &Options,
    session: &Session,
    images: &Images,
    place: &Inside,
    (change, umask): (&Change, u16),
) -> Result<()> {
    let found = tree::find(images, place, true, true)?;
    let start = (tree::shown(place), found.stat.clone());
    let mut visit = |visited: tree::Visited<'_>| {
        if tree::is_link(visited.stat) {
            return Ok(Next::Skip);
        }
        let old = visited.stat.mode & 0o7777;
        let new = change.apply(visited.stat.mode, umask);
        if let Err(error) = posix::change_mode(visited.fs, visited.stat.ino, new) {
            session.fail(Failure::volume(os_str(visited.path), error));
        } else if options.verbose || options.changes && old != new {
            session.print(message(visited.path, visited.stat.mode, old, new))?;
        }
        Ok(if options.recursive { Next::Enter } else { Next::Skip })
    };
    let mut on_error = |path: &[u8], error| {
        session.fail(Failure::volume(os_str(path), error));
    };
    tree::walk(found.fs(), start, WalkOptions::default(), &mut visit, &mut on_error)
}

fn message(path: &[u8], mode: u16, old: u16, new: u16) -> Vec<u8> {
    let kind = mode & !0o7777;
    let show = |bits: u16| format!("{bits:04o} ({})", &letters(kind | bits)[1..]);
    let text = match old == new {
        true => format!("' retained as {}\n", show(new)),
        false => format!("' changed from {} to {}\n", show(old), show(new)),
    };
    [b"mode of '", path, text.as_bytes()].concat()
}
