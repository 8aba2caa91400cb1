//! Reads and writes at an offset of a file.
//!
//! 1. On Windows a call moves the file's position, which nothing else here uses.

#[cfg(not(windows))]
pub use std::os::unix::fs::FileExt;

#[cfg(windows)]
pub use windows::FileExt;

#[cfg(windows)]
mod windows {
    use std::fs::File;
    use std::io;
    use std::os::windows::fs::FileExt as Seek;

    /// The calls of the trait that Unix systems have under this name.
    pub trait FileExt {
        /// Reads from `offset` on; 0 bytes only at the end of the file.
        ///
        /// # Errors
        /// The host's.
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

        /// Writes at `offset`, perhaps a part only.
        ///
        /// # Errors
        /// The host's.
        fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;

        /// Fills the buffer from `offset` on.
        ///
        /// # Errors
        /// The host's; [`io::ErrorKind::UnexpectedEof`] if the file ends before.
        fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
            while !buf.is_empty() {
                match self.read_at(buf, offset) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(count) => {
                        buf = &mut buf[count..];
                        offset += count as u64;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        }

        /// Writes all of the buffer at `offset`.
        ///
        /// # Errors
        /// The host's.
        fn write_all_at(&self, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
            while !buf.is_empty() {
                match self.write_at(buf, offset) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => {
                        buf = &buf[count..];
                        offset += count as u64;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        }
    }

    impl FileExt for File {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            self.seek_read(buf, offset)
        }

        fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
            self.seek_write(buf, offset)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FileExt;

    #[test]
    fn bytes_are_written_and_read_where_they_belong() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"world", 6).unwrap();
        file.write_all_at(b"hello ", 0).unwrap();
        let mut text = [0; 11];
        file.read_exact_at(&mut text, 0).unwrap();
        assert_eq!(&text, b"hello world");
        assert_eq!(file.read_at(&mut text, 8).unwrap(), 3);
        assert_eq!(file.read_at(&mut text, 11).unwrap(), 0);
        let short = file.read_exact_at(&mut text, 5).unwrap_err();
        assert_eq!(short.kind(), std::io::ErrorKind::UnexpectedEof);
    }
}
