//! `uxfs mkdir`: makes directories.

use std::ffi::OsString;

use clap::Args;
use uxfs::format::inode::S_IFDIR;
use uxfs::posix::{self, Creator};

use crate::edit;
use crate::image::Images;
use crate::mode::Change;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree;

/// Make directories
#[derive(Args)]
#[command(
    after_help = "Examples:\n  uxfs mkdir disk.img:/srv\n  uxfs mkdir -p -m 750 disk.img:/srv/a/b"
)]
pub(crate) struct Options {
    /// Make missing parents; no error if the directory exists
    #[arg(short, long)]
    parents: bool,
    /// Permissions as for chmod; default: a=rwx minus the umask
    #[arg(short, long, value_name = "MODE")]
    mode: Option<String>,
    /// Report each directory
    #[arg(short, long)]
    verbose: bool,
    /// The directories
    #[arg(value_name = "IMAGE:/DIRECTORY", required = true)]
    directories: Vec<OsString>,
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let change = match &options.mode {
        Some(text) => Some(
            Change::parse(text).ok_or_else(|| Failure::bare(format!("invalid mode: {text}")))?,
        ),
        None => None,
    };
    let creator = edit::caller();
    for directory in &options.directories {
        let place = Inside::parse(directory);
        session.ok(make(options, session, images, &place, (creator, change.as_ref())));
    }
    Ok(())
}

fn make(
    options: &Options,
    session: &Session,
    images: &Images,
    place: &Inside,
    (creator, change): (Creator, Option<&Change>),
) -> Result<()> {
    if options.parents {
        let image = images.get(&place.image, true)?;
        if let Ok(ino) = image.fs.resolve(&place.path, true)
            && image.fs.stat(ino).is_ok_and(|stat| tree::is_dir(&stat))
        {
            return Ok(());
        }
        parents(options, session, images, place, creator)?;
    }
    let slot = tree::slot(images, place)?;
    let fs = slot.fs();
    let made = creator.create(fs, slot.dir, &slot.name, S_IFDIR | 0o777, (0, 0));
    let ino = made.map_err(|error| slot.failed(error))?;
    if let Some(change) = change {
        let has = fs.stat(ino).map_err(|error| slot.failed(error))?.mode;
        // The change applies to a=rwx, regardless of the umask.
        let mode = change.apply(has | 0o777, creator.umask);
        posix::change_mode(fs, ino, mode).map_err(|error| slot.failed(error))?;
    }
    say(options, session, place)
}

/// Makes the missing parents, with write and search permission for the owner.
fn parents(
    options: &Options,
    session: &Session,
    images: &Images,
    place: &Inside,
    creator: Creator,
) -> Result<()> {
    let image = images.get(&place.image, true)?;
    let creator = Creator { umask: creator.umask & !0o300, ..creator };
    let mut at = Inside { image: place.image.clone(), path: b"/".to_vec() };
    for name in place.parent().split(|b| *b == b'/').filter(|name| !name.is_empty()) {
        at = at.join(name);
        match image.fs.resolve(&at.path, true) {
            Ok(_) => {}
            Err(uxfs::Error::NotFound) => {
                let slot = tree::slot(images, &at)?;
                let made = creator.create(&image.fs, slot.dir, name, S_IFDIR | 0o777, (0, 0));
                made.map_err(|error| slot.failed(error))?;
                say(options, session, &at)?;
            }
            Err(error) => return Err(tree::at(&at, error)),
        }
    }
    Ok(())
}

fn say(options: &Options, session: &Session, place: &Inside) -> Result<()> {
    if !options.verbose {
        return Ok(());
    }
    session.print([b"created directory '", &tree::shown(place)[..], b"'\n"].concat())
}
