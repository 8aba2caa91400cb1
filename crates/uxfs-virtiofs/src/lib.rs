//! A FUSE server for the kernels of virtual machines: the back end of virtiofs over vhost-user.
//!
//! A virtual machine monitor (QEMU, Cloud Hypervisor, crosvm, User Mode Linux) connects to a [`Socket`] and
//! hands over the guest's memory. The guest's kernel puts requests of FUSE into queues in that memory;
//! [`Host::serve_one`] takes them out, has a [`Filesystem`](uxfs_transport::Filesystem) answer them, and writes
//! the replies back.
//!
//! 1. A guest is not trusted, nor is its monitor. Whatever lies in the queues and the memory is answered
//!    with an error or ends the connection: no panic, and no more memory than [`Settings`] allow. One thing
//!    cannot be ruled out: a monitor that cuts the file of the guest's memory short ends this process by a
//!    signal, as a kill does.
//! 2. A guest has no more requests under way than its queues have room for. More end the connection.
//! 3. When the monitor stops a queue, all requests of that queue are answered first. Nothing writes to the
//!    guest's memory after that.
//!
//! Modules, from the bottom: `queue`, `pool` (threads), `device` (what the monitor talks to), `host`. The
//! socket and the chains of requests are those of `uxfs-vhost`.

mod device;
mod host;
mod pool;
mod queue;

pub use device::Settings;
pub use host::Host;
pub use uxfs_vhost::{Access, Socket, Stopper};
