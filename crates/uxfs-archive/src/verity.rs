//! Computes a file's fs-verity digest: a hash over a descriptor that holds the root of a hash tree
//! over 4 KiB blocks, without a salt.
//!
//! 1. The memory is one block-sized buffer for each level of the tree.
//!
//! Used by the manifest reader.

use std::io::{self, Read};

use sha2::{Digest, Sha256, Sha512};

const BLOCK: usize = 4096;
const BLOCK_LOG: u8 = 12;
/// Length of the descriptor in bytes, and the offsets of its fields.
const DESCRIPTOR: usize = 256;
const SIZE_AT: usize = 8;
const ROOT_AT: usize = 16;

/// One level of the hash tree: the hashes not combined yet.
struct Level {
    pending: Vec<u8>,
    /// Total number of hashes.
    count: u64,
}

fn push<D: Digest>(levels: &mut Vec<Level>, level: usize, hash: &[u8]) {
    if levels.len() == level {
        levels.push(Level { pending: Vec::with_capacity(BLOCK), count: 0 });
    }
    let here = &mut levels[level];
    here.pending.extend_from_slice(hash);
    here.count += 1;
    if here.pending.len() == BLOCK {
        let hash = D::digest(&here.pending);
        here.pending.clear();
        push::<D>(levels, level + 1, &hash);
    }
}

/// Computes the digest of `size` bytes, in hexadecimal digits.
fn compute<D: Digest>(algorithm: u8, mut input: impl Read, size: u64) -> io::Result<String> {
    let mut levels = Vec::new();
    let mut block = [0; BLOCK];
    let mut left = size;
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
        input.read_exact(&mut block[..count])?;
        block[count..].fill(0);
        push::<D>(&mut levels, 0, &D::digest(block));
        left -= count as u64;
    }
    let mut descriptor = [0; DESCRIPTOR];
    descriptor[..3].copy_from_slice(&[1, algorithm, BLOCK_LOG]);
    descriptor[SIZE_AT..ROOT_AT].copy_from_slice(&size.to_le_bytes());
    let mut level = 0;
    // The root is in the lowest level with a single hash; an empty file has none.
    while level < levels.len() {
        let here = &mut levels[level];
        if here.count == 1 {
            descriptor[ROOT_AT..ROOT_AT + here.pending.len()].copy_from_slice(&here.pending);
            break;
        }
        if !here.pending.is_empty() {
            here.pending.resize(BLOCK, 0);
            let hash = D::digest(&here.pending);
            push::<D>(&mut levels, level + 1, &hash);
        }
        level += 1;
    }
    Ok(D::digest(descriptor).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Does `input`, of `size` bytes, have this digest?
///
/// # Errors
/// If `input` cannot be read; [`io::ErrorKind::InvalidInput`] if `digest` is not a digest.
pub(crate) fn is(digest: &[u8], input: impl Read, size: u64) -> io::Result<bool> {
    let found = match digest.len() {
        64 => compute::<Sha256>(1, input, size)?,
        128 => compute::<Sha512>(2, input, size)?,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "DIGEST is not a digest")),
    };
    Ok(digest.eq_ignore_ascii_case(found.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_equal_those_of_other_programs() {
        for (data, digest) in [
            (Vec::new(), "3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95"),
            (
                b"hello world".to_vec(),
                "1e2eaa4202d750a41174ee454970b92c1bc2f925b1e35076d8c7d5f56362ba64",
            ),
            (vec![b'x'; 4096], "3f128b8d5a052638172857f47f0110dc2fc2c234dc0c712c08a3bc6f6c540483"),
            (vec![b'x'; 4097], "f54d7eca1ac49ae471f4abedb0d9309f0b84a51ec5c1733e3abb2aaf9f66c4ad"),
            (
                vec![b'x'; 524_288],
                "fcaf1ae16ac8b4ca5217ed37818cca018924841f0083e50267b7dc82bdf3adaa",
            ),
            (
                vec![b'x'; 524_289],
                "7321b423e2b765c00796ae1e5b0be1dbba66e2e76f0e06e0d6ea4f14142d8783",
            ),
            (
                vec![b'x'; 67_633_157],
                "5278b5584c7b7693690efee00bf575626bcca74d7c0d7a5f4244b6d5b6b98dd3",
            ),
        ] {
            let found = compute::<Sha256>(1, &data[..], data.len() as u64).unwrap();
            assert_eq!(found, digest, "{} bytes", data.len());
            assert!(is(digest.to_uppercase().as_bytes(), &data[..], data.len() as u64).unwrap());
        }
        assert!(is(b"12", &b""[..], 0).is_err());
        assert!(!is(&[b'0'; 128], &b""[..], 0).unwrap());
    }
}
