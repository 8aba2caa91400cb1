//! Checks that the file of an open device is still the one that was opened.
//!
//! A truncated file has no data behind its new end. A write behind that end would extend the file
//! again, and the gap would read as zeroes that look like content. The file's length is therefore
//! checked before each write, at each flush, and when a read is short.
//!
//! 1. A device that was found lost stays lost, even if the file gets its length back: the truncated
//!    content is gone.
//! 2. A truncation between the check and the write that follows is found by the next check, unless
//!    that one write restored the full length.
//! 3. Growth by another thread is not taken for a truncation: the minimum is read before the length.
//! 4. A deleted file still works. This is reported as a warning, not as an error.

use std::fs::File;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{host, sys};

/// State of a device's file.
pub(crate) struct Presence {
    /// Is the file a regular one? Only the length of a regular file can change.
    regular: bool,
    /// Minimum length in bytes; a shorter file was truncated.
    least: AtomicU64,
    lost: OnceLock<String>,
}

impl Presence {
    /// Watches a file; if it is `regular`, it must keep at least `least` bytes.
    pub(crate) fn new(regular: bool, least: u64) -> Self {
        Self { regular, least: AtomicU64::new(least), lost: OnceLock::new() }
    }

    /// Fails if an earlier check found the file lost.
    pub(crate) fn check_known(&self) -> io::Result<()> {
        self.lost.get().map_or(Ok(()), |why| Err(host::lost(why.as_str())))
    }

    /// Checks the file's length and returns it; 0 if the file is not a regular one.
    pub(crate) fn check(&self, file: &File) -> io::Result<u64> {
        self.check_known()?;
        if !self.regular {
            return Ok(0);
        }
        // In this order: another thread may make the file grow at any time.
        let least = self.least.load(Ordering::Acquire);
        let size = sys::size(file)?;
        if size >= least {
            return Ok(size);
        }
        let why = format!(
            "the image file was cut short while it was in use: it has {size} bytes, not {least}"
        );
        Err(host::lost(self.lost.get_or_init(|| why).as_str()))
    }

    /// Records that the file grew to `len` bytes, which is now its minimum length.
    pub(crate) fn grew(&self, len: u64) {
        self.least.fetch_max(len, Ordering::Release);
    }

    /// The error of a failed read: the file is lost, if the read was short because of a truncation.
    pub(crate) fn explain(&self, file: &File, error: io::Error) -> io::Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.check(file).err().unwrap_or(error),
            _ => error,
        }
    }

    /// A warning for the user: the file is lost or deleted.
    pub(crate) fn warning(&self, file: &File) -> Option<String> {
        if let Some(why) = self.lost.get() {
            return Some(why.clone());
        }
        (self.regular && sys::is_deleted(file)).then(|| {
            "the image file was deleted while in use: its content is lost when the last process \
             closes it; copy what you need out of it first"
                .into()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use uxfs_host::FileExt;

    use crate::{BlockDev, FileDev, OpenMode, host};
    use std::fs::OpenOptions;

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
            // The file's length is restored; the truncated content is not.
            file.set_len(4 * MIB).unwrap();
            for (later, access) in accesses {
                assert!(host::is_lost(&access(&dev).expect_err(later)), "{what}, {later}");
            }
            assert!(host::is_lost(&dev.check_present().unwrap_err()));
        }
    }

    /// The threads that write an import's data make a qcow2 image grow while others check its length.
    #[test]
    fn growth_by_another_thread_is_no_loss() {
        let file = tempfile::tempfile().unwrap();
        let presence = super::Presence::new(true, 0);
        let end = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        file.write_at(&[1], end.fetch_add(1, Ordering::Relaxed)).unwrap();
                        presence.grew(presence.check(&file).unwrap());
                    }
                });
            }
        });
    }

    // On Windows an open file keeps its name, so there is nothing to warn of.
    #[cfg(unix)]
    #[test]
    fn a_deleted_file_works_with_a_warning() {
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

    // Other systems have no holes here.
    #[cfg(target_os = "linux")]
    #[test]
    fn allocate_reserves_space_and_keeps_the_content() {
        let dir = tempfile::tempdir().unwrap();
        let stored =
            |path: &std::path::Path| uxfs_host::Stat::of(&std::fs::metadata(path).unwrap()).stored;
        for zeroes in [false, true] {
            let path = dir.path().join("sparse.img");
            let dev = FileDev::open(&path, OpenMode::Create(8 * MIB)).unwrap();
            dev.write_at(3 * MIB, &[7; 5000]).unwrap();
            assert!(stored(&path) < MIB);
            match zeroes {
                false => dev.allocate(2 * MIB, 4 * MIB).unwrap(),
                // The fallback on hosts without fallocate.
                true => crate::holes::fill_all(dev.as_file().unwrap(), 2 * MIB, 6 * MIB).unwrap(),
            }
            assert!((4 * MIB..5 * MIB).contains(&stored(&path)), "{}", stored(&path));
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 * MIB);
            let mut all = vec![9; 8 << 20];
            dev.read_at(0, &mut all).unwrap();
            let written = 3 << 20..(3 << 20) + 5000;
            assert!(all[written.clone()].iter().all(|b| *b == 7));
            assert_eq!(all.iter().filter(|b| **b != 0).count(), written.len());
        }
    }
}
