//! The command `uxfs`: makes, fills, edits and reads XFS images without root.
//!
//! 1. Each command is one file in [`cmd`]. The file defines the command's options as a `clap`
//!    structure. Help, manual pages and completions are generated from these structures.
//! 2. Under the name `mkfs.uxfs` the program runs `uxfs mkfs`. Under the name `mount.fuse.uxfs` it
//!    runs `uxfs mount` with the arguments that mount(8) passes to a helper.
//! 3. Under the name of a program of xfsprogs it is that program: see [`names`].

mod address;
mod cli;
mod cmd;
mod contexts;
mod dumps;
mod edit;
mod flags;
mod glob;
mod image;
mod interrupt;
mod json;
mod kind;
#[cfg(feature = "remote")]
mod lineage;
mod mode;
mod names;
mod number;
mod pattern;
mod place;
mod progress;
mod quote;
#[cfg(target_os = "linux")]
mod readiness;
#[cfg(feature = "remote")]
mod remote;
mod remove;
mod session;
mod time;
mod tree;
mod users;

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(unix)]
    set_limits();
    let args: Vec<OsString> = std::env::args_os().collect();
    ExitCode::from(match names::call(&args) {
        Some(names::Ended::With(code)) => code,
        Some(names::Ended::Uxfs(args)) => cli::run(args),
        None => cli::run(args),
    })
}

/// Sets what Unix limits.
#[cfg(unix)]
fn set_limits() {
    // A walk of a deep tree needs more descriptors than the default limit allows. If the limit
    // cannot be raised, only shallower trees can be walked.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
    // Catch SIGXFSZ, so that a write beyond the file size limit (ulimit -f) fails with an error. If
    // the signal cannot be caught, it ends the process.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
}
