//! The header of replies and notifications.

use std::io::IoSlice;

use zerocopy::IntoBytes;

use crate::Errno;
use crate::abi::OutHeader;

/// The header of a reply with `body_len` bytes of content.
pub(crate) fn header(unique: u64, result: Result<(), Errno>, body_len: usize) -> OutHeader {
    OutHeader {
        len: u32::try_from(size_of::<OutHeader>() + body_len).unwrap_or(u32::MAX),
        error: result.err().map_or(0, |error| -error.raw_os_error()),
        unique,
    }
}

/// Header and content as slices for one write.
pub(crate) fn slices<'a>(head: &'a OutHeader, body: &[&'a [u8]]) -> ([IoSlice<'a>; 3], usize) {
    let mut slices = [IoSlice::new(head.as_bytes()), IoSlice::new(&[]), IoSlice::new(&[])];
    assert!(body.len() < slices.len(), "a reply has at most two parts");
    for (slice, part) in slices[1..].iter_mut().zip(body) {
        *slice = IoSlice::new(part);
    }
    (slices, 1 + body.len())
}
