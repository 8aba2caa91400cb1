//! The programs of xfsprogs under their names, beside the real ones of the current release: the same
//! standard output and exit code for the same arguments.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod admin;
mod copy;
mod dumps;
mod growfs;
mod page;

use std::fs;

use uxfs_oracle::Xfsprogs::Current;

use crate::fixture::{Fixture, Ran};
use crate::fsck::dirty;

const OURS: &str = env!("CARGO_BIN_EXE_uxfs");
const SIZE: u64 = 320 << 20;

/// Runs both programs, each in a directory of its own, in which the images have the same names.
struct Both(Fixture);

impl Both {
    fn new() -> Self {
        let fixture = Fixture::new();
        fixture.sh("mkdir ours theirs");
        Self(fixture)
    }

    /// Makes a volume by the real mkfs.xfs with these options, for both.
    fn volume(&self, name: &str, options: &[&str]) {
        Current.mkfs(&self.0.path("theirs").join(name), SIZE, options);
        self.share(name);
    }

    /// Gives ours a copy of a file of theirs.
    fn share(&self, name: &str) {
        self.0.sh(&format!("cp --sparse=always theirs/{name} ours/{name}"));
    }

    fn ours(&self, name: &str, args: &[&str]) -> Ran {
        self.0.run(&[&["env", "-C", "ours", OURS, "as", name], args].concat())
    }

    fn theirs(&self, name: &str, args: &[&str]) -> Ran {
        let program = Current.program(name).display().to_string();
        let mut ran = self.0.run(&[&["env", "-C", "theirs", &program], args].concat());
        // fsck.xfs prints the path by which it was called.
        let at = ran.out.find("/fsck.xfs: ").filter(|_| ran.out.starts_with('/'));
        if let Some(at) = at {
            ran.out.drain(..=at);
        }
        ran
    }

    /// What differs if both run with these arguments.
    fn difference(&self, name: &str, args: &[&str]) -> Option<String> {
        let (ours, theirs) = (self.ours(name, args), self.theirs(name, args));
        let same = ours.code == theirs.code && ours.out == theirs.out;
        // A failure must print a message.
        let silent = ours.code != 0 && ours.err.is_empty() && ours.out.is_empty();
        (!same || silent).then(|| format!("{name} {args:?}: ours {ours:#?}, theirs {theirs:#?}"))
    }

    #[track_caller]
    fn alike(&self, name: &str, args: &[&str]) {
        if let Some(difference) = self.difference(name, args) {
            panic!("{difference}");
        }
    }

    #[track_caller]
    fn all_alike(&self, name: &str, cases: &[&[&str]]) {
        let found: Vec<String> =
            cases.iter().filter_map(|args| self.difference(name, args)).collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    /// Are the images of both the same, byte for byte?
    fn same_bytes(&self, name: &str) -> bool {
        let at = |dir: &str| self.0.path(dir).join(name);
        fs::read(at("ours")).unwrap() == fs::read(at("theirs")).unwrap()
    }
}

/// Volumes and other files that every program is given: clean ones, one with a dirty log, damaged ones,
/// and what is no volume.
fn zoo() -> Both {
    let both = Both::new();
    both.volume("clean", &["-L", "label"]);
    both.volume("old", &["-m", "rmapbt=0,reflink=0,bigtime=0", "-i", "nrext64=0,exchange=0"]);
    both.volume("small", &["-b", "size=2k", "-i", "size=1024"]);
    both.volume("dirty", &[]);
    dirty(&both.0.path("theirs/dirty"), 100);
    both.share("dirty");
    for (name, damage) in [
        ("counter", &["sb 0", "write fdblocks 7"][..]),
        ("agi", &["agi 1", "write -c magicnum 7"]),
        ("inode", &["sb 0", "addr rootino", "write core.nlinkv2 9"]),
        ("superblock", &["sb 0", "write -c dblocks 7"]),
    ] {
        both.volume(name, &[]);
        Current.db_write(&both.0.path("theirs").join(name), damage);
        both.share(name);
    }
    both.0.sh("head -c 4000000 /dev/zero | tr '\\0' x >theirs/noise; : >theirs/empty; \
               truncate -s 320m theirs/zeroes; mkdir ours/dir theirs/dir");
    for name in ["noise", "empty", "zeroes"] {
        both.share(name);
    }
    both
}

/// Those whose label and geometry can be shown, and what is no volume.
const SHOWN: [&str; 12] = [
    "clean", "old", "small", "dirty", "counter", "agi", "inode", "noise", "empty", "zeroes", "dir",
    "missing",
];

#[test]
fn xfs_info_is_that_of_xfsprogs() {
    let both = zoo();
    both.all_alike("xfs_info", &SHOWN.map(|file| [file]).each_ref().map(|args| &args[..]));
    // xfsprogs shows a geometry that it knows to be damaged.
    assert!(both.ours("xfs_info", &["superblock"]).bad(1).contains("checksum"));
    both.all_alike("xfs_info", &[&[][..], &["-z", "clean"], &["clean", "old"], &["-t"]]);
}

#[test]
fn xfs_repair_n_is_that_of_xfsprogs() {
    let both = zoo();
    let cases = SHOWN.map(|file| ["-n", file]);
    both.all_alike("xfs_repair", &cases.each_ref().map(|args| &args[..]));
    both.alike("xfs_repair", &["-n", "superblock"]);
    for file in ["clean", "dirty", "agi", "superblock", "noise"] {
        assert!(both.same_bytes(file), "{file} was changed");
    }
    both.all_alike(
        "xfs_repair",
        &[
            &[][..],
            &["-n"],
            &["-z", "-n", "clean"],
            &["-n", "clean", "old"],
            &["clean", "-nvP"],
            &["-nf", "-m", "500", "-t", "10", "clean"],
            &["-ne", "counter"],
            &["-n", "-o", "bhash=100,ag_stride=2", "clean"],
            &["-n", "-o", "nothing", "clean"],
            &["-m"],
        ],
    );
}

/// What the machine's xfs_repair does not know, it could not repair.
#[test]
fn a_link_mkfs_xfs_makes_what_the_machines_xfs_repair_knows() {
    let both = Both::new();
    let at = both.0.path("");
    both.0.sh(&format!(
        "mkdir own old new tree; echo content >tree/file
        for name in mkfs.xfs xfs_repair; do ln -s '{OURS}' own/$name; done
        for pair in old:6.1.0 new:6.10.1; do
            printf '#!/bin/sh\necho xfs_repair version %s\n' ${{pair#*:}} >${{pair%:*}}/xfs_repair
        done
        chmod a+x old/xfs_repair new/xfs_repair"
    ));
    let dirs = |names: &[&str]| {
        let dirs = names.iter().map(|name| at.join(name));
        std::env::join_paths(dirs).unwrap().into_string().unwrap()
    };
    for (number, (names, link, recent)) in [
        (&["own", "old"][..], true, false),
        (&["own", "new", "old"], true, true),
        (&["own"], true, true),
        (&["own", "old"], false, true),
    ]
    .into_iter()
    .enumerate()
    {
        let image = format!("{number}.img");
        let path = format!("PATH={}", dirs(names));
        let (file, ours) = (format!("file,name={image},size=320m"), at.join("own/mkfs.xfs"));
        let ours = ours.to_str().unwrap();
        let program = if link { vec![ours] } else { vec![OURS, "as", "mkfs.xfs"] };
        let args = ["-q", "-d", &file, "-p", "tree"];
        both.0.run(&[&["/usr/bin/env", &path], &program[..], &args].concat()).good();
        let incompat = Current.db(&both.0.path(&image), &["sb 0", "print features_incompat"]);
        let bits = incompat.trim().rsplit("0x").next().unwrap();
        let bits = u32::from_str_radix(bits, 16).unwrap();
        assert_eq!(bits & 0xc0 != 0, recent, "{names:?}, {link}: {incompat}");
        if !recent {
            uxfs_oracle::repair(&both.0.path(&image)).unwrap();
        }
    }
}

#[test]
fn mkfs_xfs_is_that_of_xfsprogs() {
    let both = Both::new();
    both.volume("there", &[]);
    both.0
        .sh("truncate -s 320m theirs/plain; truncate -s 100m theirs/short; echo text >theirs/text");
    for name in ["plain", "short", "text"] {
        both.share(name);
    }
    let uuid = "uuid=01234567-89ab-4def-8123-456789abcdef";
    both.all_alike(
        "mkfs.xfs",
        &[
            &["-N", "plain"][..],
            &["-m", uuid, "plain"],
            &["-f", "-m", uuid, "-L", "label", "-i", "size=1024", "plain"],
            &["-fq", "-m", uuid, "-b", "size=1k", "plain"],
            &["plain", "-f", "-f", "-K", "-m", uuid, "-m", "rmapbt=0,reflink=0"],
            &["-m", uuid, "-d", "file,name=new,size=400m"],
            &["-m", uuid, "-d", "file,size=400m", "newer"],
            &["-f", "-n", "parent=0", "-m", uuid, "-i", "exchange=0,nrext64=0", "plain"],
            &["there"],
            &["short"],
            &["missing"],
            &["-d", "size=400m", "missing"],
            &["-z", "plain"],
            &["plain", "short"],
            &[],
            &["-L"],
            &["-f", "-L", "much-too-long-a-label", "plain"],
            &["-f", "-b", "size=17", "plain"],
            &["-f", "-d", "size=400m", "plain"],
            &["-f", "-d", "size=100000b", "plain"],
            &["-f", "-L", "", "-m", uuid, "plain"],
            &["--unsupported", "-fq", "-d", "size=64m", "-m", uuid, "plain"],
            &["-f", "-d", "name=plain", "-m", uuid],
            &["-f", "dir"],
            &["--help"],
        ],
    );
    let option_file = Current.option_file("lts_6.1").display().to_string();
    for what in ["options", "defaults"] {
        let file = format!("{what}={option_file}");
        both.alike("mkfs.xfs", &["-f", "-m", uuid, "-c", &file, "plain"]);
    }
    for name in ["plain", "new", "newer"] {
        both.0.check(&format!("ours/{name}"));
        both.alike("xfs_info", &[name]);
    }
}

#[test]
fn fsck_xfs_is_that_of_xfsprogs_without_force() {
    let both = zoo();
    for file in ["clean", "dirty", "counter", "noise", "missing"] {
        for options in [&[][..], &["-a"], &["-p"], &["-y"], &["-a", "-y"], &["-A"]] {
            both.alike("fsck.xfs", &[options, &[file]].concat());
        }
    }
    both.alike("fsck.xfs", &["clean", "dirty"]);
    // With -f it checks.
    assert_eq!(both.ours("fsck.xfs", &["-f", "clean"]).code, 0);
    assert_eq!(both.ours("fsck.xfs", &["-f", "counter"]).code, 4);
    assert_eq!(both.ours("fsck.xfs", &["-fn", "dirty"]).code, 4);
    assert_eq!(both.ours("fsck.xfs", &["-fp", "dirty"]).code, 1);
    both.0.check("ours/dirty");
}

#[test]
fn what_is_not_done_is_refused_by_name() {
    let both = Both::new();
    both.volume("a", &[]);
    for (name, args) in [
        ("xfs_metadump", &["-F", "a", "b"][..]),
        ("xfs_metadump", &["-l", "log", "a", "b"]),
        ("xfs_mdrestore", &["-l", "log", "a", "b"]),
        ("xfs_mdrestore", &["-r", "rt", "a", "b"]),
        ("xfsrestore", &["-r", "-f", "dump", "dir"]),
        ("xfs_repair", &["a"]),
        ("xfs_repair", &["-L", "a"]),
        ("xfs_repair", &["-n", "-o", "assume_xfs", "a"]),
        ("xfs_admin", &["-c", "1", "a"]),
        ("xfs_admin", &["-j", "a"]),
        ("xfs_admin", &["-e", "a"]),
        ("xfs_growfs", &["-r", "a"]),
    ] {
        let said = both.ours(name, args).bad(1);
        assert!(said.contains("uxfs does not do this"), "{name} {args:?}: {said}");
        assert!(said.starts_with(&format!("{name}: ")), "{said}");
        assert!(!both.0.path("ours/b").exists());
    }
    assert!(both.same_bytes("a"));
}

#[test]
fn links_and_as_run_the_same_program() {
    let fixture = Fixture::with_image(&["-L", "root"]);
    let link = fixture.sh(&format!(
        "ln -s {OURS} xfs_admin; ln {OURS} xfs_info 2>/dev/null || \
                                    cp {OURS} xfs_info; ./xfs_admin -l a.img; ./xfs_info a.img"
    ));
    assert!(link.starts_with("label = \"root\"\nmeta-data=a.img "), "{link}");
    let named = fixture.uxfs(&["as", "xfs_admin", "-l", "a.img"]).good();
    assert_eq!(named, "label = \"root\"\n");
    for name in [
        "mkfs.xfs",
        "fsck.xfs",
        "xfs_repair",
        "xfs_info",
        "xfs_admin",
        "xfs_growfs",
        "xfs_copy",
        "xfs_freeze",
        "xfs_metadump",
        "xfs_mdrestore",
        "xfsrestore",
    ] {
        let said = fixture.uxfs(&["as", name, "-V"]).good();
        assert!(said.starts_with(&format!("{name} version 7.2.0 (uxfs ")), "{said}");
    }
    assert!(fixture.uxfs(&["as", "xfs_db", "a.img"]).bad(2).contains("xfs_repair"));
    fixture.uxfs(&["as"]).bad(2);
}

/// The comparison itself: it sees other output, another exit code, and silence about a failure.
#[test]
fn a_difference_from_xfsprogs_is_seen() {
    let both = Both::new();
    both.volume("a", &["-L", "one"]);
    both.alike("xfs_admin", &["-l", "a"]);
    both.0.uxfs(&["label", "ours/a", "two"]).good();
    assert!(both.difference("xfs_admin", &["-l", "a"]).unwrap().contains("two"));
    assert!(!both.same_bytes("a"));
    both.0.sh("rm ours/a");
    assert!(both.difference("xfs_admin", &["-l", "a"]).unwrap().contains("no such file"));
    assert!(both.difference("xfs_info", &["a"]).is_some());
}
