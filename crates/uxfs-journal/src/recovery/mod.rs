//! Recovery: the log of a dirty volume is found, read, and replayed into memory; then it is made
//! clean.
//!
//! | step | function |
//! |---|---|
//! | 1 | [`Log::find`] finds head and tail, by cycle numbers and checksums |
//! | 2 | [`replay`] reads the records twice, first for cancelled buffers, then to replay. All changes go to an [`Overlay`](uxfs_disk::Overlay); the device does not change |
//! | 3 | A caller that may write calls [`mark_clean::clear_stale`], writes the overlay to the device and flushes. A caller that may not write reads through the overlay |
//! | 4 | The engine completes pending intents and frees unlinked inodes, on another overlay. [`mark_clean::write_redo`] logs the result as one transaction before it is written in place |
//! | 5 | [`mark_clean::write_unmount`] leaves the log clean |
//!
//! 1. Nothing is written before the whole log was read and verified.
//! 2. A block is changed only by log items that are newer than the block. So a second replay
//!    changes nothing.
//! 3. No content of a log makes this module panic, loop, or use memory without bound.
//!
//! Called by the engine's recovery (`uxfs-core/src/recovery/`) and by tools that list a log.

mod area;
mod assemble;
mod describe;
mod error;
mod find;
pub mod mark_clean;
mod replay;
#[cfg(test)]
mod tests;
mod unmounted;
mod walk;

pub use area::Log;
pub use assemble::{Assembler, RawItem, Transaction};
pub use describe::describe;
pub use error::{Error, Result};
pub use find::{Bounds, State};
pub use replay::{Counters, Limits, Replay, Report, replay};
pub use walk::{Record, Walk};
