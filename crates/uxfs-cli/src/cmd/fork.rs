//! `uxfs fork`: makes a copy-on-write child of an image or of a checkpoint in a store, and gives a child another base.

use std::path::{Path, PathBuf};

use clap::Args;
use uxfs::disk::OpenMode;
use uxfs::forks;
use uxfs::volume::Location;

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
/// BASE can be the address of a volume in a store: the child is then one of its last checkpoint, or of the one
/// that URL@N names. It reads there what it has not changed, as long as the store keeps that checkpoint.
///
/// uxfs diff shows what a child changed, uxfs commit writes it into BASE. docs/FORKS.md has more.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs fork base.img child\n  \
    uxfs fork child grandchild\n  \
    uxfs fork s3://backups/disk@41 child\n  \
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
    make(base, fork, *rebase)
}

/// Makes `fork` a child of an image or a checkpoint, or gives it that as its base.
pub(super) fn make(base: &Path, fork: &Path, rebase: bool) -> Result<()> {
    address::refuse_as_base(base)?;
    let of_base = |error: std::io::Error| Failure::host(base, &error);
    let pinned = address::pinned(base).map_err(of_base)?;
    let disk = address::open(&pinned, OpenMode::Read, &Location::whole()).map_err(of_base)?;
    let done = match rebase {
        true => forks::rebase_to(&pinned, &*disk, fork),
        false => forks::create_of(&pinned, &*disk, fork),
    };
    done.map_err(|error| Failure::host(fork, &error))
}
