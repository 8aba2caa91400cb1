//! `uxfs sync`: makes everything done on a mount durable.

use std::path::PathBuf;

use clap::Args;
use uxfs_fuse::control;

use crate::cmd::status;
use crate::session::{Failure, Result, Session};

/// Make everything done on a mount durable
///
/// As sync(2) and syncfs(2) do elsewhere, which never reach a FUSE server. `sync DIR` of coreutils,
/// with the mount's own directory, does the same.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs sync /mnt")]
pub(crate) struct Options {
    /// The mount point, or any file in the mount
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
