//! `uxfs extsize` and `uxfs cowextsize`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use uxfs::{Fs, Stat, Xflags};

use crate::flags;
use crate::image::Images;
use crate::number;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree::{self, Next, WalkOptions};

/// Show or set the size that new space of files comes in
///
/// A file's hint can be set while it is empty; a directory's is for files made in it later.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs extsize -s 1M disk.img:/images\n  uxfs extsize -R disk.img:/images")]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
}

/// Show or set the size that copies on write come in
///
/// A directory's hint is for files made in it later.
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
    /// The same, but of what is in them directories only
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
    let mut visit = |met: tree::Met<'_>| {
        let wanted = met.depth == 0 || !options.directories || tree::is_dir(met.stat);
        if wanted && flags::are_accessible(met.stat.mode) {
            let done = match options.size {
                Some(size) => set(met.fs, met.stat, size, cow),
                None => show(session, &met, cow),
            };
            session.ok(done.map_err(|error| error.at(met.path)));
        }
        let enter = options.recursive || options.directories;
        Ok(if enter { Next::Enter } else { Next::Skip })
    };
    let mut on_error = |path: &[u8], error| {
        session.fail(Failure::volume(OsStr::from_bytes(path), error));
    };
    tree::walk(found.fs(), start, WalkOptions::default(), &mut visit, &mut on_error)
}

/// What stopped one file.
enum Trouble {
    Volume(uxfs::Error),
    Output(Failure),
}

impl Trouble {
    fn at(self, path: &[u8]) -> Failure {
        match self {
            Self::Volume(error) => Failure::volume(OsStr::from_bytes(path), error),
            Self::Output(failure) => failure,
        }
    }
}

impl From<uxfs::Error> for Trouble {
    fn from(error: uxfs::Error) -> Self {
        Self::Volume(error)
    }
}

fn show(session: &Session, met: &tree::Met<'_>, cow: bool) -> std::result::Result<(), Trouble> {
    let fsx = met.fs.get_fsx(met.stat.ino)?;
    let hint = if cow { fsx.cowextsize } else { fsx.extsize };
    let line = [format!("[{hint}] ").as_bytes(), met.path, b"\n"].concat();
    session.print(line).map_err(Trouble::Output)
}

fn set(fs: &Fs, stat: &Stat, size: u64, cow: bool) -> std::result::Result<(), Trouble> {
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
