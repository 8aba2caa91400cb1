//! GNU tar's four sparse formats: old (`S` headers), PAX 0.0, 0.1 and 1.0.
//!
//! Invariants:
//! 1. A map has at most [`SEGMENTS_MAX`] segments; the limit is checked during reading.
//! 2. The result is a [`SparseMap`], so segments are ordered and within the file's size.
//!
//! Used by the tar reader; the tar writer uses `map_blocks`.

use crate::entry::SparseMap;
use crate::header::{BLOCK, Block, Header, sparse_more};
use crate::pax::SparseKeys;

/// Maximum number of segments.
pub(crate) const SEGMENTS_MAX: usize = 1 << 20;

/// A file's size, and its map.
pub(crate) type Sparse = (u64, SparseMap);

/// Reads an old GNU map; `block` returns continuation blocks.
pub(crate) fn old_gnu<E: From<String>>(
    header: &Header,
    mut block: impl FnMut() -> Result<Block, E>,
) -> Result<Sparse, E> {
    let size = header.sparse_realsize()?;
    let mut segments = Vec::new();
    let mut more = header.sparse_segments(&mut segments)?;
    while more {
        more = sparse_more(&block()?, &mut segments)?;
        check_count(segments.len())?;
    }
    Ok((size, SparseMap::from_segments(size, segments)?))
}

/// Reads the map of versions 0.0 and 0.1 from the keys in the PAX header.
pub(crate) fn from_keys(keys: &SparseKeys) -> Result<Sparse, String> {
    let size = keys.realsize.ok_or("sparse file without GNU.sparse.size")?;
    if !keys.map.len().is_multiple_of(2) {
        return Err("sparse map with an odd number of values".into());
    }
    check_count(keys.map.len() / 2)?;
    let segments = keys.map.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    Ok((size, SparseMap::from_segments(size, segments)?))
}

/// Reads the map of version 1.0 from the blocks before the data.
pub(crate) fn from_blocks<E: From<String>>(
    keys: &SparseKeys,
    mut block: impl FnMut() -> Result<Block, E>,
) -> Result<Sparse, E> {
    let missing = || String::from("sparse file without GNU.sparse.realsize");
    let size = keys.realsize.ok_or_else(missing)?;
    let mut numbers = Vec::new();
    let mut wanted = 1;
    let mut current: Option<u64> = None;
    while numbers.len() < wanted {
        for byte in block()? {
            match (byte, current) {
                (b'0'..=b'9', value) => {
                    let digit = u64::from(byte - b'0');
                    let next =
                        value.unwrap_or(0).checked_mul(10).and_then(|v| v.checked_add(digit));
                    current = Some(next.ok_or_else(|| String::from("sparse map: number too big"))?);
                }
                (b'\n', Some(value)) => {
                    if numbers.is_empty() {
                        let count = usize::try_from(value).unwrap_or(usize::MAX);
                        check_count(count)?;
                        wanted = 1 + 2 * count;
                    }
                    numbers.push(value);
                    current = None;
                    if numbers.len() == wanted {
                        break;
                    }
                }
                _ => return Err(String::from("sparse map: not a list of numbers").into()),
            }
        }
    }
    let segments = numbers[1..].chunks_exact(2).map(|pair| (pair[0], pair[1]));
    Ok((size, SparseMap::from_segments(size, segments)?))
}

fn check_count(count: usize) -> Result<(), String> {
    if count > SEGMENTS_MAX {
        return Err(format!("sparse map with more than {SEGMENTS_MAX} segments"));
    }
    Ok(())
}

/// Encodes a version 1.0 map as blocks. A hole at the end needs an empty segment, or GNU tar would
/// not extend the file.
pub(crate) fn map_blocks(size: u64, segments: &[(u64, u64)]) -> Vec<u8> {
    let at_end = segments.last().is_some_and(|(offset, length)| offset + length == size);
    let tail = [(size, 0)];
    let tail = if at_end { &tail[..0] } else { &tail[..] };
    let mut text = format!("{}\n", segments.len() + tail.len());
    for (offset, length) in segments.iter().chain(tail) {
        text.push_str(&format!("{offset}\n{length}\n"));
    }
    let mut blocks = text.into_bytes();
    blocks.resize(blocks.len().next_multiple_of(BLOCK), 0);
    blocks
}

/// Extends segments to whole blocks (the last one to the file's end), because GNU tar pads each
/// segment to a block when it reads them.
pub(crate) fn to_blocks(size: u64, map: &SparseMap) -> Vec<(u64, u64)> {
    let mut wide: Vec<(u64, u64)> = Vec::new();
    let block = BLOCK as u64;
    for (offset, length) in map.segments() {
        let start = offset - offset % block;
        let end = (offset + length).next_multiple_of(block).min(size);
        match wide.last_mut() {
            Some((last, length)) if start <= *last + *length => *length = end - *last,
            _ => wide.push((start, end - start)),
        }
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(size: u64, blocks: &[u8]) -> Result<Sparse, String> {
        let keys = SparseKeys { realsize: Some(size), ..SparseKeys::default() };
        let mut rest = blocks;
        from_blocks(&keys, || {
            let (block, tail) = rest.split_first_chunk::<BLOCK>().ok_or("end")?;
            rest = tail;
            Ok::<_, String>(*block)
        })
    }

    #[test]
    fn maps_round_trip_through_blocks() {
        for count in [0u64, 1, 40, 1000] {
            let segments: Vec<_> = (0..count).map(|n| (n * 8192, 4096)).collect();
            for size in [count * 8192, (count * 8192).saturating_sub(4096)] {
                let blocks = map_blocks(size, &segments);
                let (read_size, map) = read_back(size, &blocks).unwrap();
                assert_eq!((read_size, map.segments()), (size, &segments[..]));
            }
        }
    }

    #[test]
    fn bad_maps_are_errors() {
        for text in ["", "x", "1\n2", "99999999999999999999999\n", "9999999\n", "1\n0\n11\n"] {
            let mut blocks = text.as_bytes().to_vec();
            blocks.resize(512, 0);
            assert!(read_back(10, &blocks).is_err(), "{text:?}");
        }
    }

    #[test]
    fn segments_are_extended_to_blocks() {
        let map = SparseMap::from_segments(5000, [(1, 1), (600, 10), (2048, 1), (4999, 1)]);
        assert_eq!(to_blocks(5000, &map.unwrap()), [(0, 1024), (2048, 512), (4608, 392)]);
    }
}
