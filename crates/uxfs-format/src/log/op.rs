//! Operations: the pieces that a record's data is cut into, and the header of a transaction.

use crate::bytes::le32;

/// Bytes of an operation's header.
pub const OP_HEADER_LEN: usize = 12;
/// Client that writes transactions.
pub const CLIENT_TRANSACTION: u8 = 0x69;
/// Client that writes the unmount operation.
pub const CLIENT_LOG: u8 = 0xaa;
/// What the unmount operation carries.
pub const UNMOUNT_PAYLOAD: [u8; 8] = [0x6e, 0x55, 0, 0, 0, 0, 0, 0];
/// Bytes of a transaction's header, its first region.
pub const TRANS_HEADER_LEN: usize = 16;
/// "TRAN".
const TRANS_MAGIC: u32 = 0x5452_414e;
/// The one type of transaction that is written today.
const TRANS_CHECKPOINT: u32 = 40;

bitflags::bitflags! {
    /// `oh_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct OpFlags: u8 {
        /// A transaction starts here; nothing is carried.
        const START = 0x01;
        /// The transaction is complete; nothing is carried.
        const COMMIT = 0x02;
        /// The region goes on in the next record.
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
    /// Who wrote it: [`CLIENT_TRANSACTION`] or [`CLIENT_LOG`].
    pub client: u8,
    /// What it does.
    pub flags: OpFlags,
}

impl OpHeader {
    /// An operation of a transaction.
    pub const fn new(tid: u32, len: u32, flags: OpFlags) -> Self {
        Self { tid, len, client: CLIENT_TRANSACTION, flags }
    }

    /// The header at the front of `raw`, if that is long enough.
    pub fn parse(raw: &[u8]) -> Option<Self> {
        let raw: &[u8; OP_HEADER_LEN] = raw.first_chunk()?;
        Some(Self {
            tid: u32::from_be_bytes([raw[0], raw[1], raw[2], raw[3]]),
            len: u32::from_be_bytes([raw[4], raw[5], raw[6], raw[7]]),
            client: raw[8],
            flags: OpFlags::from_bits_retain(raw[9]),
        })
    }

    /// The header as it is written.
    pub fn encode(&self) -> [u8; OP_HEADER_LEN] {
        let mut raw = [0; OP_HEADER_LEN];
        raw[..4].copy_from_slice(&self.tid.to_be_bytes());
        raw[4..8].copy_from_slice(&self.len.to_be_bytes());
        raw[8] = self.client;
        raw[9] = self.flags.bits();
        raw
    }
}

/// The operations in a record's data, first words put back. Ends early, with an error, at one that
/// reaches beyond the data.
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
    /// What wrote it; always a checkpoint today.
    pub kind: u32,
    /// Number of the transaction, as in its operations.
    pub tid: u32,
    /// Regions that follow. Recovery does not look at it.
    pub num_regions: u32,
}

impl TransHeader {
    /// Header of a checkpoint.
    pub const fn new(tid: u32, num_regions: u32) -> Self {
        Self { kind: TRANS_CHECKPOINT, tid, num_regions }
    }

    /// The header in a region, if it is one.
    pub fn parse(region: &[u8]) -> Option<Self> {
        if region.len() != TRANS_HEADER_LEN || le32(region, 0) != TRANS_MAGIC {
            return None;
        }
        Some(Self { kind: le32(region, 4), tid: le32(region, 8), num_regions: le32(region, 12) })
    }

    /// The header as it is written.
    pub fn encode(&self) -> [u8; TRANS_HEADER_LEN] {
        let mut raw = [0; TRANS_HEADER_LEN];
        raw[..4].copy_from_slice(&TRANS_MAGIC.to_le_bytes());
        raw[4..8].copy_from_slice(&self.kind.to_le_bytes());
        raw[8..12].copy_from_slice(&self.tid.to_le_bytes());
        raw[12..].copy_from_slice(&self.num_regions.to_le_bytes());
        raw
    }
}
