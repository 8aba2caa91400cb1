//! Messages between the agent and the host, over the mailbox: a disk that is read and written past all caches.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use uxfs_disk::AlignedBuf;

use crate::kernel::message::{FRAME, FRAME_OFFSET, Incoming, Order, Report, frames};

pub(crate) struct Post {
    disk: File,
    frame: AlignedBuf,
}

impl Post {
    pub(crate) fn open(disk: &Path) -> io::Result<Self> {
        let direct = nix::libc::O_DIRECT;
        let disk = OpenOptions::new().read(true).write(true).custom_flags(direct).open(disk)?;
        Ok(Self { disk, frame: AlignedBuf::new(FRAME) })
    }

    /// Sends a report. The host has acted on it when this returns.
    pub(crate) fn send(&mut self, report: &Report) -> io::Result<()> {
        for frame in frames(report).map_err(io::Error::other)? {
            self.frame.copy_from_slice(&frame);
            self.disk.write_all_at(&self.frame, FRAME_OFFSET)?;
        }
        Ok(())
    }

    /// Waits for an order.
    pub(crate) fn receive(&mut self) -> io::Result<Order> {
        let mut incoming = Incoming::default();
        loop {
            self.disk.read_exact_at(&mut self.frame, FRAME_OFFSET)?;
            if let Some(order) = incoming.take(&self.frame).map_err(io::Error::other)? {
                return Ok(order);
            }
        }
    }
}
