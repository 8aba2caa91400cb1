//! Blocks of the free index: the room of each data block of a node-form directory.
//!
//! 1. Block `k` tells the room of data blocks from `k` times its capacity on; a block that would
//!    tell of no data block need not exist.
//! 2. `nused` counts the data blocks that exist among its first `nvalid`.

use super::leaf::{NO_BLOCK, check_room};
use crate::bytes::{be16, be32};

/// "XDF3".
pub const MAGIC: u32 = 0x5844_4633;
/// Where the number of the first data block lies.
pub const FIRST_DB: usize = 48;
/// Where the count of valid slots lies.
pub const NVALID: usize = 52;
/// Where the count of data blocks that exist lies.
pub const NUSED: usize = 56;
/// Where the slots start.
pub const BESTS: usize = 64;

/// Data blocks that one block of the index, `len` bytes long, tells of.
pub const fn capacity(len: usize) -> usize {
    len.saturating_sub(BESTS) / 2
}

/// Number of the first data block it tells of.
pub fn first_db(block: &[u8]) -> u32 {
    be32(block, FIRST_DB)
}

/// Slots in use.
pub fn nvalid(block: &[u8]) -> usize {
    be32(block, NVALID) as usize
}

/// Data blocks that exist.
pub fn nused(block: &[u8]) -> usize {
    be32(block, NUSED) as usize
}

/// Where slot `index` lies.
pub const fn best_at(index: usize) -> usize {
    BESTS + 2 * index
}

/// Room of slot `index`; [`NO_BLOCK`] if the data block does not exist.
pub fn best(block: &[u8], index: usize) -> u16 {
    if index < nvalid(block) { be16(block, best_at(index)) } else { NO_BLOCK }
}

/// First slot from `from` on (and before `to`) whose data block has room for `len` bytes.
pub fn find(block: &[u8], from: usize, to: usize, len: usize) -> Option<usize> {
    let to = to.min(nvalid(block)).min(capacity(block.len()));
    let slots = block.get(best_at(from)..best_at(to.max(from)))?;
    let fits = |slot: &[u8]| {
        let best = u16::from_be_bytes([slot[0], slot[1]]);
        best != NO_BLOCK && usize::from(best) >= len
    };
    slots.chunks_exact(2).position(fits).map(|index| from + index)
}

/// The rules that hold inside a block of the free index.
///
/// # Errors
/// The rule that does not hold, in words.
pub fn check(block: &[u8]) -> Result<(), String> {
    let (room, nvalid, nused) = (capacity(block.len()), nvalid(block), nused(block));
    if nvalid > room {
        return Err(format!("{nvalid} slots, room for {room}"));
    }
    let first = first_db(block) as usize;
    if !first.is_multiple_of(room) {
        return Err(format!("starts with data block {first}, not a multiple of {room}"));
    }
    let mut seen = 0;
    for index in 0..nvalid {
        let best = be16(block, best_at(index));
        check_room(best, first + index, block.len())?;
        seen += usize::from(best != NO_BLOCK);
    }
    if seen != nused {
        return Err(format!("{seen} data blocks, says {nused}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Vec<u8> {
        let mut b = vec![0; 4096];
        b[NVALID + 3] = 4;
        b[NUSED + 3] = 3;
        for (i, best) in [16u16, NO_BLOCK, 400, 8].into_iter().enumerate() {
            b[best_at(i)..best_at(i) + 2].copy_from_slice(&best.to_be_bytes());
        }
        b
    }

    #[test]
    fn finds_room() {
        let b = block();
        assert_eq!(check(&b), Ok(()));
        assert_eq!(capacity(4096), 2016);
        assert_eq!(find(&b, 0, 2016, 16), Some(0));
        assert_eq!(find(&b, 1, 2016, 16), Some(2));
        assert_eq!(find(&b, 0, 2, 24), None);
        assert_eq!(find(&b, 3, 2016, 16), None);
        assert_eq!(find(&b, 7, 3, 16), None);
        assert_eq!((best(&b, 2), best(&b, 5)), (400, NO_BLOCK));
    }

    #[test]
    fn checks_counts_and_room() {
        let mut b = block();
        b[NUSED + 3] = 4;
        assert!(check(&b).is_err());
        b = block();
        b[best_at(0) + 1] = 17;
        assert!(check(&b).is_err());
        b = block();
        b[FIRST_DB + 3] = 1;
        assert!(check(&b).is_err());
        b = block();
        b[NVALID] = 0xff;
        assert!(check(&b).is_err());
    }
}
