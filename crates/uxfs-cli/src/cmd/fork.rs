//! `uxfs fork`: makes a copy-on-write child of an image, and gives a child another base.

use std::path::PathBuf;

use clap::Args;
use uxfs::forks;

use crate::address;
use crate::session::{Failure, Result};

/// Make a copy-on-write child of an image, in milliseconds
///
/// FORK is a new file that holds only what is changed later. It is used as any image: mounted, filled,
/// checked, exported, forked again. BASE stays as it is; while a child is in use, it can be read by all and
/// written by none. The file names BASE by its path, or by the path from its own directory if BASE lies
/// below that, so that both can be moved together.
///
/// If BASE was changed after the fork was made, the fork is useless, and refused. A copy of BASE with
/// another time is refused too: name it by --rebase, which compares length and superblock, and trusts you
/// for the rest.
///
/// uxfs diff shows what a child changed, uxfs commit writes it into BASE. docs/FORKS.md has more.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs fork base.img child\n  \
    uxfs fork child grandchild\n  \
    uxfs fork --rebase /new/place/base.img child")]
pub(crate) struct Options {
    /// The child exists: name another file with the same content as its base
    #[arg(long)]
    rebase: bool,
    /// The image; another fork too
    #[arg(value_name = "BASE")]
    base: PathBuf,
    /// The child
    #[arg(value_name = "FORK")]
    fork: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { rebase, base, fork } = options;
    address::refuse(base, "copy it into a file first")?;
    let done = if *rebase { forks::rebase(base, fork) } else { forks::create(base, fork) };
    // The base is opened first; what is wrong with the child names itself.
    let at = if base.exists() { fork } else { base };
    done.map_err(|error| Failure::host(at, &error))
}
