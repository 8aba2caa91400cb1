//! How much an archive may unpack to.

/// How often an archive may fill the volume: entries that are replaced or skipped count too.
const FILLS: u64 = 4;
/// Bytes that every archive may have in addition: headers, padding and the like.
const ALLOWANCE: u64 = 1 << 30;

/// Bytes that an archive may unpack to for `room` bytes of space.
pub(super) fn unpack_limit(room: u64) -> u64 {
    room.saturating_mul(FILLS).saturating_add(ALLOWANCE)
}
