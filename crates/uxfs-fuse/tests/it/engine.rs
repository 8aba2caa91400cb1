//! The engine behind the mount: dirty data, durability, devices that fail or are slow, and the
//! status of a running mount.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use uxfs::Fs;
use uxfs::disk::{BlockDev, FileDev, OpenMode};
use uxfs_fuse::{Mounted, Options, control, mount, mounts};
use uxfs_testkit::{Answer, EIO, FaultDev, Op, Rule, RuleId};

use crate::kill::serve;
use crate::rig::{Image, Ours, Volume, run, transports};

const SIZE: u64 = 320 << 20;

/// Makes writes of file data fail. Only file data is written in vectors.
fn refuse_data(dev: &FaultDev<FileDev>) -> RuleId {
    dev.add(Rule::on(&[Op::WriteVectored]).fail(EIO))
}

/// Flushes wait while it is closed.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    moved: Condvar,
    /// Flushes that came.
    count: AtomicU64,
}

impl Gate {
    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.moved.notify_all();
    }

    fn pass(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        let closed = self.closed.lock().unwrap();
        drop(self.moved.wait_while(closed, |closed| *closed).unwrap());
    }
}

/// A mount of a device whose errors and delays the test controls.
struct Rig {
    image: Image,
    dev: Arc<FaultDev<FileDev>>,
    flushes: Arc<Gate>,
    mounted: Option<Mounted>,
}

impl Rig {
    fn new(options: &str) -> Self {
        let image = Image::new(SIZE, &[]);
        let dev = Arc::new(FaultDev::new(image.device(OpenMode::Write)));
        let flushes = Arc::new(Gate::default());
        let gate = Arc::clone(&flushes);
        dev.add(Rule::on(&[Op::Flush]).before(move |_| {
            gate.pass();
            Answer::Pass
        }));
        let options = Options::parse(options).unwrap();
        let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, options.open_options()).unwrap();
        let mounted = mount(fs, &image.path(), &image.mount_point(), &options).unwrap();
        Self { image, dev, flushes, mounted: Some(mounted) }
    }

    fn dir(&self) -> PathBuf {
        self.image.mount_point()
    }

    fn end(mut self) {
        let mounted = self.mounted.take().unwrap();
        mounted.ender().end().unwrap();
        mounted.wait().unwrap();
        let Self { image, dev, .. } = self;
        drop(dev);
        image.judge();
    }
}

fn number(dir: &Path, of: &[u8], name: &str) -> u64 {
    let pairs = control::ask(dir, of).unwrap();
    let found = pairs.iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("{name}: {pairs:?}")).1.parse().unwrap()
}

/// On a mount with `sync`, and of a file with `chattr +S`: what the kernel's XFS answers when it is durable.
#[test]
fn changes_that_are_to_be_durable_at_once_are() {
    use rustix::fs::{FallocateFlags, IFlags, copy_file_range, fallocate, ioctl_setflags};
    for (options, flags) in [("sync", IFlags::empty()), ("", IFlags::SYNC)] {
        let rig = Rig::new(options);
        let flushes = || rig.flushes.count.load(Ordering::SeqCst);
        let [from, to] = ["from", "to"].map(|name| {
            let path = rig.dir().join(name);
            File::options().read(true).write(true).create_new(true).open(path).unwrap()
        });
        from.write_all_at(&[7; 100_000], 0).unwrap();
        let before = flushes();
        ioctl_setflags(&to, IFlags::NODUMP | flags).unwrap();
        assert!(flushes() > before || options.is_empty(), "flags");
        let before = flushes();
        to.write_all_at(&[1; 10], 0).unwrap();
        assert!(flushes() > before, "a write, {options}");
        let before = flushes();
        fallocate(&to, FallocateFlags::empty(), 0, 1 << 20).unwrap();
        assert!(flushes() > before, "fallocate, {options}");
        let before = flushes();
        copy_file_range(&from, None, &to, None, 65_536).unwrap();
        assert!(flushes() > before, "a copy, {options}");
        drop((from, to));
        rig.end();
    }
}

#[test]
fn errors_of_data_reach_each_handle_and_nothing_is_lost() {
    let rig = Rig::new("strict_open");
    let path = rig.dir().join("f");
    let mut one = File::create(&path).unwrap();
    let two = File::options().write(true).open(&path).unwrap();
    let refused = refuse_data(&rig.dev);
    one.write_all(&[7; 10_000]).unwrap();
    for file in [&one, &two] {
        assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(5));
    }
    // The data is still in memory, and is written as soon as the device works.
    assert_eq!(std::fs::read(&path).unwrap(), [7; 10_000]);
    rig.dev.remove(refused);
    // The last failure was reported to `two` only.
    assert!(one.sync_all().is_err());
    for file in [&one, &two] {
        file.sync_all().unwrap();
    }
    let late = File::open(&path).unwrap();
    late.sync_all().unwrap();
    rig.end();
}

#[test]
fn without_handles_an_error_is_reported_while_it_lasts() {
    let rig = Rig::new("");
    let mut file = File::create(rig.dir().join("f")).unwrap();
    let refused = refuse_data(&rig.dev);
    file.write_all(&[7; 10_000]).unwrap();
    for _ in 0..3 {
        assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(5));
    }
    rig.dev.remove(refused);
    file.sync_all().unwrap();
    rig.end();
}

#[test]
fn other_requests_do_not_wait_for_an_fsync() {
    let rig = Rig::new("threads=2");
    let dir = rig.dir();
    std::fs::write(dir.join("old"), b"content").unwrap();
    control::sync(&dir).unwrap();
    rig.flushes.set(true);
    std::thread::scope(|scope| {
        let syncs: Vec<_> = (0..8)
            .map(|n| {
                let path = dir.join(format!("synced{n}"));
                scope.spawn(move || {
                    let mut file = File::create(path).unwrap();
                    file.write_all(&[n; 5000]).unwrap();
                    file.sync_all().unwrap();
                })
            })
            .collect();
        // Each of the eight has more callers than the server has threads.
        while (0..8).any(|n| !dir.join(format!("synced{n}")).exists()) {
            std::thread::yield_now();
        }
        for n in 0..50 {
            std::fs::write(dir.join(format!("other{n}")), b"content").unwrap();
        }
        assert_eq!(std::fs::read(dir.join("old")).unwrap(), b"content");
        assert!(std::fs::read_dir(&dir).unwrap().count() > 58);
        assert!(
            !syncs.iter().any(|sync| sync.is_finished()),
            "no fsync can return before the flush"
        );
        rig.flushes.set(false);
    });
    rig.end();
}

#[test]
fn dirty_data_is_bounded() {
    let image = Image::new(SIZE, &[]);
    // Data is written only when the limit is reached.
    let options = "dirty_bytes=4m,dirty_writeback_centisecs=0,cache_bytes=8m";
    let volume = Box::new(Ours::of(image, options));
    let dir = volume.dir();
    let file = File::create(dir.join("big")).unwrap();
    let chunk = vec![3; 1 << 20];
    let mut most = 0;
    for n in 0..64 {
        file.write_all_at(&chunk, n << 20).unwrap();
        let dirty = number(&dir, control::STATUS, "dirty_bytes");
        assert!(dirty <= 4 << 20, "{dirty} bytes are dirty");
        most = most.max(dirty);
    }
    // The first file is too small to start write-back; the last one may have been written whole.
    assert!(most >= 1 << 20, "{most} bytes were dirty at most");
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(number(&dir, control::STATUS, "dirty_bytes"), 0);
    assert_eq!(std::fs::read(dir.join("big")).unwrap(), chunk.repeat(64));
    volume.end();
}

#[test]
fn dirty_data_is_written_without_a_sync() {
    let volume = Box::new(Ours::new(SIZE, ""));
    let dir = volume.dir();
    let before = number(&dir, control::STATS, "checkpoints");
    std::fs::write(dir.join("f"), vec![1; 100_000]).unwrap();
    let down = || {
        number(&dir, control::STATUS, "dirty_bytes") == 0
            && number(&dir, control::STATS, "checkpoints") > before
    };
    while !down() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    volume.end();
}

#[test]
fn a_mount_has_control_attributes() {
    let volume = Box::new(Ours::new(SIZE, "commit=30,dirty_bytes=8m"));
    let dir = volume.dir();
    std::fs::create_dir(dir.join("sub")).unwrap();
    std::fs::write(dir.join("sub/f"), vec![1; 50_000]).unwrap();
    let inside = dir.join("sub");
    assert_eq!(number(&inside, control::STATUS, "commit_seconds"), 30);
    assert_eq!(number(&inside, control::STATUS, "dirty_bytes_limit"), 8 << 20);
    assert!(number(&inside, control::STATUS, "blocks_free") > 1000);
    control::sync(&inside).unwrap();
    assert_eq!(number(&dir, control::STATUS, "dirty_bytes"), 0);
    assert!(number(&dir, control::STATS, "flushes") > 0);
    // Listings do not show the names.
    let listed = run("getfattr", &["-d".as_ref(), "-m-".as_ref(), dir.as_os_str()]);
    assert!(!listed.contains("uxfs."), "{listed}");
    let elsewhere = control::ask(Path::new("/"), control::STATUS).unwrap_err();
    assert_eq!(elsewhere.kind(), std::io::ErrorKind::Unsupported);
    volume.end();
}

#[test]
fn the_status_names_the_way_in_which_requests_come() {
    for way in transports() {
        let volume = Box::new(Ours::new(SIZE, way));
        let status = control::ask(&volume.dir(), control::STATUS).unwrap();
        let of =
            |name: &str| status.iter().find(|(found, _)| found == name).map(|(_, text)| &**text);
        match *way {
            "io_uring" => {
                assert_eq!((of("transport"), of("transport_reason")), (Some("io_uring"), None))
            }
            _ => {
                assert_eq!(of("transport"), Some("/dev/fuse"));
                assert_eq!(
                    of("transport_reason"),
                    Some("an option of the mount excludes io_uring")
                );
            }
        }
        volume.end();
    }
}

#[test]
fn fstrim_frees_space_on_the_host() {
    let volume = Box::new(Ours::new(SIZE, ""));
    let dir = volume.dir();
    std::fs::write(dir.join("kept"), vec![1; 5 << 20]).unwrap();
    std::fs::write(dir.join("gone"), vec![2; 60 << 20]).unwrap();
    control::sync(&dir).unwrap();
    let image = dir.with_file_name("image");
    let taken = || std::fs::metadata(&image).unwrap().blocks() * 512;
    let full = taken();
    std::fs::remove_file(dir.join("gone")).unwrap();
    // Its blocks are free when the kernel has forgotten the inode and that is durable.
    let mut said = String::new();
    while taken() + (50 << 20) > full {
        control::sync(&dir).unwrap();
        said = run("fstrim", &["-v".as_ref(), dir.as_os_str()]);
    }
    assert!(said.contains("trimmed"), "{said}");
    // Do not read from the kernel's cache.
    let kept = File::open(dir.join("kept")).unwrap();
    rustix::fs::fadvise(&kept, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    drop(kept);
    assert_eq!(std::fs::read(dir.join("kept")).unwrap(), vec![1; 5 << 20]);
    volume.end();
}

#[test]
fn trimming_reports_progress() {
    let volume = Box::new(Ours::new(SIZE, ""));
    let (steps, received) = std::sync::mpsc::channel();
    volume.on_trim(move |trimming| steps.send(trimming).unwrap());
    run("fstrim", &[volume.dir().as_os_str()]);
    let reports: Vec<_> = received.try_iter().collect();
    let (last, rest) = reports.split_last().unwrap();
    assert_eq!((last.ended, last.done, rest.len() as u64), (true, last.groups, last.groups));
    assert!(last.groups > 1 && last.bytes > SIZE / 2, "{last:?}");
    for (at, step) in rest.iter().enumerate() {
        assert_eq!((step.ended, step.done, step.groups), (false, at as u64, last.groups));
        assert!(step.bytes <= last.bytes && step.elapsed <= last.elapsed);
    }
    volume.end();
}

#[test]
fn with_discard_free_space_is_trimmed_without_fstrim() {
    let volume = Box::new(Ours::new(SIZE, "discard"));
    let dir = volume.dir();
    let image = dir.with_file_name("image");
    let taken = || std::fs::metadata(&image).unwrap().blocks() * 512;
    std::fs::write(dir.join("gone"), vec![2; 60 << 20]).unwrap();
    control::sync(&dir).unwrap();
    let full = taken();
    std::fs::remove_file(dir.join("gone")).unwrap();
    while taken() + (50 << 20) > full {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    volume.end();
}

#[test]
fn each_kind_of_sync_survives_a_kill() {
    let image = Image::new(SIZE, &[]);
    let mut server = serve(&image, "");
    let dir = image.mount_point();
    const O_DSYNC: i32 = 0o10000;
    const O_SYNC: i32 = 0o4010000;
    for (name, flags) in [("dsync", O_DSYNC), ("sync", O_SYNC)] {
        let mut options = File::options();
        let mut file =
            options.write(true).create(true).custom_flags(flags).open(dir.join(name)).unwrap();
        for part in 0..5_u8 {
            file.write_all(&[part; 3000]).unwrap();
        }
    }
    let mut file = File::create(dir.join("fdatasync")).unwrap();
    file.write_all(&[9; 3 << 20]).unwrap();
    file.sync_data().unwrap();
    // Overwrite the content with a longer one.
    file.write_all_at(&[8; 20_000], (3 << 20) - 10_000).unwrap();
    file.sync_data().unwrap();
    std::fs::create_dir(dir.join("dir")).unwrap();
    std::fs::write(dir.join("dir/unsynced"), b"by the root").unwrap();
    control::sync(&dir).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    mounts::unmount(&dir, true).unwrap();
    let again = Box::new(Ours::of(image, ""));
    let parts: Vec<u8> = (0..5_u8).flat_map(|part| [part; 3000]).collect();
    for name in ["dsync", "sync"] {
        assert_eq!(std::fs::read(dir.join(name)).unwrap(), parts, "{name}");
    }
    let mut whole = vec![9; 3 << 20];
    whole.truncate((3 << 20) - 10_000);
    whole.extend([8; 20_000]);
    assert!(std::fs::read(dir.join("fdatasync")).unwrap() == whole);
    assert_eq!(std::fs::read(dir.join("dir/unsynced")).unwrap(), b"by the root");
    again.end();
}

/// Does this kernel forward `syncfs` to mounts of the type `fuseblk`?
fn forwards_syncfs() -> bool {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 18)
}

#[test]
fn syncfs_works_where_the_kernel_forwards_it() {
    let options = "fuseblk,commit=300,dirty_writeback_centisecs=0";
    let volume = Box::new(Ours::new(SIZE, options));
    let dir = volume.dir();
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
    std::fs::create_dir(dir.join("sub")).unwrap();
    std::fs::write(dir.join("sub/f"), &content).unwrap();
    let (checkpoints, dirty) = ("checkpoints", "dirty_bytes");
    let before = number(&dir, control::STATS, checkpoints);
    assert!(number(&dir, control::STATUS, dirty) > 2_000_000);
    rustix::fs::syncfs(File::open(&dir).unwrap()).unwrap();
    if forwards_syncfs() {
        assert_eq!(number(&dir, control::STATUS, dirty), 0, "syncfs wrote the dirty data");
        assert!(number(&dir, control::STATS, checkpoints) > before);
    } else {
        assert!(number(&dir, control::STATUS, dirty) > 2_000_000, "older kernels forward nothing");
    }
    // Otherwise the mount behaves as usual.
    for n in 0..300 {
        std::fs::write(dir.join(format!("sub/{n}")), &content[..n * 10]).unwrap();
    }
    assert_eq!(std::fs::read_dir(dir.join("sub")).unwrap().count(), 301);
    assert!(std::fs::read(dir.join("sub/f")).unwrap() == content);
    std::thread::scope(|scope| {
        for n in 0..8 {
            let file = File::open(dir.join(format!("sub/{n}"))).unwrap();
            scope.spawn(move || file.sync_all().unwrap());
        }
    });
    volume.end();
}

#[test]
fn cached_metadata_is_bounded() {
    const CACHE: u64 = 4 << 20;
    let volume = Box::new(Ours::of(Image::new(1 << 30, &[]), "cache_bytes=4m"));
    let dir = volume.dir();
    let status = |name| number(&dir, control::STATUS, name);
    let look = |what: &str| {
        let inodes = (status("cached_inodes"), status("cached_inodes_dirty"));
        let buffers = (status("cached_buffer_bytes"), status("cached_buffer_bytes_dirty"));
        // Twice the size at which an AIL push begins, as many clean buffers between two sweeps, and
        // what one round of requests adds.
        let dirty = 2 * CACHE / 1024;
        assert!(inodes.1 <= dirty + 64, "{what}: {inodes:?} inodes");
        assert!(inodes.0 <= 2 * (dirty + CACHE / 4096).max(2048), "{what}: {inodes:?} inodes");
        assert!(buffers.1 <= 3 * CACHE + (1 << 20), "{what}: {buffers:?} bytes of buffers");
        assert!(buffers.0 <= buffers.1 + 2 * CACHE, "{what}: {buffers:?} bytes of buffers");
    };
    let files: Vec<_> = (0..30_000).map(|n| dir.join(format!("d{}/f{n}", n / 500))).collect();
    for (n, file) in files.iter().enumerate() {
        if n.is_multiple_of(500) {
            std::fs::create_dir(file.parent().unwrap()).unwrap();
            look("made");
        }
        File::create(file).unwrap();
    }
    for mode in [0o600, 0o640] {
        for (n, file) in files.iter().enumerate() {
            if n.is_multiple_of(500) {
                look("changed");
            }
            std::fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
        }
    }
    for (n, file) in files.iter().enumerate() {
        if n.is_multiple_of(500) {
            look("removed");
        }
        std::fs::remove_file(file).unwrap();
    }
    look("at the end");
    volume.end();
}
