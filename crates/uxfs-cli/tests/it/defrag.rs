//! `uxfs defrag` on images and on mounts.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use uxfs::disk::{FileDev, OpenMode};
use uxfs::{Fs, Fsx, NewInode, OpenOptions, Xflags};

use crate::fixture::Fixture;
use crate::mounts::with_dir;

const BLOCK: usize = 4096;
const BLOCKS: usize = 50;

/// Makes `/dir/a`, `/dir/b` and `/kept` in the image, each of one extent a block; the last is flagged.
fn split(fixture: &Fixture) {
    let dev = FileDev::open(&fixture.path("a.img"), OpenMode::Write).unwrap();
    let fs = Fs::open(Arc::new(dev), OpenOptions::default()).unwrap();
    let dir = fs.create(fs.root(), b"dir", &NewInode::dir(0o755)).unwrap();
    let place = [(dir, b"a".as_slice()), (dir, b"b"), (fs.root(), b"kept")];
    let files = place.map(|(dir, name)| fs.create(dir, name, &NewInode::file(0o666)).unwrap());
    for at in 0..BLOCKS {
        for (number, file) in files.iter().enumerate() {
            let byte = b'a' + number as u8;
            fs.write_at(*file, (at * BLOCK) as u64, &[byte; BLOCK]).unwrap();
        }
    }
    let old = fs.get_fsx(files[2]).unwrap();
    fs.set_fsx(files[2], &Fsx { xflags: Xflags::NODEFRAG, ..old }).unwrap();
    fs.close().unwrap();
}

#[test]
fn an_image_is_defragmented() {
    let fixture = Fixture::with_image(&[]);
    split(&fixture);
    let asked = fixture.uxfs(&["defrag", "-n", "a.img:/dir/a"]).good();
    assert_eq!(asked, "a.img:/dir/a: 50 extents, 1 possible\n");
    let all = fixture.uxfs(&["defrag", "-n", "a.img"]).good();
    assert!(all.contains("a.img:/kept: 50 extents, 1 possible\n"), "{all}");
    assert!(all.ends_with("3 files: 150 extents, 3 possible\n"), "{all}");
    let one = fixture.uxfs(&["defrag", "a.img:/dir/a"]).good();
    assert_eq!(one, "a.img:/dir/a: 50 extents before, 1 after, 200K moved\n");
    let kept = fixture.uxfs(&["defrag", "a.img:/kept"]).good();
    assert!(kept.contains("left alone: flagged as not to be defragmented"), "{kept}");
    let rest = fixture.uxfs(&["defrag", "a.img"]).good();
    let expected = "a.img:/dir/b: 50 extents before, 1 after, 200K moved\n\
                    3 files: 101 extents before, 52 after, 200K moved\n";
    assert_eq!(rest, expected);
    let none = fixture.uxfs(&["defrag", "-v", "a.img:/dir/b"]).good();
    assert_eq!(none, "a.img:/dir/b: 1 extents before, 1 after, 0 moved\n");
    for (path, byte) in [("a.img:/dir/a", "a"), ("a.img:/dir/b", "b"), ("a.img:/kept", "c")] {
        assert_eq!(fixture.uxfs(&["cat", path]).good(), byte.repeat(BLOCKS * BLOCK));
    }
    fixture.check("a.img");
}

#[test]
fn refusals_name_the_path() {
    let fixture = Fixture::with_image(&[]);
    split(&fixture);
    let dir = fixture.uxfs(&["defrag", "a.img:/dir"]).bad(1);
    assert!(dir.contains("a.img:/dir: is a directory: -r descends into it"), "{dir}");
    let none = fixture.uxfs(&["defrag", "a.img:/none", "a.img:/dir/a"]);
    assert!(none.err.contains("a.img:/none: no such file or directory"), "{none:?}");
    assert!(none.code == 1 && none.out.contains("a.img:/dir/a: 50 extents"), "{none:?}");
    let host = fixture.uxfs(&["defrag", "."]).bad(1);
    assert!(host.contains("no volume is mounted here by uxfs"), "{host}");
    fixture.uxfs(&["mkdir", "a.img:/empty"]).good();
    fixture.sh("mkfifo pipe");
    fixture.uxfs(&["cp", "-a", "pipe", "a.img:/pipe"]).good();
    let pipe = fixture.uxfs(&["defrag", "a.img:/pipe"]).bad(1);
    assert!(pipe.contains("a.img:/pipe: not a regular file or directory"), "{pipe}");
}

#[test]
fn documents_describe_files() {
    let fixture = Fixture::with_image(&[]);
    split(&fixture);
    let out = fixture.uxfs(&["defrag", "--json", "-r", "-v", "a.img:/"]).good();
    let documents: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(documents.len(), 3);
    let of = |path: &str| documents.iter().find(|d| d["path"] == path).unwrap();
    let a = of("a.img:/dir/a");
    assert_eq!((&a["schema"], &a["version"]), (&"uxfs.defrag".into(), &1.into()));
    assert_eq!((&a["extents_before"], &a["extents_after"]), (&50.into(), &1.into()));
    assert_eq!((&a["extents_possible"], &a["moved_bytes"]), (&1.into(), &204_800.into()));
    assert!(a["kept"].is_null());
    let kept = of("a.img:/kept");
    assert_eq!(kept["kept"], "flagged as not to be defragmented");
    assert_eq!(kept["extents_after"], 50);
}

#[test]
fn a_mount_is_defragmented() {
    let fixture = with_dir();
    split(&fixture);
    fixture.uxfs(&["mount", "a.img", "mnt"]).good();
    assert_eq!(
        fixture.uxfs(&["defrag", "-n", "mnt/dir/a"]).good(),
        "mnt/dir/a: 50 extents, 1 possible\n"
    );
    fixture.uxfs(&["defrag", "mnt"]).bad(1);
    let expected = "mnt/dir/a: 50 extents before, 1 after, 200K moved\n\
                    mnt/dir/b: 50 extents before, 1 after, 200K moved\n\
                    3 files: 150 extents before, 52 after, 400K moved\n";
    assert_eq!(fixture.uxfs(&["defrag", "-r", "mnt"]).good(), expected);
    let kept = fixture.uxfs(&["defrag", "mnt/kept"]).good();
    assert!(kept.contains("left alone"), "{kept}");
    let gone = fixture.uxfs(&["defrag", "mnt/none"]).bad(1);
    assert!(gone.contains("mnt/none"), "{gone}");
    let stats = fixture.uxfs(&["stats", "mnt"]).good();
    assert!(stats.contains("defrag_extents 98\n"), "{stats}");
    fixture.unmount("mnt");
    assert_eq!(fixture.uxfs(&["cat", "a.img:/dir/b"]).good(), "b".repeat(BLOCKS * BLOCK));
    fixture.check("a.img");
}
