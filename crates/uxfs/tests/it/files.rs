//! The library by path against `std::fs`: one random sequence of calls on a volume and on a directory
//! of the host gives the same results, the same errors, and the same tree. Then xfs_repair and a kernel
//! judge the volume.

use std::fmt::Debug;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use uxfs::files::{FileTimes, Permissions};
use uxfs::posix::Creator;
use uxfs::{Fs, OpenOptions, PathError, WritebackOptions, mkfs};
use uxfs_oracle::{Kernel, Rng};

use crate::listing;
use crate::volume::{MIB, setting};

/// What a call did, in a form that both sides share: its result, or its errno and kind.
type Outcome = Result<String, String>;

/// Kinds that have no stable name are `Other` in the library.
fn kind(kind: io::ErrorKind) -> String {
    match format!("{kind:?}").as_str() {
        "FilesystemLoop" | "Uncategorized" => "Other".into(),
        name => name.into(),
    }
}

fn of_host<T: Debug>(result: io::Result<T>) -> Outcome {
    result.map(|value| format!("{value:?}")).map_err(|error| match error.raw_os_error() {
        Some(errno) => format!("{errno} {}", kind(error.kind())),
        None => kind(error.kind()),
    })
}

fn words(error: &PathError) -> String {
    format!("{} {}", error.errno(), kind(error.kind()))
}

fn of_volume<T: Debug>(result: uxfs::files::Result<T>) -> Outcome {
    result.map(|value| format!("{value:?}")).map_err(|error| words(&error))
}

/// For the traits of `std::io`, whose errors hold the library's.
fn of_stream<T: Debug>(result: io::Result<T>) -> Outcome {
    result.map(|value| format!("{value:?}")).map_err(|error| {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<PathError>());
        words(inner.expect("the library's errors hold a path"))
    })
}

/// Compares two outcomes. `std::fs` refuses some calls itself, with a kind and no errno.
fn assert_same(at: &str, host: Outcome, ours: Outcome) {
    let alike = match (&host, &ours) {
        (Err(host), Err(ours)) => {
            host == ours || ours.split_once(' ').is_some_and(|(_, kind)| kind == host)
        }
        (host, ours) => host == ours,
    };
    assert!(alike, "{at}: std::fs gives {host:?}, the library {ours:?}");
}

struct Open {
    host: std::fs::File,
    ours: uxfs::File,
    dir: bool,
}

struct Pair {
    rng: Rng,
    root: TempDir,
    volume: uxfs::Volume,
    open: Vec<Open>,
}

const NAMES: [&[u8]; 7] = [b"a", b"b", b"c", b"d", "\u{e9}t\u{e9}".as_bytes(), b"\xff\x01", b"e f"];

impl Pair {
    fn new(seed: u64, image: &Path) -> Self {
        let root = tempfile::tempdir().unwrap();
        // The umask of this process, as a new file shows it.
        std::fs::write(root.path().join("probe"), "").unwrap();
        let mode = std::fs::metadata(root.path().join("probe")).unwrap().mode();
        std::fs::remove_file(root.path().join("probe")).unwrap();
        let umask = !(mode as u16) & 0o666;
        let mut options = uxfs::VolumeOptions::new()
            .creator(Creator { uid: 0, gid: 0, umask })
            .background(seed % 3 == 1);
        if seed % 2 == 1 {
            options = options.delayed(WritebackOptions::default());
        }
        let mut make = mkfs::Options::default();
        make.unsupported = true;
        let volume = uxfs::Volume::create_with(image, 64 * MIB, &make, &options).unwrap();
        Self { rng: Rng::new(seed), root, volume, open: Vec::new() }
    }

    fn name(&mut self) -> Vec<u8> {
        match self.rng.below(60) {
            0 => vec![b'n'; 255],
            1 => vec![b'n'; 256],
            at => NAMES[at as usize % NAMES.len()].to_vec(),
        }
    }

    /// A path that never leaves the root on the host: `..` only follows a name.
    fn path(&mut self) -> Vec<u8> {
        let mut path = Vec::new();
        for _ in 0..self.rng.below(3) {
            path.extend_from_slice(&self.name());
            path.push(b'/');
            match self.rng.below(30) {
                0 => path.extend_from_slice(b"./"),
                1 => path.extend_from_slice(b"../"),
                2 => path.push(b'/'),
                _ => {}
            }
        }
        path.extend_from_slice(&self.name());
        match self.rng.below(40) {
            0 => path.extend_from_slice(b"/"),
            1 => path.extend_from_slice(b"/."),
            2 => path.extend_from_slice(b"/.."),
            3 => path.extend_from_slice(b"\0x"),
            _ => {}
        }
        path
    }

    fn both(&mut self) -> (PathBuf, PathBuf) {
        let path = self.path();
        let ours = PathBuf::from(std::ffi::OsStr::from_bytes(&path));
        (self.root.path().join(&ours), ours)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = self.rng.below(if self.rng.clone().below(8) == 0 { 200_000 } else { 6_000 });
        let byte = self.rng.bits() as u8;
        (0..len).map(|at| byte.wrapping_add((at / 7) as u8)).collect()
    }

    fn mode(&mut self) -> u16 {
        // The owner keeps all rights, so that a user who is not root can run this test.
        0o700 | (self.rng.bits() as u16 & 0o077)
    }

    fn step(&mut self, at: &str) {
        let (host, ours) = self.both();
        let at = format!("{at} at {}", ours.display());
        let volume = self.volume.clone();
        match self.rng.below(24) {
            0 | 1 => self.open_pair(&at, &host, &ours),
            2 => {
                let data = self.bytes();
                let written = of_volume(volume.write(&ours, &data));
                assert_same(&format!("write {at}"), of_host(std::fs::write(&host, &data)), written);
            }
            3 => assert_same(
                &format!("read {at}"),
                of_host(std::fs::read(&host)),
                of_volume(volume.read(&ours)),
            ),
            4 | 5 => assert_same(
                &format!("create_dir {at}"),
                of_host(std::fs::create_dir(&host)),
                of_volume(volume.create_dir(&ours)),
            ),
            6 => assert_same(
                &format!("create_dir_all {at}"),
                of_host(std::fs::create_dir_all(&host)),
                of_volume(volume.create_dir_all(&ours)),
            ),
            7 => assert_same(
                &format!("remove_file {at}"),
                of_host(std::fs::remove_file(&host)),
                of_volume(volume.remove_file(&ours)),
            ),
            8 => assert_same(
                &format!("remove_dir {at}"),
                of_host(std::fs::remove_dir(&host)),
                of_volume(volume.remove_dir(&ours)),
            ),
            9 if self.rng.below(4) == 0 => {
                // The host refuses a path that ends in `.` or `..` only after it emptied the directory.
                if matches!(
                    ours.as_os_str().as_bytes().rsplit(|b| *b == b'/').next(),
                    Some(b"." | b"..")
                ) {
                    return;
                }
                assert_same(
                    &format!("remove_dir_all {at}"),
                    of_host(std::fs::remove_dir_all(&host)),
                    of_volume(volume.remove_dir_all(&ours)),
                );
            }
            9..=11 => {
                let (host_to, to) = self.both();
                assert_same(
                    &format!("rename {at} to {}", to.display()),
                    of_host(std::fs::rename(&host, &host_to)),
                    of_volume(volume.rename(&ours, &to)),
                );
            }
            12 => {
                let (host_to, to) = self.both();
                assert_same(
                    &format!("hard_link {at} to {}", to.display()),
                    of_host(std::fs::hard_link(&host, &host_to)),
                    of_volume(volume.hard_link(&ours, &to)),
                );
            }
            13 => {
                const TARGETS: [&str; 8] = ["a", "b", "c/a", "./d", "b/", "a/../b", "", "none/x"];
                let target = TARGETS[self.rng.index(TARGETS.len())];
                assert_same(
                    &format!("symlink {at} to {target}"),
                    of_host(std::os::unix::fs::symlink(target, &host)),
                    of_volume(volume.symlink(target, &ours)),
                );
            }
            14 => assert_same(
                &format!("read_link {at}"),
                of_host(std::fs::read_link(&host)),
                of_volume(volume.read_link(&ours)),
            ),
            15 | 16 => {
                let follow = self.rng.below(2) == 0;
                let theirs = if follow {
                    std::fs::metadata(&host)
                } else {
                    std::fs::symlink_metadata(&host)
                };
                let ours =
                    if follow { volume.metadata(&ours) } else { volume.symlink_metadata(&ours) };
                let ours =
                    ours.map(|m| (m.mode(), m.is_dir(), shape(m.is_dir(), m.len(), m.nlink())));
                let theirs =
                    theirs.map(|m| (m.mode(), m.is_dir(), shape(m.is_dir(), m.len(), m.nlink())));
                assert_same(&format!("metadata {at}"), of_host(theirs), of_volume(ours));
            }
            17 => {
                let mode = self.mode().into();
                let permissions = std::fs::Permissions::from_mode(mode);
                assert_same(
                    &format!("set_permissions {at}"),
                    of_host(std::fs::set_permissions(&host, permissions)),
                    of_volume(volume.set_permissions(&ours, Permissions::from_mode(mode))),
                );
            }
            18 => self.copy(&at, (&host, &ours)),
            19 => assert_same(
                &format!("exists {at}"),
                of_host(std::fs::exists(&host)),
                of_volume(volume.exists(&ours)),
            ),
            20 => {
                let names = |names: Vec<std::ffi::OsString>| {
                    let mut names = names;
                    names.sort();
                    names
                };
                let theirs = std::fs::read_dir(&host)
                    .and_then(|dir| dir.map(|e| e.map(|e| e.file_name())).collect());
                let found = volume
                    .read_dir(&ours)
                    .and_then(|dir| dir.map(|e| e.map(|e| e.file_name().to_owned())).collect());
                let at = format!("read_dir {at}");
                assert_same(&at, of_host(theirs.map(names)), of_volume(found.map(names)));
            }
            _ => self.use_open(&at),
        }
    }

    fn copy(&mut self, at: &str, (host, ours): (&Path, &Path)) {
        let (host_to, to_ours) = self.both();
        let at = format!("copy {at} to {}", to_ours.display());
        // On one file `std::fs` empties it; the library refuses.
        if let (Ok(from), Ok(to)) = (std::fs::metadata(host), std::fs::metadata(&host_to))
            && from.ino() == to.ino()
        {
            assert!(self.volume.copy(ours, &to_ours).is_err(), "{at}");
            return;
        }
        let theirs = of_host(std::fs::copy(host, &host_to));
        assert_same(&at, theirs, of_volume(self.volume.copy(ours, &to_ours)));
    }

    fn open_pair(&mut self, at: &str, host: &Path, ours: &Path) {
        let [read, write, append, truncate, create, create_new] =
            [2, 2, 4, 4, 2, 6].map(|chance| self.rng.below(chance) == 0);
        let mode = self.mode();
        let mut theirs = std::fs::OpenOptions::new();
        theirs.read(read).write(write).append(append).truncate(truncate);
        theirs.create(create).create_new(create_new).mode(mode.into());
        let options = uxfs::FileOptions::new().read(read).write(write).append(append);
        let options = options.truncate(truncate).create(create).create_new(create_new).mode(mode);
        let opened = (theirs.open(host), self.volume.open_file_with(ours, &options));
        let at = format!("open {at} with {options:?}");
        match opened {
            (Ok(host), Ok(ours)) => {
                let dir = host.metadata().unwrap().is_dir();
                assert_eq!(ours.metadata().unwrap().is_dir(), dir, "{at}");
                if self.open.len() == 5 {
                    self.open.remove(0);
                }
                self.open.push(Open { host, ours, dir });
            }
            (host, ours) => assert_same(&at, of_host(host.map(drop)), of_volume(ours.map(drop))),
        }
    }

    fn use_open(&mut self, at: &str) {
        if self.open.is_empty() {
            return;
        }
        let (which, what) = (self.rng.index(self.open.len()), self.rng.below(9));
        let (data, offset) = (self.bytes(), self.rng.below(30_000));
        let Open { host, ours, dir } = &mut self.open[which];
        let at = format!("{what} on open {} {at}", ours.path().display());
        let mut buffers = [vec![0; data.len()], vec![0; data.len()]];
        let [first, second] = &mut buffers;
        match what {
            0 => assert_same(&at, of_host(host.read(first)), of_stream(ours.read(second))),
            1 => assert_same(&at, of_host(host.write_all(&data)), of_stream(ours.write_all(&data))),
            2 if !*dir => {
                let to = match offset % 3 {
                    0 => SeekFrom::Start(offset),
                    1 => SeekFrom::Current(offset as i64 - 15_000),
                    _ => SeekFrom::End(offset as i64 - 15_000),
                };
                assert_same(&at, of_host(host.seek(to)), of_stream(ours.seek(to)));
            }
            3 => assert_same(
                &at,
                of_host(host.read_at(first, offset)),
                of_volume(ours.read_at(second, offset)),
            ),
            4 => assert_same(
                &at,
                of_host(host.write_all_at(&data, offset)),
                of_volume(ours.write_all_at(&data, offset)),
            ),
            5 => assert_same(&at, of_host(host.set_len(offset)), of_volume(ours.set_len(offset))),
            6 => {
                assert_same(&at, of_host(host.sync_data()), of_volume(ours.sync_data()));
                let ticket = ours.ticket().unwrap();
                self.volume.wait(ticket).unwrap();
                assert!(self.volume.is_durable(ticket).unwrap());
            }
            7 => {
                let time =
                    SystemTime::UNIX_EPOCH + Duration::new(offset * 80_000, 5 + offset as u32);
                let times = std::fs::FileTimes::new().set_modified(time);
                let done = of_volume(ours.set_times(FileTimes::new().set_modified(time)));
                assert_same(&at, of_host(host.set_times(times)), done);
                let [theirs, found] =
                    [host.metadata().unwrap().modified(), ours.metadata().unwrap().modified()];
                assert_eq!(theirs.unwrap(), found.unwrap(), "{at}");
            }
            _ => {
                let (theirs, found) = (host.metadata().unwrap(), ours.metadata().unwrap());
                assert_eq!(
                    (theirs.mode(), shape(*dir, theirs.len(), theirs.nlink())),
                    (found.mode(), shape(*dir, found.len(), found.nlink())),
                    "{at}"
                );
            }
        }
        assert!(buffers[0] == buffers[1], "{at}: other data");
    }

    /// Compares both trees completely.
    fn compare(&self, at: &str) -> usize {
        let mut paths = Vec::new();
        for entry in self.volume.walk("/").unwrap() {
            let entry = entry.unwrap();
            let path = entry.path().strip_prefix("/").unwrap().to_owned();
            let host = self.root.path().join(&path);
            let theirs = std::fs::symlink_metadata(&host);
            let theirs = theirs.unwrap_or_else(|e| panic!("{at}: {}: {e}", path.display()));
            let found = entry.metadata().unwrap();
            assert_eq!(entry.file_type().unwrap(), found.file_type());
            let is_dir = theirs.is_dir();
            assert_eq!(
                (theirs.mode(), shape(is_dir, theirs.len(), theirs.nlink())),
                (found.mode(), shape(found.is_dir(), found.len(), found.nlink())),
                "{at}: {}",
                path.display()
            );
            if found.is_file() {
                let same = std::fs::read(&host).unwrap() == self.volume.read(entry.path()).unwrap();
                assert!(same, "{at}: {} has other content", path.display());
            }
            paths.push(path);
        }
        assert_eq!(paths.len(), count(self.root.path()), "{at}: names");
        paths.len()
    }
}

/// Length and links count only where all file systems agree.
fn shape(is_dir: bool, len: u64, nlink: u64) -> Option<(u64, u64)> {
    (!is_dir).then_some((len, nlink))
}

fn count(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries.map(|e| 1 + if e.file_type().unwrap().is_dir() { count(&e.path()) } else { 0 }).sum()
}

#[test]
fn calls_by_path_do_what_std_fs_does() {
    let first = setting("UXFS_SEED", 0) * 1000;
    let dir = tempfile::tempdir().unwrap();
    let mut images = Vec::new();
    for seed in first..first + 4 * setting("UXFS_ROUNDS", 1) {
        let image = dir.path().join(format!("{seed}.img"));
        let mut pair = Pair::new(seed, &image);
        let at = format!("seed {seed}");
        for step in 0..3000 {
            pair.step(&format!("{at}, step {step}"));
        }
        let entries = pair.compare(&at);
        println!("{at}: {entries} entries");
        pair.open.clear();
        pair.volume.close().unwrap();
        uxfs_oracle::repair(&image).unwrap_or_else(|f| panic!("{at}: {f}"));
        images.push(image);
    }
    let kernels =
        listing::of_kernel(Kernel::Current, &images.iter().map(|i| &**i).collect::<Vec<_>>());
    for (image, kernel) in images.iter().zip(kernels) {
        let dev = uxfs::disk::FileDev::open(image, uxfs::disk::OpenMode::Read).unwrap();
        let fs = Fs::open(std::sync::Arc::new(dev), OpenOptions::read_only()).unwrap();
        listing::list(&fs).assert_same(&kernel, crate::kernel::ALL);
    }
}

#[test]
fn a_dropped_volume_keeps_its_changes_and_a_closed_one_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    let volume = uxfs::Volume::create(&image, 300 * MIB).unwrap();
    volume.write("kept", "by dropping").unwrap();
    drop(volume);
    let volume = uxfs::Volume::open(&image).unwrap();
    assert_eq!(volume.read("kept").unwrap(), b"by dropping");
    // A file that is open keeps the volume open.
    let mut file = volume.create_file("late").unwrap();
    drop(volume);
    file.write_all(b"still here").unwrap();
    volume_is_busy(&image);
    drop(file);
    let volume = uxfs::Volume::open(&image).unwrap();
    assert_eq!(volume.read("late").unwrap(), b"still here");
    let file = volume.open_file("late").unwrap();
    let other = volume.clone();
    volume.close().unwrap();
    assert_eq!(file.read_at(&mut [0; 4], 0).unwrap_err().errno(), 9);
    assert_eq!(other.exists("late").unwrap_err().errno(), 9);
    // Closed for good: the image is free, and dropping what is left does nothing.
    let again = uxfs::Volume::open(&image).unwrap();
    drop((file, other));
    again.close().unwrap();
    assert!(uxfs::files::drop_errors().is_empty());
    assert_eq!(uxfs::Volume::create(&image, 300 * MIB).unwrap_err().errno(), 17);
    uxfs_oracle::repair(&image).unwrap();
}

fn volume_is_busy(image: &Path) {
    let error = uxfs::Volume::open(image).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
    assert_eq!(error.path(), image);
}

#[test]
fn errors_of_a_dropped_volume_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    let options = uxfs::VolumeOptions::new().delayed(WritebackOptions::default());
    uxfs::Volume::create(&image, 300 * MIB).unwrap().close().unwrap();
    let volume = uxfs::Volume::open_with(&image, &options).unwrap();
    volume.write("lost", "what the device does not take").unwrap();
    // The image is cut short under the open volume.
    std::fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(4096).unwrap();
    drop(volume);
    let errors = uxfs::files::drop_errors();
    let own: Vec<_> = errors.iter().filter(|error| error.path() == image).collect();
    assert_eq!(own.len(), 1, "{errors:?}");
    assert_eq!((own[0].call(), own[0].errno()), ("drop", 5));
}

#[test]
fn an_unlinked_file_stays_while_it_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    let volume = uxfs::Volume::create(&image, 300 * MIB).unwrap();
    let free = volume.statfs().unwrap().free_blocks;
    let options = uxfs::FileOptions::new().read(true).write(true).create_new(true);
    let file = volume.open_file_with("x", &options).unwrap();
    file.write_all_at(&[7; 100_000], 0).unwrap();
    volume.remove_file("x").unwrap();
    volume.sync_all().unwrap();
    let mut data = vec![0; 100_000];
    assert_eq!(file.read_at(&mut data, 0).unwrap(), data.len());
    assert!(data.iter().all(|byte| *byte == 7));
    assert!(volume.statfs().unwrap().free_blocks < free);
    drop(file);
    assert_eq!(volume.statfs().unwrap().free_blocks, free);
    volume.close().unwrap();
    uxfs_oracle::repair(&image).unwrap();
}

#[test]
fn appends_of_threads_do_not_overlap() {
    let dir = tempfile::tempdir().unwrap();
    let volume = uxfs::Volume::create(dir.path().join("disk.img"), 300 * MIB).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let volume = volume.clone();
            scope.spawn(move || {
                let options = uxfs::FileOptions::new().append(true).create(true);
                let mut file = volume.open_file_with("log", &options).unwrap();
                (0..50).for_each(|_| file.write_all(&[thread; 100]).unwrap());
            });
        }
    });
    let log = volume.read("log").unwrap();
    assert_eq!(log.len(), 4 * 50 * 100);
    assert!(log.chunks(100).all(|record| record.iter().all(|byte| *byte == record[0])));
    volume.close().unwrap();
}

#[test]
fn extended_attributes_by_path() {
    let dir = tempfile::tempdir().unwrap();
    let volume = uxfs::Volume::create(dir.path().join("disk.img"), 300 * MIB).unwrap();
    volume.write("f", "").unwrap();
    volume.symlink("f", "l").unwrap();
    let any = uxfs::XattrMode::Any;
    volume.set_xattr("l", "user.color", "blue", any, true).unwrap();
    assert_eq!(volume.get_xattr("f", "user.color", false).unwrap(), b"blue");
    assert_eq!(volume.get_xattr("l", "user.color", false).unwrap_err().errno(), 61);
    assert_eq!(volume.list_xattrs("l", true).unwrap(), [b"user.color".to_vec()]);
    volume.remove_xattr("f", "user.color", true).unwrap();
    assert!(volume.list_xattrs("f", true).unwrap().is_empty());
    volume.close().unwrap();
}
