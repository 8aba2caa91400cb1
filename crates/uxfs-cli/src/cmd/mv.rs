//! `uxfs mv`: moves and renames files within an image.

use std::ffi::OsString;

use clap::Args;
use uxfs::RenameFlags;

use crate::edit;
use crate::image::Images;
use crate::kind::Kind;
use crate::place::{Inside, base};
use crate::session::{Failure, Result, Session};
use crate::tree::{self, Slot};

/// Move or rename files within an image
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs mv disk.img:/a disk.img:/b\n  \
    uxfs mv -t disk.img:/old disk.img:/x disk.img:/y\n\n\
    To another image or to the host: uxfs cp -a, then uxfs rm -r.")]
pub(crate) struct Options {
    /// Do not overwrite existing files
    #[arg(short, long, overrides_with_all = ["force", "interactive"])]
    no_clobber: bool,
    /// Never ask
    #[arg(short, long, overrides_with_all = ["no_clobber", "interactive"])]
    force: bool,
    /// Ask before replacing a file
    #[arg(short, long, overrides_with_all = ["no_clobber", "force"])]
    interactive: bool,
    /// Move all sources into this directory
    #[arg(short, long, value_name = "IMAGE:/DIRECTORY", conflicts_with = "no_target_directory")]
    target_directory: Option<OsString>,
    /// Treat the last operand as the new name, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Report each moved file
    #[arg(short, long)]
    verbose: bool,
    /// Sources, then the target unless -t gives it
    #[arg(value_name = "IMAGE:/FILE", required = true)]
    files: Vec<OsString>,
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let places: Vec<Inside> = options.files.iter().map(|file| Inside::parse(file)).collect();
    let (sources, target) = match &options.target_directory {
        Some(directory) => (&places[..], Inside::parse(directory)),
        None => match places.split_last() {
            Some((target, sources)) if !sources.is_empty() => (sources, target.clone()),
            _ => return Err(Failure::bare("missing destination file operand")),
        },
    };
    if options.no_target_directory && sources.len() > 1 {
        return Err(Failure::bare("extra operand: -T takes one source"));
    }
    let into = !options.no_target_directory && is_dir(images, &target)?;
    if !into && (sources.len() > 1 || options.target_directory.is_some()) {
        return Err(Failure::at(&target.shown(), "is not a directory").of(Kind::NotDirectory));
    }
    for source in sources {
        let to = if into { target.join(base(&source.path)) } else { target.clone() };
        session.ok(rename(options, session, images, source, &to));
    }
    Ok(())
}

fn is_dir(images: &Images, place: &Inside) -> Result<bool> {
    let image = images.get(&place.image, true)?;
    let stat = image.fs.resolve(&place.path, true).and_then(|ino| image.fs.stat(ino));
    Ok(stat.is_ok_and(|stat| tree::is_dir(&stat)))
}

fn rename(
    options: &Options,
    session: &Session,
    images: &Images,
    from: &Inside,
    to: &Inside,
) -> Result<()> {
    let source = tree::slot(images, from)?;
    let target = tree::slot(images, to)?;
    if source.image.volume != target.image.volume {
        let what = "lies in another image: use uxfs cp -a, then uxfs rm -r";
        return Err(Failure::at(&to.shown(), what));
    }
    let Some(stat) = source.there()? else { return Err(source.failed(uxfs::Error::NotFound)) };
    for slot in [&source, &target] {
        if slot.wants_dir && !tree::is_dir(&stat) {
            return Err(slot.failed(uxfs::Error::NotDir));
        }
    }
    if let Some(there) = target.there()? {
        if (source.dir, &source.name) == (target.dir, &target.name) {
            let what = format!("and '{}' are the same file", to.shown().escape_ascii());
            return Err(Failure::at(&from.shown(), what));
        }
        if options.no_clobber {
            return Ok(());
        }
        let question = [b"uxfs: mv: overwrite '", &to.shown()[..], b"'"].concat();
        if options.interactive && !edit::confirm(&question) {
            return Ok(());
        }
        if there.ino == stat.ino {
            // Two names of one file: rename(2) would keep both.
            let fs = source.fs();
            fs.unlink(source.dir, &source.name).map_err(|error| source.failed(error))?;
            return report(options, session, &source, &target);
        }
    }
    let fs = source.fs();
    let flags = RenameFlags::Replace;
    let renamed = fs.rename(source.dir, &source.name, target.dir, &target.name, flags);
    renamed.map_err(|error| target.failed(error))?;
    report(options, session, &source, &target)
}

fn report(options: &Options, session: &Session, from: &Slot, to: &Slot) -> Result<()> {
    if !options.verbose {
        return Ok(());
    }
    let (from, to) = (tree::shown(&from.place), tree::shown(&to.place));
    session.print([b"renamed '", &from[..], b"' -> '", &to, b"'\n"].concat())
}
