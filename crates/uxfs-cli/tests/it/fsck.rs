//! `uxfs fsck`: fsck(8)'s exit codes, and what it writes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{PipeReader, PipeWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use uxfs::disk::OpenMode;
use uxfs::volume::{self, Location};
use uxfs::{Fs, NewInode, OpenOptions};

use crate::fixture::Fixture;

/// Makes `count` files, in the log only: the volume is left as by a power cut.
pub(crate) fn dirty(image: &Path, count: u32) {
    let dev = volume::open(image, OpenMode::Write, &Location::whole()).unwrap();
    let fs = Fs::open(dev, OpenOptions::default()).unwrap();
    for index in 0..count {
        fs.create(fs.root(), format!("file-{index}").as_bytes(), &NewInode::file(0o644)).unwrap();
    }
    fs.sync().unwrap();
    drop(fs);
}

fn bytes(fixture: &Fixture) -> String {
    fixture.sh("sha256sum a.img")
}

#[test]
fn fsck_of_a_clean_volume_writes_nothing() {
    let fixture = Fixture::with_image(&[]);
    let before = bytes(&fixture);
    for args in [&["fsck", "a.img"][..], &["fsck", "--replay", "a.img"], &["fsck", "-fpy", "a.img"]]
    {
        assert!(fixture.uxfs(args).good().starts_with("clean: "), "{args:?}");
    }
    assert_eq!(bytes(&fixture), before);
}

#[test]
fn fsck_replays_a_dirty_log_if_it_may() {
    let fixture = Fixture::with_image(&[]);
    dirty(&fixture.path("a.img"), 200);
    let before = bytes(&fixture);
    for args in [&["fsck", "a.img"][..], &["fsck", "-n", "a.img"], &["fsck", "-f", "a.img"]] {
        let ran = fixture.uxfs(args);
        assert_eq!(ran.code, 4, "{ran:?}");
        assert!(ran.out.contains("\nsound, log not replayed: "), "{ran:?}");
        assert!(ran.err.contains("run uxfs fsck --replay, or mount the volume"), "{ran:?}");
    }
    let json = fixture.uxfs(&["fsck", "--json", "a.img"]);
    assert!(json.code == 4 && json.out.contains(r#""replayed":false"#), "{json:?}");
    assert_eq!(bytes(&fixture), before, "it was written to");
    fixture.sh("cp a.img b.img; cp a.img c.img");
    let ran = fixture.uxfs(&["fsck", "--replay", "a.img"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{ran:?}");
    assert!(ran.out.starts_with("log replayed: ") && ran.out.contains("\nclean: "), "{ran:?}");
    assert!(ran.out.contains(" 200 entries"), "{ran:?}");
    fixture.check("a.img");
    assert!(fixture.uxfs(&["fsck", "--replay", "a.img"]).good().starts_with("clean: "));
    let json = fixture.uxfs(&["fsck", "-a", "--json", "b.img"]);
    let head =
        r#"{"schema":"uxfs.fsck","version":1,"image":"b.img","replayed":true,"transactions":"#;
    assert!(json.code == 1 && json.out.starts_with(head), "{json:?}");
    assert!(json.out.contains(r#""verdict":"clean","log":"clean""#), "{json:?}");
    fixture.check("b.img");
    // Under the name that fsck(8) calls.
    assert_eq!(fixture.uxfs(&["as", "fsck.xfs", "-n", "c.img"]).code, 4);
    assert_eq!(fixture.uxfs(&["as", "fsck.xfs", "-a", "-f", "c.img"]).code, 1);
    fixture.check("c.img");
}

/// A damaged volume stays as it is, whether its log is dirty or not.
#[test]
fn fsck_leaves_a_damaged_volume_alone() {
    let fixture = Fixture::with_image(&[]);
    uxfs_oracle::db_write(&fixture.path("a.img"), &["agi 1", "write -c magicnum 7"]);
    for _ in 0..2 {
        let before = bytes(&fixture);
        let ran = fixture.uxfs(&["fsck", "--replay", "a.img"]);
        assert_eq!(ran.code, 4, "{ran:?}");
        assert!(ran.out.contains("damaged") && ran.err.contains("see uxfs repair"), "{ran:?}");
        assert_eq!(bytes(&fixture), before, "it was written to");
        // Once more with a dirty log.
        fixture.image("b.img", &[]);
        dirty(&fixture.path("b.img"), 50);
        uxfs_oracle::db_write(&fixture.path("b.img"), &["agi 1", "write -c magicnum 7"]);
        fixture.sh("mv b.img a.img");
    }
}

#[test]
fn fsck_ends_with_8_and_16() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("head -c 1000000 /dev/zero | tr '\\0' x >noise; mkdir dir");
    for image in ["none.img", "noise", "dir"] {
        assert!(fixture.uxfs(&["fsck", "--replay", image]).bad(8).contains(image), "{image}");
    }
    for args in [
        &["fsck"][..],
        &["fsck", "--what", "a.img"],
        &["fsck", "-n", "-a", "a.img"],
        &["fsck", "-n", "--replay", "a.img"],
        &["fsck", "--replay", "--norecovery", "a.img"],
        &["fsck", "a.img", "b.img"],
    ] {
        fixture.uxfs(args).bad(16);
    }
}

/// A full pipe: a write to it blocks.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (read, mut write) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&write).unwrap();
    rustix::fs::fcntl_setfl(&write, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while write.write(&[0; 512]).is_ok() {}
    while write.write(&[0; 1]).is_ok() {}
    rustix::fs::fcntl_setfl(&write, flags).unwrap();
    (read, write)
}

/// Does the process catch SIGINT?
fn catches_interrupt(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0)
}

#[test]
fn fsck_that_is_interrupted_ends_with_32() {
    let fixture = Fixture::with_image(&[]);
    // The write of its result blocks, so it cannot end before the signal.
    let (_read, write) = full_pipe();
    // A test that a shell runs in the background inherits that it ignores interrupts.
    let mut child = Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_uxfs"), "fsck", "a.img"])
        .current_dir(fixture.path(""))
        .stdin(Stdio::null())
        .stdout(write)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !catches_interrupt(child.id()) {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        assert!(begun.elapsed() < Duration::from_secs(300), "it hangs");
        std::thread::sleep(Duration::from_millis(5));
    }
    fixture.sh(&format!("kill -INT {}", child.id()));
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(32), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("cancelled"), "{ended:?}");
}

/// Beside a device an undo file would lie in memory.
#[test]
fn repair_of_a_device_wants_an_undo_file() {
    let fixture = Fixture::with_image(&[]);
    let said = fixture.uxfs(&["repair", "--apply", "/dev/null"]).bad(8);
    assert!(said.contains("--undo-file"), "{said}");
    let said = fixture.uxfs(&["repair", "--apply", "--undo-file", "u", "/dev/null"]).bad(8);
    assert!(!said.contains("--undo-file"), "{said}");
    assert_eq!(fixture.uxfs(&["repair", "--apply", "a.img"]).code, 0);
}
