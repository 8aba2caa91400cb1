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
#[command(after_help = "Examples:\n  uxfs sync /mnt")]
pub(crate) struct Options {
    /// Mounted directory, or any path in it
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
}

pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    for dir in &options.dirs {
        session.ok(control::sync(dir)
            .map_err(|error| Failure::new(dir, status::failure_cause(dir, &error).0)));
    }
    Ok(())
}
