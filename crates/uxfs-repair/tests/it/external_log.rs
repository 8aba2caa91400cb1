//! Volumes whose log is on a device of its own: repaired, applied to both devices, and undone.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use uxfs::check::{Report, Verdict, check, replayed};
use uxfs::mkfs::{Layout, Options, WriteOptions, write_with_log};
use uxfs::{Device, Devices, Fs, NewInode, OpenOptions};
use uxfs_check::{CheckOptions, LogState};
use uxfs_disk::{BlockDev, MemDev};
use uxfs_oracle::Xfsprogs;
use uxfs_repair::{Plan, RepairOptions, apply, plan, undo};

use crate::damage::{bytes, save};
use crate::volume::fill;

const MIB: u64 = 1 << 20;

/// The two devices of a volume.
#[derive(Clone)]
struct Pair {
    data: MemDev,
    log: MemDev,
}

impl Pair {
    /// A volume of blocks of 1 KiB whose device does not end with a page; `line` are options of mkfs.
    fn new(line: &str) -> Self {
        let (data, log) = (MemDev::new(64 * MIB + 1024), MemDev::new(16 * MIB));
        let mut options = Options::default();
        options.unsupported = true;
        options.apply('l', "logdev=log").unwrap();
        options.log.device_bytes = Some(log.len());
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.chunks(2) {
            options.apply(pair[0].chars().nth(1).unwrap(), pair[1]).unwrap();
        }
        let layout = Layout::new(&options, data.len()).unwrap();
        write_with_log(&layout, &data, &log, &WriteOptions::default()).unwrap();
        Self { data, log }
    }

    /// A filled volume that was closed, and the same before that, with what the log holds.
    fn filled(line: &str) -> (Self, Self) {
        let pair = Self::new(line);
        let (data, log) = (Arc::new(pair.data), Arc::new(pair.log));
        let mut devices = Devices::new(data.clone());
        devices.log = Some(log.clone());
        let fs = Fs::open_devices(devices, OpenOptions::default()).unwrap();
        fill(&fs);
        fs.quiesce().unwrap();
        let last = fs.create(fs.root(), b"only in the log", &NewInode::file(0o644)).unwrap();
        fs.write_at(last, 0, b"content").unwrap();
        fs.sync().unwrap();
        let dirty = Self { data: (*data).clone(), log: (*log).clone() };
        fs.close().unwrap();
        (Self { data: (*data).clone(), log: (*log).clone() }, dirty)
    }

    fn devices(&self) -> Devices {
        let mut devices = Devices::new(Arc::new(self.data.clone()));
        devices.log = Some(Arc::new(self.log.clone()));
        devices
    }

    fn plan(&self, drop_log: bool) -> uxfs_repair::Result<Plan> {
        let devices = self.devices();
        let mut options = RepairOptions::default();
        (options.drop_log, options.log) = (drop_log, devices.log);
        plan(devices.data, &options, &|_| {})
    }

    fn report(&self) -> Report {
        check(&*self.devices().whole().unwrap(), &CheckOptions::default(), &|_| {}).unwrap()
    }

    fn has_last(&self) -> bool {
        let fs = Fs::open_devices(self.devices(), OpenOptions::read_only()).unwrap();
        fs.lookup(fs.root(), b"only in the log").is_ok()
    }

    /// Fails unless both releases of xfs_repair find nothing.
    fn judge(&self, dir: &Path) {
        let [data, log] = ["data.img", "log.img"].map(|name| dir.join(name));
        save(&self.data, &data);
        save(&self.log, &log);
        for tool in ["/sbin/xfs_repair".into(), Xfsprogs::Current.program("xfs_repair")] {
            let out = Command::new(&tool).arg("-n").arg("-l").args([&log, &data]).output().unwrap();
            assert!(out.status.success(), "{tool:?}: {out:?}");
        }
    }
}

/// Repairs a damaged volume on both devices. It comes out sound, and an undo gives back every byte.
fn repaired(damaged: &Pair, drop_log: bool, what: &str) -> Pair {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("undo");
    let plan = damaged.plan(drop_log).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!plan.is_empty(), "{what}");
    let pair = damaged.clone();
    let (data, log) = (Arc::new(pair.data), Arc::new(pair.log));
    let both = |data: &Arc<MemDev>, log: &Arc<MemDev>| -> Device {
        let mut devices = Devices::new(data.clone());
        devices.log = Some(log.clone());
        devices.side_by_side().unwrap()
    };
    apply(&plan, &*both(&data, &log), &file).unwrap();
    let after = Pair { data: (*data).clone(), log: (*log).clone() };
    let report = after.report();
    assert!(
        report.verdict() == Verdict::Clean && report.log == LogState::Clean,
        "{what}: {report}"
    );
    assert!(after.plan(false).unwrap().is_empty(), "{what}: a second repair finds something");
    after.judge(dir.path());
    undo(&*both(&data, &log), &file).unwrap();
    assert!(bytes(&*data) == bytes(&damaged.data), "{what}: the undo of the data is not exact");
    assert!(bytes(&*log) == bytes(&damaged.log), "{what}: the undo of the log is not exact");
    after
}

#[test]
fn volumes_with_external_logs_are_repaired() {
    for line in ["-b size=1k -m rmapbt=1", "-d agcount=3"] {
        let (closed, dirty) = Pair::filled(line);
        assert!(closed.plan(false).unwrap().is_empty() && closed.has_last(), "{line}");

        // Headers of the first group, and the primary superblock.
        let damaged = closed.clone();
        damaged.data.write_at(512, &[0xa5; 1536]).unwrap();
        assert!(repaired(&damaged, false, "headers").has_last());
        let damaged = closed.clone();
        damaged.data.write_at(0, &[0xa5; 512]).unwrap();
        assert!(repaired(&damaged, false, "superblock").has_last());

        // Changes that are only in the log are replayed, unless it is lost.
        let report = dirty.report();
        assert_eq!(report.log, LogState::Dirty, "{report}");
        let (view, replay) = replayed(dirty.devices().whole().unwrap());
        let mut how = CheckOptions::default();
        how.replay = replay;
        assert!(check(&*view, &how, &|_| {}).unwrap().is_clean());
        assert!(repaired(&dirty, false, "dirty log").has_last());
        let lost = dirty.clone();
        lost.log.write_at(0, &vec![0xa5; 16 << 20]).unwrap();
        assert!(lost.plan(false).unwrap_err().to_string().contains("log"), "{line}");
        repaired(&lost, true, "lost log");
    }
}

#[test]
fn the_log_must_be_given_and_be_that_of_the_volume() {
    let (closed, _) = Pair::filled("");
    let refused = |devices: Devices| {
        let mut options = RepairOptions::default();
        options.log = devices.log;
        plan(devices.data, &options, &|_| {}).unwrap_err().to_string()
    };
    let without = Devices::new(Arc::new(closed.data.clone()));
    assert!(refused(without).contains("--logdev"));
    let mut short = closed.devices();
    short.log = Some(Arc::new(MemDev::new(15 * MIB)));
    assert!(refused(short).contains("its device only"));
    let (other, _) = Pair::filled("-L other");
    let mut foreign = closed.devices();
    foreign.log = other.devices().log;
    assert!(refused(foreign).contains("log"));
}
