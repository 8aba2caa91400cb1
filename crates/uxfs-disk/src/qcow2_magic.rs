//! The magic number of qcow2 images, which is known also where the format is not.

use std::fs::File;
use std::io;

use uxfs_host::FileExt;

/// "QFI", then a byte that does not occur in text.
const MAGIC: [u8; 4] = *b"QFI\xfb";

/// Does a file hold a qcow2 image?
///
/// # Errors
/// The errors of reading the file.
pub fn is_qcow2(file: &File) -> io::Result<bool> {
    let mut magic = [0; 4];
    match file.read_exact_at(&mut magic, 0) {
        Ok(()) => Ok(magic == MAGIC),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
