//! The hash of directory entry names, attribute names and parent pointers.

use crate::types::Ino;

/// Hash of a directory entry's or an attribute's name (without its namespace).
pub fn name_hash(name: &[u8]) -> u32 {
    let mut chunks = name.chunks_exact(4);
    let mut hash: u32 = 0;
    for c in &mut chunks {
        hash = (u32::from(c[0]) << 21)
            ^ (u32::from(c[1]) << 14)
            ^ (u32::from(c[2]) << 7)
            ^ u32::from(c[3])
            ^ hash.rotate_left(28);
    }
    match *chunks.remainder() {
        [a, b, c] => {
            (u32::from(a) << 14) ^ (u32::from(b) << 7) ^ u32::from(c) ^ hash.rotate_left(21)
        }
        [a, b] => (u32::from(a) << 7) ^ u32::from(b) ^ hash.rotate_left(14),
        [a] => u32::from(a) ^ hash.rotate_left(7),
        _ => hash,
    }
}

/// Hash of a parent pointer: the name's, mixed with the parent's inode number.
pub fn parent_hash(name: &[u8], parent: Ino) -> u32 {
    name_hash(name) ^ (parent.0 >> 32) as u32 ^ parent.0 as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        assert_eq!(name_hash(b"."), 0x2e);
        assert_eq!(name_hash(b".."), 0x172e);
        assert_eq!(name_hash(b"few_number_10"), 0xb6d0_d249);
        assert_eq!(parent_hash(b"f", Ino(128)), 0xe6);
        assert_eq!(parent_hash(b"f_1", Ino(6_442_451_072)), 0x8019_af30);
    }
}
