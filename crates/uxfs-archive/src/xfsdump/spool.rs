//! The data of one file of a dump that can be read only once.
//!
//! A dump says behind a file's data where its holes and what its attributes are, so the data waits.
//!
//! 1. Up to [`IN_MEMORY`] bytes wait in memory, more in a temporary file without a name.
//!
//! Used by the reader of dumps.

use std::fs::File;
use std::io;

use uxfs_host::FileExt;

/// Bytes that wait in memory.
const IN_MEMORY: usize = 1 << 20;

/// Data that waits to be read.
#[derive(Default)]
pub(super) struct Spool {
    memory: Vec<u8>,
    file: Option<File>,
    /// Bytes in the file, all of them before those in memory.
    in_file: u64,
}

impl Spool {
    /// Forgets the data.
    pub(super) fn clear(&mut self) {
        self.memory.clear();
        self.in_file = 0;
    }

    /// Bytes that wait.
    pub(super) fn len(&self) -> u64 {
        self.in_file + self.memory.len() as u64
    }

    /// Appends data.
    pub(super) fn push(&mut self, data: &[u8]) -> io::Result<()> {
        if self.memory.len() + data.len() > IN_MEMORY {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(tempfile::tempfile()?),
            };
            for part in [&self.memory[..], data] {
                file.write_all_at(part, self.in_file)?;
                self.in_file += part.len() as u64;
            }
            self.memory.clear();
            return Ok(());
        }
        self.memory.extend_from_slice(data);
        Ok(())
    }

    /// Reads data at an offset.
    pub(super) fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        if let (Some(file), Some(left)) = (&self.file, self.in_file.checked_sub(at))
            && left > 0
        {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
            return file.read_at(&mut buf[..want], at);
        }
        let from = usize::try_from(at - self.in_file).unwrap_or(usize::MAX);
        let rest = self.memory.get(from..).unwrap_or_default();
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_waits_in_memory_and_in_a_file() {
        let data: Vec<u8> = (0..IN_MEMORY * 3 + 7).map(|at| (at / 3) as u8).collect();
        let mut spool = Spool::default();
        for _ in 0..2 {
            for part in data.chunks(70_001) {
                spool.push(part).unwrap();
            }
            assert_eq!(spool.len(), data.len() as u64);
            let (mut back, mut buf) = (Vec::new(), vec![0; 4099]);
            while let Ok(count @ 1..) = spool.read_at(&mut buf, back.len() as u64) {
                back.extend_from_slice(&buf[..count]);
            }
            assert!(back == data);
            spool.clear();
        }
    }
}
