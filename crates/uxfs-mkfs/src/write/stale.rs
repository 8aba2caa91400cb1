//! Removes the traces of an earlier file system, which must not be mistaken for the new one.

use uxfs_format::superblock::{MAGIC, Superblock};

use super::Writer;
use crate::error::MkfsError;

/// Bytes that are zeroed at each end of the device.
const WIPE: u64 = 128 << 10;
/// Minimum size in bytes of an old volume's allocation group; a smaller value is ignored.
const MIN_AG: u64 = 1 << 20;

impl Writer<'_> {
    /// Zeroes both ends of the device and an old volume's secondary superblocks.
    pub(super) fn clear_stale(&self) -> Result<(), MkfsError> {
        let len = self.dev.len();
        let wipe = WIPE.min(len);
        let failed = MkfsError::io("zeroes over the old content");
        let copies = self.old_copies()?;
        self.dev.zero(0, wipe).map_err(&failed)?;
        self.dev.zero(len - wipe, wipe).map_err(&failed)?;
        for (offset, sector) in copies {
            self.dev.zero(offset, sector).map_err(&failed)?;
        }
        Ok(())
    }

    /// Offsets and lengths of an old volume's secondary superblocks. xfs_repair would find them and
    /// might mistake the new volume for the old one.
    fn old_copies(&self) -> Result<Vec<(u64, u64)>, MkfsError> {
        let len = self.dev.len();
        let mut head = [0; 512];
        if len < head.len() as u64 {
            return Ok(Vec::new());
        }
        self.dev.read_at(0, &mut head).map_err(MkfsError::io("old superblock"))?;
        let Some(sb) = Superblock::view(&head) else { return Ok(Vec::new()) };
        let ag = u64::from(sb.agblocks.get()) * u64::from(sb.blocksize.get());
        let sector = u64::from(sb.sectsize.get());
        if sb.magicnum.get() != MAGIC || ag < MIN_AG || !(512..=32768).contains(&sector) {
            return Ok(Vec::new());
        }
        let copies = (1..u64::from(sb.agcount.get())).map(|n| n * ag);
        let inside = copies.take_while(|offset| offset + sector <= len);
        Ok(inside.map(|offset| (offset, sector)).collect())
    }
}
