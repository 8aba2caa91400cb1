//! Serves guests with a disk.

use std::io;
use std::sync::Arc;

use uxfs_disk::BlockDev;
use uxfs_vhost::{Memory, Socket, Stop, Stopper};

use crate::device::Device;
use crate::request::Disk;

/// Makes the device of a connection.
type Make = Box<dyn Fn(&Memory, &Arc<Stop>) -> io::Result<Device> + Send + Sync>;

/// Serves guests that connect to a socket, one after the other.
pub struct Host(uxfs_vhost::Host<Make>);

impl Host {
    /// A host for a disk. The guest sees the first [`SERIAL_LEN`](crate::SERIAL_LEN) bytes of `serial` as the
    /// disk's serial number, and as many whole sectors of 512 bytes as the disk has.
    ///
    /// # Errors
    /// This machine has no descriptor left.
    pub fn new(dev: Arc<dyn BlockDev>, serial: &str, socket: Socket) -> io::Result<Self> {
        let disk = Arc::new(Disk::new(dev, serial));
        let make: Make = Box::new(move |memory, stop| {
            Ok(Device::new(Arc::clone(&disk), memory.clone(), Arc::clone(stop)))
        });
        uxfs_vhost::Host::new("vhost-blk", socket, make).map(Self)
    }

    /// What stops it.
    pub fn stopper(&self) -> Stopper {
        self.0.stopper()
    }

    /// Waits for a guest and serves it until its monitor disconnects or the host is stopped. Returns false
    /// if it was stopped.
    ///
    /// # Errors
    /// The guest or its monitor broke the rules, or this machine failed.
    pub fn serve_one(&self) -> io::Result<bool> {
        self.0.serve_one()
    }
}
