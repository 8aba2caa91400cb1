//! `uxfs ack`: acknowledges in a program under `uxfs crash-test`.

use std::fs::File;
use std::io::Write;

use clap::Args;

use crate::session::{Failure, Result, Session};

/// Acknowledge in a program under `uxfs crash-test`
///
/// Writes TEXT as one line to the descriptor whose number is in UXFS_ACK: what the program did so far
/// must survive a power cut from now on. For shells and other programs that cannot do it themselves.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs ack 'mail 17 stored'")]
pub(crate) struct Options {
    /// What is acknowledged
    #[arg(value_name = "TEXT", required = true)]
    words: Vec<String>,
}

pub(crate) fn run(options: &Options, _: &Session) -> Result<()> {
    let number = std::env::var("UXFS_ACK").map_err(|_| {
        Failure::bare("UXFS_ACK is not set: run this in a program under `uxfs crash-test`")
    })?;
    let pipe = format!("/dev/fd/{number}");
    // One write, so that lines of several programs do not mix.
    let line = format!("{}\n", options.words.join(" "));
    let written = File::options()
        .write(true)
        .open(&pipe)
        .and_then(|mut pipe| pipe.write_all(line.as_bytes()));
    written.map_err(|error| {
        let why = format!("{error}: the descriptor in UXFS_ACK must be inherited, not closed");
        Failure::new(pipe, why)
    })
}
