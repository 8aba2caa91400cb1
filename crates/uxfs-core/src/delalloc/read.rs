//! Reads of files with dirty data, and their `stat`.

use super::file::{File, Found};
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::InodeState;
use crate::ops::Stat;

impl Fs {
    /// Reads bytes of a file below its end, from memory where they are dirty.
    pub(crate) fn read_delayed(
        &self,
        inode: &InodeState,
        file: &File,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match file.read(at, &mut buf[done..], self.geo.block_log) {
                Found::Copied(len) => done += len,
                Found::Clean(until) => {
                    let left = (buf.len() - done) as u64;
                    let len = (until - at).min(left) as usize;
                    self.read_mapped(inode, at, &mut buf[done..done + len])?;
                    done += len;
                }
            }
        }
        Ok(())
    }

    /// Updates the result of `stat` with changes that are in memory only.
    pub(crate) fn stat_delayed(&self, stat: &mut Stat) {
        if let Some(file) = self.delayed(stat.ino) {
            let pages = file.pages();
            stat.size = pages.size(stat.size);
            stat.blocks = stat.blocks.saturating_add(pages.reserved);
        }
    }
}
