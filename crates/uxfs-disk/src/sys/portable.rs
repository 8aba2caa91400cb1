//! The same with what every system has.
//!
//! 1. There are no holes: what is to read as zeroes is written, and a discarded range stays.
//! 2. There is no direct I/O, and no forced write other than a write and a flush.
//! 3. Room is not reserved, so a write can fail for lack of it where Linux would have refused
//!    before.

use std::fs::File;
use std::io::{self, IoSlice};

use uxfs_host::FileExt;

/// Does a forced write cost less than a write and a flush?
pub(crate) const HAS_FUA: bool = false;

/// The same file, opened for direct I/O: not here.
pub(crate) fn direct(_: &File) -> Option<File> {
    None
}

/// The same file, with an open file description of its own: not here.
pub(crate) fn described_anew(_: &File) -> Option<File> {
    None
}

/// Writes to stable storage.
pub(crate) fn write_forced(file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
    file.write_all_at(data, offset)?;
    file.sync_data()
}

/// Makes all earlier writes durable. Windows refuses that for a file opened for reading, which has no
/// writes.
pub(crate) fn flush(file: &File, read_only: bool) -> io::Result<()> {
    if read_only { Ok(()) } else { file.sync_data() }
}

/// Writes pieces one behind the other.
pub(crate) fn write_pieces(file: &File, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
    let mut at = offset;
    for piece in pieces {
        file.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Makes a range a hole: not here.
pub(crate) fn punch(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Reserves room for a range: false, as it is not done here.
pub(crate) fn reserve(_: &File, _: u64, _: u64) -> io::Result<bool> {
    Ok(false)
}

/// Bytes in a sector of a block device.
pub(crate) fn sector_size(_: &File) -> u32 {
    512
}

/// The file's size.
pub(crate) fn size(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.len())
}

/// Has the file lost its last name? Never on Windows, where an open file keeps it.
pub(crate) fn is_deleted(file: &File) -> bool {
    file.metadata().is_ok_and(|meta| uxfs_host::Stat::of(&meta).links == 0)
}

/// Fails if a limit of the process forbids a write up to `end`: the write itself finds that out.
pub(crate) fn check_limit(_: u64) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stand_ins_write_what_the_calls_of_linux_write() {
        let file = tempfile::tempfile().unwrap();
        let pieces = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cde")];
        write_pieces(&file, 1, &pieces).unwrap();
        write_forced(&file, 6, b"fg").unwrap();
        flush(&file, false).unwrap();
        let mut all = [9; 8];
        file.read_exact_at(&mut all, 0).unwrap();
        assert_eq!(&all, b"\0abcdefg");
        assert_eq!(size(&file).unwrap(), 8);
        assert!(punch(&file, 0, 4).is_err() && !reserve(&file, 0, 4096).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let named = File::create(dir.path().join("named")).unwrap();
        assert!(!is_deleted(&named));
    }
}
