//! `uxfs completions`: prints the completion script for a shell.

use clap::Args;
use clap_complete::Shell;

use crate::session::{Result, Session};

/// Print the completion script for a shell
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs completions bash > /etc/bash_completion.d/uxfs\n  \
                  uxfs completions fish | source")]
pub(crate) struct Options {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut crate::cli::definition(), "uxfs", &mut text);
    session.print(text)
}
