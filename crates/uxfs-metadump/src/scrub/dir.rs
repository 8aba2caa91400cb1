//! Blocks of directories.

use uxfs_format::da::{self, ENTRIES, ENTRY_LEN};
use uxfs_format::dir::block::Tail;
use uxfs_format::dir::data::{FREE_HEADER_LEN, Item, ftype_at};
use uxfs_format::dir::{free, leaf};
use uxfs_format::verify::BufKind;

use super::rules::Scrub;
use super::used::Used;
use crate::names::Kind;

/// Length of the tag at the end of entries and free areas.
const TAG_LEN: usize = 2;

/// The bytes of an index block that mean something; attributes have the same nodes.
pub(super) fn used(block: &[u8], kind: BufKind) -> Used {
    let entries = Used::up_to(ENTRIES + da::count(block) * ENTRY_LEN);
    match kind {
        BufKind::DirFree => Used::up_to(free::slots(0..free::nvalid(block)).end),
        BufKind::DirLeaf1 => {
            let bests = leaf::bests(block.len(), leaf::best_count(block));
            entries.and(bests.start..block.len())
        }
        _ => entries,
    }
}

impl Scrub<'_> {
    /// Changes a data block, which may be the whole directory.
    pub(super) fn dir_data(&self, block: &mut [u8], kind: BufKind) {
        let shape = self.geo.dir;
        let end = match kind {
            BufKind::DirBlock => Tail::of(block).leaf_start(block.len()),
            _ => block.len(),
        };
        let mut used = Used::up_to(shape.start()).and(end..block.len());
        let mut names = Vec::new();
        for item in shape.items(block, end) {
            let (head, item_end) = match item {
                Item::Entry(entry) => {
                    let name = entry.name.len();
                    names.push(entry.at + ftype_at(name) - name..entry.at + ftype_at(name));
                    let next = entry.at + shape.entry_len(name);
                    (entry.at..entry.at + ftype_at(name) + 1, next)
                }
                Item::Free(free) => {
                    let at = usize::from(free.at);
                    (at..at + FREE_HEADER_LEN, free.end())
                }
            };
            used.add(head);
            used.add(item_end - TAG_LEN..item_end);
        }
        for name in names {
            self.rename(&mut block[name], Kind::File);
        }
        self.clear(block, used);
    }
}
