//! The hash of names: of attributes as they are, of directory entries by the rule of their volume
//! ([`crate::Naming`]).

/// Hash of these bytes. An attribute's name is without its namespace.
pub(crate) fn name_hash(name: &[u8]) -> u32 {
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
