//! `uxfs crash-test-agent`: the first process in a virtual machine of `uxfs crash-test`. Not for users.

use std::ffi::OsString;

use clap::Args;

use crate::session::{Failure, Result};

/// Serve `uxfs crash-test` as the first process of a virtual machine
#[derive(Args)]
pub(crate) struct Options {
    /// What the kernel adds to its command line
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

pub(crate) fn run(_: &Options) -> Result<()> {
    uxfs_crashtest::serve_as_init().map_err(|error| Failure::bare(error.to_string()))
}
