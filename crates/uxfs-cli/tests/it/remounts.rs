//! `-o remount`: options that change while a volume is mounted; and options that mount(8) implies.
//!
//! These tests need root, as remounting does.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::io::{Read, Seek, Write};

use crate::fixture::{Fixture, leave_mounts};

fn mounted(options: &str) -> Fixture {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir mnt");
    fixture.uxfs(&["mount", "-o", options, "a.img", "mnt"]).good();
    fixture
}

pub(crate) fn status(fixture: &Fixture, name: &str) -> String {
    let status = fixture.uxfs(&["status", "mnt"]).good();
    let line = status.lines().find(|line| line.trim_start().starts_with(&format!("{name} ")));
    line.unwrap().split_whitespace().nth(1).unwrap().to_owned()
}

#[test]
fn a_mount_becomes_read_only_and_writable_again() {
    let fixture = mounted("rw");
    fixture.sh("mkdir mnt/dir; echo content >mnt/dir/file");
    let mut open = File::open(fixture.path("mnt/dir/file")).unwrap();
    fixture.uxfs(&["mount", "-o", "remount,ro", "mnt"]).good();
    assert_eq!(status(&fixture, "mode"), "ro");
    fixture.sh("grep ' ro,' /proc/self/mountinfo | grep -q \"$(pwd)/mnt\"");
    let refused = fixture.sh("touch mnt/new 2>&1 || true");
    assert!(refused.contains("Read-only file system"), "{refused}");
    // Everything is written in place, and other processes can read the image.
    assert!(fixture.uxfs(&["log", "status", "a.img"]).good().contains("clean"));
    assert_eq!(fixture.uxfs(&["cat", "a.img:/dir/file"]).good(), "content\n");
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "content\n");
    fixture.uxfs(&["mount", "-o", "remount,rw", "a.img", "mnt"]).good();
    assert_eq!(status(&fixture, "mode"), "rw");
    fixture.sh("echo more >>mnt/dir/file; rm -f mnt/new; sync mnt/dir/file");
    open.rewind().unwrap();
    text.clear();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "content\nmore\n");
    drop(open);
    fixture.unmount("mnt");
    fixture.check("a.img");
}

#[test]
fn a_mount_that_began_read_only_becomes_writable() {
    let fixture = mounted("ro");
    fixture.sh("! touch mnt/file 2>/dev/null");
    fixture.uxfs(&["mount", "-o", "remount,rw", "mnt"]).good();
    fixture.sh("echo content >mnt/file");
    fixture.unmount("mnt");
    assert_eq!(fixture.uxfs(&["cat", "a.img:/file"]).good(), "content\n");
    fixture.check("a.img");
}

#[test]
fn files_open_for_writing_keep_a_mount_writable() {
    let fixture = mounted("rw");
    let mut open = File::create(fixture.path("mnt/file")).unwrap();
    let said = fixture.uxfs(&["mount", "-o", "remount,ro", "mnt"]).bad(1);
    assert!(said.contains("open for writing"), "{said}");
    assert_eq!(status(&fixture, "mode"), "rw");
    open.write_all(b"content").unwrap();
    // An unlinked open file would have to be freed.
    fixture.sh("rm mnt/file");
    let said = fixture.uxfs(&["mount", "-o", "remount,commit=20", "mnt"]).bad(1);
    assert!(said.contains("busy"), "{said}");
    assert_eq!(status(&fixture, "commit_seconds"), "1");
    open.rewind().unwrap();
    open.write_all(b"CON").unwrap();
    drop(open);
    fixture.unmount("mnt");
    fixture.check("a.img");
}

#[test]
fn other_options_change_or_are_refused_by_name() {
    let fixture = mounted("noatime");
    let mut open = File::create(fixture.path("mnt/file")).unwrap();
    open.write_all(b"before").unwrap();
    fixture.uxfs(&["mount", "-o", "remount,commit=20,dirty_bytes=8m,discard,sync", "mnt"]).good();
    assert_eq!(status(&fixture, "commit_seconds"), "20");
    assert_eq!(status(&fixture, "dirty_bytes_limit"), "8388608");
    // With `sync` nothing waits in memory.
    open.write_all(b" and after").unwrap();
    assert_eq!(status(&fixture, "dirty_bytes"), "0");
    drop(open);
    for word in
        ["threads=4", "strict_open", "allow_other", "fuseblk", "noio_uring", "nosuch", "sunit=8"]
    {
        let said = fixture.uxfs(&["mount", "-o", &format!("remount,{word}"), "mnt"]).bad(1);
        let named = word.split('=').next().unwrap().replace("noio_", "io_");
        assert!(said.contains(&named), "{word}: {said}");
    }
    fixture.uxfs(&["mount", "-o", "remount,nosync,nodiscard,relatime,noexec", "mnt"]).good();
    assert_eq!(status(&fixture, "commit_seconds"), "20", "what is not named stays");
    fixture.sh("grep \"$(pwd)/mnt\" /proc/self/mountinfo | grep -q 'noexec,relatime'");
    let said = fixture.uxfs(&["mount", "-o", "remount,ro", "a.img"]).bad(1);
    assert!(said.contains("no volume is mounted here"), "{said}");
    fixture.unmount("mnt");
    assert_eq!(fixture.uxfs(&["cat", "a.img:/file"]).good(), "before and after");
    fixture.check("a.img");
}

/// Runs a script in an environment in which mount(8) finds the helper.
fn with_helper(fixture: &Fixture, script: &str) -> String {
    fixture.sh(&format!(
        "unshare -m sh -ec '{}mount -t tmpfs none /sbin; \
         ln -s {} /sbin/mount.fuse.uxfs; {script}' 2>&1",
        leave_mounts(&fixture.path("mnt")),
        env!("CARGO_BIN_EXE_uxfs")
    ))
}

#[test]
fn mount_8_remounts() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir mnt");
    let said = with_helper(
        &fixture,
        "mount -t fuse.uxfs -o noatime a.img mnt; echo content >mnt/file; \
         mount -o remount,ro mnt; ! touch mnt/file 2>/dev/null; grep fuse.uxfs /proc/self/mountinfo; \
         mount -o remount,rw mnt; touch mnt/file; mount -o remount,nosuid mnt; \
         grep fuse.uxfs /proc/self/mountinfo; umount mnt",
    );
    // Other tests can have mounts at the same time.
    let dir = fixture.path("mnt").display().to_string();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains(&dir)).collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].contains(" ro,noatime "), "{said}");
    assert!(lines[1].contains(" rw,nosuid,noatime "), "{said}");
    assert_eq!(fixture.uxfs(&["cat", "a.img:/file"]).good(), "content\n");
    fixture.check("a.img");
}

#[test]
fn mount_8_makes_mounts_with_suid_and_dev_for_root() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir mnt");
    for (options, expected) in [
        ("", " rw,relatime "),
        ("-o suid,dev", " rw,relatime "),
        ("-o nosuid", " rw,nosuid,relatime "),
        ("-o nodev,ro", " ro,nodev,relatime "),
    ] {
        let script = format!(
            "mount -t fuse.uxfs {options} a.img mnt; grep fuse.uxfs /proc/self/mountinfo; \
             umount mnt"
        );
        let said = with_helper(&fixture, &script);
        let dir = fixture.path("mnt").display().to_string();
        let line = said.lines().find(|line| line.contains(&dir));
        assert!(line.is_some_and(|line| line.contains(expected)), "{options}: {said}");
        // umount(8) does not wait.
        fixture.uxfs(&["ls", "a.img:/"]).good();
    }
    fixture.uxfs(&["mount", "a.img", "mnt"]).good();
    fixture.sh("grep \"$(pwd)/mnt\" /proc/self/mountinfo | grep -q 'rw,nosuid,nodev,relatime'");
    fixture.unmount("mnt");
}
