//! `uxfs ln`: makes hard links and symbolic links.

use std::ffi::{OsStr, OsString};

use clap::Args;
use uxfs_host::OsStrExt;

use crate::edit;
use crate::image::Images;
use crate::kind::Kind;
use crate::place::{Inside, base};
use crate::session::{Failure, Result, Session};
use crate::tree;

/// Make hard links, or symbolic links
///
/// The TARGET of a hard link is a path in the same image; the TARGET of a symbolic link is any text.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs ln disk.img:/a disk.img:/b\n  \
    uxfs ln -s ../usr/bin/vi disk.img:/bin/ex")]
pub(crate) struct Options {
    /// Make symbolic links
    #[arg(short, long)]
    symbolic: bool,
    /// Remove an existing file of the new name
    #[arg(short, long)]
    force: bool,
    /// Do not follow a new name that is a symbolic link to a directory
    #[arg(short, long)]
    no_dereference: bool,
    /// Treat the last operand as the new name, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Make all links in this directory
    #[arg(short, long, value_name = "IMAGE:/DIRECTORY", conflicts_with = "no_target_directory")]
    target_directory: Option<OsString>,
    /// Report each link
    #[arg(short, long)]
    verbose: bool,
    /// Targets, then the new name or a directory unless -t gives it
    #[arg(value_name = "TARGET", required = true)]
    operands: Vec<OsString>,
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let (targets, place) = match (&options.target_directory, options.operands.split_last()) {
        (Some(directory), _) => (&options.operands[..], Inside::parse(directory)),
        (None, Some((last, rest))) if !rest.is_empty() => (rest, Inside::parse(last)),
        _ => return Err(Failure::bare("missing operand: TARGET and the new name")),
    };
    let into = !options.no_target_directory && {
        let image = images.get(&place.image, true)?;
        let found = image.fs.resolve(&place.path, !options.no_dereference);
        found.and_then(|ino| image.fs.stat(ino)).is_ok_and(|stat| tree::is_dir(&stat))
    };
    if !into && (targets.len() > 1 || options.target_directory.is_some()) {
        return Err(Failure::at(&place.shown(), "is not a directory").of(Kind::NotDirectory));
    }
    for target in targets {
        let to = if into { place.join(base(target.as_bytes())) } else { place.clone() };
        session.ok(link(options, session, images, target, &to));
    }
    Ok(())
}

fn link(
    options: &Options,
    session: &Session,
    images: &Images,
    target: &OsStr,
    to: &Inside,
) -> Result<()> {
    let slot = tree::slot(images, to)?;
    let fs = slot.fs();
    if slot.wants_dir && slot.there()?.is_some_and(|there| !tree::is_dir(&there)) {
        return Err(slot.failed(uxfs::Error::NotDir));
    }
    let hard = match options.symbolic {
        true => None,
        false => {
            let found = tree::find(images, &Inside::parse(target), true, false)?;
            if found.image.volume != slot.image.volume {
                return Err(slot.failed(uxfs::Error::Invalid("lies in another image")));
            }
            if found.is_dir() {
                return Err(Failure::new(target, "hard link not allowed for directory"));
            }
            Some(found.stat.ino)
        }
    };
    if let Some(there) = slot.there()?
        && options.force
    {
        if tree::is_dir(&there) {
            return Err(slot.failed(uxfs::Error::IsDir));
        }
        let same = |ino| there.ino == ino && is_same_name(images, target, &slot);
        if hard.is_some_and(same) {
            return Err(Failure::new(target, "and the new name are the same file"));
        }
        fs.unlink(slot.dir, &slot.name).map_err(|error| slot.failed(error))?;
    }
    if slot.wants_dir {
        // A trailing slash requires a directory, which a link is not. The system calls fail with this
        // error.
        return Err(slot.failed(uxfs::Error::NotFound));
    }
    let made = match hard {
        Some(ino) => fs.link(ino, slot.dir, &slot.name),
        None => edit::caller().symlink(fs, slot.dir, &slot.name, target.as_bytes()).map(|_| ()),
    };
    made.map_err(|error| slot.failed(error))?;
    if options.verbose {
        let arrow: &[u8] = if options.symbolic { b"' -> '" } else { b"' => '" };
        let line = [b"'", &tree::shown(to)[..], arrow, target.as_bytes(), b"'\n"].concat();
        session.print(line)?;
    }
    Ok(())
}

/// Are the target of a hard link and the new name the same directory entry?
fn is_same_name(images: &Images, target: &OsStr, slot: &tree::Slot) -> bool {
    let other = tree::slot(images, &Inside::parse(target));
    other.is_ok_and(|other| (other.dir, &other.name) == (slot.dir, &slot.name))
}
