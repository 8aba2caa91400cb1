//! `-o remount`: options that change while a volume is mounted; and options that mount(8) implies.
//!
//! These tests need root, as remounting does.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::io::{Read, Seek, Write};

use crate::bed::{Bed, leave_mounts};

fn mounted(options: &str) -> Bed {
    let bed = Bed::with_image(&[]);
    bed.sh("mkdir mnt");
    bed.uxfs(&["mount", "-o", options, "a.img", "mnt"]).good();
    bed
}

fn status(bed: &Bed, name: &str) -> String {
    let status = bed.uxfs(&["status", "mnt"]).good();
    let line = status.lines().find(|line| line.trim_start().starts_with(&format!("{name} ")));
    line.unwrap().split_whitespace().nth(1).unwrap().to_owned()
}

#[test]
fn a_mount_becomes_read_only_and_writable_again() {
    let bed = mounted("rw");
    bed.sh("mkdir mnt/dir; echo content >mnt/dir/file");
    let mut open = File::open(bed.path("mnt/dir/file")).unwrap();
    bed.uxfs(&["mount", "-o", "remount,ro", "mnt"]).good();
    assert_eq!(status(&bed, "mode"), "ro");
    bed.sh("grep ' ro,' /proc/self/mountinfo | grep -q \"$(pwd)/mnt\"");
    let refused = bed.sh("touch mnt/new 2>&1 || true");
    assert!(refused.contains("Read-only file system"), "{refused}");
    // Everything is written in place, and other processes can read the image.
    assert!(bed.uxfs(&["log", "status", "a.img"]).good().contains("clean"));
    assert_eq!(bed.uxfs(&["cat", "a.img:/dir/file"]).good(), "content\n");
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "content\n");
    bed.uxfs(&["mount", "-o", "remount,rw", "a.img", "mnt"]).good();
    assert_eq!(status(&bed, "mode"), "rw");
    bed.sh("echo more >>mnt/dir/file; rm -f mnt/new; sync mnt/dir/file");
    open.rewind().unwrap();
    text.clear();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "content\nmore\n");
    drop(open);
    bed.uxfs(&["umount", "mnt"]).good();
    bed.check("a.img");
}

#[test]
fn a_mount_that_began_read_only_becomes_writable() {
    let bed = mounted("ro");
    bed.sh("! touch mnt/file 2>/dev/null");
    bed.uxfs(&["mount", "-o", "remount,rw", "mnt"]).good();
    bed.sh("echo content >mnt/file");
    bed.uxfs(&["umount", "mnt"]).good();
    assert_eq!(bed.uxfs(&["cat", "a.img:/file"]).good(), "content\n");
    bed.check("a.img");
}

#[test]
fn files_open_for_writing_keep_a_mount_writable() {
    let bed = mounted("rw");
    let mut open = File::create(bed.path("mnt/file")).unwrap();
    let said = bed.uxfs(&["mount", "-o", "remount,ro", "mnt"]).bad(1);
    assert!(said.contains("open for writing"), "{said}");
    assert_eq!(status(&bed, "mode"), "rw");
    open.write_all(b"content").unwrap();
    // An unlinked open file would have to be freed.
    bed.sh("rm mnt/file");
    let said = bed.uxfs(&["mount", "-o", "remount,commit=20", "mnt"]).bad(1);
    assert!(said.contains("busy"), "{said}");
    assert_eq!(status(&bed, "commit_seconds"), "1");
    open.rewind().unwrap();
    open.write_all(b"CON").unwrap();
    drop(open);
    bed.uxfs(&["umount", "mnt"]).good();
    bed.check("a.img");
}

#[test]
fn other_options_change_or_are_refused_by_name() {
    let bed = mounted("noatime");
    let mut open = File::create(bed.path("mnt/file")).unwrap();
    open.write_all(b"before").unwrap();
    bed.uxfs(&["mount", "-o", "remount,commit=20,dirty_bytes=8m,discard,sync", "mnt"]).good();
    assert_eq!(status(&bed, "commit_seconds"), "20");
    assert_eq!(status(&bed, "dirty_bytes_limit"), "8388608");
    // With `sync` nothing waits in memory.
    open.write_all(b" and after").unwrap();
    assert_eq!(status(&bed, "dirty_bytes"), "0");
    drop(open);
    for word in ["threads=4", "strict_open", "allow_other", "fuseblk", "nosuch", "sunit=8"] {
        let said = bed.uxfs(&["mount", "-o", &format!("remount,{word}"), "mnt"]).bad(1);
        assert!(said.contains(word.split('=').next().unwrap()), "{word}: {said}");
    }
    bed.uxfs(&["mount", "-o", "remount,nosync,nodiscard,relatime,noexec", "mnt"]).good();
    assert_eq!(status(&bed, "commit_seconds"), "20", "what is not named stays");
    bed.sh("grep \"$(pwd)/mnt\" /proc/self/mountinfo | grep -q 'noexec,relatime'");
    let said = bed.uxfs(&["mount", "-o", "remount,ro", "a.img"]).bad(1);
    assert!(said.contains("no volume is mounted here"), "{said}");
    bed.uxfs(&["umount", "mnt"]).good();
    assert_eq!(bed.uxfs(&["cat", "a.img:/file"]).good(), "before and after");
    bed.check("a.img");
}

/// Runs a script in an environment in which mount(8) finds the helper.
fn with_helper(bed: &Bed, script: &str) -> String {
    bed.sh(&format!(
        "unshare -m sh -ec '{}mount -t tmpfs none /sbin; \
         ln -s {} /sbin/mount.fuse.uxfs; {script}' 2>&1",
        leave_mounts(&bed.path("mnt")),
        env!("CARGO_BIN_EXE_uxfs")
    ))
}

#[test]
fn mount_8_remounts() {
    let bed = Bed::with_image(&[]);
    bed.sh("mkdir mnt");
    let said = with_helper(
        &bed,
        "mount -t fuse.uxfs -o noatime a.img mnt; echo content >mnt/file; \
         mount -o remount,ro mnt; ! touch mnt/file 2>/dev/null; grep fuse.uxfs /proc/self/mountinfo; \
         mount -o remount,rw mnt; touch mnt/file; mount -o remount,nosuid mnt; \
         grep fuse.uxfs /proc/self/mountinfo; umount mnt",
    );
    // Other tests can have mounts at the same time.
    let dir = bed.path("mnt").display().to_string();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains(&dir)).collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].contains(" ro,noatime "), "{said}");
    assert!(lines[1].contains(" rw,nosuid,noatime "), "{said}");
    assert_eq!(bed.uxfs(&["cat", "a.img:/file"]).good(), "content\n");
    bed.check("a.img");
}

#[test]
fn mount_8_makes_mounts_with_suid_and_dev_for_root() {
    let bed = Bed::with_image(&[]);
    bed.sh("mkdir mnt");
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
        let said = with_helper(&bed, &script);
        let dir = bed.path("mnt").display().to_string();
        let line = said.lines().find(|line| line.contains(&dir));
        assert!(line.is_some_and(|line| line.contains(expected)), "{options}: {said}");
        // umount(8) does not wait.
        bed.uxfs(&["ls", "a.img:/"]).good();
    }
    bed.uxfs(&["mount", "a.img", "mnt"]).good();
    bed.sh("grep \"$(pwd)/mnt\" /proc/self/mountinfo | grep -q 'rw,nosuid,nodev,relatime'");
    bed.uxfs(&["umount", "mnt"]).good();
}
