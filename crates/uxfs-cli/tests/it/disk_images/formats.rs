//! Disks and volumes in the formats that are written: qemu-img and zstd read them back.

use std::fs;

use super::{cut, describe, repeatable, sources, value};
use crate::fixture::Fixture;

#[test]
fn each_format_holds_the_same_disk_and_builds_repeat() {
    let _ = uxfs_oracle::program("qemu-img", "qemu-utils");
    let fixture = sources();
    repeatable(
        &fixture,
        "for f in a.img b.img c.qcow2 d.vhd e.raw.zst; do uxfs disk build -q disk.toml -o $f; sleep 0.1; done; \
         uxfs disk build -q disk.toml --compress -o f.qcow2; touch esp/loader/loader.conf; \
         uxfs disk build -q disk.toml --compress -o g.qcow2; \
         uxfs disk build -q disk.toml --format raw.zst -o h",
    );
    fixture.sh(
        "cmp a.img b.img; cmp f.qcow2 g.qcow2; cmp e.raw.zst h; zstd -qdc e.raw.zst | cmp - a.img; \
                qemu-img compare -q -f raw -F vpc a.img d.vhd; \
                for f in c f; do qemu-img check -q $f.qcow2; \
                qemu-img compare -q -f raw -F qcow2 a.img $f.qcow2; done",
    );
    let size = |name: &str| fs::metadata(fixture.path(name)).unwrap().len();
    assert!(size("f.qcow2") < size("c.qcow2"));
    assert!(size("c.qcow2") < size("a.img") / 2, "a cluster of zeroes is stored");
    // Both are read back.
    for image in ["c.qcow2", "f.qcow2"] {
        assert_eq!(
            fixture.uxfs(&["cat", "--partition", "root", &format!("{image}:/file")]).good(),
            "hello"
        );
        fixture.uxfs(&["check", "-q", "--partition", "home", image]).good();
    }
    // Other bytes without the variable, and nothing else is left.
    fixture.uxfs(&["disk", "build", "-q", "-f", "disk.toml", "-o", "b.img"]).good();
    assert_eq!(
        fixture.sh("cmp -s a.img b.img || echo differ; ls -A | grep '^\\.' || true"),
        "differ\n"
    );
}

#[test]
fn imports_go_straight_into_other_formats() {
    let _ = uxfs_oracle::program("qemu-img", "qemu-utils");
    let fixture = Fixture::new();
    fixture.tree();
    let uuid = "--uuid 12341234-a4ec-4304-a70f-c549ea829da9 --size 320M";
    repeatable(
        &fixture,
        &format!(
            "uxfs import -q t a.img {uuid}; uxfs import -q t b.raw.zst {uuid}; \
             uxfs import -q t c.vhd {uuid}; uxfs import -q t d.qcow2 --compress {uuid}; \
             uxfs import -q t e --output qcow2 {uuid}; uxfs import -q t f.vhd --output raw {uuid}; \
             uxfs import -q t g.raw.zst {uuid}"
        ),
    );
    fixture.check("a.img");
    fixture.sh("cmp a.img f.vhd; cmp b.raw.zst g.raw.zst; zstd -qdc b.raw.zst | cmp - a.img; \
                qemu-img compare -q -f raw -F vpc a.img c.vhd; \
                for f in d.qcow2 e; do qemu-img check -q $f; \
                qemu-img compare -q -f raw -F qcow2 a.img $f; done; [ -z \"$(ls -A | grep '^\\.')\" ]");
    // A VHD image is read, changed and checked; a volume cannot change its length.
    assert_eq!(fixture.uxfs(&["cat", "c.vhd:/file"]).good(), "hello");
    fixture.uxfs(&["import", "-q", "t/dir", "c.vhd"]).good();
    fixture.uxfs(&["check", "-q", "c.vhd"]).good();
    assert!(fixture.uxfs(&["resize", "c.vhd", "1G"]).bad(1).contains("cannot grow"));
    assert!(fixture.uxfs(&["disk", "resize", "c.vhd", "1G"]).bad(1).contains("no GUID"));
    fixture.sh("qemu-img convert -f vpc -O raw c.vhd c.raw");
    fixture.check("c.raw");
    // A VHD image has whole sectors, whatever the size that was asked for.
    fixture.uxfs(&["import", "-q", "t", "odd.vhd", "--size", "335544321"]).good();
    fixture.sh("[ $(stat -c %s odd.vhd) = $((335544320 + 1024)) ]; qemu-img info -f vpc odd.vhd; rm odd.vhd");
    let import = |args: &[&str]| fixture.uxfs(&[&["import", "t"], args].concat()).bad(1);
    assert!(import(&["b.raw.zst"]).contains("zstd-compressed data"));
    assert!(import(&["b.raw.zst", "--output", "raw.zst"]).contains("use the -f option"));
    assert!(import(&["n.vhd", "--durable"]).contains("leave out --durable"));
    assert!(import(&["n.vhd", "--offset", "1M"]).contains("no partition or offset"));
    assert!(import(&["n.img", "--compress"]).contains("a raw image is not compressed"));
    assert!(import(&["n.vmdk"]).contains("vmdk"));
    assert!(!fixture.path("n.vhd").exists() && !fixture.path("n.vmdk").exists());
}

/// qemu-img finds the new length, sgdisk a sound table at its end, and the volume grows with its partition.
#[test]
fn disks_grow_and_shrink_in_other_formats() {
    let _ = uxfs_oracle::program("qemu-img", "qemu-utils");
    let _ = uxfs_oracle::program("sgdisk", "gdisk");
    let fixture = Fixture::new();
    fixture.tree();
    let spec = "[disk]\nsize='800M'\n[[partition]]\ntype='root-x86-64'\nname='root'\nsize='320M'\n\
                xfs={source='t'}\n";
    describe(&fixture, spec);
    for (image, format) in [("a.qcow2", "qcow2"), ("a.vhd", "vpc")] {
        fixture.uxfs(&["disk", "build", "-q", "disk.toml", "-o", image]).good();
        for mib in [400_u64, 1024, 3000] {
            let size = format!("{mib}M");
            let said = fixture.uxfs(&["disk", "resize", "--json", image, &size]).good();
            match mib {
                400 => assert_eq!(value(&said, "/volume"), "null", "{image}"),
                _ => assert_eq!(
                    value(&said, "/volume/after_bytes"),
                    value(&said, "/partition/after_bytes"),
                    "{image}, {size}"
                ),
            }
            let info = fixture.sh(&format!("qemu-img info -f {format} --output json {image}"));
            assert_eq!(value(&info, "/virtual-size"), (mib << 20).to_string(), "{image}, {size}");
            fixture.sh(&format!("qemu-img convert -f {format} -O raw {image} a.raw"));
            assert!(fixture.sh("sgdisk -v a.raw").contains("No problems found"), "{image}, {size}");
            cut(&fixture, "a.raw");
            fixture.check("p1.img");
            let file = fixture.uxfs(&["cat", "--partition", "root", &format!("{image}:/file")]);
            assert_eq!(file.good(), "hello");
        }
        let refused = fixture.uxfs(&["disk", "resize", image, "400M"]).bad(1);
        assert!(refused.contains("the partitions and the table need"), "{refused}");
    }
    fixture.sh("qemu-img check -q a.qcow2");
}
