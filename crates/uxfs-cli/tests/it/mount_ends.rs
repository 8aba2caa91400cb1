//! Ends of a mount and their reports: umount, a signal, a killed server, another namespace that keeps
//! the mount, a server that cannot start.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::fixture::{Fixture, Ran, leave_mounts};

/// An image in a directory of its own, and a directory to mount it on.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.sh("mkdir host mnt");
    fixture.image("host/a.img", &[]);
    fixture
}

fn mounted() -> Fixture {
    let fixture = fixture();
    fixture.uxfs(&["mount", "host/a.img", "mnt"]).good();
    fixture
}

/// The process that serves a mount.
pub(crate) fn server(fixture: &Fixture, dir: &str) -> u32 {
    let status = fixture.uxfs(&["status", dir]).good();
    let line = status.lines().find(|line| line.trim_start().starts_with("process "));
    line.unwrap().split_whitespace().last().unwrap().parse().unwrap()
}

/// Waits for an event that must happen. The limit catches a hang.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(300), "never {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).status();
    assert!(sent.unwrap().success());
}

fn kill_server(fixture: &Fixture) {
    let process = server(fixture, "mnt");
    signal(process, "KILL");
    until("dead", || !fixture.uxfs(&["ls", "host/a.img:/"]).err.contains("in use"));
}

/// A mount that fails after the kernel has mounted it leaves neither a mount nor a dirty log.
#[test]
fn a_mount_that_cannot_be_announced_is_ended() {
    let fixture = fixture();
    let mut command = Command::new(env!("CARGO_BIN_EXE_uxfs"));
    command.args(["mount", "-f", "host/a.img", "mnt"]).current_dir(fixture.path(""));
    let ended = command.env("NOTIFY_SOCKET", fixture.path("missing")).output().unwrap();
    let error = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert!(error.contains("NOTIFY_SOCKET=") && error.contains("No such file"), "{error}");
    let dir = fixture.path("mnt");
    assert!(uxfs_fuse::mounts::list().unwrap().iter().all(|mount| mount.dir != dir));
    let status = fixture.uxfs(&["status", "host/a.img"]);
    assert_eq!(status.code, 3, "{status:?}");
}

/// Kills the process when dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process in a separate mount namespace, which keeps the mount.
fn other_namespace(fixture: &Fixture) -> KillOnDrop {
    let script = leave_mounts(&fixture.path("mnt")) + "echo; exec sleep 1000";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", &script]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut byte = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
    KillOnDrop(child)
}

/// A tmpfs of this many MiB that holds an image. Needs root.
struct SmallHost(Fixture);

impl SmallHost {
    fn new(mib: u32) -> Self {
        let fixture = Fixture::new();
        fixture.sh(&format!("mkdir host mnt; mount -t tmpfs -o size={mib}M none host"));
        let host = Self(fixture);
        host.0.image("host/a.img", &[]);
        host
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        for dir in ["mnt", "host"] {
            // A failed test leaves the volume mounted.
            let _ = Command::new("umount").arg("-lq").arg(self.0.path(dir)).status();
        }
    }
}

/// A mount with 2 MB of data in memory that do not fit on the host.
fn full() -> SmallHost {
    let host = SmallHost::new(120);
    let fixture = &host.0;
    // Data is written back on request only.
    let options = "dirty_writeback_centisecs=0,commit=300";
    assert_eq!(fixture.uxfs(&["mount", "-o", options, "host/a.img", "mnt"]).code, 0);
    fixture.sh("head -c 2000000 /dev/urandom >data; echo small >mnt/small");
    fixture.uxfs(&["sync", "mnt"]).good();
    fixture.sh("dd if=/dev/zero of=host/filler bs=64k 2>/dev/null || true; cp data mnt/data");
    host
}

#[test]
fn umount_keeps_the_mount_when_write_back_failed() {
    let host = full();
    let fixture = &host.0;
    let said = fixture.uxfs(&["sync", "mnt"]).bad(1);
    assert!(said.contains("No space left on device"), "{said}");
    let said = fixture.uxfs(&["umount", "mnt"]).bad(1);
    assert!(said.contains("No space left on device"), "{said}");
    assert!(said.contains("still mounted") && said.contains(" of 1 file in memory only"), "{said}");
    assert!(said.contains("--force"), "{said}");
    fixture.sh("cmp data mnt/data");
    let status = fixture.uxfs(&["status", "mnt"]).good();
    assert!(status.contains("sync_error") && status.contains("No space left"), "{status}");
    fixture.sh("rm host/filler");
    fixture.unmount("mnt");
    fixture.uxfs(&["cp", "host/a.img:/data", "back"]).good();
    fixture.sh("cmp data back");
    fixture.check("host/a.img");
}

#[test]
fn umount_by_force_says_what_is_lost() {
    let host = full();
    let fixture = &host.0;
    let said = fixture.uxfs(&["umount", "--force", "mnt"]).bad(1);
    assert!(said.contains("unmounted, but") && said.contains("No space left on device"), "{said}");
    assert!(said.contains("bytes of 1 file are not written"), "{said}");
    assert!(said.contains("uxfs log quiesce"), "{said}");
    for name in ["mnt", "host/a.img"] {
        let status = fixture.uxfs(&["status", name]);
        assert!(status.code == 1 && status.out.contains("failed"), "{status:?}");
        assert!(status.out.contains("not written"), "{status:?}");
    }
    fixture.sh("rm host/filler");
    fixture.uxfs(&["log", "quiesce", "host/a.img"]).good();
    assert_eq!(fixture.uxfs(&["cat", "host/a.img:/small"]).good(), "small\n");
    fixture.check("host/a.img");
}

#[test]
fn a_signal_to_a_server_that_cannot_write_is_an_exit_code() {
    let host = SmallHost::new(120);
    let fixture = &host.0;
    let mut command = Command::new(env!("CARGO_BIN_EXE_uxfs"));
    command.args(["mount", "-f", "-o", "dirty_writeback_centisecs=0", "host/a.img", "mnt"]);
    let server = command.current_dir(fixture.path(".")).stderr(Stdio::piped()).spawn().unwrap();
    until("mounted", || fixture.uxfs(&["status", "mnt"]).code == 0);
    fixture.sh("dd if=/dev/zero of=host/filler bs=64k 2>/dev/null || true");
    fixture.sh("head -c 2000000 /dev/urandom >mnt/data");
    signal(server.id(), "TERM");
    let ended = server.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("No space left on device") && said.contains("not written"), "{said}");
}

#[test]
fn a_stopped_volume_says_why() {
    let fixture = mounted();
    fixture.sh("head -c 3000000 /dev/urandom >mnt/file; mkdir mnt/dir");
    fixture.uxfs(&["sync", "mnt"]).good();
    fixture.sh(
        "truncate -s 1M host/a.img; (echo more >mnt/dir/new; sync mnt/dir) 2>/dev/null || true",
    );
    fixture.uxfs(&["sync", "mnt"]).bad(1);
    let status = fixture.uxfs(&["status", "mnt"]);
    assert!(
        status.code == 1 && status.out.contains("state                  stopped"),
        "{status:?}"
    );
    let why = status.out.lines().find_map(|line| line.strip_prefix("  stopped ")).unwrap().trim();
    let stats = fixture.uxfs(&["stats", "mnt"]).good();
    assert!(stats.contains(&format!("stopped {why}")), "{stats}");
    let said = fixture.uxfs(&["umount", "mnt"]).bad(1);
    assert!(said.contains("unmounted, but the volume had stopped"), "{said}");
    let status = fixture.uxfs(&["status", "mnt"]);
    assert!(status.code == 1 && status.out.contains("failed"), "{status:?}");
}

#[test]
fn status_shows_how_a_mount_ended() {
    let fixture = mounted();
    fixture.sh("echo content >mnt/file");
    fixture.unmount("mnt");
    for name in ["mnt", "host/a.img"] {
        let status = fixture.uxfs(&["status", name]);
        assert!(
            status.code == 3 && status.out.contains("state                  ended"),
            "{status:?}"
        );
    }
    let status = fixture.uxfs(&["status", "--json", "host/a.img"]).out;
    assert!(status.contains("\"state\":\"ended\""), "{status}");
    // A new mount replaces the record of the old one.
    fixture.uxfs(&["mount", "host/a.img", "mnt"]).good();
    let status = fixture.uxfs(&["status", "host/a.img"]).good();
    assert!(status.contains("state                  mounted"), "{status}");
    fixture.unmount("mnt");
}

#[test]
fn status_and_umount_report_a_killed_server() {
    let fixture = mounted();
    fixture.sh("echo content >mnt/file; sync mnt/file");
    kill_server(&fixture);
    for name in ["mnt", "host/a.img"] {
        let status = fixture.uxfs(&["status", name]);
        let state = if name == "mnt" { "dead" } else { "died" };
        assert!(status.code == 1 && status.out.contains(state), "{name}: {status:?}");
    }
    let said = fixture.uxfs(&["umount", "mnt"]).bad(1);
    assert!(said.contains("its server had died") && said.contains("recovers"), "{said}");
    let none = fixture.uxfs(&["umount", "mnt"]).bad(1);
    assert!(none.contains("no volume is mounted here"), "{none}");
    let status = fixture.uxfs(&["status", "host/a.img"]);
    assert!(status.code == 1 && status.out.contains("died"), "{status:?}");
}

#[test]
fn a_dead_mount_does_not_hide_the_others() {
    let (dead, lives) = (mounted(), mounted());
    kill_server(&dead);
    let status = lives.uxfs(&["status"]);
    assert_eq!(status.code, 1, "{status:?}");
    let part = |fixture: &Fixture| {
        let dir = fixture.path("mnt").display().to_string();
        let at = status.out.lines().position(|line| line == dir);
        status.out.lines().skip(at.unwrap()).take(3).collect::<Vec<_>>().join("\n")
    };
    assert!(part(&dead).contains("dead"), "{}", status.out);
    assert!(part(&lives).contains("state                  mounted"), "{}", status.out);
    lives.uxfs(&["status", "mnt"]).good();
    dead.uxfs(&["umount", "mnt"]).bad(1);
    lives.unmount("mnt");
}

#[test]
fn umount_names_the_namespace_that_keeps_a_mount() {
    let fixture = mounted();
    fixture.sh("echo content >mnt/file");
    let server = server(&fixture, "mnt");
    let other = other_namespace(&fixture);
    // The record is found although the image's path has changed.
    fixture.sh("mv host elsewhere");
    let said = fixture.uxfs(&["umount", "--timeout", "2", "mnt"]).bad(1);
    let keeper = format!("(process {})", other.0.id());
    assert!(said.contains("another namespace") && said.contains(&keeper), "{said}");
    assert!(said.lines().count() == 2 && said.contains("waiting"), "said before it ends: {said}");
    let busy = fixture.uxfs(&["mkdir", "elsewhere/a.img:/d"]).bad(1);
    assert!(busy.contains(&format!("in use by uxfs mount (process {server})")), "{busy}");
    // A signal ends the server although the namespace keeps the mount.
    signal(server, "TERM");
    until("ended", || fixture.uxfs(&["status", "elsewhere/a.img"]).code == 3);
    let status = fixture.uxfs(&["status", "elsewhere/a.img"]).out;
    assert!(status.contains("in another namespace") && !status.contains("Invalid"), "{status}");
    assert!(fixture.uxfs(&["log", "status", "elsewhere/a.img"]).good().contains("clean"));
    assert_eq!(fixture.uxfs(&["cat", "elsewhere/a.img:/file"]).good(), "content\n");
}

#[test]
fn umount_waits_until_the_namespace_has_gone() {
    let fixture = mounted();
    let other = other_namespace(&fixture);
    let waits = std::thread::scope(|scope| {
        let waits = scope.spawn(|| fixture.uxfs(&["umount", "--timeout", "600", "mnt"]));
        until("unmounted", || fixture.sh("mountpoint -q mnt || echo gone") == "gone\n");
        drop(other);
        waits.join().unwrap()
    });
    assert_eq!(waits.code, 0, "{waits:?}");
    assert_eq!(fixture.uxfs(&["status", "host/a.img"]).code, 3);
}

#[test]
fn umount_names_the_processes_that_use_a_mount() {
    let fixture = mounted();
    let user = Command::new("sleep").arg("1000").current_dir(fixture.path("mnt")).spawn().unwrap();
    let user = KillOnDrop(user);
    let said = fixture.uxfs(&["umount", "mnt"]).bad(1);
    assert!(said.contains(&format!("in use by sleep (process {})", user.0.id())), "{said}");
    fixture.uxfs(&["status", "mnt"]).good();
    drop(user);
    fixture.unmount("mnt");
}

#[test]
fn only_a_directory_is_a_mount_point() {
    let fixture = fixture();
    fixture.sh("echo text >file");
    for place in ["file", "host/a.img"] {
        let said = fixture.uxfs(&["mount", "host/a.img", place]).bad(1);
        assert!(said.contains("not a directory"), "{said}");
        fixture.uxfs(&["mkdir", &format!("host/a.img:/{}", place.len())]).good();
    }
    assert_eq!(fixture.sh("cat file"), "text\n");
}

#[test]
fn a_server_without_memory_is_an_error_of_mount() {
    let fixture = fixture();
    let uxfs = env!("CARGO_BIN_EXE_uxfs");
    let script = format!(
        "ulimit -v 300000; {uxfs} mount -o threads=16 host/a.img mnt 2>said && echo good; \
         grep -c 'uxfs: mount' said"
    );
    assert_eq!(fixture.sh(&script), "1\n", "{}", fixture.sh("cat said"));
    fixture.sh("! mountpoint -q mnt; ls mnt");
    fixture.uxfs(&["mkdir", "host/a.img:/free"]).good();
}

#[test]
fn a_command_waits_for_a_server_that_closes_the_image() {
    let fixture = fixture();
    for round in 0..5 {
        fixture.uxfs(&["mount", "host/a.img", "mnt"]).good();
        fixture.sh(&format!("head -c 20000000 /dev/urandom >mnt/{round}; fusermount3 -u mnt"));
        fixture.uxfs(&["mkdir", &format!("host/a.img:/d{round}")]).good();
    }
    fixture.check("host/a.img");
}

#[test]
fn the_holder_of_an_image_is_named() {
    let fixture = mounted();
    let (dir, server) = (fixture.path("mnt"), server(&fixture, "mnt"));
    let expected = format!(
        "host/a.img: in use by uxfs mount (process {server}), mounted on {}",
        dir.display()
    );
    let names_holder = |ran: Ran| assert!(ran.err.contains(&expected) && ran.code != 0, "{ran:?}");
    names_holder(fixture.uxfs(&["ls", "host/a.img:/"]));
    names_holder(fixture.uxfs(&["mount", "host/a.img", "host"]));
    names_holder(fixture.uxfs(&["check", "host/a.img"]));
    fixture.unmount("mnt");
}

#[test]
fn a_user_without_write_permission_gets_a_hint() {
    let fixture = fixture();
    fixture.copy_of_the_command("uxfs");
    fixture.sh("chown -R 1000:1000 .; chmod 755 .");
    let as_user = |script: &str| {
        let user = "setpriv --reuid=1000 --regid=1000 --clear-groups";
        fixture.sh(&format!("{user} sh -ec '{script}' 2>&1"))
    };
    let said = as_user("./uxfs mount host/a.img mnt; ./uxfs umount mnt");
    assert!(said.contains("uxfs chown 1000:1000") && said.contains("--owner 1000:1000"), "{said}");
    fixture.uxfs(&["chown", "1000:1000", "host/a.img:/"]).good();
    let said = as_user("./uxfs mount host/a.img mnt; touch mnt/file; ./uxfs umount mnt");
    assert_eq!(said, "");
}

#[test]
fn a_server_in_the_background_writes_to_the_system_log() {
    let fixture = fixture();
    let log = UnixDatagram::bind(fixture.path("log")).unwrap();
    log.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    let uxfs = env!("CARGO_BIN_EXE_uxfs");
    let (dir, log_path) = (fixture.path("."), fixture.path("log"));
    // The test listens in a separate /dev.
    let script = leave_mounts(&dir);
    let script = format!(
        "{script}cd {}; mount -t tmpfs none /dev; mknod /dev/fuse c 10 229; mknod /dev/null c 1 3; \
         ln -s {} /dev/log; {uxfs} mount host/a.img mnt; \
         pid=$({uxfs} status mnt | sed -n 's/^  process  *//p'); sleep 1000 >mnt/file & user=$!; \
         while ! [ -e mnt/file ]; do sleep 0.01; done; kill -TERM $pid; \
         while {uxfs} status host/a.img >/dev/null; [ $? != 3 ]; do sleep 0.01; done; kill $user",
        dir.display(),
        log_path.display()
    );
    let status = Command::new("unshare").args(["-m", "sh", "-c", &script]).status().unwrap();
    assert!(status.success());
    let mut text = [0; 2000];
    let len = log.recv(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text[..len]).into_owned();
    let named = fixture.path("host/a.img").display().to_string();
    assert!(text.starts_with("<28>uxfs[") && text.contains(&named), "{text}");
    assert!(text.contains("was in use by sleep"), "{text}");
}
