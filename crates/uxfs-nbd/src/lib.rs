//! Network block devices: the device of an NBD server as a [`BlockDev`](uxfs_disk::BlockDev), and any
//! `BlockDev` for NBD clients such as qemu, nbd-client and nbdkit.
//!
//! The protocol is documented at <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>, the
//! addresses in `uri.md` beside it. Threads block; there is no asynchronous runtime.
//!
//! 1. What the other side sends is hostile until it is checked. It cannot make this crate panic, allocate
//!    without a bound, or wait without one. A side that breaks the protocol is disconnected for good.
//! 2. A client's flush makes durable what was written before it, on whatever connection, also if a
//!    connection was lost and made again in between ([`client`]).
//! 3. The bytes of a device are only those of its export: no request reaches beyond its length.
//!
//! Used by the command `uxfs`: addresses `nbd://…`, and `uxfs nbd-serve`.
//!
//! ```
//! use std::sync::Arc;
//! use uxfs_disk::{BlockDev, MemDev};
//! use uxfs_nbd::{Access, ClientOptions, Listener, NbdDev, Server, ServerOptions, Uri};
//!
//! let dir = tempfile::tempdir()?;
//! let socket = dir.path().join("nbd.sock");
//! let listener = Listener::unix(&socket, Access::default())?;
//! let server = Server::new(listener, Arc::new(MemDev::new(1 << 20)), ServerOptions::default())?;
//! let stopper = server.stopper();
//! let serving = std::thread::spawn(move || server.run());
//!
//! let uri: Uri = format!("nbd+unix:///?socket={}", socket.display()).parse()?;
//! let dev = NbdDev::open(uri, ClientOptions::default(), true)?;
//! dev.write_at(4096, b"durable after the flush")?;
//! dev.flush()?;
//! assert_eq!(dev.len(), 1 << 20);
//! drop(dev);
//!
//! stopper.stop();
//! serving.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]

pub mod client;
mod link;
mod listener;
pub mod server;
mod tls;
mod uri;
mod wire;

pub use client::{ClientOptions, NbdDev};
pub use listener::{Access, Listener};
pub use server::{Server, ServerOptions, Stopper};
pub use tls::ServerTls;
pub use uri::{Place, Uri};
