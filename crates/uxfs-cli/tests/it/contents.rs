//! Files that hold no XFS are reported with their content's type. An image in use is reported once,
//! before anything else.

use std::fs;

use crate::fixture::Fixture;

#[test]
fn other_contents_are_named_with_advice() {
    let fixture = Fixture::new();
    fixture.sh("echo text >f; gzip -k f; xz -k f; zstd -q f; tar cf f.tar f; \
         for kind in ext4 swap gpt dos; do truncate -s 64M $kind.img; done; \
         mkfs.ext4 -q ext4.img; mkswap swap.img >/dev/null 2>&1");
    let put = |name: &str, offset: usize, magic: &[u8]| {
        let mut bytes = vec![0; 1 << 20];
        bytes[offset..offset + magic.len()].copy_from_slice(magic);
        fs::write(fixture.path(name), bytes).unwrap();
    };
    put("btrfs.img", 65536 + 64, b"_BHRfS_M");
    put("luks.img", 0, b"LUKS\xba\xbe");
    put("lvm.img", 512 + 24, b"LVM2 001");
    put("squash.img", 0, b"hsqs");
    put("cd.img", 32768 + 1, b"CD001");
    put("f.zip", 0, b"PK\x03\x04");
    put("mbr.img", 446, b"\x80\0\0\0\x83\0\0\0\0\x08\0\0\0\x01\0\0");
    let mut table = fs::read(fixture.path("mbr.img")).unwrap();
    table[510..512].copy_from_slice(b"\x55\xaa");
    fs::write(fixture.path("mbr.img"), table).unwrap();
    for (image, words) in [
        ("ext4.img", "ext4"),
        ("swap.img", "swap space"),
        ("btrfs.img", "btrfs"),
        ("luks.img", "cryptsetup"),
        ("lvm.img", "vgchange"),
        ("squash.img", "unsquashfs"),
        ("cd.img", "ISO 9660"),
        ("mbr.img", "partition"),
        ("f.gz", "gzip -dc"),
        ("f.xz", "xz -dc"),
        ("f.zst", "zstd -dc"),
        ("f.zip", "zip archive"),
        ("f.tar", "uxfs import"),
    ] {
        let before = fs::read(fixture.path(image)).unwrap();
        let inside = format!("{image}:/x");
        for (args, code) in [
            (&["ls", image][..], 2),
            (&["stat", &inside], 1),
            (&["cp", "f", &inside], 1),
            (&["info", image], 1),
            (&["log", "status", image], 1),
            (&["check", image], 8),
        ] {
            let said = fixture.uxfs(args).bad(code);
            assert!(said.contains(words) && said.contains("not an XFS"), "{args:?}: {said}");
        }
        let said = fixture.uxfs(&["stat", "--json", &inside]).bad(1);
        let value: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(value["error"]["kind"], "not-xfs", "{said}");
        // mkfs does not overwrite it without -f.
        fixture.uxfs(&["mkfs", "-d", "size=320m", image]).bad(1);
        fixture.uxfs(&["import", "-q", "f.tar", image]).bad(1);
        assert_eq!(fs::read(fixture.path(image)).unwrap(), before, "{image}");
    }
}

#[test]
fn a_volume_that_another_file_system_was_made_over_is_not_called_damaged() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkfs.ext4 -q -F a.img");
    let said = fixture.uxfs(&["ls", "a.img"]).bad(2);
    assert!(said.contains("ext4") && !said.contains("xfs_repair"), "{said}");
}

#[test]
fn an_image_in_use_is_reported_once_and_first() {
    let fixture = Fixture::with_image(&[]);
    let file = fs::File::open(fixture.path("a.img")).unwrap();
    file.try_lock().unwrap();
    let before = fixture.sh("sha256sum a.img");
    for args in [
        &["ls", "a.img"][..],
        &["stat", "a.img:/"],
        &["info", "a.img"],
        &["mkdir", "a.img:/x"],
        &["mkfs", "a.img"],
        &["mkfs", "-f", "a.img"],
        &["import", ".", "a.img"],
        &["import", "-f", "--size", "320M", ".", "a.img"],
        &["check", "a.img"],
        &["resize", "a.img"],
        &["log", "quiesce", "a.img"],
        &["label", "a.img", "new"],
        &["xattr", "list", "a.img:/"],
    ] {
        let ran = fixture.uxfs(args);
        assert!(ran.code != 0 && ran.out.is_empty(), "{args:?}: {ran:?}");
        assert!(ran.err.contains("in use"), "{args:?}: {ran:?}");
        assert_eq!(ran.err.matches("a.img").count(), 1, "{args:?}: {ran:?}");
    }
    assert_eq!(fixture.sh("sha256sum a.img"), before);
}

#[test]
fn one_kind_of_failure_has_one_word() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("echo x >f; printf 'no volume' >noise");
    let kind = |args: &[&str]| {
        let ran = fixture.uxfs(args);
        let value: serde_json::Value =
            serde_json::from_str(ran.err.lines().next().unwrap_or_default())
                .unwrap_or_else(|error| panic!("{args:?}: {error}: {ran:?}"));
        assert_eq!(value["schema"], "uxfs.error", "{ran:?}");
        assert_eq!(value["version"], 1, "{ran:?}");
        assert_eq!(value["command"], args[0], "{ran:?}");
        value["error"]["kind"].as_str().unwrap_or_default().to_owned()
    };
    for args in [
        &["stat", "--json", "none.img:/"][..],
        &["stat", "--json", "a.img:/none"],
        &["ls", "--json", "none.img"],
        &["ls", "--json", "a.img:/none"],
        &["find", "--json", "none.img"],
        &["find", "--json", "a.img:/none"],
        &["info", "--json", "none.img"],
        &["check", "--json", "none.img"],
        &["log", "status", "--json", "none.img"],
        &["label", "--json", "none.img"],
        &["resize", "--json", "none.img"],
        &["xattr", "list", "--json", "a.img:/none"],
    ] {
        assert_eq!(kind(args), "not-found", "{args:?}");
    }
    for args in [
        &["stat", "--json", "noise:/"][..],
        &["ls", "--json", "noise"],
        &["info", "--json", "noise"],
        &["check", "--json", "noise"],
        &["log", "status", "--json", "noise"],
        &["resize", "--json", "noise"],
    ] {
        assert_eq!(kind(args), "not-xfs", "{args:?}");
    }
    let file = fs::File::open(fixture.path("a.img")).unwrap();
    file.try_lock().unwrap();
    for args in [
        &["stat", "--json", "a.img:/"][..],
        &["ls", "--json", "a.img"],
        &["info", "--json", "a.img"],
        &["check", "--json", "a.img"],
        &["log", "status", "--json", "a.img"],
        &["resize", "--json", "a.img"],
    ] {
        assert_eq!(kind(args), "busy", "{args:?}");
    }
}
