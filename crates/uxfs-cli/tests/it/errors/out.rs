//! A volume on a host that refuses requests, and every way to end work on the volume.

use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use uxfs::disk::{FileDev, OpenMode};
use uxfs::format::Ino;
use uxfs::{Fs, NewInode};

use super::host::{Cut, Host, IMAGE, Refusal};
use crate::fixture::{Fixture, Ran};

/// Only a hang takes longer.
const HANG: Duration = Duration::from_secs(300);

/// A way to end work on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// `Fs::close`.
    Close,
    /// `Fs::sync`, then drop.
    Drop,
    /// `uxfs umount`.
    Umount,
    /// SIGTERM to the server.
    Term,
    /// `fusermount3 -u`.
    Fusermount,
    /// The end of `uxfs cp`.
    Copy,
    /// A program's `fsync` on a mount. It does not end work, but reports a failure first.
    Fsync,
}

impl Way {
    /// In the order of the page.
    pub(super) const ALL: [Self; 7] = [
        Self::Fsync,
        Self::Umount,
        Self::Term,
        Self::Fusermount,
        Self::Copy,
        Self::Close,
        Self::Drop,
    ];
}

/// The host's trouble, and when it begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) trouble: Trouble,
    /// Number of writes, flushes and allocations that succeed before.
    pub(super) before: u64,
    /// The trouble ends after this many refused requests.
    pub(super) times: u64,
}

impl From<Trouble> for Plan {
    fn from(trouble: Trouble) -> Self {
        Self { trouble, before: 0, times: u64::MAX }
    }
}

/// A failure of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    None,
    Refuses(Refusal),
    /// The host refuses to write to the last allocation group and after it.
    Limit,
    /// The process' own file size limit (`ulimit -f`) prevents writes there.
    OwnLimit,
    /// The host truncates the image by the last allocation group.
    Cut,
}

/// The state of a file afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Whole,
    Absent,
    /// The file is incomplete: shorter, or with blocks of zeroes.
    Part,
    /// The file has content that was never written, or it cannot be read.
    Wrong(String),
}

/// The observations of a test.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Exit code of the command; for the library 0 or 1.
    pub(super) code: i32,
    /// The command's messages, or the library's error.
    pub(super) said: String,
    /// Exit code and messages of the server, if it ended before the host worked again.
    pub(super) server: Option<(i32, String)>,
    /// If the mount still exists: exit code of `uxfs umount` after the host works again.
    pub(super) again: Option<i32>,
    /// A file that a program writes and syncs after the host works again: the program's exit code, and
    /// the file's state.
    pub(super) later: Option<(i32, Found)>,
    /// Output of `uxfs status` after the end of work, before the host works again.
    pub(super) status: Option<Ran>,
    /// Is the mount gone at the end?
    pub(super) gone: bool,
    /// Number of refused requests.
    pub(super) met: u64,
    /// The truncated file has grown again.
    pub(super) grew: bool,
    /// State of the acknowledged file and of the other file.
    pub(super) files: [Found; 2],
    /// Output of `uxfs check` after the log was replayed.
    pub(super) check: i32,
}

const ACKNOWLEDGED: &str = "acknowledged";
const OTHER: &str = "other";
const LATER: &str = "later";

/// A fixture with a volume on a host that can refuse requests.
pub(super) struct Scene {
    server: Option<Server>,
    cut: Option<Cut>,
    host: Host,
    fixture: Fixture,
}

/// Content of a file, different for each.
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).flatten().take(len).collect()
}

fn acknowledged() -> Vec<u8> {
    content(0x1234_5678_9abc, 1_200_000)
}

fn other() -> Vec<u8> {
    content(0xdead_beef_cafe, 2_300_000)
}

/// A server in the foreground.
struct Server {
    child: Child,
    words: PathBuf,
    dir: PathBuf,
}

impl Server {
    fn start(fixture: &Fixture, image: &Path) -> Self {
        let dir = fixture.path("mnt");
        std::fs::create_dir(&dir).unwrap();
        let words = fixture.path("words");
        let mut command = Command::new(env!("CARGO_BIN_EXE_uxfs"));
        command.args(["mount", "-f", "-o", "dirty_writeback_centisecs=0,commit=300"]);
        command.arg(image).arg(&dir).stdin(Stdio::null()).env("LC_ALL", "C");
        let socket = fixture.path("ready");
        let ready = UnixDatagram::bind(&socket).unwrap();
        ready.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        command.env("NOTIFY_SOCKET", socket);
        let child = command.stderr(File::create(&words).unwrap()).spawn().unwrap();
        let mut server = Self { child, words, dir };
        let since = Instant::now();
        let mut state = [0; 16];
        let len = loop {
            if let Ok(len) = ready.recv(&mut state) {
                break len;
            }
            let ended = server.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", server.said());
            assert!(since.elapsed() < HANG, "the mount did not come up");
        };
        assert_eq!((&state[..len], server.is_mounted()), (&b"READY=1"[..], true));
        server
    }

    /// Limits the size of files that the server writes.
    fn limit(&self, bytes: Option<u64>) {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Fsize, limit).unwrap();
    }

    fn is_mounted(&self) -> bool {
        let all = uxfs_fuse::mounts::list().unwrap();
        all.iter().any(|mount| mount.dir == self.dir)
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.words).unwrap()
    }

    /// Waits for the server's end.
    fn wait(&mut self) -> (i32, String) {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code().unwrap_or(-1), self.said());
            }
            assert!(since.elapsed() < HANG, "the server does not end: {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A failed test leaves the server running.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.is_mounted() {
            let _ = uxfs_fuse::mounts::unmount(&self.dir, true);
        }
    }
}

impl Scene {
    fn new() -> Self {
        let fixture = Fixture::new();
        std::fs::create_dir(fixture.path("host")).unwrap();
        let host = Host::new(&fixture.path("backing"), &fixture.path("host"));
        fixture.image(&format!("host/{IMAGE}"), &[]);
        std::fs::write(fixture.path(ACKNOWLEDGED), acknowledged()).unwrap();
        std::fs::write(fixture.path(OTHER), other()).unwrap();
        let dirs: Vec<String> = (0..4).map(|n| format!("host/{IMAGE}:/d{n}")).collect();
        let mkdir = ["mkdir"].into_iter().chain(dirs.iter().map(String::as_str));
        fixture.uxfs(&mkdir.collect::<Vec<_>>()).good();
        Self { server: None, cut: None, host, fixture }
    }

    /// A scene whose volume holds some acknowledged files.
    pub(super) fn with_tree() -> Self {
        let scene = Self::new();
        scene.fixture.sh("mkdir t; echo content >t/f; head -c 300000 /dev/urandom >t/big");
        assert_eq!(scene.uxfs(&format!("cp {ACKNOWLEDGED} I:/{ACKNOWLEDGED}")).code, 0);
        assert_eq!(scene.uxfs("cp -r t I:/t").code, 0);
        scene
    }

    /// Runs a command line in which `I` means the image.
    pub(super) fn uxfs(&self, line: &str) -> Ran {
        let img = format!("host/{IMAGE}");
        let words = line.split(' ').map(|word| match word.strip_prefix('I') {
            Some(path) if path.is_empty() || path.starts_with(':') => format!("{img}{path}"),
            _ => word.to_owned(),
        });
        let words: Vec<String> = words.collect();
        self.fixture.uxfs(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Makes the host work again.
    pub(super) fn mend(&mut self) {
        self.host.mend();
        if let Some(server) = self.server.as_mut().filter(|server| server.is_mounted()) {
            server.limit(None);
        }
        if let Some(cut) = self.cut.take() {
            self.host.restore(&cut);
        }
    }

    /// The state of the acknowledged file.
    pub(super) fn acknowledged(&self) -> Found {
        self.find(ACKNOWLEDGED, &acknowledged())
    }

    /// Runs xfs_repair. It replays no log, so callers use it only with a clean log.
    pub(super) fn repair(&self) {
        let ran = self.fixture.run(&["xfs_repair", "backing"]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }

    /// Asserts that xfs_repair finds no damage.
    pub(super) fn judge(&self) {
        self.fixture.check("backing");
    }

    /// Opens the volume with the library.
    fn open(&self, mode: OpenMode) -> Fs {
        let options = match mode {
            OpenMode::Read => uxfs::OpenOptions::read_only(),
            _ => uxfs_fuse::Options::default().open_options(),
        };
        let dev = FileDev::open(&self.host.image(), mode).unwrap();
        Fs::open(Arc::new(dev), options).unwrap()
    }

    /// Offset of the last allocation group, which lies after the log, and a directory in that group.
    pub(super) fn last_group(&self) -> (u64, String) {
        let fs = self.open(OpenMode::Read);
        let geo = &fs.geo;
        let first = u64::from(geo.ag_count - 1) * u64::from(geo.ag_blocks);
        let offset = first << geo.block_log;
        let log = fs.geo.fsb_daddr(geo.log_start).0 * 512;
        assert!(log < offset, "the log lies in the last group");
        let inos = (0..4).map(|n| (fs.resolve(format!("/d{n}").as_bytes(), true).unwrap(), n));
        let (_, last) = inos.max().unwrap();
        (offset, format!("d{last}"))
    }

    pub(super) fn trouble(&mut self, plan: Plan, last: u64) {
        let refuse = |refusal| self.host.refuse(refusal, plan.before, plan.times);
        match plan.trouble {
            Trouble::None => {}
            Trouble::Refuses(refusal) => refuse(refusal),
            Trouble::Limit => refuse(Refusal::Beyond(last, Errno::FBIG)),
            Trouble::OwnLimit => {
                if let Some(server) = &self.server {
                    server.limit(Some(last));
                }
            }
            Trouble::Cut => self.cut = Some(self.host.cut(last)),
        }
    }

    /// Writes the files, makes the host refuse, and ends work. Returns exit code and messages.
    fn go(&mut self, plan: Plan, way: Way) -> (i32, String) {
        let (last, dir) = self.last_group();
        let image = self.host.image();
        match way {
            Way::Close | Way::Drop => {
                let fs = self.open(OpenMode::Write);
                let put = |dir: Ino, name: &str, content: &[u8]| {
                    let ino = fs.create(dir, name.as_bytes(), &NewInode::file(0o644)).unwrap();
                    fs.write_at(ino, 0, content).unwrap();
                    ino
                };
                let ino = put(fs.root(), ACKNOWLEDGED, &acknowledged());
                fs.fsync(ino).unwrap();
                put(fs.resolve(dir.as_bytes(), true).unwrap(), OTHER, &other());
                self.trouble(plan, last);
                let ended = match way {
                    Way::Drop => fs.sync(),
                    _ => fs.close(),
                };
                match ended {
                    Ok(()) => (0, String::new()),
                    Err(error) => (1, error.to_string()),
                }
            }
            Way::Fsync | Way::Umount | Way::Term | Way::Fusermount => {
                let server = Server::start(&self.fixture, &image);
                // Use separate programs: a file that this process has open is inherited for a moment by
                // programs that other tests start, and makes the mount busy.
                self.fixture.sh(&format!(
                    "cp {ACKNOWLEDGED} mnt; sync mnt/{ACKNOWLEDGED}; cp {OTHER} mnt/{dir}"
                ));
                let pid = Pid::from_child(&server.child);
                self.server = Some(server);
                self.trouble(plan, last);
                match way {
                    Way::Term => {
                        kill_process(pid, Signal::TERM).unwrap();
                        (0, String::new())
                    }
                    Way::Umount => {
                        let ran = self.unmount(&[env!("CARGO_BIN_EXE_uxfs"), "umount", "mnt"]);
                        (ran.code, ran.err)
                    }
                    Way::Fsync => {
                        let ran = self.fixture.run(&["sync", &format!("mnt/{dir}/{OTHER}")]);
                        (ran.code, ran.err)
                    }
                    _ => {
                        let ran = self.unmount(&["fusermount3", "-u", "mnt"]);
                        (ran.code, ran.err)
                    }
                }
            }
            Way::Copy => {
                let img = format!("host/{IMAGE}");
                self.fixture.uxfs(&["cp", ACKNOWLEDGED, &format!("{img}:/{ACKNOWLEDGED}")]).good();
                self.trouble(plan, last);
                let target = format!("{img}:/{dir}/{OTHER}");
                let ran = match plan.trouble {
                    Trouble::OwnLimit => {
                        let uxfs = env!("CARGO_BIN_EXE_uxfs");
                        let line =
                            format!("ulimit -f {}; exec {uxfs} cp {OTHER} {target}", last / 512);
                        self.fixture.run(&["sh", "-c", &line])
                    }
                    _ => self.fixture.uxfs(&["cp", OTHER, &target]),
                };
                (ran.code, ran.err)
            }
        }
    }

    /// Runs a command that unmounts, and repeats it while the mount is busy: `uxfs status` of another
    /// test has the directory open for a moment.
    fn unmount(&self, command: &[&str]) -> Ran {
        let since = Instant::now();
        loop {
            let ran = self.fixture.run(command);
            let busy = ["busy", "in use by", "Invalid argument"];
            let is_there = self.server.as_ref().is_some_and(Server::is_mounted);
            if ran.code == 0 || !is_there || !busy.iter().any(|words| ran.err.contains(words)) {
                return ran;
            }
            std::thread::sleep(Duration::from_millis(5));
            assert!(since.elapsed() < HANG, "always in use: {ran:?}");
        }
    }

    /// Writes and syncs a file on the mount. Returns the program's exit code.
    fn later(&self) -> i32 {
        let line = format!("cp {ACKNOWLEDGED} mnt/{LATER} && sync mnt/{LATER}");
        self.fixture.run(&["sh", "-c", &line]).code
    }

    /// Ends the remaining mount after the host works again.
    fn again(&mut self) -> i32 {
        let ran = self.unmount(&[env!("CARGO_BIN_EXE_uxfs"), "umount", "mnt"]);
        let Some(server) = &mut self.server else { return ran.code };
        if ran.code != 0 && server.is_mounted() {
            // A stopped volume cannot write any more.
            assert_eq!(self.fixture.uxfs(&["umount", "--force", "mnt"]).code, 1);
        }
        server.wait();
        ran.code
    }

    /// The state of a file in the image.
    fn find(&self, path: &str, wanted: &[u8]) -> Found {
        let fs = self.open(OpenMode::Read);
        let Ok(ino) = fs.resolve(path.as_bytes(), true) else { return Found::Absent };
        let size = fs.stat(ino).unwrap().size as usize;
        let mut content = vec![0; size];
        if let Err(error) = fs.read_at(ino, 0, &mut content) {
            return Found::Wrong(error.to_string());
        }
        if content == wanted {
            return Found::Whole;
        }
        let fits = |(have, want): (&[u8], &[u8])| have == want || have.iter().all(|b| *b == 0);
        let mut blocks = content.chunks(4096).zip(wanted.chunks(4096));
        match size <= wanted.len() && blocks.all(|(have, want)| fits((have, &want[..have.len()]))) {
            true => Found::Part,
            false => Found::Wrong(format!("{size} bytes with content that nobody wrote")),
        }
    }
}

/// Ends work in one way under one trouble, and returns the observations.
pub(super) fn see(plan: impl Into<Plan>, way: Way) -> Seen {
    let mut scene = Scene::new();
    let (_, dir) = scene.last_group();
    let (code, said) = scene.go(plan.into(), way);
    // Wait for a mount that is ending. A mount that stays is not touched.
    let stays = match way {
        Way::Fsync => true,
        Way::Umount => scene.server.as_ref().is_some_and(Server::is_mounted),
        _ => false,
    };
    let server = scene.server.as_mut().filter(|_| !stays).map(Server::wait);
    let met = scene.host.met();
    let status = scene.server.as_ref().map(|_| scene.fixture.uxfs(&["status", "mnt"]));
    let grew = scene.cut.as_ref().is_some_and(|cut| scene.host.has_grown(cut));
    scene.mend();
    let later = (way == Way::Fsync).then(|| scene.later());
    let again = stays.then(|| scene.again());
    let gone = scene.server.as_ref().is_none_or(|server| !server.is_mounted());
    scene.server = None;
    // The next open recovers the volume.
    let after = scene.uxfs("mkdir I:/replayed");
    assert_eq!(after.code, 0, "{after:?}");
    let files = [scene.acknowledged(), scene.find(&format!("{dir}/{OTHER}"), &other())];
    let later = later.map(|code| (code, scene.find(LATER, &acknowledged())));
    let check = scene.uxfs("check I").code;
    scene.judge();
    Seen { code, said, server, again, later, status, gone, met, grew, files, check }
}
