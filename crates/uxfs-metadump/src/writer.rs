//! Writes dumps of both versions.
//!
//! The headers are in [`uxfs_format::metadump`]. The primary superblock comes first: the walk puts it
//! first, and this module keeps the order.

use std::io::{self, Write};

use uxfs_format::metadump::{Content, Device, ExtentHead, Header, INDEX_MAX, Index};
use uxfs_format::{BASIC_BLOCK, Daddr};

use crate::options::Version;

/// A dump that is being written.
pub(crate) struct Writer<'a> {
    out: &'a mut dyn Write,
    version: Version,
    content: Content,
    /// Version 1: the group that is not written yet.
    addresses: Vec<Daddr>,
    sectors: Vec<u8>,
    /// Bytes of metadata so far.
    pub(crate) bytes: u64,
}

impl<'a> Writer<'a> {
    /// Begins a dump of this content.
    pub(crate) fn new(
        out: &'a mut dyn Write,
        version: Version,
        content: Content,
    ) -> io::Result<Self> {
        if version == Version::Two {
            out.write_all(&Header::new(content).encode())?;
        }
        let (addresses, sectors) = (Vec::new(), Vec::new());
        Ok(Self { out, version, content, addresses, sectors, bytes: 0 })
    }

    /// Adds whole sectors that lie at `daddr`.
    pub(crate) fn put(&mut self, daddr: Daddr, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(bytes.len().is_multiple_of(BASIC_BLOCK), "whole sectors");
        self.bytes += bytes.len() as u64;
        if self.version == Version::Two {
            // At most a piece of the log, 1 MiB.
            let sectors = (bytes.len() / BASIC_BLOCK) as u32;
            let head = ExtentHead { device: Device::Data, daddr, sectors };
            self.out.write_all(&head.encode())?;
            return self.out.write_all(bytes);
        }
        for (sector, at) in bytes.chunks_exact(BASIC_BLOCK).zip(daddr.0..) {
            self.addresses.push(Daddr(at));
            self.sectors.extend_from_slice(sector);
            if self.addresses.len() == INDEX_MAX {
                self.write_group()?;
            }
        }
        Ok(())
    }

    fn write_group(&mut self) -> io::Result<()> {
        self.out.write_all(&Index::new(self.content, &self.addresses).encode())?;
        self.out.write_all(&self.sectors)?;
        self.addresses.clear();
        self.sectors.clear();
        Ok(())
    }

    /// Ends the dump.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if self.version == Version::One {
            // A group that is not full is the last.
            self.write_group()?;
        }
        self.out.flush()
    }
}
