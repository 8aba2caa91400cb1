//! `uxfs serve`: its beginning and its end, without a virtual machine.

use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::fixture::Fixture;
use crate::mount_ends::until;

/// A command that serves `a.img`; killed when dropped.
struct Serving(Child);

impl Serving {
    fn start(fixture: &Fixture, args: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_uxfs"))
            .args(["serve", "a.img", "--virtiofs", "socket"])
            .args(args)
            .current_dir(fixture.path("."))
            .stderr(std::fs::File::create(fixture.path("said")).expect("a file"))
            .stdin(Stdio::null())
            .spawn()
            .expect("uxfs starts");
        let serving = Self(child);
        until("ready", || said(fixture).ends_with("ready\n"));
        serving
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .arg(name)
            .arg(self.0.id().to_string())
            .status()
            .expect("kill starts");
        assert!(sent.success());
    }

    fn code(&mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("its state") {
                return status.code();
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "it goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn said(fixture: &Fixture) -> String {
    std::fs::read_to_string(fixture.path("said")).expect("its messages")
}

#[test]
fn a_signal_ends_it_and_the_image_is_its_own_meanwhile() {
    let fixture = Fixture::with_image(&[]);
    for signal in ["-TERM", "-INT", "-HUP"] {
        let mut serving = Serving::start(&fixture, &["-o", "noatime"]);
        let second = fixture.uxfs(&["serve", "a.img", "--virtiofs", "other"]).bad(1);
        assert!(second.contains("in use"), "{second}");
        assert!(!fixture.path("other").exists());
        let status = fixture.uxfs(&["status", "a.img"]);
        assert!(status.out.contains("mounted") && status.out.contains("socket"), "{status:?}");
        serving.signal(signal);
        assert_eq!((serving.code(), said(&fixture)), (Some(0), "ready\n".into()));
        assert!(!fixture.path("socket").exists());
        let status = fixture.uxfs(&["status", "a.img"]);
        assert!(status.code == 3 && status.out.contains("ended"), "{status:?}");
    }
    fixture.check("a.img");
}

/// A process that only tries whether somebody listens is no guest.
#[test]
fn a_connection_without_a_word_does_not_end_it() {
    let fixture = Fixture::with_image(&[]);
    let mut serving = Serving::start(&fixture, &[]);
    for _ in 0..3 {
        drop(UnixStream::connect(fixture.path("socket")).unwrap());
    }
    std::thread::sleep(Duration::from_millis(100));
    assert!(serving.0.try_wait().unwrap().is_none());
    serving.signal("-TERM");
    assert_eq!(serving.code(), Some(0));
}

#[test]
fn sockets_of_others_are_left_alone() {
    let fixture = Fixture::with_image(&[]);
    let serve = |socket: &str| fixture.uxfs(&["serve", "a.img", "--virtiofs", socket]);
    let listener = UnixListener::bind(fixture.path("used")).unwrap();
    let used = serve("used").bad(1);
    assert!(used.contains("used: a process listens on this socket"), "{used}");
    drop(listener);
    std::fs::write(fixture.path("file"), "kept").unwrap();
    let file = serve("file").bad(1);
    assert!(file.contains("not a socket"), "{file}");
    assert_eq!(std::fs::read(fixture.path("file")).unwrap(), b"kept");
    let missing = serve("missing/socket").bad(1);
    assert!(missing.contains("no such file"), "{missing}");
    // One that nobody listens on is replaced.
    drop(UnixListener::bind(fixture.path("socket")).unwrap());
    let mut serving = Serving::start(&fixture, &["--socket-mode", "640", "--stay"]);
    assert_eq!(fixture.sh("stat -c %a socket"), "640\n");
    serving.signal("-TERM");
    assert_eq!(serving.code(), Some(0));
}

#[test]
fn options_of_mounts_are_refused() {
    let fixture = Fixture::with_image(&[]);
    for (option, word) in
        [("fuseblk", "fuseblk"), ("allow_other", "allow_other"), ("noio_uring", "io_uring")]
    {
        let refused = fixture.uxfs(&["serve", "-o", option, "a.img", "--virtiofs", "s"]).bad(1);
        assert!(refused.contains(&format!("option '{word}'")), "{refused}");
        assert!(!fixture.path("s").exists());
    }
    let wrong = fixture.uxfs(&["serve", "-o", "nonsense", "a.img", "--virtiofs", "s"]).bad(1);
    assert!(wrong.contains("nonsense"), "{wrong}");
    let group = ["serve", "a.img", "--virtiofs", "s", "--socket-group", "no such group"];
    assert!(fixture.uxfs(&group).bad(1).contains("no group 'no such group'"));
    fixture.uxfs(&["serve", "a.img"]).bad(2);
    fixture.uxfs(&["serve", "a.img", "--virtiofs", "s", "--tag", &"x".repeat(37)]).bad(2);
}
