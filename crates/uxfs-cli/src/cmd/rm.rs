//! `uxfs rm`: removes files and directories.

use std::ffi::OsString;

use clap::Args;
use uxfs::Stat;
use uxfs_host::os_str;

use crate::edit;
use crate::image::Images;
use crate::mode::type_words;
use crate::place::Inside;
use crate::remove::{Step, Watcher, remove_tree};
use crate::session::{Failure, Result, Session};
use crate::tree;

/// Remove files and directories
#[derive(Args)]
#[command(
    after_help = "Examples:\n  uxfs rm disk.img:/tmp/x\n  uxfs rm -r disk.img:/doc disk.img:/man"
)]
pub(crate) struct Options {
    /// Remove directories and their content
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Ignore missing files and never ask
    #[arg(short, long, overrides_with = "interactive")]
    force: bool,
    /// Remove empty directories
    #[arg(short, long)]
    dir: bool,
    /// Ask before each removal
    #[arg(short, overrides_with = "force")]
    interactive: bool,
    /// Report each removed file
    #[arg(short, long)]
    verbose: bool,
    /// The files
    #[arg(value_name = "IMAGE:/FILE", required_unless_present = "force")]
    files: Vec<OsString>,
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    for file in &options.files {
        session.ok(remove(options, session, images, &Inside::parse(file)));
    }
    Ok(())
}

fn remove(options: &Options, session: &Session, images: &Images, place: &Inside) -> Result<()> {
    let slot = match tree::slot(images, place) {
        Ok(slot) => slot,
        Err(_) if place.base().is_empty() => {
            return Err(Failure::at(&place.shown(), "refusing to remove the root directory"));
        }
        Err(_) if options.force && is_missing(images, place) => return Ok(()),
        Err(failure) => return Err(failure),
    };
    let Some(stat) = slot.there()? else {
        return if options.force { Ok(()) } else { Err(slot.failed(uxfs::Error::NotFound)) };
    };
    if slot.wants_dir && !tree::is_dir(&stat) {
        let gone = options.force;
        return if gone { Ok(()) } else { Err(slot.failed(uxfs::Error::NotDir)) };
    }
    if tree::is_dir(&stat) && !options.recursive {
        if !options.dir {
            return Err(slot.failed(uxfs::Error::IsDir));
        }
        let names = tree::entries(slot.fs(), stat.ino).map_err(|error| slot.failed(error))?;
        if !names.is_empty() {
            return Err(slot.failed(uxfs::Error::NotEmpty));
        }
    }
    let mut reporter = Reporter { options, session };
    let start = (slot.dir, slot.name.clone(), stat);
    remove_tree(slot.fs(), start, tree::shown(place), &mut reporter)
}

/// Does the path not exist because one of its directories is missing?
fn is_missing(images: &Images, place: &Inside) -> bool {
    let image = images.get(&place.image, true);
    image.is_ok_and(|image| {
        matches!(image.fs.resolve(&place.path, false), Err(uxfs::Error::NotFound))
    })
}

struct Reporter<'a> {
    options: &'a Options,
    session: &'a Session,
}

impl Watcher for Reporter<'_> {
    fn step(&mut self, step: Step, path: &[u8], stat: &Stat) -> Result<bool> {
        let kind = type_words(stat.mode, stat.size).as_bytes();
        match step {
            Step::Enter if self.options.interactive => {
                let question = b"uxfs: rm: descend into directory '";
                Ok(edit::confirm(&[&question[..], path, b"'"].concat()))
            }
            Step::Remove if self.options.interactive => {
                let question = [b"uxfs: rm: remove ", kind, b" '", path, b"'"].concat();
                Ok(edit::confirm(&question))
            }
            Step::Removed if self.options.verbose => {
                let what: &[u8] =
                    if tree::is_dir(stat) { b"removed directory '" } else { b"removed '" };
                self.session.print([what, path, b"'\n"].concat())?;
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    fn failed(&mut self, path: &[u8], error: uxfs::Error) {
        self.session.fail(Failure::volume(os_str(path), error));
    }
}
