//! A thread of io_uring that fails, with a server of the test's own: that of a volume answers panics itself.

use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use uxfs_transport::{
    Attr, Capabilities, Errno, Filesystem, MountOptions, Negotiation, Node, ReplyAttr, ReplyEntry,
    Request, Session, Settings, Transport,
};

use crate::rig::transports;

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
        let settings = Settings { threads: 1, ring: true };
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
