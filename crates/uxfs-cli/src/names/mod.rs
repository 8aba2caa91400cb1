//! The programs of xfsprogs under their names: called by the name of a link to the command, or as
//! `uxfs as NAME ARGUMENT …`.
//!
//! 1. Options, results and exit codes are those of xfsprogs 7.2, so that scripts and image builders run
//!    unchanged with these programs in their PATH. docs/XFSPROGS.md lists what is done. A link `mkfs.xfs` makes
//!    no volume with features that the machine's own xfs_repair does not know.
//! 2. What uxfs does not do is refused by its name, never ignored.
//! 3. A program does its work itself, through the library, or hands over to the command's own
//!    subcommand ([`Ended::Uxfs`]).

mod fsck_xfs;
mod installed;
mod mkfs_xfs;
mod program;
mod volume;
mod xfs_admin;
mod xfs_copy;
#[cfg(target_os = "linux")]
mod xfs_freeze;
mod xfs_growfs;
mod xfs_info;
mod xfs_mdrestore;
mod xfs_metadump;
mod xfs_repair;
mod xfsrestore;

use std::ffi::OsString;
use std::path::Path;

pub(crate) use program::Ended;
use program::Program;

const PROGRAMS: &[&Program] = &[
    &mkfs_xfs::PROGRAM,
    &fsck_xfs::PROGRAM,
    &xfs_repair::PROGRAM,
    &xfs_info::PROGRAM,
    &xfs_admin::PROGRAM,
    &xfs_growfs::PROGRAM,
    &xfs_copy::PROGRAM,
    #[cfg(target_os = "linux")]
    &xfs_freeze::PROGRAM,
    &xfs_metadump::PROGRAM,
    &xfs_mdrestore::PROGRAM,
    &xfsrestore::PROGRAM,
];

/// The names of the programs.
pub(crate) fn names() -> Vec<&'static str> {
    PROGRAMS.iter().map(|program| program.name).collect()
}

/// Runs the program that the arguments call; `None` if they call none.
pub(crate) fn call(args: &[OsString]) -> Option<Ended> {
    let named = |name: &std::ffi::OsStr| PROGRAMS.iter().find(|p| name == p.name);
    let (own, rest) = args.split_first()?;
    if let Some(program) = Path::new(own).file_name().and_then(named) {
        return Some(program.call(rest, true));
    }
    match rest {
        [verb, name, rest @ ..] if verb == "as" => {
            named(name).map(|program| program.call(rest, false))
        }
        _ => None,
    }
}
