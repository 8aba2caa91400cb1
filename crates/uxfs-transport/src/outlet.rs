//! Where a reply goes: back on the way that its request came.

use std::io::IoSlice;
use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::Errno;
use crate::abi::OutHeader;
use crate::device::Device;
use crate::ring::RingOutlet;

pub(crate) enum Outlet {
    Device { device: Arc<Device>, unique: u64 },
    Ring(RingOutlet),
}

impl Outlet {
    /// Sends a reply: an error, or a success and its content.
    pub(crate) fn send(self, result: Result<(), Errno>, body: &[&[u8]]) {
        match self {
            Self::Device { device, unique } => device.reply(unique, result, body),
            Self::Ring(ring) => ring.send(result, body),
        }
    }

    /// Sends what `fill` writes, at most `limit` bytes.
    pub(crate) fn fill(self, limit: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) {
        match self {
            Self::Device { device, unique } => device.fill(unique, limit, fill),
            Self::Ring(ring) => ring.fill(limit, fill),
        }
    }
}

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
