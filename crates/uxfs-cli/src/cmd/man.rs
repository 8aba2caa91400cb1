//! `uxfs man`: writes the manual pages, for packaging.

use std::path::PathBuf;

use clap::Args;

use crate::session::{Failure, Result};

/// Write the manual pages into a directory
#[derive(Args)]
#[command(hide = true, after_help = "Examples:\n  uxfs man /usr/local/share/man/man1")]
pub(crate) struct Options {
    /// The directory
    directory: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let dir = &options.directory;
    let written = std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(crate::cli::definition(), dir));
    written.map_err(|error| Failure::host(dir, &error))
}
