//! `uxfs lsattr`: lists flags and projects of files.

use std::ffi::OsString;

use clap::Args;
use uxfs::{Fs, Stat};
use uxfs_host::os_str;

use crate::flags;
use crate::image::Images;
use crate::place::Inside;
use crate::quote;
use crate::session::{Failure, Result, Session};
use crate::tree;

/// List flags and projects of files
///
/// Lines have the format of e2fsprogs' lsattr. For a directory, its content is listed.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs lsattr disk.img:/etc\n  uxfs lsattr -dp disk.img:/srv")]
pub(crate) struct Options {
    /// Descend into directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Include names that begin with a dot
    #[arg(short, long)]
    all: bool,
    /// List directories themselves, not their content
    #[arg(short, long)]
    directory: bool,
    /// Print flags by their names
    #[arg(short, long)]
    long: bool,
    /// Print projects
    #[arg(short, long)]
    project: bool,
    /// Print inode generations
    #[arg(short = 'v', long)]
    generation: bool,
    /// The files
    #[arg(value_name = "IMAGE:/FILE", required = true)]
    files: Vec<OsString>,
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    for file in &options.files {
        let place = Inside::parse(file);
        session.ok(list(options, session, images, &place));
    }
    Ok(())
}

fn list(options: &Options, session: &Session, images: &Images, place: &Inside) -> Result<()> {
    let found = tree::find(images, place, false, false)?;
    let path = tree::shown(place);
    if found.is_dir() && !options.directory {
        return directory(options, session, found.fs(), &path, &found.stat);
    }
    if !flags::are_accessible(found.stat.mode) {
        return Err(Failure::at(&path, "only files and directories have flags"));
    }
    line(options, session, found.fs(), &path, &found.stat)
}

/// An open directory: its remaining entries, and its path.
type Level = (std::vec::IntoIter<(Vec<u8>, uxfs::format::Ino)>, Vec<u8>);

fn directory(
    options: &Options,
    session: &Session,
    fs: &Fs,
    path: &[u8],
    stat: &Stat,
) -> Result<()> {
    let mut levels: Vec<Level> = vec![(names(fs, path, stat)?.into_iter(), path.to_vec())];
    while let Some((names_left, up)) = levels.last_mut() {
        let Some((name, ino)) = names_left.next() else {
            levels.pop();
            if !levels.is_empty() {
                session.print("\n")?;
            }
            continue;
        };
        if name.starts_with(b".") && !options.all {
            continue;
        }
        let slash: &[u8] = if up.ends_with(b"/") { b"" } else { b"/" };
        let path = [up, slash, &name].concat();
        let stat = match fs.stat(ino) {
            Ok(stat) => stat,
            Err(error) => {
                session.fail(Failure::volume(os_str(&path), error));
                continue;
            }
        };
        if !flags::are_accessible(stat.mode) {
            continue;
        }
        line(options, session, fs, &path, &stat)?;
        // Directories of a damaged volume can form a cycle.
        if options.recursive && tree::is_dir(&stat) && levels.len() < 4096 {
            session.print([b"\n", &quote::message(&path)[..], b":\n"].concat())?;
            if let Some(names) = session.ok(names(fs, &path, &stat)) {
                levels.push((names.into_iter(), path));
            }
        }
    }
    Ok(())
}

fn names(fs: &Fs, path: &[u8], stat: &Stat) -> Result<Vec<(Vec<u8>, uxfs::format::Ino)>> {
    tree::entries(fs, stat.ino).map_err(|e| Failure::volume(os_str(path), e))
}

fn line(options: &Options, session: &Session, fs: &Fs, path: &[u8], stat: &Stat) -> Result<()> {
    let fsx = fs.get_fsx(stat.ino).map_err(|e| Failure::volume(os_str(path), e))?;
    let mut line = Vec::new();
    if options.project {
        line.extend_from_slice(format!("{:5} ", fsx.projid).as_bytes());
    }
    if options.generation {
        line.extend_from_slice(format!("{:<10} ", stat.generation).as_bytes());
    }
    let shown = quote::message(path);
    if options.long {
        line.extend_from_slice(&shown);
        line.resize(line.len() + 28_usize.saturating_sub(shown.len()), b' ');
        line.extend_from_slice(format!(" {}\n", flags::names(fsx.xflags)).as_bytes());
    } else {
        line.extend_from_slice(flags::line(fsx.xflags).as_bytes());
        line.push(b' ');
        line.extend_from_slice(&shown);
        line.push(b'\n');
    }
    session.print(line)
}
