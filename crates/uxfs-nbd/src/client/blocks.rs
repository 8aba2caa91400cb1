//! Requests that fit an export: within its payload, at multiples of its blocks.

/// Cuts a range into pieces of at most `most` bytes.
pub(crate) fn pieces(offset: u64, len: u64, most: u32) -> impl Iterator<Item = (u64, u32)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        // At most `most`.
        let piece = (end - at).min(most.into()) as u32;
        let from = at;
        at += u64::from(piece);
        (piece > 0).then_some((from, piece))
    })
}

/// The least range of whole blocks around a range: its offset and length. `block` is a power of two.
pub(crate) fn around(offset: u64, len: u64, block: u32) -> (u64, u64) {
    let mask = u64::from(block) - 1;
    let (from, to) = (offset & !mask, (offset + len + mask) & !mask);
    (from, to - from)
}

/// The whole blocks within a range: their offset and length. `block` is a power of two.
pub(crate) fn within(offset: u64, len: u64, block: u32) -> (u64, u64) {
    let mask = u64::from(block) - 1;
    let (from, to) = ((offset + mask) & !mask, (offset + len) & !mask);
    (from, to.saturating_sub(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_and_aligned() {
        let cut: Vec<_> = pieces(100, 25, 10).collect();
        assert_eq!(cut, [(100, 10), (110, 10), (120, 5)]);
        assert_eq!(pieces(100, 0, 10).count(), 0);
        assert_eq!((around(511, 2, 512), around(512, 512, 512)), ((0, 1024), (512, 512)));
        assert_eq!((within(1, 1534, 512), within(1, 100, 512)), ((512, 512), (512, 0)));
    }
}
