//! Log buffers (iclogs) that immediate logging fills with transactions.

use crate::records::{LogGeometry, Records};

/// Most bytes in flight at once.
const HALF_MAX: u64 = 1 << 20;

/// Bytes in half of the log buffers.
pub fn iclog_half(buffers: u32, buffer: u32) -> u64 {
    (u64::from(buffers / 2) * u64::from(buffer)).clamp(16 << 10, HALF_MAX)
}

/// The log buffers that are being filled.
#[derive(Debug)]
pub struct Iclog {
    /// The records made of them so far.
    pub records: Records,
    /// Transactions in them.
    pub count: u64,
    /// Objects in these transactions.
    pub items: u64,
}

impl Iclog {
    /// Empty buffers that use the memory of `spare`.
    pub fn new(geometry: LogGeometry, spare: Vec<u8>) -> Self {
        Self { records: Records::new(geometry, spare), count: 0, items: 0 }
    }
}
