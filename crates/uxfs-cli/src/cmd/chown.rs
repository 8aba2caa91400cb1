//! `uxfs chown`: changes owners and groups.

use std::ffi::OsString;

use clap::Args;
use uxfs::posix;
use uxfs_host::os_str;

use crate::image::Images;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree::{self, Next, WalkOptions};
use crate::users::{self, Owner};

/// Change owner and group
///
/// Names are looked up on this machine. Numbers need no lookup.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs chown -R root:root disk.img:/\n  \
    uxfs chown 1000 disk.img:/home/me\n  \
    uxfs chown :adm disk.img:/var/log")]
pub(crate) struct Options {
    /// Descend into directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Report each file
    #[arg(short, long)]
    verbose: bool,
    /// USER, USER:GROUP, USER: (with the user's own group) or :GROUP
    #[arg(value_name = "OWNER[:GROUP]")]
    owner: String,
    /// The files
    #[arg(value_name = "IMAGE:/FILE", required = true)]
    files: Vec<OsString>,
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let owner = users::owner(&options.owner).map_err(Failure::bare)?;
    for file in &options.files {
        session.ok(change(options, session, images, &Inside::parse(file), owner));
    }
    Ok(())
}

fn change(
    options: &Options,
    session: &Session,
    images: &Images,
    place: &Inside,
    owner: Owner,
) -> Result<()> {
    // A recursive change stays in the tree: it changes links, not their targets.
    let follow = !options.no_dereference && !options.recursive;
    let found = tree::find(images, place, true, follow)?;
    let start = (tree::shown(place), found.stat.clone());
    let mut visit = |visited: tree::Visited<'_>| {
        let (fs, ino) = (visited.fs, visited.stat.ino);
        if let Err(error) = posix::change_owner(fs, ino, owner.0, owner.1) {
            session.fail(Failure::volume(os_str(visited.path), error));
        } else if options.verbose {
            let uid = owner.0.unwrap_or(visited.stat.uid);
            let gid = owner.1.unwrap_or(visited.stat.gid);
            let old = format!("{}:{}", visited.stat.uid, visited.stat.gid);
            let text = format!("' changed from {old} to {uid}:{gid}\n");
            session.print([b"ownership of '", visited.path, text.as_bytes()].concat())?;
        }
        Ok(if options.recursive { Next::Enter } else { Next::Skip })
    };
    let mut on_error = |path: &[u8], error| {
        session.fail(Failure::volume(os_str(path), error));
    };
    tree::walk(found.fs(), start, WalkOptions::default(), &mut visit, &mut on_error)
}
