//! io_uring where it fails and where it is forbidden. The server of a volume answers panics itself, so the
//! thread that fails has a server of the test's own.

use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use uxfs_fuse::{Options, control, mount, mounts};
use uxfs_transport::{
    Attr, Capabilities, Errno, Filesystem, MountOptions, Negotiation, Node, ReplyAttr, ReplyEntry,
    Request, Session, Settings, Transport,
};

use crate::rig::{Image, transports};

/// Keeps the reply to a lookup of `waits`, and panics at one of `fails`.
struct Failing {
    kept: Mutex<Vec<ReplyEntry>>,
    waits: Mutex<Sender<()>>,
}

impl Filesystem for Failing {
    fn init(&self, kernel: &mut Negotiation) -> std::io::Result<()> {
        // Otherwise a lookup would wait for another one in the same directory.
        kernel.take(Capabilities::PARALLEL_DIROPS);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: Node, name: &[u8], reply: ReplyEntry) {
        match name {
            b"waits" => {
                self.kept.lock().unwrap().push(reply);
                self.waits.lock().unwrap().send(()).unwrap();
            }
            b"fails" => panic!("a planted failure"),
            _ => reply.error(Errno::NOENT),
        }
    }

    fn getattr(&self, _: &Request, _: Node, reply: ReplyAttr) {
        let attr = Attr { ino: 1, mode: 0o040_755, nlink: 2, ..Attr::default() };
        reply.send(Ok((attr, Duration::ZERO)));
    }
}

/// Callers of the thread that fails, and those of another one, get an error.
#[test]
fn a_ring_that_fails_ends_the_connection() {
    if !transports().contains(&"io_uring") {
        return;
    }
    let processors = sched_getaffinity(None).unwrap();
    let mut own = (0..CpuSet::MAX_CPU).filter(|number| processors.is_set(*number));
    let first = own.next().unwrap();
    let last = own.next_back().unwrap_or(first);
    for (waits_at, fails_at) in [(first, first), (first, last)] {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let (sender, waits) = channel();
        let server = Failing { kept: Mutex::default(), waits: Mutex::new(sender) };
        let options = MountOptions {
            source: "failing".into(),
            fs_type: "fuse.failing".into(),
            words: Vec::new(),
        };
        let settings = Settings { threads: 1, ring: true, can_stop: false };
        let session = Session::mount(server, &dir, &options, settings).unwrap();
        assert_eq!(session.transport(), Transport::Ring);
        let served = std::thread::spawn(move || session.run());
        let waiting = caller(&dir, "waits", waits_at);
        waits.recv().unwrap();
        let failing = caller(&dir, "fails", fails_at);
        for (who, caller) in [("waiting", waiting), ("failing", failing)] {
            let error = caller.join().unwrap().unwrap_err();
            let gone = [Errno::NOTCONN, Errno::CONNABORTED].map(|errno| Some(errno.raw_os_error()));
            assert!(gone.contains(&error.raw_os_error()), "{who}: {error}");
        }
        assert!(served.join().unwrap().is_err(), "serving reports the failure");
        let error = std::fs::metadata(dir.join("later")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NOTCONN.raw_os_error()), "{error}");
        unmount(&dir, UnmountFlags::DETACH).unwrap();
    }
}

/// Looks up a name, on a processor.
fn caller(dir: &Path, name: &str, processor: usize) -> JoinHandle<std::io::Result<()>> {
    let path = dir.join(name);
    std::thread::spawn(move || {
        let mut set = CpuSet::new();
        set.set(processor);
        sched_setaffinity(None, &set).unwrap();
        std::fs::metadata(path).map(drop)
    })
}

/// A container that forbids io_uring, as many do: a filter of one thread refuses it.
#[test]
fn io_uring_is_refused_where_it_is_forbidden() {
    let image = Image::new(320 << 20, &[]);
    let refused = std::thread::spawn(move || {
        forbid_rings();
        let mounted = |words: &str| {
            let options = Options::parse(words).unwrap();
            mount(image.open_with(&options), &image.path(), &image.mount_point(), &options)
        };
        let refused = mounted("io_uring").err().map(|error| error.to_string());
        assert!(mounts::on(&image.mount_point()).unwrap().is_none(), "it stays mounted");
        // Without the option the mount takes the other way, and says why.
        let other = mounted("").unwrap();
        let status = control::ask(other.dir(), control::STATUS).unwrap();
        for (name, text) in [("transport", "/dev/fuse"), ("transport_reason", FORBIDDEN)] {
            assert!(status.contains(&(name.to_owned(), text.to_owned())), "{status:?}");
        }
        other.ender().end().unwrap();
        other.wait().unwrap();
        refused
    });
    assert_eq!(refused.join().unwrap(), Some(format!("option 'io_uring': {FORBIDDEN}")));
}

const FORBIDDEN: &str = "this process may not use io_uring";

/// Refuses new rings to the calling thread, and to those that it starts.
fn forbid_rings() {
    const IO_URING_SETUP: i64 = 425;
    let rules = [(IO_URING_SETUP, Vec::new())].into_iter().collect();
    let refused = SeccompAction::Errno(Errno::PERM.raw_os_error().cast_unsigned());
    let machine = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, machine).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}
