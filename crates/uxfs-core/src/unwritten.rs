//! The summary of unwritten data that a mount or a command reports at its end.
//!
//! 1. Data counts while it is only in memory, metadata while it is not written in place. Metadata that
//!    is in the log is not lost: the next open replays it.

use std::fmt;

use uxfs_format::Ino;

/// Most files listed by number.
pub(crate) const NAMED: usize = 8;

/// Data and metadata that are not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unwritten {
    /// Number of files with data that is only in memory.
    pub files: u64,
    /// Bytes of that data, in whole blocks.
    pub bytes: u64,
    /// Numbers of the first of these files, in ascending order.
    pub first: Vec<Ino>,
    /// Number of metadata items that are in the log and not written in place. The next open replays
    /// them.
    pub logged: u64,
}

impl Unwritten {
    /// Is all data written?
    pub fn is_empty(&self) -> bool {
        self.files == 0
    }
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.files == 0 {
            f.write_str("the data of all files is written")?;
        } else {
            let word = if self.files == 1 { "file" } else { "files" };
            write!(f, "{} bytes of {} {word} are not written (inode", self.bytes, self.files)?;
            for (at, ino) in self.first.iter().enumerate() {
                write!(f, "{} {}", if at == 0 { "" } else { "," }, ino.0)?;
            }
            f.write_str(if self.files > self.first.len() as u64 { ", …)" } else { ")" })?;
        }
        if self.logged > 0 {
            f.write_str("; changes of metadata are in the log, and the next open applies them")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_bytes_files_and_inodes() {
        assert_eq!(Unwritten::default().to_string(), "the data of all files is written");
        let one = Unwritten { files: 1, bytes: 4096, first: vec![Ino(131)], logged: 0 };
        assert_eq!(one.to_string(), "4096 bytes of 1 file are not written (inode 131)");
        let more = Unwritten { files: 3, bytes: 9, first: vec![Ino(1), Ino(2)], logged: 7 };
        let text = more.to_string();
        assert!(text.starts_with("9 bytes of 3 files are not written (inode 1, 2, …); "), "{text}");
    }
}
