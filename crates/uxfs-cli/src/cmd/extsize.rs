//! `uxfs extsize` and `uxfs cowextsize`: show and set extent size hints.

use std::ffi::OsString;

use clap::Args;
use uxfs::{Fs, Stat, Xflags};
use uxfs_host::os_str;

use crate::flags;
use crate::image::Images;
use crate::number;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree::{self, Next, WalkOptions};

/// Show or set the extent size hint of files
///
/// The hint is the unit in which a file's space is allocated. A file's hint can be set while the file
/// is empty; new files inherit their directory's hint.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs extsize -s 1M disk.img:/images\n  uxfs extsize -R disk.img:/images")]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
}

/// Show or set the copy-on-write extent size hint of files
///
/// The hint is the unit in which copy-on-write allocates space. New files inherit their directory's
/// hint.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs cowextsize -s 256K disk.img:/vm.raw\n  uxfs cowextsize disk.img:/vm.raw")]
pub(crate) struct CowOptions {
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Common {
    /// Descend into directories
    #[arg(short = 'R', long, conflicts_with = "directories")]
    recursive: bool,
    /// Descend into directories, but show or change only directories
    #[arg(short = 'D', long)]
    directories: bool,
    /// The hint, a multiple of the block size; 0 for none
    #[arg(short, long, value_name = "BYTES", value_parser = bytes)]
    size: Option<u64>,
    /// The files
    #[arg(value_name = "IMAGE:/FILE", required = true)]
    files: Vec<OsString>,
}

fn bytes(text: &str) -> std::result::Result<u64, String> {
    number::size(text).ok_or_else(|| format!("invalid number: '{text}'"))
}

/// Shows or sets hints for new space.
pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    for_all(&options.common, session, images, false)
}

/// Shows or sets hints for copies on write.
pub(crate) fn run_cow(options: &CowOptions, session: &Session, images: &Images) -> Result<()> {
    for_all(&options.common, session, images, true)
}

fn for_all(options: &Common, session: &Session, images: &Images, cow: bool) -> Result<()> {
    for file in &options.files {
        let place = Inside::parse(file);
        session.ok(walk(options, session, images, (&place, cow)));
    }
    Ok(())
}

fn walk(
    options: &Common,
    session: &Session,
    images: &Images,
    (place, cow): (&Inside, bool),
) -> Result<()> {
    let found = tree::find(images, place, options.size.is_some(), true)?;
    let start = (tree::shown(place), found.stat.clone());
    let mut visit = |visited: tree::Visited<'_>| {
        let wanted = visited.depth == 0 || !options.directories || tree::is_dir(visited.stat);
        if wanted && flags::are_accessible(visited.stat.mode) {
            let done = match options.size {
                Some(size) => set(visited.fs, visited.stat, size, cow),
                None => show(session, &visited, cow),
            };
            session.ok(done.map_err(|error| error.at(visited.path)));
        }
        let enter = options.recursive || options.directories;
        Ok(if enter { Next::Enter } else { Next::Skip })
    };
    let mut on_error = |path: &[u8], error| {
        session.fail(Failure::volume(os_str(path), error));
    };
    tree::walk(found.fs(), start, WalkOptions::default(), &mut visit, &mut on_error)
}

/// Why a file's hint could not be shown or set.
enum HintError {
    Volume(uxfs::Error),
    Output(Failure),
}

impl HintError {
    fn at(self, path: &[u8]) -> Failure {
        match self {
            Self::Volume(error) => Failure::volume(os_str(path), error),
            Self::Output(failure) => failure,
        }
    }
}

impl From<uxfs::Error> for HintError {
    fn from(error: uxfs::Error) -> Self {
        Self::Volume(error)
    }
}

fn show(
    session: &Session,
    visited: &tree::Visited<'_>,
    cow: bool,
) -> std::result::Result<(), HintError> {
    let fsx = visited.fs.get_fsx(visited.stat.ino)?;
    let hint = if cow { fsx.cowextsize } else { fsx.extsize };
    let line = [format!("[{hint}] ").as_bytes(), visited.path, b"\n"].concat();
    session.print(line).map_err(HintError::Output)
}

fn set(fs: &Fs, stat: &Stat, size: u64, cow: bool) -> std::result::Result<(), HintError> {
    let mut fsx = fs.get_fsx(stat.ino)?;
    if cow {
        fsx.cowextsize = size;
        fsx.xflags.set(Xflags::COWEXTSIZE, size != 0);
    } else {
        let dir = tree::is_dir(stat);
        let flag = if dir { Xflags::EXTSZINHERIT } else { Xflags::EXTSIZE };
        fsx.extsize = size;
        fsx.xflags.set(flag, size != 0);
    }
    Ok(fs.set_fsx(stat.ino, &fsx)?)
}
