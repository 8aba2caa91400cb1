//! The expected content of files, block by block, and the disk block that holds each.
//!
//! Data that is overwritten in place reaches the disk before its transaction, if there is one. So
//! at a moment of the history a file may hold what was written later into the same block, and
//! nothing else. A block has a number here, which it keeps when it is moved, shared, or given to
//! another file. A copy gets a new number.

use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) id: u64,
    pub(crate) data: Arc<[u8]>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    pub(crate) size: usize,
    /// Its blocks up to its end; `None` for a hole.
    pub(crate) blocks: Vec<Option<Block>>,
}

/// A write into a block in place.
#[derive(Clone, Debug)]
pub(crate) struct InPlaceWrite {
    pub(crate) step: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) byte: u8,
}

/// The writes in place of all blocks, by number.
#[derive(Default)]
pub(crate) struct InPlaceWrites {
    /// Nothing is written in place, so nothing shows early.
    pub(crate) none: bool,
    all: HashMap<u64, Vec<InPlaceWrite>>,
    next_id: u64,
}

impl InPlaceWrites {
    pub(crate) fn fresh(&mut self, data: Vec<u8>) -> Option<Block> {
        self.next_id += 1;
        Some(Block { id: self.next_id, data: data.into() })
    }

    fn add(&mut self, id: u64, touch: InPlaceWrite) {
        if !self.none {
            self.all.entry(id).or_default().push(touch);
        }
    }

    /// Compares `have` with the content of a block after step `moment`, or with writes in place
    /// since then, up to step `begun`. Returns the first byte that fits neither.
    pub(crate) fn differs(
        &self,
        want: Option<&Block>,
        have: &[u8],
        moment: usize,
        begun: usize,
    ) -> Option<usize> {
        let Some(block) = want else { return have.iter().position(|byte| *byte != 0) };
        let right = &block.data[..have.len()];
        if right == have {
            return None;
        }
        let later = self.all.get(&block.id).map_or(&[][..], |all| all);
        let later = || later.iter().filter(|t| t.step > moment && t.step <= begun);
        have.iter().enumerate().position(|(at, byte)| {
            right[at] != *byte && !later().any(|t| t.byte == *byte && (t.from..t.to).contains(&at))
        })
    }
}

pub(crate) struct Change<'a> {
    pub(crate) file: &'a mut File,
    pub(crate) writes: &'a mut InPlaceWrites,
    pub(crate) block: usize,
    pub(crate) step: usize,
    /// Number of uses of each block in all files.
    pub(crate) uses: HashMap<u64, u32>,
    /// Copies on write may include neighbouring blocks. Later writes to these may still be in
    /// place.
    pub(crate) wide: bool,
}

/// Is a block shared, so that a write must go elsewhere? It then has one user less.
fn drop_share(uses: &mut HashMap<u64, u32>, id: u64) -> bool {
    let uses = uses.get_mut(&id).filter(|uses| **uses > 1);
    uses.map(|uses| *uses -= 1).is_some()
}

impl Change<'_> {
    fn blocks_for(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.block)
    }

    /// Sets the length of the file. New parts are holes.
    pub(crate) fn resize(&mut self, size: usize) {
        if size < self.file.size {
            let end = size.next_multiple_of(self.block);
            self.put(size, end.min(self.file.size.next_multiple_of(self.block)), 0, false);
        }
        self.file.size = size;
        let blocks = self.blocks_for(size);
        self.file.blocks.resize_with(blocks, || None);
    }

    /// Fills a range with a byte. Holes in it become blocks if `fill`.
    fn put(&mut self, from: usize, to: usize, byte: u8, fill: bool) {
        let mut at = from;
        while at < to {
            let (number, start) = (at / self.block, at % self.block);
            let end = (to - number * self.block).min(self.block);
            at = (number + 1) * self.block;
            let Some(place) = self.file.blocks.get_mut(number) else { continue };
            let touch = InPlaceWrite { step: self.step, from: start, to: end, byte };
            let Some(old) = place else {
                if fill {
                    let mut data = vec![0; self.block];
                    data[start..end].fill(byte);
                    *place = self.writes.fresh(data);
                }
                continue;
            };
            let mut data = old.data.to_vec();
            data[start..end].fill(byte);
            let shared = drop_share(&mut self.uses, old.id);
            if !shared || self.wide {
                self.writes.add(old.id, touch);
            }
            *place = match shared {
                true => self.writes.fresh(data),
                false => Some(Block { id: old.id, data: data.into() }),
            };
        }
    }

    /// Fills a range with a byte. The file grows if necessary.
    pub(crate) fn write(&mut self, from: usize, to: usize, byte: u8) {
        if to > self.file.size {
            self.resize(to);
        }
        self.put(from, to, byte, true);
    }

    /// Fills a range with a byte, in blocks of its own. The file grows if necessary.
    pub(crate) fn replace(&mut self, from: usize, to: usize, byte: u8) {
        if to > self.file.size {
            self.resize(to);
        }
        for number in from / self.block..self.blocks_for(to) {
            let start = number * self.block;
            let old = self.file.blocks[number].take();
            let mut data = old.as_ref().map_or_else(|| vec![0; self.block], |b| b.data.to_vec());
            if let Some(old) = old {
                drop_share(&mut self.uses, old.id);
            }
            let (low, high) = (from.max(start) - start, (to - start).min(self.block));
            data[low..high].fill(byte);
            self.file.blocks[number] = self.writes.fresh(data);
        }
    }

    pub(crate) fn punch(&mut self, from: usize, to: usize) {
        let (first, last) = (self.blocks_for(from), to / self.block);
        for place in self.file.blocks.iter_mut().take(last).skip(first) {
            *place = None;
        }
        let (head, tail) = ((first * self.block).min(to), (last * self.block).max(from));
        let size = self.file.size;
        self.put(from, head.min(size), 0, false);
        if tail >= head {
            self.put(tail, to.min(size), 0, false);
        }
    }

    pub(crate) fn collapse(&mut self, from: usize, to: usize) {
        self.file.blocks.drain(from / self.block..to / self.block);
        self.file.size -= to - from;
    }

    pub(crate) fn insert(&mut self, from: usize, to: usize) {
        let (at, count) = (from / self.block, (to - from) / self.block);
        self.file.blocks.splice(at..at, (0..count).map(|_| None));
        self.file.size += to - from;
    }

    /// Gives the file its own copies of the blocks of a range.
    pub(crate) fn unshare(&mut self, from: usize, to: usize) {
        let (first, last) = (from / self.block, self.blocks_for(to));
        for place in self.file.blocks.iter_mut().take(last).skip(first) {
            let Some(old) = place else { continue };
            if drop_share(&mut self.uses, old.id) {
                *place = self.writes.fresh(old.data.to_vec());
            }
        }
    }

    /// Shares `source`'s blocks of a range at `at`.
    pub(crate) fn share(&mut self, source: &File, from: usize, len: usize, at: usize) {
        let end = at + len;
        if end > self.file.size {
            self.resize(end);
        }
        for number in 0..self.blocks_for(len) {
            let block = source.blocks.get(from / self.block + number).cloned().flatten();
            self.file.blocks[at / self.block + number] = block;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change<'a>(
        file: &'a mut File,
        writes: &'a mut InPlaceWrites,
        step: usize,
        shared: &[u64],
    ) -> Change<'a> {
        let uses = shared.iter().map(|id| (*id, 2)).collect();
        Change { file, writes, block: 8, step, uses, wide: false }
    }

    #[test]
    fn only_data_written_in_place_is_visible_early() {
        let (mut file, mut writes) = (File::default(), InPlaceWrites::default());
        change(&mut file, &mut writes, 1, &[]).write(0, 20, 1);
        let before = file.clone();
        change(&mut file, &mut writes, 2, &[]).write(4, 12, 2);
        let differs = |block: usize, have: &[u8], begun| {
            writes.differs(before.blocks[block].as_ref(), have, 1, begun)
        };
        assert_eq!(differs(0, &[1; 8], 2), None);
        assert_eq!(differs(0, &[1, 1, 1, 1, 2, 2, 1, 2], 2), None);
        assert_eq!(differs(0, &[1, 1, 1, 2, 2, 2, 2, 2], 2), Some(3));
        assert_eq!(differs(0, &[1, 1, 1, 1, 2, 2, 2, 2], 1), Some(4));
        let shared = before.blocks[0].as_ref().map(|b| b.id).unwrap();
        change(&mut file, &mut writes, 3, &[shared]).write(0, 8, 3);
        assert_eq!(writes.differs(before.blocks[0].as_ref(), &[3; 8], 1, 3), Some(0));
    }

    #[test]
    fn range_operations_move_blocks() {
        let (mut file, mut writes) = (File::default(), InPlaceWrites::default());
        for (step, at) in [(1, 0), (2, 8), (3, 16)] {
            change(&mut file, &mut writes, step, &[]).write(at, at + 8, step as u8);
        }
        let bytes = |file: &File| -> Vec<u8> {
            file.blocks.iter().map(|b| b.as_ref().map_or(0, |b| b.data[0])).collect()
        };
        change(&mut file, &mut writes, 4, &[]).collapse(8, 16);
        assert_eq!((bytes(&file), file.size), (vec![1, 3], 16));
        change(&mut file, &mut writes, 5, &[]).insert(0, 8);
        assert_eq!((bytes(&file), file.size), (vec![0, 1, 3], 24));
        let source = file.clone();
        change(&mut file, &mut writes, 6, &[]).share(&source, 8, 16, 32);
        assert_eq!((bytes(&file), file.size), (vec![0, 1, 3, 0, 1, 3], 48));
        change(&mut file, &mut writes, 7, &[]).punch(4, 20);
        assert_eq!(bytes(&file), vec![0, 0, 0, 0, 1, 3]);
        change(&mut file, &mut writes, 8, &[]).resize(9);
        assert_eq!(bytes(&file), vec![0, 0]);
    }
}
