//! The settings of a connection, chosen when it begins.

use crate::abi::{CONTENT_MAX, Capabilities, InitIn, InitOut, MAJOR, MINOR, REQUEST_OVERHEAD};

/// The page of the kernel's cache, in bytes, in which `max_pages` counts.
const PAGE: u32 = 4096;
/// What a connection has without being asked.
const ALWAYS: Capabilities = Capabilities::ASYNC_READ
    .union(Capabilities::BIG_WRITES)
    .union(Capabilities::MAX_PAGES)
    .union(Capabilities::INIT_EXT);

/// What the kernel offers and what the server takes.
#[derive(Clone, Debug)]
pub struct Negotiation {
    minor: u32,
    max_readahead: u32,
    offered: Capabilities,
    taken: Capabilities,
    /// Most bytes of a write or read: 4096 to 1 MiB; what is beyond counts as that.
    pub max_write: u32,
    /// Requests that the kernel sends at once without a waiting caller.
    pub max_background: u16,
}

impl Negotiation {
    pub(crate) fn new(kernel: &InitIn) -> Self {
        let offered = u64::from(kernel.flags2) << 32 | u64::from(kernel.flags);
        let offered = Capabilities::from_bits_truncate(offered);
        Self {
            minor: kernel.minor.min(MINOR),
            max_readahead: kernel.max_readahead,
            offered,
            taken: ALWAYS & offered,
            max_write: 128 << 10,
            max_background: 12,
        }
    }

    /// Takes those of these capabilities that the kernel offers. Returns the others.
    pub fn take(&mut self, wanted: Capabilities) -> Capabilities {
        self.taken |= wanted & self.offered;
        wanted - self.offered
    }

    /// Bytes of the largest payload of a request or reply.
    pub(crate) fn payload_size(&self) -> usize {
        (self.max_pages() * PAGE).max(8192) as usize
    }

    /// Bytes of the largest request.
    pub(crate) fn request_size(&self) -> usize {
        self.max_write() as usize + REQUEST_OVERHEAD
    }

    fn max_write(&self) -> u32 {
        self.max_write.clamp(PAGE, CONTENT_MAX)
    }

    fn max_pages(&self) -> u32 {
        self.max_write().div_ceil(PAGE)
    }

    pub(crate) fn reply(&self) -> InitOut {
        let flags = self.taken.bits();
        InitOut {
            major: MAJOR,
            minor: self.minor,
            max_readahead: self.max_readahead,
            flags: (flags & 0xffff_ffff) as u32,
            max_background: self.max_background,
            congestion_threshold: self.max_background - self.max_background / 4,
            max_write: self.max_write(),
            // A nanosecond.
            time_gran: 1,
            max_pages: u16::try_from(self.max_pages()).unwrap_or(u16::MAX),
            flags2: (flags >> 32) as u32,
            ..InitOut::default()
        }
    }
}
