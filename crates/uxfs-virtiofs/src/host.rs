//! Serves guests with a file system.

use std::io;
use std::sync::Arc;

use uxfs_transport::{Filesystem, Requests};
use uxfs_vhost::{Memory, Socket, Stop, Stopper};

use crate::device::{Device, Settings};

/// Makes the device of a connection.
type Make<S> = Box<dyn Fn(&Memory, &Arc<Stop>) -> io::Result<Device<S>> + Send + Sync>;

/// Serves guests that connect to a socket.
pub struct Host<S: Filesystem> {
    host: uxfs_vhost::Host<Make<S>>,
    requests: Requests,
}

impl<S: Filesystem> Host<S> {
    /// # Errors
    /// This machine has no descriptor left.
    pub fn new(server: S, socket: Socket, settings: Settings) -> io::Result<Self> {
        let (server, requests) = (Arc::new(server), Requests::default());
        let counted = requests.clone();
        let make: Make<S> = Box::new(move |memory, stop| {
            Device::new((Arc::clone(&server), &counted), &settings, memory, stop)
        });
        Ok(Self { host: uxfs_vhost::Host::new("virtiofs", socket, make)?, requests })
    }

    /// The requests that came, by kind.
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// What stops it.
    pub fn stopper(&self) -> Stopper {
        self.host.stopper()
    }

    /// Waits for a guest and serves it until its monitor disconnects or the host is stopped. Returns false
    /// if it was stopped.
    ///
    /// # Errors
    /// The guest or its monitor broke the rules, or this machine failed.
    pub fn serve_one(&self) -> io::Result<bool> {
        self.host.serve_one()
    }
}
