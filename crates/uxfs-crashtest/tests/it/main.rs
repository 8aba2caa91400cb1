//! Tests of crash tests: planted faults in programs, real programs, and bad input.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bad_input;
mod in_process;
#[cfg(target_arch = "x86_64")]
mod kernels;
mod namespaces;
mod planted;
mod ready;
mod rig;
mod stub;
mod timeline;
