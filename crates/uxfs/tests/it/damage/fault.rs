//! Failing devices: at every read, write and flush of a short workload.

use std::sync::Arc;

use uxfs::{Error, Fs, NewInode, OpenOptions, Result, XattrMode};
use uxfs_format::inode::S_IFMT;
use uxfs_testkit::Op;

use super::device;
use super::rich;
use crate::edit;

/// Work that reads, changes and syncs twice. `synced` is set if a sync has failed.
fn work(fs: &Fs, sync_failed: &mut bool) -> Result<()> {
    let mut sync = || {
        let synced = fs.sync();
        *sync_failed |= synced.is_err();
        synced
    };
    let dir = fs.create(fs.root(), b"new dir", &NewInode::dir(0o700))?;
    for number in 0..12 {
        let ino = fs.create(dir, format!("{number}").as_bytes(), &NewInode::file(0o600))?;
        fs.write_at(ino, 0, &[number; 9000])?;
        fs.set_xattr(ino, b"user.a", &[number; 5000], XattrMode::Any)?;
    }
    sync()?;
    let old = edit::walk(fs)?;
    for found in old.iter().filter(|f| f.mode & S_IFMT != 0o040000).step_by(40) {
        fs.unlink(found.dir, &found.name)?;
    }
    fs.rename(fs.root(), b"f3", dir, b"moved", Default::default())?;
    sync()
}

#[test]
fn every_failure_of_the_device_is_an_error() {
    let image = device::base(&rich("-d agcount=2 -m rmapbt=1", 48));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("after.img");
    for call in [Op::Flush, Op::Write, Op::Read] {
        let (mut marked, mut whole) = (0, 0);
        let mut number = 0;
        loop {
            let at = format!("{call:?} {number} fails");
            let state = device::copy(&image);
            let dev = device::failing(&state, call, number);
            // Without the log, a volume that was being changed is marked as needing a repair.
            let opened = Fs::open(Arc::clone(&dev) as _, OpenOptions::unlogged());
            let mut sync_failed = false;
            if let Ok(fs) = opened {
                let done = work(&fs, &mut sync_failed);
                assert!(!matches!(done, Err(Error::Corrupt(_))), "{at}: {done:?}");
                if sync_failed {
                    let more = fs.create(fs.root(), b"more", &NewInode::file(0o600));
                    assert!(matches!(more, Err(Error::Shutdown(_))), "{at}: {more:?}");
                }
                let closed = fs.close();
                assert!(closed.is_err() || !sync_failed, "{at}: close");
                assert!(done.is_ok() || dev.failed(), "{at}: {done:?}");
            }
            if !dev.failed() {
                break;
            }
            std::fs::write(&path, device::bytes(&*state)).unwrap();
            match Fs::open(state, OpenOptions::default()) {
                // A volume without the mark must be consistent.
                Ok(_) => {
                    whole += 1;
                    uxfs_oracle::both(&path).unwrap_or_else(|f| panic!("{at}: {f}"));
                }
                Err(Error::Unsupported(why)) => {
                    assert!(why.contains("repair"), "{at}: {why}");
                    marked += 1;
                }
                Err(e) => panic!("{at}: {e}"),
            }
            // Each of the first calls, then a sample.
            number += 1 + number / 12;
        }
        println!("{call:?}: {number}, left whole {whole}, marked {marked}");
        assert!(whole > 0, "{call:?}: never whole");
        assert!(marked > 0 || call == Op::Read, "{call:?}: never marked");
    }
}
