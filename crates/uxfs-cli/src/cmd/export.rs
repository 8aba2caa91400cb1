//! `uxfs export`: writes a tree of an image as a tar archive.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use uxfs::archive::ArchiveError;
use uxfs::export::{ExportError, export};
use uxfs::new_file::NewFile;

use crate::image::Images;
use crate::interrupt;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree;

/// Write a tree of an image as a tar archive
///
/// The archive is in PAX format and keeps holes, hard links, extended attributes and ACLs; tar and
/// uxfs import read it. Its names are relative to the exported directory.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs export disk.img > tree.tar\n  \
    uxfs export disk.img:/etc | tar -tv\n  \
    uxfs export disk.img | zstd > tree.tar.zst")]
pub(crate) struct Options {
    #[command(flatten)]
    _log: crate::cli::LongOptions,
    /// The image, or a directory in it
    #[arg(value_name = "IMAGE[:/PATH]")]
    image: OsString,
    /// Write to FILE; - is standard output, the default
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let place = Inside::parse(&options.image);
    let found = tree::find(images, &place, false, true)?;
    if !found.is_dir() {
        return Err(tree::at(&place, uxfs::Error::NotDir));
    }
    let output = options.output.as_deref().filter(|path| *path != Path::new("-"));
    let mut new_file = None;
    let out = match output {
        Some(path) => {
            let host = |error: io::Error| Failure::host(path, &error);
            interrupt::watch("export", path).map_err(host)?;
            new_file = Some(NewFile::create(path).map_err(host)?);
            File::create(path).map_err(host)?
        }
        None if io::stdout().is_terminal() => {
            return Err(Failure::bare("an archive is not for a terminal: use -o FILE or a pipe"));
        }
        // Bypass Rust's line buffer: the writer's pieces are large.
        None => uxfs_host::stdout()?,
    };
    let (mut out, _) = export(found.fs(), found.stat.ino, out).map_err(|error| match error {
        ExportError::Archive(ArchiveError::Io { source, .. })
            if source.kind() == io::ErrorKind::BrokenPipe =>
        {
            Failure::from(source)
        }
        ExportError::Read { ref path, ref source } => {
            Failure::at(&place.join(path).shown(), source.to_string())
        }
        other => Failure::bare(other.to_string()),
    })?;
    out.flush()?;
    if let Some(new_file) = new_file {
        new_file.keep();
    }
    let _ = session;
    Ok(())
}
