//! The command `uxfs`: makes, fills, edits and reads XFS images without root.
//!
//! 1. Every command is one file in [`cmd`]; its options are a `clap` structure there, from which
//!    help, manual pages and completions are made.
//! 2. Started under the name `mkfs.uxfs`, it is `uxfs mkfs`; as `mount.fuse.uxfs`, it is what
//!    mount(8) calls.

mod cli;
mod cmd;
mod edit;
mod flags;
mod glob;
mod image;
mod interrupt;
mod json;
mod kind;
mod mode;
mod number;
mod pattern;
mod place;
mod quote;
mod remove;
mod session;
mod time;
mod tree;
mod users;

use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    // Trees may be deeper than the descriptors a process gets by default; where the limit cannot
    // be raised, the depth is limited.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limit.maximum, ..limit };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, all);
    // A limit on the size of files (ulimit -f) is an error of the write, not the end of the process.
    // Where the signal cannot be caught it ends the process, as it would any other.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    ExitCode::from(cli::run(std::env::args_os().collect()))
}
