//! Tests: a file with more attributes than one transaction can reserve space for is created completely
//! or not at all.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use uxfs_disk::{BlockDev, FileDev, OpenMode};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFBLK, S_IFIFO};
use uxfs_testkit::{Answer, Call, ETIMEDOUT, FaultDev, Op, Rng, Rule};

use super::build::Content;
use super::create::NewInode;
use crate::journal::JournalOptions;
use crate::{AtomicRange, Error, Fallocate, Fs, OpenOptions, WritebackOptions, XattrMode};

struct Volume {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Volume {
    fn new(mib: u64, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        uxfs_oracle::mkfs(&path, mib << 20, options);
        Self { _dir: dir, path }
    }

    /// Opens the volume. With a journal, each transaction is durable when it commits.
    fn open(&self, journal: bool) -> (Arc<FaultDev<FileDev>>, Fs) {
        let dev = FileDev::open(&self.path, OpenMode::Write).unwrap();
        let dev = Arc::new(FaultDev::new(dev).in_pieces().unsynced());
        let mut with = JournalOptions::default();
        assert!(with.apply("wsync").unwrap());
        let options = OpenOptions {
            journal: with,
            unlogged: !journal,
            seed: Some(1),
            ..OpenOptions::default()
        };
        let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, options).unwrap();
        (dev, fs)
    }

    fn judge(&self, at: &str) {
        uxfs_oracle::both(&self.path).unwrap_or_else(|f| panic!("{at}: {f}"));
    }
}

type Attrs = Vec<(Vec<u8>, Vec<u8>)>;

/// `small` attributes of a few bytes and `large` attributes of 64 KiB, with names of all lengths.
fn attributes(small: usize, large: usize) -> Attrs {
    let mut rng = Rng::new(5);
    let mut attrs = Vec::new();
    for at in 0..small + large {
        let space = if at % 5 == 0 { "trusted" } else { "user" };
        let long = "n".repeat(if at % 100 == 0 { 240 } else { at % 7 });
        let len = if at < small { 4 + at % 60 } else { 65536 };
        let value = (0..len).map(|_| rng.below(256) as u8).collect();
        attrs.push((format!("{space}.{at:06}{long}").into_bytes(), value));
    }
    attrs
}

fn compare(fs: &Fs, ino: Ino, wanted: &Attrs, at: &str) {
    let names = fs.list_xattrs(ino).unwrap();
    assert_eq!(names.len(), wanted.len(), "{at}");
    let found: BTreeMap<_, _> =
        names.into_iter().map(|name| (name.clone(), fs.get_xattr(ino, &name).unwrap())).collect();
    let wanted: BTreeMap<_, _> = wanted.iter().cloned().collect();
    assert!(found == wanted, "{at}: names or values differ");
}

/// Every type of file can have thousands of attributes, with and without a journal.
#[test]
fn files_with_thousands_of_attributes_are_created() {
    let attrs = attributes(5000, 40);
    for (options, journal) in [
        (&["-m", "rmapbt=1"][..], true),
        (&["-b", "size=1k", "-m", "reflink=0"][..], true),
        (&["-m", "rmapbt=1"][..], false),
        (&["-m", "crc=1,finobt=0,rmapbt=0,reflink=0", "-i", "size=1024"][..], false),
    ] {
        let at = format!("{options:?}, journal: {journal}");
        let volume = Volume::new(320, options);
        let (dev, fs) = volume.open(journal);
        let target = [b't'; 1000];
        let mut block = NewInode::new(S_IFBLK | 0o600);
        block.rdev = (7, 9);
        let kinds: [(&[u8], NewInode, Content<'_>); 5] = [
            (b"file", NewInode::file(0o644), Content::Empty),
            (b"dir", NewInode::dir(0o755), Content::Empty),
            (b"link", NewInode::file(0o777), Content::Target(&target)),
            (b"fifo", NewInode::new(S_IFIFO | 0o600), Content::Empty),
            (b"block", block, Content::Empty),
        ];
        for (name, new, content) in &kinds {
            let (ino, _) = fs.build(fs.root(), name, new, &attrs, *content).unwrap();
            assert_eq!(fs.lookup(fs.root(), name).unwrap(), ino);
            let again = fs.build(fs.root(), name, new, &attrs, *content);
            assert!(matches!(again, Err(Error::Exists)), "{at}");
        }
        let dir = fs.lookup(fs.root(), b"dir").unwrap();
        fs.create(dir, b"inside", &NewInode::file(0o600)).unwrap();
        fs.close().unwrap();
        drop(dev);
        volume.judge(&at);
        let (_dev, fs) = volume.open(false);
        for (name, new, _) in &kinds {
            let ino = fs.lookup(fs.root(), name).unwrap();
            compare(&fs, ino, &attrs, &at);
            let stat = fs.stat(ino).unwrap();
            assert_eq!(stat.nlink, if name == b"dir" { 2 } else { 1 }, "{at}");
            assert_eq!(stat.rdev, new.rdev, "{at}");
        }
        let link = fs.lookup(fs.root(), b"link").unwrap();
        assert_eq!(fs.readlink(link).unwrap(), target);
    }
}

/// After a power cut at any point, the file exists with all its attributes or not at all.
#[test]
fn a_file_with_many_attributes_is_created_atomically() {
    let attrs = attributes(400, 6);
    let mut rng = Rng::new(11);
    let (mut complete, mut absent) = (0, 0);
    for round in 0..24 {
        let volume = Volume::new(320, &["-m", "rmapbt=1"]);
        let (dev, fs) = volume.open(true);
        fs.create(fs.root(), b"before", &NewInode::file(0o644)).unwrap();
        fs.sync().unwrap();
        // The last rounds complete the operation.
        let writes = if round < 20 { rng.below(160) } else { 2000 };
        dev.add(Rule::on(Op::CHANGES).after(writes).fail(ETIMEDOUT));
        let new = if round % 2 == 0 { NewInode::file(0o644) } else { NewInode::dir(0o755) };
        let made = fs.build(fs.root(), b"many", &new, &attrs, Content::Empty);
        drop((fs, dev));
        let at = format!("round {round}, {writes} writes");
        let (_dev, fs) = volume.open(true);
        fs.lookup(fs.root(), b"before").unwrap();
        match fs.lookup(fs.root(), b"many") {
            Ok(ino) => {
                compare(&fs, ino, &attrs, &at);
                complete += 1;
            }
            Err(Error::NotFound) => {
                assert!(made.is_err(), "{at}: the file was created, but is missing");
                absent += 1;
            }
            Err(other) => panic!("{at}: {other}"),
        }
        fs.close().unwrap();
        volume.judge(&at);
    }
    assert!(
        complete > 0 && absent > 0,
        "{complete} complete, {absent} absent: the cuts do not cover both"
    );
}

/// On a full volume the file leaves nothing behind; if there is just enough space, it is created.
#[test]
fn a_failed_create_with_attributes_leaves_nothing_behind() {
    for journal in [false, true] {
        let volume = Volume::new(320, &[]);
        let (_dev, fs) = volume.open(journal);
        fs.create(fs.root(), b"small", &NewInode::file(0o644)).unwrap();
        fs.sync().unwrap();
        let before = (fs.free_blocks(), fs.inode_counts().0 - fs.inode_counts().1);
        // 160 MiB of values: first there is enough space, then there is not.
        let left = fs.available_blocks() - 3000;
        fs.reserve(left).unwrap();
        let attrs = attributes(300, 1200);
        let new = NewInode::file(0o644);
        let made = fs.build(fs.root(), b"many", &new, &attrs, Content::Empty);
        assert!(matches!(made, Err(Error::NoSpace)), "{made:?}");
        assert!(matches!(fs.lookup(fs.root(), b"many"), Err(Error::NotFound)));
        fs.sync().unwrap();
        assert_eq!((fs.free_blocks(), fs.inode_counts().0 - fs.inode_counts().1), before);
        let some = attributes(1000, 100);
        let ino = fs.build(fs.root(), b"some", &new, &some, Content::Empty).unwrap().0;
        compare(&fs, ino, &some, "where it fits");
        fs.apply(left, crate::mount::Counters::default(), 0);
        fs.close().unwrap();
        volume.judge(&format!("journal: {journal}"));
    }
}

/// A copy on another volume keeps all attributes, including those of the root directory.
#[test]
fn replicas_keep_thousands_of_attributes() {
    let attrs = attributes(5000, 40);
    let (old, new) = (Volume::new(320, &[]), Volume::new(320, &["-m", "rmapbt=1"]));
    let (_dev, from) = old.open(true);
    let file = from.build(from.root(), b"f", &NewInode::file(0o644), &attrs, Content::Empty);
    let file = file.unwrap().0;
    from.write_at(file, 0, &[7; 9000]).unwrap();
    for (name, value) in &attrs {
        from.set_xattr(from.root(), name, value, XattrMode::Any).unwrap();
    }
    from.sync().unwrap();
    let (_dev, to) = new.open(false);
    to.replicate_traits(&from, from.root(), to.root(), true).unwrap();
    let (copy, moves) = to.replicate(&from, file, to.root(), b"f").unwrap();
    assert_eq!(moves.iter().map(|piece| piece.len).sum::<u64>(), 12288);
    compare(&to, copy, &attrs, "the file");
    compare(&to, to.root(), &attrs, "the root");
    to.close().unwrap();
    new.judge("the copy");
}

/// After a power cut at any point, a file that was made without a name has its name and its content,
/// or is gone.
#[test]
fn a_file_without_a_name_gets_one_or_is_freed() {
    let mut rng = Rng::new(12);
    let (mut named, mut freed) = (0, 0);
    for round in 0..16 {
        let volume = Volume::new(320, &["-m", "rmapbt=1"]);
        let (dev, fs) = volume.open(true);
        let root = fs.root();
        let writes = rng.below(40);
        dev.add(Rule::on(Op::CHANGES).after(writes).fail(ETIMEDOUT));
        let done = (|| -> crate::Result<()> {
            for name in [&b"one"[..], b"two"] {
                let ino = fs.tmpfile(root, &NewInode::file(0o640))?;
                assert_eq!((fs.stat(ino)?.nlink, fs.unlinked()), (0, 1));
                fs.write_at(ino, 0, name)?;
                fs.fsync(ino)?;
                assert!(matches!(fs.link(ino, root, name), Err(Error::NotFound)));
                fs.link_unlinked(ino, root, name)?;
                assert_eq!((fs.stat(ino)?.nlink, fs.unlinked()), (1, 0));
                assert!(matches!(fs.link_unlinked(ino, root, b"x"), Err(Error::NotFound)));
                fs.release(ino, 1)?;
                // Never named: its last reference frees it.
                let ino = fs.tmpfile(root, &NewInode::file(0o640))?;
                fs.write_at(ino, 0, &[7; 100_000])?;
                fs.release(ino, 1)?;
                assert!(fs.stat(ino).is_err() && fs.unlinked() == 0);
            }
            // Recovery frees this one.
            fs.tmpfile(root, &NewInode::file(0o640)).map(drop)
        })();
        drop(fs);
        drop(dev);
        let at = format!("round {round}, after {writes} writes: {done:?}");
        let (_dev, fs) = volume.open(true);
        for name in [&b"one"[..], b"two"] {
            let mut content = [0; 8];
            match fs.lookup(root, name) {
                Ok(ino) => {
                    let len = fs.read_at(ino, 0, &mut content).unwrap();
                    assert_eq!(&content[..len], name, "{at}");
                    named += 1;
                }
                Err(Error::NotFound) => freed += 1,
                Err(other) => panic!("{at}: {other}"),
            }
        }
        fs.close().unwrap();
        drop(_dev);
        volume.judge(&at);
    }
    assert!(named > 3 && freed > 3, "{named} named, {freed} freed");
}

/// A power cut between the two steps of a truncation leaves shared blocks behind the end. Zeroes that a
/// growing file gets there are not written into them.
#[test]
fn shared_blocks_behind_the_end_keep_their_content() {
    type Grow<'a> = dyn Fn(Ino) + 'a;
    for writeback in [Some(WritebackOptions::default()), None] {
        let volume = Volume::new(320, &["-m", "rmapbt=1"]);
        let dev = FileDev::open(&volume.path, OpenMode::Write).unwrap();
        let options = OpenOptions { writeback, seed: Some(1), ..OpenOptions::default() };
        let fs = Fs::open(Arc::new(dev), options).unwrap();
        let root = fs.root();
        let one = fs.create(root, b"one", &NewInode::file(0o644)).unwrap();
        fs.write_at(one, 0, &[1; 1 << 20]).unwrap();
        let grow: [(&[u8], &Grow<'_>); 5] = [
            (b"write", &|ino| fs.write_at(ino, 500_000, &[2; 100]).unwrap()),
            (b"truncate", &|ino| fs.truncate(ino, 500_100).unwrap()),
            (b"fallocate", &|ino| {
                let mode = Fallocate::Allocate { keep_size: false };
                fs.fallocate(ino, mode, 0, 500_100).unwrap();
            }),
            (b"atomic", &|ino| {
                let range = AtomicRange { ino, offset: 500_000, data: &[2; 100] };
                fs.write_atomic(&[range]).unwrap();
            }),
            (b"share", &|ino| fs.share(one, 0, ino, 499_712, 4096).unwrap()),
        ];
        for (name, grow) in grow {
            let two = fs.create(root, name, &NewInode::file(0o644)).unwrap();
            fs.clone_file(one, two).unwrap();
            let mut tx = fs.begin_tx(0).unwrap();
            let slot = tx.lock_inode(two).unwrap();
            tx.core_mut(slot).size = 24 * 4096;
            tx.commit().unwrap();
            grow(two);
            let at = format!("{}, {writeback:?}", String::from_utf8_lossy(name));
            let mut all = vec![0; 1 << 20];
            assert_eq!(fs.read_at(one, 0, &mut all).unwrap(), 1 << 20);
            assert!(all.iter().all(|byte| *byte == 1), "{at}: the other file changed");
            let len = fs.read_at(two, 0, &mut all).unwrap();
            assert!(len >= 500_100, "{at}: {len} bytes");
            assert!(all[..98_304].iter().all(|byte| *byte == 1), "{at}");
            assert!(all[98_304..499_712].iter().all(|byte| *byte == 0), "{at}");
        }
        fs.close().unwrap();
        volume.judge(&format!("{writeback:?}"));
    }
}

/// A file that cannot be freed when it loses its last name is freed later: when the volume is closed, or by
/// recovery.
#[test]
fn a_file_that_cannot_be_freed_at_once_is_freed_later() {
    for recovers in [false, true] {
        let volume = Volume::new(320, &["-m", "rmapbt=1"]);
        let (dev, fs) = volume.open(true);
        let (root, new) = (fs.root(), NewInode::file(0o644));
        fs.create(root, b"kept", &new).unwrap();
        fs.sync().unwrap();
        let before = (fs.free_blocks(), fs.inode_counts().0 - fs.inode_counts().1);
        for name in [&b"unlinked"[..], b"renamed", b"held"] {
            let ino = fs.create(root, name, &new).unwrap();
            (0..300u64).for_each(|at| fs.write_at(ino, at << 13, &[at as u8; 4096]).unwrap());
        }
        fs.create(root, b"other", &new).unwrap();
        fs.close().unwrap();
        drop(dev);
        let (dev, fs) = volume.open(true);
        let held = fs.lookup(root, b"held").unwrap();
        fs.hold(held);
        let other = fs.lookup(root, b"other").unwrap();
        // The inodes and the directory are in memory; the extent btrees are not.
        for name in [&b"unlinked"[..], b"renamed", b"kept"] {
            fs.stat(fs.lookup(root, name).unwrap()).unwrap();
        }
        assert_eq!(fs.held(), [(held, 1)]);
        let whole_blocks = |call: &Call| match call.len {
            4096 => Answer::Fail(5),
            _ => Answer::Pass,
        };
        dev.add(Rule::on(&[Op::Read]).before(whole_blocks));
        fs.unlink(root, b"unlinked").unwrap();
        fs.rename(root, b"other", root, b"renamed", crate::RenameFlags::Replace).unwrap();
        fs.unlink(root, b"held").unwrap();
        fs.release(held, 1).unwrap();
        assert_eq!((fs.unlinked(), fs.held()), (3, vec![]));
        assert_eq!(fs.lookup(root, b"renamed").unwrap(), other);
        if recovers {
            assert_eq!(fs.close().unwrap_err().errno(), 5);
        } else {
            dev.clear();
            fs.close().unwrap();
        }
        dev.clear();
        drop(dev);
        let at = format!("recovers: {recovers}");
        let (_dev, fs) = volume.open(true);
        fs.unlink(root, b"renamed").unwrap();
        fs.sync().unwrap();
        let used = fs.inode_counts().0 - fs.inode_counts().1;
        assert_eq!((fs.free_blocks(), used), before, "{at}");
        fs.close().unwrap();
        volume.judge(&at);
    }
}

/// A damaged volume has a file that shares blocks without the flag that says so. What changes its content in
/// place goes by the reference counts.
#[test]
fn a_missing_reflink_flag_does_not_let_two_files_change() {
    type Change<'a> = dyn Fn(&Fs, Ino) + 'a;
    for writeback in [Some(WritebackOptions::default()), None] {
        let volume = Volume::new(320, &["-m", "rmapbt=1"]);
        let open = || {
            let dev = FileDev::open(&volume.path, OpenMode::Write).unwrap();
            let options = OpenOptions { writeback, seed: Some(1), ..OpenOptions::default() };
            Fs::open(Arc::new(dev), options).unwrap()
        };
        let fs = open();
        let root = fs.root();
        let one = fs.create(root, b"one", &NewInode::file(0o644)).unwrap();
        fs.write_at(one, 0, &[1; 1 << 20]).unwrap();
        let change: [(&[u8], &Change<'_>); 5] = [
            (b"write", &|fs, ino| fs.write_at(ino, 5000, &[2; 10_000]).unwrap()),
            (b"truncate", &|fs, ino| fs.truncate(ino, 100_000).unwrap()),
            (b"punch", &|fs, ino| {
                fs.fallocate(ino, Fallocate::PunchHole, 5000, 100).unwrap();
            }),
            (b"unshare", &|fs, ino| {
                let mode = Fallocate::Unshare { keep_size: true };
                fs.fallocate(ino, mode, 0, 1 << 20).unwrap();
                let extents = |ino| fs.extents(ino).unwrap()[0].start;
                assert_ne!(extents(ino), extents(one));
            }),
            (b"append", &|fs, ino| fs.write_at(ino, 2 << 20, &[2; 10]).unwrap()),
        ];
        for (name, _) in &change {
            let two = fs.create(root, name, &NewInode::file(0o644)).unwrap();
            fs.clone_file(one, two).unwrap();
            let mut tx = fs.begin_tx(0).unwrap();
            let slot = tx.lock_inode(two).unwrap();
            tx.core_mut(slot).flags2.remove(uxfs_format::inode::Flags2::REFLINK);
            tx.commit().unwrap();
        }
        fs.close().unwrap();
        let fs = open();
        for (name, change) in &change {
            change(&fs, fs.lookup(root, name).unwrap());
            fs.sync().unwrap();
            let mut all = vec![0; 1 << 20];
            assert_eq!(fs.read_at(one, 0, &mut all).unwrap(), 1 << 20);
            let at = String::from_utf8_lossy(name);
            assert!(all.iter().all(|byte| *byte == 1), "{at}: the other file changed");
        }
        fs.close().unwrap();
        volume.judge(&format!("{writeback:?}"));
    }
}
