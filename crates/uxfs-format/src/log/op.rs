//! Log operations: the pieces of a record's data, and the transaction header.

use crate::bytes::le32;

/// Bytes of an operation's header.
pub const OP_HEADER_LEN: usize = 12;
/// Client id of transactions.
pub const CLIENT_TRANSACTION: u8 = 0x69;
/// Client id of the unmount operation.
pub const CLIENT_LOG: u8 = 0xaa;
/// Data of the unmount operation.
pub const UNMOUNT_PAYLOAD: [u8; 8] = [0x6e, 0x55, 0, 0, 0, 0, 0, 0];
/// Bytes of a transaction's header, its first region.
pub const TRANS_HEADER_LEN: usize = 16;
/// "TRAN".
const TRANS_MAGIC: u32 = 0x5452_414e;
/// The only transaction type that current kernels write.
const TRANS_CHECKPOINT: u32 = 40;

bitflags::bitflags! {
    /// `oh_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct OpFlags: u8 {
        /// A transaction starts here; the operation has no data.
        const START = 0x01;
        /// The transaction is complete; the operation has no data.
        const COMMIT = 0x02;
        /// The region continues in the next record.
        const CONTINUE = 0x04;
        /// The region began in an earlier record.
        const WAS_CONT = 0x08;
        /// The region that began in an earlier record ends here.
        const END = 0x10;
        /// The volume was unmounted.
        const UNMOUNT = 0x20;
    }
}

/// Header of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpHeader {
    /// The transaction it belongs to.
    pub tid: u32,
    /// Bytes that follow.
    pub len: u32,
    /// Id of the writer: [`CLIENT_TRANSACTION`] or [`CLIENT_LOG`].
    pub client: u8,
    /// Flags.
    pub flags: OpFlags,
}

impl OpHeader {
    /// An operation of a transaction.
    pub const fn new(tid: u32, len: u32, flags: OpFlags) -> Self {
        Self { tid, len, client: CLIENT_TRANSACTION, flags }
    }

    /// Parses the header at the front of `raw`; `None` if `raw` is too short.
    pub fn parse(raw: &[u8]) -> Option<Self> {
        let raw: &[u8; OP_HEADER_LEN] = raw.first_chunk()?;
        Some(Self {
            tid: u32::from_be_bytes([raw[0], raw[1], raw[2], raw[3]]),
            len: u32::from_be_bytes([raw[4], raw[5], raw[6], raw[7]]),
            client: raw[8],
            flags: OpFlags::from_bits_retain(raw[9]),
        })
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; OP_HEADER_LEN] {
        let mut raw = [0; OP_HEADER_LEN];
        raw[..4].copy_from_slice(&self.tid.to_be_bytes());
        raw[4..8].copy_from_slice(&self.len.to_be_bytes());
        raw[8] = self.client;
        raw[9] = self.flags.bits();
        raw
    }
}

/// Iterator over the operations in a record's data; the first words of the blocks must be restored
/// already. Ends with an error at an operation that extends beyond the data.
#[derive(Clone, Debug)]
pub struct Ops<'a> {
    data: &'a [u8],
    at: usize,
    left: u32,
}

impl<'a> Ops<'a> {
    /// The `count` operations in `data`.
    pub fn new(data: &'a [u8], count: u32) -> Self {
        Self { data, at: 0, left: count }
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<(OpHeader, &'a [u8]), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let start = self.at;
        let body = OpHeader::parse(&self.data[start..]).and_then(|header| {
            let end = (start + OP_HEADER_LEN).checked_add(header.len as usize)?;
            self.at = end;
            Some((header, self.data.get(start + OP_HEADER_LEN..end)?))
        });
        if body.is_none() {
            self.left = 0;
            return Some(Err(format!("operation at byte {start} reaches beyond its record")));
        }
        body.map(Ok)
    }
}

/// Header of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransHeader {
    /// Type of the transaction; always a checkpoint in current kernels.
    pub kind: u32,
    /// Number of the transaction, as in its operations.
    pub tid: u32,
    /// Number of regions that follow. Recovery ignores it.
    pub num_regions: u32,
}

impl TransHeader {
    /// Header of a checkpoint.
    pub const fn new(tid: u32, num_regions: u32) -> Self {
        Self { kind: TRANS_CHECKPOINT, tid, num_regions }
    }

    /// Parses a region as a transaction header; `None` if the region is not one.
    pub fn parse(region: &[u8]) -> Option<Self> {
        if region.len() != TRANS_HEADER_LEN || le32(region, 0) != TRANS_MAGIC {
            return None;
        }
        Some(Self { kind: le32(region, 4), tid: le32(region, 8), num_regions: le32(region, 12) })
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; TRANS_HEADER_LEN] {
        let mut raw = [0; TRANS_HEADER_LEN];
        raw[..4].copy_from_slice(&TRANS_MAGIC.to_le_bytes());
        raw[4..8].copy_from_slice(&self.kind.to_le_bytes());
        raw[8..12].copy_from_slice(&self.tid.to_le_bytes());
        raw[12..].copy_from_slice(&self.num_regions.to_le_bytes());
        raw
    }
}
