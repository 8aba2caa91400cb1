//! Makes dm-verity hash trees: veritysetup's on-disk format 1 with SHA-256 and blocks of 4 KiB.
//!
//! 1. The hash area begins with a superblock in a block of its own; the levels of the tree follow, the
//!    top level first. Each level is a row of blocks with the hashes of the blocks below.
//! 2. A hash covers the salt, then the block. The root hash is that of the only block of the top level.
//! 3. Memory is one block for each level and a buffer for the data. Holes of the data are not read.
//!
//! The format is small and `sha2` does the work; the crates that read it link to libcryptsetup.

use std::fs::File;
use std::io;

use sha2::{Digest, Sha256};
use uxfs::disk::BlockDev;
use uxfs::format::Uuid;
use uxfs_host::FileExt;

use crate::sparse;

/// Bytes of a block of data and of hashes.
pub const BLOCK: u64 = 4096;
const HASH: u64 = 32;
const PER_BLOCK: u64 = BLOCK / HASH;
/// Longest salt in bytes.
pub const SALT_MAX: usize = 256;

/// Parameters of a hash tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Hashed before each block; at most [`SALT_MAX`] bytes.
    pub salt: Vec<u8>,
    /// UUID in the superblock.
    pub uuid: Uuid,
}

/// A root hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootHash(pub [u8; 32]);

impl RootHash {
    /// The UUIDs that the Discoverable Partitions Specification wants for the data partition and for
    /// the hash partition: the first and the last 128 bits.
    pub fn partition_uuids(&self) -> (Uuid, Uuid) {
        let half = |from: usize| Uuid(core::array::from_fn(|i| self.0[from + i]));
        (half(0), half(16))
    }
}

impl core::fmt::Display for RootHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Blocks of each level for `blocks` blocks of data, from the bottom up. A single block has no tree:
/// its hash is the root hash.
fn levels(blocks: u64) -> Vec<u64> {
    let mut levels = Vec::new();
    let mut here = blocks;
    while here > 1 {
        here = here.div_ceil(PER_BLOCK);
        levels.push(here);
    }
    levels
}

/// Bytes of the hash area for `len` bytes of data, a multiple of [`BLOCK`].
pub fn hash_len(len: u64) -> u64 {
    (1 + levels(len / BLOCK).iter().sum::<u64>()) * BLOCK
}

/// The tree as it grows: one incomplete block for each level.
struct Tree<'a> {
    params: &'a Params,
    target: &'a dyn BlockDev,
    /// For each level from the bottom up: place of the next block, hashes that wait.
    levels: Vec<(u64, Vec<u8>)>,
    root: [u8; 32],
}

impl Tree<'_> {
    fn hash(&self, block: &[u8]) -> [u8; 32] {
        Sha256::new().chain_update(&self.params.salt).chain_update(block).finalize().into()
    }

    fn push(&mut self, hash: [u8; 32]) -> io::Result<()> {
        let mut hash = hash;
        for level in 0..self.levels.len() {
            let (_, waiting) = &mut self.levels[level];
            waiting.extend_from_slice(&hash);
            if waiting.len() < BLOCK as usize {
                return Ok(());
            }
            hash = self.end_block(level)?;
        }
        self.root = hash;
        Ok(())
    }

    /// Writes the incomplete block of a level and returns its hash.
    fn end_block(&mut self, level: usize) -> io::Result<[u8; 32]> {
        let (at, mut block) = (self.levels[level].0, std::mem::take(&mut self.levels[level].1));
        block.resize(BLOCK as usize, 0);
        self.target.write_at(at, &block)?;
        let hash = self.hash(&block);
        block.clear();
        self.levels[level] = (at + BLOCK, block);
        Ok(hash)
    }

    /// Writes what is incomplete, from the bottom up, and returns the root hash.
    fn finish(mut self) -> io::Result<RootHash> {
        for level in 0..self.levels.len() {
            if self.levels[level].1.is_empty() {
                // The last block was complete, and its hash went up already.
                continue;
            }
            let hash = self.end_block(level)?;
            match self.levels.get_mut(level + 1) {
                Some((_, above)) => above.extend_from_slice(&hash),
                None => self.root = hash,
            }
        }
        Ok(RootHash(self.root))
    }
}

/// Writes the hash area of the `len` bytes of `data` at `start` to `target`, and returns the root hash.
///
/// # Errors
/// The errors of reading and writing.
pub fn format(
    data: &File,
    (start, len): (u64, u64),
    target: &dyn BlockDev,
    params: &Params,
) -> io::Result<RootHash> {
    target.write_at(0, &superblock(len / BLOCK, params))?;
    let mut at = BLOCK;
    let counts = levels(len / BLOCK);
    let mut places = vec![(0, Vec::with_capacity(BLOCK as usize)); counts.len()];
    for (level, count) in counts.iter().enumerate().rev() {
        places[level].0 = at;
        at += count * BLOCK;
    }
    let mut tree = Tree { params, target, levels: places, root: [0; 32] };
    let zeroes = tree.hash(&[0; BLOCK as usize]);
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    while done < len {
        let hole = sparse::hole_at(data, start + done, start + len)? / BLOCK * BLOCK;
        if hole > 0 {
            for _ in 0..hole / BLOCK {
                tree.push(zeroes)?;
            }
            done += hole;
            continue;
        }
        let piece = &mut buffer[..(len - done).min(1 << 20) as usize];
        data.read_exact_at(piece, start + done)?;
        for block in piece.chunks_exact(BLOCK as usize) {
            tree.push(tree.hash(block))?;
        }
        done += piece.len() as u64;
    }
    tree.finish()
}

fn superblock(blocks: u64, params: &Params) -> Vec<u8> {
    let mut raw = vec![0; BLOCK as usize];
    raw[..6].copy_from_slice(b"verity");
    raw[8..12].copy_from_slice(&1u32.to_le_bytes());
    raw[12..16].copy_from_slice(&1u32.to_le_bytes());
    raw[16..32].copy_from_slice(&params.uuid.0);
    raw[32..38].copy_from_slice(b"sha256");
    raw[64..68].copy_from_slice(&(BLOCK as u32).to_le_bytes());
    raw[68..72].copy_from_slice(&(BLOCK as u32).to_le_bytes());
    raw[72..80].copy_from_slice(&blocks.to_le_bytes());
    raw[80..82].copy_from_slice(&(params.salt.len() as u16).to_le_bytes());
    raw[88..88 + params.salt.len()].copy_from_slice(&params.salt);
    raw
}
