//! The log: records, the operations in them, and the items that transactions are made of.
//!
//! The log is a ring of 512-byte blocks. A *record* is what is written at once: one or more header
//! blocks, then data. The data is a row of *operations*, each with a header of its own. Operations
//! with the same transaction number, from the one flagged START to the one flagged COMMIT, are a
//! *transaction*; what they carry between are *regions*. The first region of an item tells its
//! kind and how many regions it has. A region may be cut into several operations, over several
//! records.
//!
//! 1. Record and operation headers are big-endian, the record's checksum little-endian. What items
//!    say of themselves is in the byte order of the machine that wrote them, which the record
//!    header tells; only little-endian ([`FORMAT_LINUX_LE`]) is read or written here. Copies of
//!    metadata inside items are as on disk.
//! 2. Everything here goes both ways: what is built parses to the same, byte for byte.
//! 3. Lengths and counts in items are believed only as far as the regions hold what they promise;
//!    nothing here panics on any input bytes.
//!
//! Read by recovery, written by checkpoints.

mod attr;
mod buf;
mod dquot;
mod exchange;
mod icreate;
mod inode;
mod intent;
mod item;
mod kind;
mod op;
mod record;
#[cfg(test)]
mod tests;

pub use attr::{AttrIntent, AttrOp};
pub use buf::{BufFlags, BufItem, BufType, CHUNK, MAX_REGIONS, Runs};
pub use dquot::{DquotItem, QuotaOff};
pub use exchange::{ExchangeFlags, ExchangeIntent};
pub use icreate::Icreate;
pub use inode::{
    InodeFields, InodeItem, LOG_CORE_LEN, core_to_disk, core_to_log, root_to_disk, root_to_log,
};
pub use intent::{BmapOp, BmapStep, DoneItem, ExtentRun, IntentItem, IntentKind, RefcountOp};
pub use intent::{Intent, RefcountStep, RmapOp, RmapStep};
pub use item::Item;
pub use kind::{BadItem, ItemKind};
pub use op::{CLIENT_LOG, CLIENT_TRANSACTION, OP_HEADER_LEN, OpFlags, OpHeader, Ops};
pub use op::{TRANS_HEADER_LEN, TransHeader, UNMOUNT_PAYLOAD};
pub use record::{
    FORMAT_LINUX_LE, HEADER_SPAN, MAGIC, RECORD_SIZE_MAX, RecordHeader, bump, checksum, cycle_of,
    is_unmount, restore_words, seal,
};
