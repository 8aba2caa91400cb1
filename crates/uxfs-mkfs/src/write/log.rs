//! The empty log: one unmount record, then zeroes, for which the host sets room aside.

use uxfs_disk::host;
use uxfs_format::BASIC_BLOCK;

use super::Writer;
use crate::error::MkfsError;

const MAGIC: u32 = 0xfeed_babe;
const RECORD_VERSION: u32 = 2;
/// Payload in little-endian Linux form.
const FORMAT: u32 = 1;
/// Transaction that mkfs.xfs puts its unmount record under.
const TRANSACTION: u32 = 0xb0c0_d0d0;
/// Log buffer size of a log without a longer stripe unit.
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
        // Where the host has no room now, whoever opens the volume tries again, and is warned.
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
        // Every block of a log begins with the cycle, the first one with its magic instead.
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
        // The first word of the first data block, to which the cycle left no room there.
        put(44, &TRANSACTION.to_be_bytes());
        put(300, &FORMAT.to_be_bytes());
        put(304, &self.layout.uuid.0);
        put(320, &buffer.to_be_bytes());
        put(head + 4, &8u32.to_be_bytes());
        put(head + 8, &[0xaa, 0x20, 0, 0, 0x6e, 0x55]);
        raw
    }
}
