//! Files with thousands of attributes, in import, copy and resize.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::io::Cursor;

use uxfs::archive::{Entry, Kind, Meta, SparseMap, TarWriter};

use crate::bed::Bed;

/// Makes `x.tar`: a file and a directory with `count` attributes of `len` bytes each, and a link
/// with as many that only root sees.
fn archive(bed: &Bed, count: usize, len: usize) {
    let mut tar = TarWriter::new(File::create(bed.path("x.tar")).unwrap());
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

fn count(bed: &Bed, path: &str) -> usize {
    bed.uxfs(&["xattr", "list", path]).good().lines().filter(|line| line.contains(".n0")).count()
}

#[test]
fn import_takes_files_of_any_number_of_attributes() {
    for (number, len) in [(5000, 20), (50_000, 4), (600, 65_536)] {
        let bed = Bed::new();
        archive(&bed, number, len);
        bed.uxfs(&["import", "-q", "x.tar", "a.img", "--size", "400M"]).good();
        bed.image("old.img", &[]);
        bed.uxfs(&["import", "-q", "x.tar", "old.img"]).good();
        for image in ["a.img", "old.img"] {
            for name in ["f", "d"] {
                let there = count(&bed, &format!("{image}:/{name}"));
                assert_eq!(there, number, "{image} {name} {len}");
            }
            bed.check(image);
        }
        let value = bed.uxfs(&["xattr", "get", "-n", "user.n000007", "--only-values", "a.img:/f"]);
        assert_eq!(value.out.trim_end().len(), len, "{value:?}");
    }
}

#[test]
fn copies_and_resized_volumes_keep_thousands_of_attributes() {
    let bed = Bed::with_image(&[]);
    archive(&bed, 5000, 200);
    bed.uxfs(&["import", "-q", "x.tar", "a.img"]).good();
    bed.image("b.img", &[]);
    bed.uxfs(&["cp", "-a", "a.img:/f", "a.img:/d", "b.img:/"]).good();
    assert_eq!((count(&bed, "b.img:/f"), count(&bed, "b.img:/d")), (5000, 5000));
    bed.check("b.img");
    let told = bed.uxfs(&["resize", "--minimize", "a.img"]).good();
    assert!(told.contains("rebuilt from"), "{told}");
    assert_eq!((count(&bed, "a.img:/f"), count(&bed, "a.img:/d")), (5000, 5000));
    bed.check("a.img");
    // A second resize has nothing to do: it succeeds and gives the reason.
    let told = bed.uxfs(&["resize", "--minimize", "a.img"]).good();
    assert!(told.contains("rebuilt") || told.contains("bytes as before: "), "{told}");
}
