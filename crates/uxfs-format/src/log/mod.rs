//! The log: records, the operations in them, and the items of transactions. Recovery reads these
//! structures; checkpoints write them.
//!
//! The log is a ring of 512-byte blocks. One write is a *record*: one or more header blocks, then
//! data. The data is a sequence of *operations*, each with its own header. Operations with the same
//! transaction number, from the one flagged START to the one flagged COMMIT, form a *transaction*.
//! The data of the operations in between are *regions*. The first region of an item holds the
//! item's kind and number of regions. A region may be split into several operations over several
//! records.
//!
//! 1. Record and operation headers are big-endian; the record's checksum is little-endian. Item
//!    formats are in the byte order of the machine that wrote them, which the record header names.
//!    This code supports little-endian only ([`FORMAT_LINUX_LE`]). Copies of metadata inside items
//!    have the on-disk form.
//! 2. Encoding and parsing are inverse: an encoded item parses to the same item, byte for byte.
//! 3. A length or count in an item is used only after the regions were found to hold that much.
//!    Nothing here panics on any input bytes.

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
    InodeFields, InodeItem, LOG_CORE_LEN, core_has_magic, core_to_disk, core_to_log, root_to_disk,
    root_to_log,
};
pub use intent::{BmapOp, BmapStep, DoneItem, ExtentRun, IntentItem, IntentKind, RefcountOp};
pub use intent::{Intent, RefcountStep, RmapOp, RmapStep};
pub use item::Item;
pub use kind::{BadItem, ItemKind};
pub use op::{CLIENT_LOG, CLIENT_TRANSACTION, OP_HEADER_LEN, OpFlags, OpHeader, Ops};
pub use op::{TRANS_HEADER_LEN, TransHeader, UNMOUNT_PAYLOAD};
pub use record::{
    FORMAT_LINUX_LE, HEADER_SPAN, MAGIC, RECORD_SIZE_MAX, RecordHeader, bump, checksum, cycle_of,
    is_header, is_unmount, restore_words, seal,
};
