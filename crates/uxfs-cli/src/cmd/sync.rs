//! `uxfs sync`: everything that was done on a mount, brought to stable storage.

use std::path::PathBuf;

use clap::Args;
use uxfs_fuse::control;

use crate::cmd::status;
use crate::session::{Failure, Result, Session};

/// Bring everything that was done on a mount to stable storage
///
/// What sync(2) and syncfs(2) do elsewhere: these never reach a FUSE server. `sync DIR` of coreutils,
/// with the mount's own directory, does the same.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs sync /mnt")]
pub(crate) struct Options {
    /// Where it is mounted, or anything there
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
}

/// Syncs.
pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    for dir in &options.dirs {
        session
            .ok(control::sync(dir).map_err(|error| Failure::new(dir, status::why(dir, &error).0)));
    }
    Ok(())
}
