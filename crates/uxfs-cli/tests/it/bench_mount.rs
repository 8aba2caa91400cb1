//! `uxfs bench mount`: its parts on small files, what is missing for them, and their end. No figure
//! decides.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::fixture::Fixture;

/// The start of every benchmark here: small, and once.
const SMALL: [&str; 6] = ["bench", "--json", "--dir", ".", "--rounds", "1"];

/// Is something mounted below the fixture's directory?
fn is_mounted(fixture: &Fixture) -> bool {
    let dir = fixture.path("").canonicalize().unwrap();
    let list = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = |line: &str| line.split(' ').nth(4).is_some_and(|at| Path::new(at).starts_with(&dir));
    list.lines().any(at)
}

/// Is anything left of a benchmark?
fn left(fixture: &Fixture) -> bool {
    let mut entries = std::fs::read_dir(fixture.path("")).unwrap();
    let scratch = |name: &OsStr| name.as_encoded_bytes().starts_with(b"uxfs-bench-");
    is_mounted(fixture) || entries.any(|entry| scratch(&entry.unwrap().file_name()))
}

/// Runs parts. Returns their tables.
fn tables(fixture: &Fixture, args: &[&str]) -> Vec<Value> {
    assert!(rustix::process::geteuid().is_root(), "only root can mount the kernel's XFS beside");
    let ran = fixture.uxfs(&[&SMALL[..], &["mount"], args].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!left(fixture), "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

/// The names of a table's rows, and whether each has a figure and its durability.
fn rows(table: &Value) -> Vec<&str> {
    let name = |row: &'_ Value| {
        assert!(row["median"].as_f64().unwrap() > 0.0, "{table}");
        let durability = [&row["durability"], &row["a_crash_could_cost"]];
        assert!(durability.iter().any(|words| words.is_string()), "{table}");
    };
    let rows = table["rows"].as_array().unwrap();
    rows.iter().for_each(name);
    rows.iter().map(|row| row["name"].as_str().unwrap()).collect()
}

const MOUNT: &str = "uxfs mount";
const THROUGH: &str = "FUSE pass-through server";
const KERNEL: &str = "kernel xfs";

#[test]
fn programs_are_timed_and_their_requests_counted() {
    let fixture = Fixture::new();
    fixture.sh("mkdir -p t/fs/xfs t/net; for n in 1 2 3; do echo $n >t/fs/xfs/$n.c; done; \
                echo 4 >t/net/4.c; tar cf t.tar t");
    let args = ["--part", "programs", "--tree", "t.tar", "--mount-options", "commit=7"];
    let tables = tables(&fixture, &args);
    let (requests, times) = tables.split_last().unwrap();
    assert_eq!(times.len(), 7);
    for table in times {
        assert_eq!(rows(table), [MOUNT, KERNEL]);
    }
    assert!(
        times[0]["title"].as_str().unwrap().starts_with("tar x of t.tar: 4 files"),
        "{times:?}"
    );
    let unsynced = "in memory: metadata for 7 s at most, data for 4 s at most";
    assert_eq!(times[0]["rows"][0]["durability"], unsynced);
    assert!(times[3]["title"].as_str().unwrap().contains("t/fs, 3 files"), "{times:?}");
    let step = |at: usize, name: &str| {
        let step = &requests["steps"][at];
        assert_eq!(step["name"], name);
        move |kind: &str| step["requests"][kind][0].as_u64().unwrap_or(0)
    };
    let tar = step(0, "tar x");
    assert_eq!((tar("MKNOD"), tar("MKDIR"), tar("WRITE"), tar("UNLINK")), (4, 4, 4, 0));
    let find = step(1, "find");
    assert_eq!((find("MKNOD"), find("WRITE"), find("READ")), (0, 0, 0));
    assert!(step(2, "git")("FSYNC") + step(2, "git")("WRITE") > 3);
    let rm = step(3, "rm -r");
    assert_eq!((rm("UNLINK"), rm("RMDIR"), rm("MKNOD")), (4, 5, 0));
}

#[test]
fn random_accesses_and_a_computing_program_are_measured() {
    let fixture = Fixture::new();
    let args = ["--part", "random,beside", "--size", "1M", "--seconds", "1", "--threads", "1"];
    let tables = tables(&fixture, &args);
    let [reads, writes, computed, created] = tables.first_chunk().unwrap();
    assert_eq!(rows(reads), [MOUNT, THROUGH, KERNEL]);
    assert_eq!(rows(writes), [MOUNT, THROUGH, KERNEL]);
    assert_eq!(rows(computed), ["alone", MOUNT, KERNEL]);
    assert_eq!(rows(created), [MOUNT, KERNEL]);
}

#[test]
fn dbench_runs_on_the_mount_and_on_a_pass_through_server() {
    let fixture = Fixture::new();
    let tables = tables(&fixture, &["--part", "dbench", "--clients", "2", "--seconds", "2"]);
    assert_eq!(rows(&tables[0]), [MOUNT, THROUGH, KERNEL]);
}

#[test]
fn a_missing_program_is_named_with_its_package() {
    let fixture = Fixture::new();
    let text = "PATH=/nowhere; uxfs bench mount --part programs,dbench,durable,creates";
    let said = fixture.bash(text).bad(1);
    for named in ["git (package git)", "dbench (package dbench)", "fs_mark (package fsmark)"] {
        assert_eq!(said.matches(named).count(), 1, "{said}");
    }
}

#[test]
fn an_error_leaves_nothing() {
    let fixture = Fixture::new();
    fixture
        .sh("mkdir t; echo text | tee t/file no.tar; tar cf cut.tar t; truncate -s 1000 cut.tar");
    for tree in ["none.tar", "no.tar", "cut.tar"] {
        let args = [&SMALL[..], &["mount", "--part", "programs", "--tree", tree]].concat();
        assert!(fixture.uxfs(&args).bad(1).contains("tar"), "{tree}");
        assert!(!left(&fixture), "{tree}");
    }
}

#[test]
fn an_interrupt_leaves_nothing() {
    for part in ["dbench", "random"] {
        let fixture = Fixture::new();
        // As a terminal does, to all processes of a group; but SIGINT may be ignored here.
        let mut child = Command::new(env!("CARGO_BIN_EXE_uxfs"))
            .args(SMALL)
            .args(["mount", "--part", part, "--seconds", "600", "--size", "4G"])
            .current_dir(fixture.path(""))
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while !is_mounted(&fixture) {
            assert!(child.try_wait().unwrap().is_none(), "{part}: ended too early");
            std::thread::sleep(Duration::from_millis(10));
        }
        let group = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process_group(group, rustix::process::Signal::TERM).unwrap();
        assert!(!child.wait().unwrap().success());
        // The guard of the scratch directory ends a moment later; the limit catches a hang.
        let gone = (0..6000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !left(&fixture)
        });
        assert!(gone, "{part}: something is left");
    }
}
