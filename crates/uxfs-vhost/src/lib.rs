//! What the vhost-user devices of uxfs share: the socket, the life of a connection, and requests in a guest's
//! memory.
//!
//! A virtual machine monitor (QEMU, Cloud Hypervisor, crosvm, User Mode Linux) connects to a [`Socket`] and
//! hands over the guest's memory. A [`Host`] serves one monitor after the other with a [`Device`]; each request
//! of the guest is a [`Chain`].
//!
//! 1. A guest is not trusted, nor is its monitor. What breaks the rules ends the connection ([`Stop::fail`]).
//! 2. A monitor that cuts the file of the guest's memory short ends this process by a signal, as a kill does.
//!
//! `uxfs-virtiofs` (file systems) and `uxfs-vhost-blk` (disks) use it.

mod chain;
mod host;
mod socket;

pub use chain::{Chain, Malformed, Segment};
pub use host::{Device, Host, Memory, Stop, Stopper, Vring};
pub use socket::{Access, Socket};
