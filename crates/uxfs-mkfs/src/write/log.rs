//! Writes an empty log: one unmount record, then zeroes. Reserves the log's space on the host.

use uxfs_disk::host;
use uxfs_format::log::{self, CLIENT_LOG, HEADER_SPAN, OP_HEADER_LEN, OpFlags, OpHeader};
use uxfs_format::log::{RecordHeader, UNMOUNT_PAYLOAD};
use uxfs_format::{BASIC_BLOCK, Lsn};

use super::Writer;
use crate::error::MkfsError;

/// Transaction id that mkfs.xfs uses for its unmount record.
const TRANSACTION: u32 = 0xb0c0_d0d0;

impl Writer<'_> {
    /// Writes the log, inside the volume or from the first byte of its own device on.
    pub(super) fn log(&self) -> Result<(), MkfsError> {
        let log = self.layout.log;
        let len = u64::from(log.blocks) * u64::from(self.layout.units.block);
        let dev = self.log_dev.unwrap_or(self.dev);
        let start = log.inside.map_or(0, |(ag, start)| self.geo.ag_daddr(ag, start).bytes());
        if !self.how.zero_log || self.log_dev.is_some() {
            dev.zero(start, len).map_err(MkfsError::io("log"))?;
        }
        // If the host is out of space now, the next open tries again and warns the user.
        match dev.allocate(start, len) {
            Err(error) if host::is_full_for_now(&error) => {}
            other => other.map_err(MkfsError::io("log"))?,
        }
        dev.write_at(start, &self.unmount_record()).map_err(MkfsError::io("log"))
    }

    fn unmount_record(&self) -> Vec<u8> {
        let unit = self.layout.log.unit * self.layout.units.block;
        let size = HEADER_SPAN.max(unit);
        let lsn = Lsn::new(1, 0);
        let mut header = RecordHeader::new(lsn, lsn, self.layout.uuid.0, size);
        header.num_ops = 1;
        let mut raw = vec![0; (unit as usize).max(2 * BASIC_BLOCK)];
        let op = OpHeader {
            tid: TRANSACTION,
            len: UNMOUNT_PAYLOAD.len() as u32,
            client: CLIENT_LOG,
            flags: OpFlags::UNMOUNT,
        };
        let data = &mut raw[header.header_blocks() as usize * BASIC_BLOCK..];
        data[..OP_HEADER_LEN].copy_from_slice(&op.encode());
        data[OP_HEADER_LEN..][..UNMOUNT_PAYLOAD.len()].copy_from_slice(&UNMOUNT_PAYLOAD);
        let mut sealed = log::seal(&mut raw, &header, u64::MAX);
        // As mkfs.xfs writes it, the record has no checksum.
        sealed.crc = 0;
        if let Some(first) = raw.first_chunk_mut() {
            sealed.put(first);
        }
        raw
    }
}
