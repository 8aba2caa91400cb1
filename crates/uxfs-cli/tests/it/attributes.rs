//! Files with thousands of attributes, in import, copy and resize.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::io::Cursor;

use uxfs::archive::{Entry, Kind, Meta, SparseMap, TarWriter};

use crate::fixture::Fixture;

/// Makes `x.tar`: a file and a directory with `count` attributes of `len` bytes each, and a link
/// with as many that only root sees.
fn archive(fixture: &Fixture, count: usize, len: usize) {
    let mut tar = TarWriter::new(File::create(fixture.path("x.tar")).unwrap());
    let file = Kind::File { size: 7, map: SparseMap::whole(7) };
    let link = Kind::Symlink { target: b"f".to_vec() };
    for (name, kind, space) in
        [("f", file, "user"), ("d", Kind::Dir, "user"), ("l", link, "trusted")]
    {
        let attribute = |number| (format!("{space}.n{number:06}").into_bytes(), vec![b'x'; len]);
        let xattrs = (0..count).map(attribute).collect();
        let meta = Meta { mode: 0o755, xattrs, ..Meta::default() };
        let entry = Entry { path: name.into(), kind, meta };
        tar.entry(&entry, &mut Cursor::new(b"content")).unwrap();
    }
    tar.finish().unwrap();
}

fn count(fixture: &Fixture, path: &str) -> usize {
    fixture
        .uxfs(&["xattr", "list", path])
        .good()
        .lines()
        .filter(|line| line.contains(".n0"))
        .count()
}

#[test]
fn import_takes_files_of_any_number_of_attributes() {
    for (number, len) in [(5000, 20), (50_000, 4), (600, 65_536)] {
        let fixture = Fixture::new();
        archive(&fixture, number, len);
        fixture.uxfs(&["import", "-q", "x.tar", "a.img", "--size", "400M"]).good();
        fixture.image("old.img", &[]);
        fixture.uxfs(&["import", "-q", "x.tar", "old.img"]).good();
        for image in ["a.img", "old.img"] {
            for name in ["f", "d"] {
                let there = count(&fixture, &format!("{image}:/{name}"));
                assert_eq!(there, number, "{image} {name} {len}");
            }
            fixture.check(image);
        }
        let value =
            fixture.uxfs(&["xattr", "get", "-n", "user.n000007", "--only-values", "a.img:/f"]);
        assert_eq!(value.out.trim_end().len(), len, "{value:?}");
    }
}

#[test]
fn copies_and_resized_volumes_keep_thousands_of_attributes() {
    let fixture = Fixture::with_image(&[]);
    archive(&fixture, 5000, 200);
    fixture.uxfs(&["import", "-q", "x.tar", "a.img"]).good();
    fixture.image("b.img", &[]);
    fixture.uxfs(&["cp", "-a", "a.img:/f", "a.img:/d", "b.img:/"]).good();
    assert_eq!((count(&fixture, "b.img:/f"), count(&fixture, "b.img:/d")), (5000, 5000));
    fixture.check("b.img");
    let output = fixture.uxfs(&["resize", "--minimize", "a.img"]).good();
    assert!(output.contains("rebuilt from"), "{output}");
    assert_eq!((count(&fixture, "a.img:/f"), count(&fixture, "a.img:/d")), (5000, 5000));
    fixture.check("a.img");
    // A second resize has nothing to do: it succeeds and gives the reason.
    let output = fixture.uxfs(&["resize", "--minimize", "a.img"]).good();
    assert!(output.contains("rebuilt") || output.contains("bytes as before: "), "{output}");
}
