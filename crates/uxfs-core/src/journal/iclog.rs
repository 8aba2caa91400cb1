//! Log buffers that fill with transactions, as immediate logging uses them ([`super::immediate`]).

use uxfs_journal::{LogGeometry, Records};

/// Most bytes that are on their way at once.
const HALF_MAX: u64 = 1 << 20;

/// Bytes that fill half of the log buffers.
pub(super) fn half(buffers: u32, buffer: u32) -> u64 {
    (u64::from(buffers / 2) * u64::from(buffer)).clamp(16 << 10, HALF_MAX)
}

/// Log buffers that fill with transactions.
pub(crate) struct Iclog {
    pub(super) records: Records,
    /// Transactions in them.
    pub(super) count: u64,
    /// Objects in those.
    pub(super) items: u64,
}

impl Iclog {
    /// Nothing yet; memory comes from `spare`.
    pub(super) fn new(geometry: LogGeometry, spare: Vec<u8>) -> Self {
        Self { records: Records::new(geometry, spare), count: 0, items: 0 }
    }
}
