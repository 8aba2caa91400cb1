//! The back end against a monitor that is this process: ordinary use, and everything that a guest or a
//! monitor can do wrong.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod hostile;
mod rig;
mod usual;
