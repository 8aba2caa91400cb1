//! A volume on a host that refuses requests, and every ending to end work on the volume.

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
const HANG_LIMIT: Duration = Duration::from_secs(300);

/// A ending to end work on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ending {
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

impl Ending {
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

/// The host's failure, and when it begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) failure: HostFailure,
    /// Number of writes, flushes and allocations that succeed before.
    pub(super) before: u64,
    /// The failure ends after this many refused requests.
    pub(super) times: u64,
}

impl From<HostFailure> for Plan {
    fn from(failure: HostFailure) -> Self {
        Self { failure, before: 0, times: u64::MAX }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostFailure {
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
pub(super) struct Observation {
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
    pub(super) refused: u64,
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
pub(super) struct Setup {
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
            assert!(since.elapsed() < HANG_LIMIT, "the mount did not come up");
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

    fn wait(&mut self) -> (i32, String) {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code().unwrap_or(-1), self.said());
            }
            assert!(since.elapsed() < HANG_LIMIT, "the server does not end: {}", self.said());
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

impl Setup {
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

    /// A setup whose volume holds some acknowledged files.
    pub(super) fn with_tree() -> Self {
        let setup = Self::new();
        setup.fixture.sh("mkdir t; echo content >t/f; head -c 300000 /dev/urandom >t/big");
        assert_eq!(setup.uxfs(&format!("cp {ACKNOWLEDGED} I:/{ACKNOWLEDGED}")).code, 0);
        assert_eq!(setup.uxfs("cp -r t I:/t").code, 0);
        setup
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
    pub(super) fn stop_refusing(&mut self) {
        self.host.stop_refusing();
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

    pub(super) fn failure(&mut self, plan: Plan, last: u64) {
        let refuse = |refusal| self.host.refuse(refusal, plan.before, plan.times);
        match plan.failure {
            HostFailure::None => {}
            HostFailure::Refuses(refusal) => refuse(refusal),
            HostFailure::Limit => refuse(Refusal::Beyond(last, Errno::FBIG)),
            HostFailure::OwnLimit => {
                if let Some(server) = &self.server {
                    server.limit(Some(last));
                }
            }
            HostFailure::Cut => self.cut = Some(self.host.cut(last)),
        }
    }

    /// Writes the files, makes the host refuse, and ends work. Returns exit code and messages.
    fn go(&mut self, plan: Plan, ending: Ending) -> (i32, String) {
        let (last, dir) = self.last_group();
        let image = self.host.image();
        match ending {
            Ending::Close | Ending::Drop => {
                let fs = self.open(OpenMode::Write);
                let put = |dir: Ino, name: &str, content: &[u8]| {
                    let ino = fs.create(dir, name.as_bytes(), &NewInode::file(0o644)).unwrap();
                    fs.write_at(ino, 0, content).unwrap();
                    ino
                };
                let ino = put(fs.root(), ACKNOWLEDGED, &acknowledged());
                fs.fsync(ino).unwrap();
                put(fs.resolve(dir.as_bytes(), true).unwrap(), OTHER, &other());
                self.failure(plan, last);
                let ended = match ending {
                    Ending::Drop => fs.sync(),
                    _ => fs.close(),
                };
                match ended {
                    Ok(()) => (0, String::new()),
                    Err(error) => (1, error.to_string()),
                }
            }
            Ending::Fsync | Ending::Umount | Ending::Term | Ending::Fusermount => {
                let server = Server::start(&self.fixture, &image);
                // Use separate programs: a file that this process has open is inherited for a moment by
                // programs that other tests start, and makes the mount busy.
                self.fixture.sh(&format!(
                    "cp {ACKNOWLEDGED} mnt; sync mnt/{ACKNOWLEDGED}; cp {OTHER} mnt/{dir}"
                ));
                let pid = Pid::from_child(&server.child);
                self.server = Some(server);
                self.failure(plan, last);
                match ending {
                    Ending::Term => {
                        kill_process(pid, Signal::TERM).unwrap();
                        (0, String::new())
                    }
                    Ending::Umount => {
                        let ran = self.unmount(&[env!("CARGO_BIN_EXE_uxfs"), "umount", "mnt"]);
                        (ran.code, ran.err)
                    }
                    Ending::Fsync => {
                        let ran = self.fixture.run(&["sync", &format!("mnt/{dir}/{OTHER}")]);
                        (ran.code, ran.err)
                    }
                    _ => {
                        let ran = self.unmount(&["fusermount3", "-u", "mnt"]);
                        (ran.code, ran.err)
                    }
                }
            }
            Ending::Copy => {
                let img = format!("host/{IMAGE}");
                self.fixture.uxfs(&["cp", ACKNOWLEDGED, &format!("{img}:/{ACKNOWLEDGED}")]).good();
                self.failure(plan, last);
                let target = format!("{img}:/{dir}/{OTHER}");
                let ran = match plan.failure {
                    HostFailure::OwnLimit => {
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
            assert!(since.elapsed() < HANG_LIMIT, "always in use: {ran:?}");
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
            false => Found::Wrong(format!("{size} bytes with content that was never written")),
        }
    }
}

/// Ends work in one ending under one failure, and returns the observations.
pub(super) fn observe(plan: impl Into<Plan>, ending: Ending) -> Observation {
    let mut setup = Setup::new();
    let (_, dir) = setup.last_group();
    let (code, said) = setup.go(plan.into(), ending);
    // Wait for a mount that is ending. A mount that stays is not touched.
    let stays = match ending {
        Ending::Fsync => true,
        Ending::Umount => setup.server.as_ref().is_some_and(Server::is_mounted),
        _ => false,
    };
    let server = setup.server.as_mut().filter(|_| !stays).map(Server::wait);
    let refused = setup.host.refused();
    let status = setup.server.as_ref().map(|_| setup.fixture.uxfs(&["status", "mnt"]));
    let grew = setup.cut.as_ref().is_some_and(|cut| setup.host.has_grown(cut));
    setup.stop_refusing();
    let later = (ending == Ending::Fsync).then(|| setup.later());
    let again = stays.then(|| setup.again());
    let gone = setup.server.as_ref().is_none_or(|server| !server.is_mounted());
    setup.server = None;
    // The next open recovers the volume.
    let after = setup.uxfs("mkdir I:/replayed");
    assert_eq!(after.code, 0, "{after:?}");
    let files = [setup.acknowledged(), setup.find(&format!("{dir}/{OTHER}"), &other())];
    let later = later.map(|code| (code, setup.find(LATER, &acknowledged())));
    let check = setup.uxfs("check I").code;
    setup.judge();
    Observation { code, said, server, again, later, status, gone, refused, grew, files, check }
}
