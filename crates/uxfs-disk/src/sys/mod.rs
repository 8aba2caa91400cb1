//! What an open device asks of the host's system beyond positioned reads and writes.
//!
//! Linux has a call for each; `portable` stands in for them elsewhere, with what every system has.
//!
//! 1. Callers get the same promises from both: what the host cannot do is either done in another way
//!    or, where it is a hint, left out.

#[cfg(target_os = "linux")]
mod linux;
// Tested here too, as it is all that other systems have.
#[cfg(any(test, not(target_os = "linux")))]
#[cfg_attr(target_os = "linux", allow(dead_code, reason = "on Linux only the tests use it"))]
mod portable;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::*;
