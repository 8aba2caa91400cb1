//! Blocks of attributes.
//!
//! 1. A parent pointer keeps its value, which is an inode's number and generation, and its name becomes
//!    what the entry's name becomes.
//! 2. The values of other attributes become zeroes, of the same length.

use uxfs_format::attr::remote::{self, RemoteHeader};
use uxfs_format::attr::{AttrFlags, leaf};

use super::rules::Scrub;
use super::used::Used;
use crate::names::Kind;

/// What an attribute with these flags has the name of.
pub(super) fn kind_of(flags: AttrFlags) -> Kind {
    if flags.contains(AttrFlags::PARENT) { Kind::File } else { Kind::Attr }
}

impl Scrub<'_> {
    /// Changes a leaf.
    pub(super) fn attr_leaf(&self, block: &mut [u8]) {
        let header = leaf::Header::decode(block);
        let mut used = Used::up_to(leaf::entries_end(header.count));
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for record in leaf::records(block) {
            let start = record.entry.at;
            let value = match record.value {
                leaf::Value::Local(_) => record.value_range(),
                // Nothing of the value is here.
                leaf::Value::Remote { .. } => start..start,
            };
            let name = match record.value {
                leaf::Value::Local(_) => value.start - record.name.len()..value.start,
                leaf::Value::Remote { .. } => {
                    let at = start + leaf::REMOTE_NAME;
                    at..at + record.name.len()
                }
            };
            used.add(start..name.end.max(value.end));
            let kind = kind_of(record.entry.flags);
            if kind == Kind::Attr {
                values.push(value);
            }
            names.push((name, kind));
        }
        if self.names.is_some() {
            names.into_iter().for_each(|(name, kind)| self.rename(&mut block[name], kind));
            values.into_iter().for_each(|value| block[value].fill(0));
        }
        self.clear(block, used);
    }

    /// Changes a block of a value.
    pub(super) fn attr_value(&self, block: &mut [u8]) {
        let bytes = RemoteHeader::view(block).bytes.get() as usize;
        let end = (remote::HEADER_LEN + bytes).min(block.len());
        if self.names.is_some() {
            block[remote::HEADER_LEN..end].fill(0);
        }
        if !self.whole {
            block[end..].fill(0);
        }
    }
}
