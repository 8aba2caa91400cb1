//! Tests of the disk for virtual machines, by a guest that is made of its parts.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod hostile;
mod rig;
mod usual;
