//! The conformance suite: each topic, a program in `tests/posix`, runs on the mount and on the
//! kernel's XFS, and has to say the same on both, but for what is listed here.

use std::path::Path;
use std::process::Command;

use crate::rig::{Ours, Theirs, Volume};

const SIZE: u64 = 320 << 20;

/// What FUSE does otherwise, by topic and the start of a line, with the reason.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("holes", "collapse", "the kernel's FUSE does not pass it on"),
    ("holes", "insert", "the kernel's FUSE does not pass it on"),
    ("names", "O_TMPFILE", "fuser does not carry it"),
    ("truncate", "longest", "the engine's longest file is 64 KiB shorter than the kernel's"),
    ("truncate", "longer", "the engine's longest file is 64 KiB shorter than the kernel's"),
];

/// What a topic prints in a new directory of a volume.
fn transcript(topic: &str, volume: &dyn Volume) -> Vec<String> {
    let dir = volume.dir().join(topic);
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(0), Some(0)).unwrap();
    crate::rig::run("chmod", &["777".as_ref(), dir.as_os_str()]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/posix/{topic}.py"));
    let output = Command::new("python3")
        .arg("-B")
        .arg(&script)
        .current_dir(&dir)
        .output()
        .expect("python3 is needed: ./test installs it");
    let mut lines: Vec<String> =
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    if !output.status.success() {
        lines.push(format!("ended: {}", String::from_utf8_lossy(&output.stderr)));
    }
    lines
}

fn listed(topic: &str, line: &str) -> bool {
    DIFFERENCES.iter().any(|(of, start, _)| *of == topic && line.starts_with(start))
}

/// Runs topics on both, a volume for all of them, and compares.
fn compare(options: &str, topics: &[&str]) {
    let ours: Box<dyn Volume> = Box::new(Ours::new(SIZE, options));
    let theirs: Box<dyn Volume> = Box::new(Theirs::new(SIZE));
    let mut wrong = String::new();
    for topic in topics {
        let (here, there) = (transcript(topic, &*ours), transcript(topic, &*theirs));
        assert!(there.len() > 3, "{topic}: {there:?}");
        for (mine, kernel) in here.iter().zip(&there) {
            if mine != kernel && !listed(topic, kernel) {
                wrong.push_str(&format!("{topic}\n  mount:  {mine}\n  kernel: {kernel}\n"));
            }
        }
        if here.len() != there.len() {
            let (mine, kernel) = (here.last(), there.last());
            wrong.push_str(&format!("{topic} ended\n  mount:  {mine:?}\n  kernel: {kernel:?}\n"));
        }
    }
    ours.end();
    theirs.end();
    assert!(wrong.is_empty(), "the mount differs from the kernel's XFS:\n{wrong}");
}

#[test]
fn who_may() {
    compare("strict_open", &["permissions", "setid", "acls", "xattrs", "flags"]);
}

#[test]
fn names() {
    compare("", &["names", "links", "rename", "directories", "numbers"]);
}

#[test]
fn content() {
    compare("", &["times", "truncate", "holes", "mapped", "direct", "copying", "locks"]);
}
