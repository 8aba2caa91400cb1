//! Quota items: a changed quota record, and quota being turned off.

use super::kind::{BadItem, ItemKind, first_word};
use crate::bytes::{le32, le64};
use crate::types::Daddr;

/// Format of a quota record's item; its second region is the record as on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DquotItem {
    /// User, group or project id.
    pub id: u32,
    /// Device address of the buffer that holds the record.
    pub blkno: Daddr,
    /// The buffer's length in file system blocks.
    pub len: i32,
    /// Offset of the record in the buffer.
    pub boffset: u32,
}

const DQUOT_LEN: usize = 24;
const QUOTAOFF_LEN: usize = 20;

impl DquotItem {
    /// Reads the format from an item's first region.
    ///
    /// # Errors
    /// If the region has another length.
    pub fn parse(region: &[u8]) -> Result<Self, BadItem> {
        if region.len() != DQUOT_LEN {
            return Err(BadItem::new(ItemKind::Dquot, format!("{} bytes", region.len())));
        }
        Ok(Self {
            id: le32(region, 4),
            blkno: Daddr(le64(region, 8)),
            len: le32(region, 16) as i32,
            boffset: le32(region, 20),
        })
    }

    /// Encodes the first region.
    pub fn encode(&self) -> [u8; DQUOT_LEN] {
        let mut raw = [0; DQUOT_LEN];
        raw[..4].copy_from_slice(&first_word(ItemKind::Dquot, 2));
        raw[4..8].copy_from_slice(&self.id.to_le_bytes());
        raw[8..16].copy_from_slice(&self.blkno.0.to_le_bytes());
        raw[16..20].copy_from_slice(&self.len.to_le_bytes());
        raw[20..].copy_from_slice(&self.boffset.to_le_bytes());
        raw
    }
}

/// Quota was turned off: recovery does not replay records of these types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaOff {
    /// Accounting bits that were cleared: 1 user, 8 project, 0x40 group.
    pub flags: u32,
}

impl QuotaOff {
    /// Reads the item's one region.
    ///
    /// # Errors
    /// If the region has another length.
    pub fn parse(region: &[u8]) -> Result<Self, BadItem> {
        if region.len() != QUOTAOFF_LEN {
            return Err(BadItem::new(ItemKind::QuotaOff, format!("{} bytes", region.len())));
        }
        Ok(Self { flags: le32(region, 4) })
    }

    /// Encodes the region.
    pub fn encode(&self) -> [u8; QUOTAOFF_LEN] {
        let mut raw = [0; QUOTAOFF_LEN];
        raw[..4].copy_from_slice(&first_word(ItemKind::QuotaOff, 1));
        raw[4..8].copy_from_slice(&self.flags.to_le_bytes());
        raw
    }
}
