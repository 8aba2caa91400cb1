//! Is the file of an open device still the one that was opened?
//!
//! A file that was cut short reads as nothing behind its new end, and a write behind that end makes it
//! long again, with zeroes in between that look like content. So its length is compared before each
//! write, at each flush, and when a read comes back short.
//!
//! 1. A device that was found lost stays lost, even if its file gets its length back: what was cut off
//!    is gone.
//! 2. Whoever cuts the file between the comparison and the write that follows it is found out by the
//!    next comparison, unless that one write brought back the full length.
//! 3. A file without a name works; that is a warning and no error.

use std::fs::File;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::host;

/// What is known of a file.
pub(crate) struct Presence {
    /// A regular file has a length that others can change.
    regular: bool,
    /// The length below which it must not fall.
    least: AtomicU64,
    lost: OnceLock<String>,
}

impl Presence {
    /// Of a file that is to keep at least `least` bytes, if it is a `regular` one.
    pub(crate) fn new(regular: bool, least: u64) -> Self {
        Self { regular, least: AtomicU64::new(least), lost: OnceLock::new() }
    }

    /// Fails if the file was found lost before.
    pub(crate) fn check_known(&self) -> io::Result<()> {
        self.lost.get().map_or(Ok(()), |why| Err(host::lost(why.as_str())))
    }

    /// Looks at the file's length; gives it. 0 for what is no regular file.
    pub(crate) fn check(&self, file: &File) -> io::Result<u64> {
        self.check_known()?;
        if !self.regular {
            return Ok(0);
        }
        let stat = rustix::fs::fstat(file)?;
        let (size, least) = (stat.st_size.unsigned_abs(), self.least.load(Ordering::Relaxed));
        if size >= least {
            return Ok(size);
        }
        let why = format!(
            "the image file was cut short while it was in use: it has {size} bytes, not {least}"
        );
        Err(host::lost(self.lost.get_or_init(|| why).as_str()))
    }

    /// The file has grown to `len` bytes, below which it must not fall now.
    pub(crate) fn grew(&self, len: u64) {
        self.least.fetch_max(len, Ordering::Relaxed);
    }

    /// The error of a read that came back short: the file's, if it was cut.
    pub(crate) fn explain(&self, file: &File, error: io::Error) -> io::Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.check(file).err().unwrap_or(error),
            _ => error,
        }
    }

    /// What its user should know of the file.
    pub(crate) fn warning(&self, file: &File) -> Option<String> {
        if let Some(why) = self.lost.get() {
            return Some(why.clone());
        }
        let links = rustix::fs::fstat(file).ok()?.st_nlink;
        (self.regular && links == 0).then(|| {
            "the image file was deleted while it is in use: it has no name any more, and all that is \
             in it is gone when it is closed"
                .into()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::MetadataExt;

    use crate::{BlockDev, FileDev, OpenMode, host};

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_file_that_was_cut_short_fails_and_never_reads_as_zeroes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cut.img");
        type Access = fn(&FileDev) -> std::io::Result<()>;
        let accesses: [(&str, Access); 7] = [
            ("read", |dev| dev.read_at(3 * MIB, &mut [0; 512])),
            ("write", |dev| dev.write_at(3 * MIB, &[2; 512])),
            ("write at the end", |dev| dev.write_at(4 * MIB - 512, &[2; 512])),
            ("forced write", |dev| dev.write_fua_at(3 * MIB, &[2; 512])),
            ("zero", |dev| dev.zero(3 * MIB, 4096)),
            ("allocate", |dev| dev.allocate(3 * MIB, 4096)),
            ("flush", |dev| dev.flush()),
        ];
        for (what, access) in accesses {
            let dev = FileDev::open(&path, OpenMode::Create(4 * MIB)).unwrap();
            dev.write_at(0, &vec![1; 4 << 20]).unwrap();
            dev.flush().unwrap();
            dev.check_present().unwrap();
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(2 * MIB).unwrap();
            let error = access(&dev).expect_err(what);
            assert!(host::is_lost(&error), "{what}: {error}");
            assert!(error.to_string().contains("2097152 bytes, not 4194304"), "{what}: {error}");
            // Its length comes back, what was cut off does not.
            file.set_len(4 * MIB).unwrap();
            for (later, access) in accesses {
                assert!(host::is_lost(&access(&dev).expect_err(later)), "{what}, {later}");
            }
            assert!(host::is_lost(&dev.check_present().unwrap_err()));
        }
    }

    #[test]
    fn a_deleted_file_works_and_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gone.img");
        let dev = FileDev::open(&path, OpenMode::Create(MIB)).unwrap();
        assert_eq!(dev.warning(), None);
        std::fs::remove_file(&path).unwrap();
        dev.write_at(0, &[1; 512]).unwrap();
        dev.flush().unwrap();
        dev.check_present().unwrap();
        assert!(dev.warning().unwrap().contains("deleted"));
    }

    #[test]
    fn allocated_room_is_the_files_and_its_content_stays() {
        let dir = tempfile::tempdir().unwrap();
        let stored = |path: &std::path::Path| std::fs::metadata(path).unwrap().blocks() * 512;
        for zeroes in [false, true] {
            let path = dir.path().join("sparse.img");
            let dev = FileDev::open(&path, OpenMode::Create(8 * MIB)).unwrap();
            dev.write_at(3 * MIB, &[7; 5000]).unwrap();
            assert!(stored(&path) < MIB);
            match zeroes {
                false => dev.allocate(2 * MIB, 4 * MIB).unwrap(),
                // What is done on hosts without fallocate.
                true => crate::holes::fill_all(dev.as_file().unwrap(), 2 * MIB, 6 * MIB).unwrap(),
            }
            assert!((4 * MIB..5 * MIB).contains(&stored(&path)), "{}", stored(&path));
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 * MIB);
            let mut all = vec![9; 8 << 20];
            dev.read_at(0, &mut all).unwrap();
            let place = 3 << 20..(3 << 20) + 5000;
            assert!(all[place.clone()].iter().all(|b| *b == 7));
            assert_eq!(all.iter().filter(|b| **b != 0).count(), place.len());
        }
    }
}
