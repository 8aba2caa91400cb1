//! The client: an export of a server as a device.
//!
//! 1. A lost connection is made again, and what was outstanding is sent again. The server may have lost what
//!    it had confirmed and not flushed, for example because its process was killed. So every write since the
//!    last flush stays in memory ([`unflushed`]) and is sent first. A flush that then succeeds covers
//!    it: no write is confirmed as durable that the server has not received in its present life.
//! 2. That memory is bounded: when it is full, the device flushes by itself.
//! 3. All connections end together, and a further one joins only if the server has not died since the others
//!    were made ([`session`]). A server that died is not noticed on all of them at once, and a flush of the new
//!    one says nothing about writes that only the old one received.
//! 4. A server that stands still, breaks the protocol, or comes back with another export is given up: the
//!    device is lost ([`uxfs_disk::host::is_lost`]), which stops a volume.
//! 5. What cannot be helped: the protocol has no way to say "nothing from my old connection any more". If the
//!    network is cut and the server lives, requests of the old connection may still be executed when the
//!    new one is served; docs/NBD.md says who is concerned.

mod blocks;
mod connection;
mod device;
mod export;
mod handshake;
mod read_reply;
mod session;
mod unflushed;

use std::time::Duration;

pub use device::NbdDev;

/// How a client behaves. What an address says ([`crate::Uri`]) is preferred.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Most connections, if the server can be used by several.
    pub connections: usize,
    /// How long the server may stand still.
    pub timeout: Duration,
    /// How long a lost server is waited for.
    pub reconnect: Duration,
    /// Bytes of writes that are kept until they are flushed.
    pub unflushed_bytes: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connections: 4,
            timeout: Duration::from_secs(60),
            reconnect: Duration::from_secs(60),
            unflushed_bytes: 64 << 20,
        }
    }
}
