//! `uxfs sync`: writes all changes of a mount to stable storage.

use std::path::PathBuf;

use clap::Args;
use uxfs_fuse::control;

use crate::cmd::status;
use crate::session::{Failure, Result, Session};

/// Write all changes of a mount to stable storage
///
/// Does what sync(2) and syncfs(2) do on other file systems: these calls never reach a FUSE server.
/// coreutils' `sync DIR`, with the mounted root directory, does the same.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs sync /mnt\n  uxfs sync --order /mnt")]
pub(crate) struct Options {
    /// Wait until everything is on stable storage, also where the mount has sync=ordered (the default)
    #[arg(long = "durable", conflicts_with = "order")]
    _durable: bool,
    /// Only see to the order: what is done later does not survive a crash that this does not survive.
    /// Returns at once on a mount with sync=ordered
    #[arg(long)]
    order: bool,
    /// Mounted directory, or any path in it
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
}

pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    for dir in &options.dirs {
        let synced = if options.order { control::order(dir) } else { control::sync(dir) };
        session.ok(synced.map_err(|error| Failure::new(dir, status::failure_cause(dir, &error).0)));
    }
    Ok(())
}
