//! A disk for virtual machines: the vhost-user back end of virtio-blk, for any [`BlockDev`].
//!
//! A monitor (QEMU, User Mode Linux) connects to a [`Socket`]; [`Host::serve_one`] answers the requests of the
//! guest's kernel from the disk.
//!
//! 1. The disk has a volatile cache: the guest sends a flush when a write must be durable.
//! 2. Requests of a guest are answered one after the other, in the order of its queue. A reply is sent after
//!    the disk has done the request, and before the next request begins: what the disk sees is one order.
//! 3. A guest is not trusted. A request that makes no sense gets an error or comes back unanswered, a queue that
//!    makes no sense ends the connection, and no request takes more memory than `request::LONGEST`.
//!
//! `uxfs crash-test` serves recorded disks with it.
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//! use uxfs_disk::MemDev;
//! use uxfs_vhost_blk::{Access, Host, Socket};
//!
//! let socket = Socket::bind(Path::new("/tmp/disk.sock"), Access::default())?;
//! let host = Host::new(Arc::new(MemDev::new(64 << 20)), "scratch", socket)?;
//! // qemu-system-x86_64 … -chardev socket,id=d,path=/tmp/disk.sock -device vhost-user-blk-pci,chardev=d
//! while host.serve_one()? {}
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! [`BlockDev`]: uxfs_disk::BlockDev

mod device;
mod host;
mod request;

pub use host::Host;
pub use request::SERIAL_LEN;
pub use uxfs_vhost::{Access, Socket, Stopper};
