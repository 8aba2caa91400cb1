//! Writes an empty log: one unmount record, then zeroes. Reserves the log's space on the host.

use uxfs_disk::host;
use uxfs_format::BASIC_BLOCK;

use super::Writer;
use crate::error::MkfsError;

const MAGIC: u32 = 0xfeed_babe;
const RECORD_VERSION: u32 = 2;
/// Items are in the format of little-endian Linux.
const FORMAT: u32 = 1;
/// Transaction id that mkfs.xfs uses for its unmount record.
const TRANSACTION: u32 = 0xb0c0_d0d0;
/// Log buffer size in bytes without a larger stripe unit.
const BUFFER: u32 = 32 << 10;

impl Writer<'_> {
    /// Writes the log.
    pub(super) fn log(&self) -> Result<(), MkfsError> {
        let log = self.layout.log;
        let block = u64::from(self.layout.units.block);
        let start = self.geo.ag_daddr(log.ag, log.start).bytes();
        let len = u64::from(log.blocks) * block;
        if !self.how.zero_log {
            self.dev.zero(start, len).map_err(MkfsError::io("log"))?;
        }
        // If the host is out of space now, the next open tries again and warns the user.
        match self.dev.allocate(start, len) {
            Err(error) if host::is_full_for_now(&error) => {}
            other => other.map_err(MkfsError::io("log"))?,
        }
        self.put("log", start, &self.unmount_record())
    }

    fn unmount_record(&self) -> Vec<u8> {
        let unit = self.layout.log.unit * self.layout.units.block;
        let buffer = BUFFER.max(unit);
        let len = (unit as usize).max(2 * BASIC_BLOCK);
        // One header block for every 32 KiB of log buffer.
        let head = buffer.div_ceil(BUFFER) as usize * BASIC_BLOCK;
        let mut raw = vec![0; len];
        let mut put = |at: usize, bytes: &[u8]| raw[at..at + bytes.len()].copy_from_slice(bytes);
        // Every block of a log starts with the cycle, except the first, which starts with the
        // magic.
        for at in (BASIC_BLOCK..len).step_by(BASIC_BLOCK) {
            put(at, &1u32.to_be_bytes());
        }
        put(0, &MAGIC.to_be_bytes());
        put(4, &1u32.to_be_bytes());
        put(8, &RECORD_VERSION.to_be_bytes());
        put(12, &((len - head) as u32).to_be_bytes());
        put(16, &(1u64 << 32).to_be_bytes());
        put(24, &(1u64 << 32).to_be_bytes());
        put(36, &u32::MAX.to_be_bytes());
        put(40, &1u32.to_be_bytes());
        // The saved first word of the first data block, which the cycle overwrites.
        put(44, &TRANSACTION.to_be_bytes());
        put(300, &FORMAT.to_be_bytes());
        put(304, &self.layout.uuid.0);
        put(320, &buffer.to_be_bytes());
        put(head + 4, &8u32.to_be_bytes());
        put(head + 8, &[0xaa, 0x20, 0, 0, 0x6e, 0x55]);
        raw
    }
}
