//! Volumes with an external log or a realtime device, features that are refused by name, and the
//! message about a damaged primary superblock.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use uxfs::{Device, Devices, Error, Fs, NewInode, OpenOptions, Result, XattrMode, export, mkfs};
use uxfs_disk::{BlockDev, MemDev, OpenMode};
use uxfs_format::crc;
use uxfs_format::superblock::{CRC_OFFSET, Superblock};
use uxfs_journal::recovery::{Log, State};
use uxfs_oracle::vm::{POWER_CUT, Vm};
use uxfs_oracle::{Kernel, Listing, Rng, Xfsprogs};

use crate::kernel::ALL;
use crate::listing::{self, without_raw_lists};
use crate::volume::{MIB, device};

/// A volume in two parts.
struct Pair {
    _dir: tempfile::TempDir,
    data: PathBuf,
    other: PathBuf,
}

impl Pair {
    /// Made by mkfs.xfs with the option `-letter rest` and the path of the second device.
    fn new(letter: &str, rest: &str, more: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (data, other) = (dir.path().join("data.img"), dir.path().join("other.img"));
        std::fs::File::create(&other).unwrap().set_len(100 * MIB).unwrap();
        let place = format!("{rest}{}", other.display());
        uxfs_oracle::mkfs(&data, 300 * MIB, &[&[letter, &place[..]], more].concat());
        Self { _dir: dir, data, other }
    }

    /// A kernel fills it, mounted with `option` for the second device. Returns the kernel's listing.
    fn age(&self, option: &str, seed: u64) -> Listing {
        let script = format!(
            "set -e\nmount -t xfs -o {option}=/drive/1 /drive/0 /mnt\nuxfs-ager /mnt {seed} 500 >&2\n\
             umount /mnt\nmount -t xfs -o ro,{option}=/drive/1 /drive/0 /mnt\n\
             uxfs-lister /mnt >/out/0\numount /mnt\n"
        );
        let vm = Vm::new(Kernel::Stable).drive(&self.data, true).drive(&self.other, true);
        let out = vm.script(&script).run().unwrap_or_else(|f| panic!("seed {seed}: {f}"));
        let text = String::from_utf8_lossy(&out.files["0"]).into_owned();
        without_raw_lists(text.parse().unwrap())
    }

    /// A kernel recovers it and lists it, mounted with `option` for the second device.
    fn list(&self, option: &str) -> Listing {
        let script = format!(
            "set -e\nmount -t xfs -o {option}=/drive/1 /drive/0 /mnt\nuxfs-lister /mnt >/out/0\numount /mnt\n"
        );
        let vm = Vm::new(Kernel::Current).drive(&self.data, true).drive(&self.other, true);
        let out = vm.script(&script).run().unwrap_or_else(|f| panic!("{f}"));
        let text = String::from_utf8_lossy(&out.files["0"]).into_owned();
        without_raw_lists(text.parse().unwrap())
    }

    /// A kernel works on it until its power is cut, mounted with `option` for the second device.
    fn crash(&self, option: &str, seed: u64) {
        let script = format!(
            "set -e\nmkdir /tree\nmount -t xfs -o {option}=/drive/1 /drive/0 /tree\n\
             uxfs-storm /tree {seed} 200 /out/ready >&2 &\n\
             while [ ! -e /out/ready ]; do sleep 0.1; done\n{POWER_CUT}"
        );
        let vm = Vm::new(Kernel::Current).drive(&self.data, true).drive(&self.other, true);
        vm.script(&script).run().unwrap_or_else(|f| panic!("seed {seed}: {f}"));
    }

    fn copy(&self) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (data, other) = (dir.path().join("data.img"), dir.path().join("other.img"));
        for (from, to) in [(&self.data, &data), (&self.other, &other)] {
            let mut cp = Command::new("cp");
            assert!(cp.arg("--sparse=always").args([from, to]).status().unwrap().success());
        }
        Self { _dir: dir, data, other }
    }

    /// xfs_repair finds nothing, with the log given by `-l`.
    fn judge(&self, when: &str) {
        for release in [Xfsprogs::Installed, Xfsprogs::Current] {
            let mut repair = Command::new(release.program("xfs_repair"));
            let out = repair.args(["-n", "-l"]).args([&self.other, &self.data]).output().unwrap();
            let said = String::from_utf8_lossy(&out.stderr) + String::from_utf8_lossy(&out.stdout);
            assert!(out.status.success(), "{when}: {said}");
        }
    }

    fn writable(&self) -> Fs {
        let open = |path: &Path| -> Device { Arc::new(device(path, OpenMode::Write)) };
        let mut devices = Devices::new(open(&self.data));
        devices.log = Some(open(&self.other));
        Fs::open_devices(devices, OpenOptions::default()).unwrap()
    }

    fn open(&self, options: OpenOptions, give: impl Fn(&mut Devices, Device)) -> Result<Fs> {
        let open = |path: &Path| -> Device { Arc::new(device(path, OpenMode::Read)) };
        let mut devices = Devices::new(open(&self.data));
        give(&mut devices, open(&self.other));
        Fs::open_devices(devices, options)
    }
}

fn unsupported(result: Result<Fs>, words: &str) {
    match result.err() {
        Some(Error::Unsupported(said)) if said.contains(words) => {}
        other => panic!("not refused for {words}: {other:?}"),
    }
}

#[test]
fn realtime_files_are_read_from_their_device() {
    let pair = Pair::new("-r", "rtdev=", &["-d", "rtinherit=1"]);
    let aged = pair.age("rtdev", 31);
    let read_only = OpenOptions::read_only;
    let fs = pair.open(read_only(), |devices, other| devices.realtime = Some(other)).unwrap();
    assert!(fs.geo.rt_blocks > 0);
    listing::list(&fs).assert_same(&aged, ALL);
    let is_data = |e: &&uxfs_oracle::Entry| !e.data.is_empty();
    let full = aged.entries.iter().find(is_data).expect("a file with data");
    let ino = fs.resolve(&full.path, false).unwrap();
    let segments = fs.segments(ino).unwrap();
    assert!(segments.iter().all(|s| s.realtime), "not on the realtime device: {segments:?}");
    let (_, whole) = export::export(&fs, fs.root(), std::io::sink()).unwrap();
    assert!(whole.data_bytes > 0);

    drop(fs);

    // Without the device, everything but file content is readable.
    let fs = pair.open(read_only(), |_, _| {}).unwrap();
    assert_eq!(fs.stat(ino).unwrap().size, full.size);
    let refused = fs.read_at(ino, 0, &mut [0; 10]).unwrap_err().to_string();
    assert!(refused.contains("realtime"), "{refused}");
    let refused = export::export(&fs, fs.root(), std::io::sink()).unwrap_err().to_string();
    assert!(refused.contains("realtime"), "{refused}");
    drop(fs);

    // A device that is too short belongs to another volume; writing is refused.
    let short: Device = Arc::new(MemDev::new(MIB));
    let short = |devices: &mut Devices, _| devices.realtime = Some(Arc::clone(&short));
    unsupported(pair.open(read_only(), short), "realtime device has");
    let dev = Arc::new(device(&pair.data, OpenMode::Write));
    unsupported(Fs::open(dev, OpenOptions::default()), "realtime");
}

#[test]
fn an_external_log_is_checked_for_being_clean() {
    let pair = Pair::new("-l", "size=80m,logdev=", &[]);
    let aged = pair.age("logdev", 32);
    let read_only = OpenOptions::read_only;
    let fs = pair.open(read_only(), |devices, other| devices.log = Some(other)).unwrap();
    listing::list(&fs).assert_same(&aged, ALL);
    drop(fs);
    unsupported(pair.open(read_only(), |_, _| {}), "logdev");
    let mut as_it_lies = read_only();
    as_it_lies.norecovery = true;
    let fs = pair.open(as_it_lies, |_, _| {}).unwrap();
    listing::list(&fs).assert_same(&aged, ALL);
    drop(fs);
    let zeroes: Device = Arc::new(MemDev::new(100 * MIB));
    let dirty = pair.open(read_only(), |devices, _| devices.log = Some(Arc::clone(&zeroes)));
    assert!(matches!(dirty.err(), Some(Error::DirtyLog(_))));
    let short: Device = Arc::new(MemDev::new(MIB));
    let short = pair.open(read_only(), |devices, _| devices.log = Some(Arc::clone(&short)));
    assert!(matches!(short.err(), Some(Error::Corrupt(_))));
    let dev = Arc::new(device(&pair.data, OpenMode::Write));
    unsupported(Fs::open(dev, OpenOptions::default()), "logdev");
}

/// Makes, overwrites, renames and removes files in a directory of its own.
fn work(fs: &Fs, name: &str, rounds: u64) {
    let mut rng = Rng::new(rounds);
    let dir = fs.create(fs.root(), name.as_bytes(), &NewInode::dir(0o755)).unwrap();
    for round in 0..rounds {
        let name = format!("f{}", rng.below(100));
        match fs.lookup(dir, name.as_bytes()) {
            Ok(_) if rng.once_in(3) => fs.unlink(dir, name.as_bytes()).unwrap(),
            Ok(ino) => fs.write_at(ino, rng.below(100_000), &rng.bytes(9000)).map(drop).unwrap(),
            Err(_) => {
                let ino = fs.create(dir, name.as_bytes(), &NewInode::file(0o644)).unwrap();
                fs.write_at(ino, 0, &vec![round as u8; rng.below(50_000) as usize]).unwrap();
                fs.set_xattr(ino, b"user.round", &rng.bytes(200), XattrMode::Any).unwrap();
            }
        }
    }
}

#[test]
fn kernels_and_the_library_recover_each_others_external_log() {
    let pair = Pair::new("-l", "size=80m,logdev=", &[]);
    // What the library logged, a kernel recovers.
    let fs = pair.writable();
    work(&fs, "first", 2000);
    fs.sync().unwrap();
    let logged = listing::list(&fs);
    drop(fs);
    let mut sector = vec![0; 512];
    device(&pair.data, OpenMode::Read).read_at(0, &mut sector).unwrap();
    let log = Log::external(Superblock::verify(&sector).unwrap()).unwrap();
    let state = || log.state(&device(&pair.other, OpenMode::Read)).unwrap();
    assert_eq!(state(), State::Dirty);
    pair.list("logdev").assert_same(&logged, ALL);
    assert_eq!(state(), State::Clean);
    pair.judge("after the kernel's recovery");

    // What a kernel logged, the library recovers: in memory, and in place.
    pair.crash("logdev", 41);
    assert_eq!(state(), State::Dirty);
    let copy = pair.copy();
    let theirs = copy.list("logdev");
    let fs =
        pair.open(OpenOptions::read_only(), |devices, other| devices.log = Some(other)).unwrap();
    assert!(fs.recovery().unwrap().in_memory);
    listing::list(&fs).assert_same(&theirs, ALL);
    drop(fs);
    assert_eq!(state(), State::Dirty, "a recovery in memory has written");
    let fs = pair.writable();
    assert!(!fs.recovery().unwrap().in_memory);
    listing::list(&fs).assert_same(&theirs, ALL);
    work(&fs, "second", 500);
    let closed = listing::list(&fs);
    fs.close().unwrap();
    assert_eq!(state(), State::Clean);
    pair.judge("after the library's recovery");
    pair.list("logdev").assert_same(&closed, ALL);
}

/// A small volume whose superblock was changed.
fn changed(change: impl Fn(&mut Superblock)) -> Arc<MemDev> {
    let dev = MemDev::new(64 * MIB);
    let mut options = mkfs::Options::default();
    options.unsupported = true;
    let layout = mkfs::Layout::new(&options, 64 * MIB).unwrap();
    mkfs::write(&layout, &dev, &mkfs::WriteOptions::default()).unwrap();
    let mut sector = vec![0; 512];
    dev.read_at(0, &mut sector).unwrap();
    change(Superblock::view_mut(&mut sector).unwrap());
    crc::stamp(&mut sector, CRC_OFFSET);
    dev.write_at(0, &sector).unwrap();
    Arc::new(dev)
}

#[test]
fn unsupported_features_are_refused_by_name() {
    for (bit, name) in [
        (0x100, "metadir"),
        (0x200, "zoned"),
        (0x400, "zone_gaps"),
        (0x800, "0x800"),
        (0x8000_0300, "metadir, zoned, 0x80000000"),
    ] {
        for options in [OpenOptions::default(), OpenOptions::read_only()] {
            let dev = changed(|sb| sb.features_incompat.set(sb.features_incompat.get() | bit));
            unsupported(Fs::open(dev, options), name);
        }
    }
    let dev = changed(|sb| sb.features_ro_compat.set(sb.features_ro_compat.get() | 0x10));
    unsupported(Fs::open(Arc::clone(&dev) as Device, OpenOptions::default()), "0x10");
    Fs::open(dev, OpenOptions::read_only()).unwrap();
    let dev = changed(|sb| sb.features_log_incompat.set(2));
    unsupported(Fs::open(Arc::clone(&dev) as Device, OpenOptions::default()), "0x2");
    Fs::open(dev, OpenOptions::read_only()).unwrap();
    let dev = changed(|sb| sb.versionnum.set(sb.versionnum.get() & !0xf | 3));
    assert!(Fs::open(dev, OpenOptions::read_only()).is_err());
}

#[test]
fn a_good_copy_is_named_when_the_primary_is_damaged() {
    for damage in [&[0; 512][..], b"XFSB", &[0xff; 120]] {
        let dev = changed(|_| {});
        let at = if damage.len() == 120 { 100 } else { 0 };
        dev.write_at(at, damage).unwrap();
        let opened = Fs::open(Arc::clone(&dev) as Device, OpenOptions::read_only());
        if damage == b"XFSB" {
            // The same as before.
            opened.unwrap();
            continue;
        }
        let said = opened.err().unwrap();
        assert!(matches!(said, Error::Corrupt(_)), "{said}");
        assert!(said.to_string().contains("a good copy is at AG 1"), "{said}");
    }
    let nothing = Fs::open(Arc::new(MemDev::new(64 * MIB)), OpenOptions::read_only());
    assert!(matches!(nothing.err(), Some(Error::NotXfs(_))));
}
