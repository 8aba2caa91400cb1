//! Intents to change an extended attribute or a parent pointer.

use super::kind::{BadItem, ItemKind, first_word};
use crate::bytes::{le16, le32, le64};
use crate::types::Ino;

/// Bytes of the format.
const LEN: usize = 40;
/// Namespace bit of parent pointers.
const PARENT: u32 = 8;
/// Bytes of a parent pointer's value.
const PARENT_VALUE_LEN: usize = 12;

/// Operation of an attribute intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AttrOp {
    /// Set an attribute.
    Set = 1,
    /// Remove an attribute.
    Remove = 2,
    /// Replace the value of an existing attribute.
    Replace = 3,
    /// Add a parent pointer.
    ParentSet = 4,
    /// Remove a parent pointer.
    ParentRemove = 5,
    /// Replace a parent pointer by another.
    ParentReplace = 6,
}

impl AttrOp {
    /// From the low byte of `alfi_op_flags`.
    const fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Set),
            2 => Some(Self::Remove),
            3 => Some(Self::Replace),
            4 => Some(Self::ParentSet),
            5 => Some(Self::ParentRemove),
            6 => Some(Self::ParentReplace),
            _ => None,
        }
    }

    /// Name for listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Remove => "remove",
            Self::Replace => "replace",
            Self::ParentSet => "parent set",
            Self::ParentRemove => "parent remove",
            Self::ParentReplace => "parent replace",
        }
    }

    /// Does the operation apply to a parent pointer?
    pub const fn is_parent(self) -> bool {
        matches!(self, Self::ParentSet | Self::ParentRemove | Self::ParentReplace)
    }
}

/// A change to an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttrIntent {
    /// The operation.
    pub op: AttrOp,
    /// The inode that owns the attribute.
    pub ino: Ino,
    /// The inode's generation; set for parent pointers only.
    pub generation: u32,
    /// Namespace, as in the attribute's flags.
    pub filter: u32,
    /// The attribute's name.
    pub name: Vec<u8>,
    /// Name of the new parent pointer for [`AttrOp::ParentReplace`]; otherwise empty.
    pub new_name: Vec<u8>,
    /// The attribute's value.
    pub value: Vec<u8>,
    /// Value of the new parent pointer for [`AttrOp::ParentReplace`]; otherwise empty.
    pub new_value: Vec<u8>,
}

impl AttrIntent {
    pub(super) fn parse(regions: &[&[u8]]) -> Result<Self, BadItem> {
        let bad = |problem: String| Err(BadItem::new(ItemKind::Attri, problem));
        let format = regions.first().copied().unwrap_or_default();
        if format.len() != LEN {
            return bad(format!("format of {} bytes", format.len()));
        }
        let Some(op) = AttrOp::from_code(le32(format, 24)) else {
            return bad(format!("operation {:#x}", le32(format, 24)));
        };
        let filter = le32(format, 36);
        if (filter == PARENT) != op.is_parent() || filter & !0xe != 0 {
            return bad(format!("{} with namespace {filter:#x}", op.name()));
        }
        let value_len = le32(format, 32) as usize;
        if op.is_parent() && value_len != PARENT_VALUE_LEN || value_len > 64 << 10 {
            return bad(format!("{} with a value of {value_len} bytes", op.name()));
        }
        let lengths = match op {
            AttrOp::ParentReplace => {
                let (old, new) = (le16(format, 28).into(), le16(format, 30).into());
                [old, new, value_len, value_len]
            }
            AttrOp::Remove => [le32(format, 28) as usize, 0, 0, 0],
            _ => [le32(format, 28) as usize, 0, value_len, 0],
        };
        let mut rest = regions[1..].iter();
        let mut parts = [const { Vec::new() }; 4];
        for (part, len) in parts.iter_mut().zip(lengths) {
            if len == 0 {
                continue;
            }
            match rest.next() {
                Some(region) if region.len() == len.next_multiple_of(4) => {
                    *part = region[..len].to_vec();
                }
                other => {
                    let seen = other.map_or(0, |region| region.len());
                    return bad(format!("region of {seen} bytes for a length of {len}"));
                }
            }
        }
        let [name, new_name, value, new_value] = parts;
        let too_long = name.len() > 255 || new_name.len() > 255;
        if name.is_empty() || too_long || rest.next().is_some() {
            return bad(format!("name of {} bytes, {} regions", name.len(), regions.len()));
        }
        if op == AttrOp::ParentReplace && new_name.is_empty() {
            return bad("no new name".into());
        }
        let (ino, generation) = (Ino(le64(format, 16)), le32(format, 4));
        Ok(Self { op, ino, generation, filter, name, new_name, value, new_value })
    }

    pub(super) fn encode(&self, id: u64) -> Vec<Vec<u8>> {
        let parts = [&self.name, &self.new_name, &self.value, &self.new_value];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let name_lens = match self.op {
            AttrOp::ParentReplace => (self.new_name.len() as u32) << 16 | self.name.len() as u32,
            _ => self.name.len() as u32,
        };
        let mut raw = Vec::with_capacity(LEN);
        raw.extend_from_slice(&first_word(ItemKind::Attri, 1 + parts.clone().count()));
        raw.extend_from_slice(&self.generation.to_le_bytes());
        raw.extend_from_slice(&id.to_le_bytes());
        raw.extend_from_slice(&self.ino.0.to_le_bytes());
        let words = [self.op as u32, name_lens, self.value.len() as u32, self.filter];
        raw.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let mut regions = vec![raw];
        regions.extend(parts.map(|part| {
            let mut region = part.clone();
            region.resize(part.len().next_multiple_of(4), 0);
            region
        }));
        regions
    }
}
