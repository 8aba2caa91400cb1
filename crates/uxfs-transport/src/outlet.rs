//! Where a reply goes: back on the way that its request came.

use std::sync::Arc;

use parking_lot::Mutex;
use zerocopy::IntoBytes;

use crate::Errno;
use crate::device::Device;
use crate::head::header;
use crate::queue::RingOutlet;

pub(crate) enum Outlet {
    Device {
        device: Arc<Device>,
        unique: u64,
    },
    Ring(RingOutlet),
    /// A list of replies, for [`crate::exchange`].
    Memory {
        replies: Arc<Mutex<Vec<Vec<u8>>>>,
        unique: u64,
    },
}

impl Outlet {
    /// Sends a reply: an error, or a success and its content.
    pub(crate) fn send(self, result: Result<(), Errno>, body: &[&[u8]]) {
        match self {
            Self::Device { device, unique } => device.reply(unique, result, body),
            Self::Ring(ring) => ring.send(result, body),
            Self::Memory { replies, unique } => {
                let head = header(unique, result, body.iter().map(|part| part.len()).sum());
                replies.lock().push([&[head.as_bytes()], body].concat().concat());
            }
        }
    }

    /// Sends what `fill` writes, at most `limit` bytes.
    pub(crate) fn fill(self, limit: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) {
        match self {
            Self::Device { device, unique } => device.fill(unique, limit, fill),
            Self::Ring(ring) => ring.fill(limit, fill),
            Self::Memory { .. } => {
                let mut content = vec![0; limit];
                match fill(&mut content) {
                    Ok(len) => self.send(Ok(()), &[&content[..len]]),
                    Err(error) => self.send(Err(error), &[]),
                }
            }
        }
    }
}
