//! The log of a volume, read: where it begins and ends, what is in it, and what the volume looks
//! like once it is replayed. And the little that is written to bring a log to rest: empty records
//! ahead of its head, a redo checkpoint, the unmount record.
//!
//! What happens to a volume whose log is dirty:
//!
//! 1. [`Log::find`] finds head and tail, by cycle numbers and checksums.
//! 2. [`replay`] goes through the records twice, first for what was cancelled, then to replay; all
//!    it changes goes to an [`Overlay`](uxfs_disk::Overlay), and the device stays as it is.
//! 3. Who may write calls [`mark_clean::clear_stale`], brings the overlay home and flushes. Who may not
//!    reads through the overlay.
//! 4. What the log announced but did not finish is for the engine to finish, on another overlay;
//!    [`mark_clean::write_redo`] makes the result as durable as one record, before it goes home.
//! 5. [`mark_clean::write_unmount`] leaves the log clean.
//!
//! Rules kept throughout:
//!
//! 1. Nothing is written before the whole log has been read and what it says verified.
//! 2. A block is replayed only by what is newer than itself; so replaying again changes nothing.
//! 3. No byte of a log makes anything here panic, loop or take memory without bound.

mod area;
mod assemble;
mod describe;
mod error;
mod find;
pub mod mark_clean;
mod replay;
#[cfg(test)]
mod tests;
mod walk;

pub use area::Log;
pub use assemble::{Assembler, RawItem, Transaction};
pub use describe::describe;
pub use error::{Error, Result};
pub use find::{Bounds, State};
pub use replay::{Counters, Limits, Replay, Report, replay};
pub use walk::{Record, Walk};
