//! A volume mounted by uxfs or by the kernel, and checked after it is unmounted.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use uxfs::Fs;
use uxfs::disk::{BlockDev, FileDev, OpenMode};
use uxfs_check::{CheckOptions, check};
use uxfs_fuse::{Mounted, Options, control, mount};
use uxfs_testkit::{Answer, FaultDev, Rule};

/// The options for each way in which requests come here: io_uring where the kernel has it, which CI
/// needs, and the device.
pub(crate) fn transports() -> &'static [&'static str] {
    match std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring") {
        Err(_) => {
            let is_ci = std::env::var_os("CI").is_some();
            assert!(!is_ci, "this kernel has no FUSE over io_uring, which CI tests");
            &["noio_uring"]
        }
        Ok(value) => {
            assert_eq!(
                value.trim(),
                "Y",
                "FUSE over io_uring is off: echo Y >/sys/module/fuse/parameters/enable_uring, as \
                 ./test does"
            );
            &["io_uring", "noio_uring"]
        }
    }
}

/// The way of a number: they alternate.
pub(crate) fn transport(number: u64) -> &'static str {
    let ways = transports();
    ways[usize::try_from(number).unwrap() % ways.len()]
}

/// An image made by mkfs.xfs, in a new directory.
pub(crate) struct Image {
    dir: Dir,
}

/// The directory of an image.
enum Dir {
    Own(tempfile::TempDir),
    /// That of another process.
    Foreign(PathBuf),
}

impl Dir {
    fn path(&self) -> &Path {
        match self {
            Self::Own(dir) => dir.path(),
            Self::Foreign(path) => path,
        }
    }
}

impl Image {
    pub(crate) fn new(size: u64, options: &[&str]) -> Self {
        assert!(rustix::process::geteuid().is_root(), "these tests mount: run them as root");
        assert!(Path::new("/dev/fuse").exists(), "/dev/fuse is missing: modprobe fuse");
        let image = Self { dir: Dir::Own(tempfile::tempdir().unwrap()) };
        // Other users must be able to enter it.
        run("chmod", &[OsStr::new("755"), image.dir.path().as_os_str()]);
        uxfs_oracle::mkfs(&image.path(), size, options);
        std::fs::create_dir(image.mount_point()).unwrap();
        image
    }

    /// The image in a directory that another process made.
    pub(crate) fn existing(dir: &Path) -> Self {
        Self { dir: Dir::Foreign(dir.to_owned()) }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    pub(crate) fn mount_point(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    pub(crate) fn device(&self, mode: OpenMode) -> FileDev {
        FileDev::open(&self.path(), mode).unwrap()
    }

    /// Asserts that the check and `xfs_repair` find the volume sound.
    pub(crate) fn judge(&self) {
        let dev = self.device(OpenMode::Read);
        let report = check(&dev, &CheckOptions::default(), &|_| {}).unwrap();
        assert!(report.is_clean(), "uxfs check: {:#?}", report.findings);
        drop(dev);
        uxfs_oracle::repair(&self.path()).unwrap_or_else(|finding| panic!("{finding}"));
    }

    pub(crate) fn open(&self) -> Fs {
        self.open_with(&Options::default())
    }

    pub(crate) fn open_with(&self, options: &Options) -> Fs {
        let dev = self.device(OpenMode::Write);
        Fs::open(Arc::new(dev), options.open_options()).unwrap()
    }
}

pub(crate) trait Volume {
    fn dir(&self) -> PathBuf;
    fn end(self: Box<Self>);
}

pub(crate) struct Ours {
    image: Image,
    mounted: Option<Mounted>,
}

impl Ours {
    pub(crate) fn new(size: u64, options: &str) -> Self {
        Self::of(Image::new(size, &[]), options)
    }

    pub(crate) fn of(image: Image, options: &str) -> Self {
        let options = Options::parse(&format!("allow_other,dev,suid,{options}")).unwrap();
        let fs = image.open_with(&options);
        let mounted = mount(fs, &image.path(), &image.mount_point(), &options).unwrap();
        Self { image, mounted: Some(mounted) }
    }

    /// Mounts an image through a device that leads to it.
    pub(crate) fn on(image: Image, dev: Arc<dyn BlockDev>, options: &str) -> Self {
        let options = Options::parse(&format!("allow_other,dev,suid,{options}")).unwrap();
        let fs = Fs::open(dev, options.open_options()).unwrap();
        let mounted = mount(fs, &image.path(), &image.mount_point(), &options).unwrap();
        Self { image, mounted: Some(mounted) }
    }

    /// Registers a receiver of trimming progress.
    pub(crate) fn on_trim(&self, report: impl Fn(uxfs_fuse::Trimming) + Send + Sync + 'static) {
        self.mounted.as_ref().unwrap().on_trim(report);
    }

    /// Unmounts, and returns the image.
    pub(crate) fn unmount(self) -> Image {
        let (image, said) = self.end_in_use();
        assert_eq!(said, None);
        image
    }

    /// Ends the mount, which may be in use. Returns the image, and the error that users get.
    pub(crate) fn end_in_use(mut self) -> (Image, Option<String>) {
        let mounted = self.mounted.take().unwrap();
        mounted.ender().end().unwrap();
        let said = mounted.wait().unwrap().map(|detached| detached.to_string());
        let nothing = Image { dir: Dir::Own(tempfile::tempdir().unwrap()) };
        (std::mem::replace(&mut self.image, nothing), said)
    }
}

/// A thread comes to a gate in this time, or not at all.
const GATE_LIMIT: Duration = Duration::from_secs(60);

/// Where threads wait until a test lets them go on.
#[derive(Default)]
pub(crate) struct Gate {
    /// Has one come? Is it open?
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    fn wait(&self, until: impl Fn(&(bool, bool)) -> bool) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| !until(state)).unwrap());
    }

    fn set(&self, to: impl FnOnce(&mut (bool, bool))) {
        to(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    /// Called by a thread that comes.
    pub(crate) fn pass(&self) {
        self.set(|state| state.0 = true);
        self.wait(|state| state.1);
    }

    /// Waits until a thread has come.
    pub(crate) fn reached(&self) {
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(state, GATE_LIMIT, |state| !state.0);
        assert!(!waited.unwrap().1.timed_out(), "no thread came to the gate");
    }

    pub(crate) fn open(&self) {
        self.set(|state| state.1 = true);
    }

    /// As it was before a thread came.
    pub(crate) fn close(&self) {
        self.set(|state| *state = (false, false));
    }
}

/// The device of an image where calls of one thread come to the gate.
pub(crate) fn gated(
    image: &Image,
    rule: Rule,
    thread: &'static str,
) -> (Arc<dyn BlockDev>, Arc<Gate>) {
    let dev = FaultDev::new(image.device(OpenMode::Write));
    let gate = Arc::new(Gate::default());
    let passed = Arc::clone(&gate);
    dev.add(rule.before(move |_| {
        if std::thread::current().name() == Some(thread) {
            passed.pass();
        }
        Answer::Pass
    }));
    (Arc::new(dev), gate)
}

/// How many requests of a kind have come to a mount.
pub(crate) fn requests(dir: &Path, kind: &str) -> u64 {
    let pairs = control::ask(dir, control::STATS).unwrap();
    let name = format!("{}_{kind}", control::REQUESTS);
    let found = pairs.iter().find(|(one, _)| *one == name);
    found.map_or(0, |(_, count)| count.parse().unwrap())
}

impl Volume for Ours {
    fn dir(&self) -> PathBuf {
        self.image.mount_point()
    }

    fn end(self: Box<Self>) {
        self.unmount().judge();
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            // The test has failed already.
            let _ = mounted.ender().end();
            let _ = mounted.wait();
        }
    }
}

/// A mount by the kernel of a volume that mkfs.xfs made and our code never changed.
pub(crate) struct Theirs {
    image: Image,
    mounted: bool,
}

impl Theirs {
    /// Mounts with options of mount(8), if any.
    pub(crate) fn new(size: u64, options: &str) -> Self {
        Self::of(Image::new(size, &[]), options)
    }

    /// A rig on an image that is new.
    pub(crate) fn of(image: Image, options: &str) -> Self {
        let options = format!("loop,{options}");
        run(
            "mount",
            &[
                OsStr::new("-t"),
                OsStr::new("xfs"),
                OsStr::new("-o"),
                OsStr::new(options.trim_end_matches(',')),
                image.path().as_os_str(),
                image.mount_point().as_os_str(),
            ],
        );
        Self { image, mounted: true }
    }
}

impl Volume for Theirs {
    fn dir(&self) -> PathBuf {
        self.image.mount_point()
    }

    fn end(mut self: Box<Self>) {
        unmount(&self.image.mount_point());
        self.mounted = false;
        self.image.judge();
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg("-l").arg(self.image.mount_point()).status();
        }
    }
}

/// A mount that is busy for this long is in use by the test itself.
const BUSY_LIMIT: Duration = Duration::from_secs(60);

/// Unmounts a mount of the kernel's, and tries again while it is busy: a file that a test has open is
/// inherited for a moment by programs that other tests start.
pub(crate) fn unmount(dir: &Path) {
    let since = Instant::now();
    loop {
        let output = Command::new("umount").arg(dir).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return;
        }
        assert!(said.contains("busy") && since.elapsed() < BUSY_LIMIT, "{said}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a program that must succeed, and returns its output.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> String {
    run_in(Path::new("/"), program, args)
}

/// The same in a directory.
pub(crate) fn run_in<S: AsRef<OsStr>>(dir: &Path, program: &str, args: &[S]) -> String {
    let output = Command::new(program).args(args).current_dir(dir).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}: ./test installs it"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{program}: {}\n{out}{err}", output.status);
    out
}
