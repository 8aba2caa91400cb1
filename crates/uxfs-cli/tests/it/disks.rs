//! Volumes in parts of disks: at an offset, and in partitions made by real partitioning tools.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::os::unix::fs::FileExt;

use crate::fixture::Fixture;

const MIB: u64 = 1 << 20;

/// A disk of 128 MiB, partitioned by sfdisk as `script` says.
fn disk(fixture: &Fixture, name: &str, script: &str) {
    let _ = uxfs_oracle::program("sfdisk", "fdisk");
    fixture.sh(&format!("truncate -s 128M {name}; printf '{script}' | sfdisk -q {name}"));
}

/// The bytes of a file outside of the given range.
fn outside(fixture: &Fixture, name: &str, start: u64, len: u64) -> Vec<u8> {
    let mut all = fs::read(fixture.path(name)).unwrap();
    all.drain(start as usize..(start + len) as usize);
    all
}

fn fill_block(fixture: &Fixture, name: &str, at: u64) {
    let file = fs::OpenOptions::new().write(true).open(fixture.path(name)).unwrap();
    file.write_all_at(&[0xa5; 4096], at).unwrap();
}

#[test]
fn a_gpt_partition_is_made_filled_and_read() {
    let fixture = Fixture::new();
    let script = "label: gpt\\n\
        start=2048, size=2048, name=boot\\n\
        start=4096, size=81920, name=\"the root\", uuid=0FC63DAF-8483-4772-8E79-3D69D8477DE4\\n\
        start=86016, size=81920, name=home\\n";
    disk(&fixture, "d.img", script);
    let (start, len) = (4096 * 512, 81_920 * 512);
    for at in [start - 4096, start + len] {
        fill_block(&fixture, "d.img", at);
    }
    let before = outside(&fixture, "d.img", start, len);
    fixture.tree();

    // A partition table, but no XFS in it yet.
    let words = fixture.uxfs(&["info", "d.img"]).bad(1);
    assert!(
        words.contains("a partitioned disk (GPT): none of its partitions holds XFS"),
        "{words}"
    );
    fixture.uxfs(&["mkfs", "-q", "--unsupported", "--partition", "2", "d.img"]).good();
    let words = fixture.uxfs(&["info", "d.img"]).bad(1);
    assert!(words.contains("these hold XFS: 2 'the root' (40 MiB)"), "{words}");
    assert!(fixture.uxfs(&["check", "d.img"]).bad(8).contains("2 'the root'"));
    assert!(fixture.uxfs(&["import", "t", "d.img"]).bad(1).contains("2 'the root'"));

    fixture.uxfs(&["import", "-q", "t", "d.img", "--partition", "the root"]).good();
    fixture.uxfs(&["cp", "t/file", "d.img:/more", "--partition=2"]).good();
    let uuid = "--partition=0fc63daf-8483-4772-8e79-3d69d8477de4";
    assert_eq!(fixture.uxfs(&["cat", uuid, "d.img:/file"]).good(), "hello");
    fixture.uxfs(&["check", "-q", "--partition", "2", "d.img"]).good();
    assert!(fixture.uxfs(&["info", "--partition", "2", "d.img"]).good().contains("blocks=10240,"));
    assert!(fixture.uxfs(&["info", "--partition", "none", "d.img"]).bad(1).contains("3 'home'"));
    assert_eq!(fixture.uxfs(&["cat", "--offset=2M", "d.img:/more"]).good(), "hello");

    assert!(outside(&fixture, "d.img", start, len) == before, "written outside the partition");
    fixture.sh("sfdisk -q --verify d.img >/dev/null; dd status=none if=d.img of=p.img bs=1M skip=2 count=40");
    fixture.check("p.img");
    // mkfs finds existing content, and a second volume does not touch the first.
    fixture.uxfs(&["mkfs", "-q", "--unsupported", "--partition", "2", "d.img"]).bad(1);
    fixture
        .uxfs(&["import", "-q", "--unsupported", "t/dir", "d.img", "--partition", "home"])
        .good();
    assert_eq!(fixture.uxfs(&["cat", "--partition=2", "d.img:/file"]).good(), "hello");
    fixture.uxfs(&["check", "-q", "--partition", "3", "d.img"]).good();
}

#[test]
fn a_partition_table_with_4096_byte_sectors_is_read() {
    let fixture = Fixture::new();
    let _ = uxfs_oracle::program("fdisk", "fdisk");
    // Number, first and last sector; then the name.
    let script = "g\\nn\\n1\\n256\\n10255\\nx\\nn\\nbig\\nr\\nw\\n";
    fixture
        .sh(&format!("truncate -s 128M d.img; printf '{script}' | fdisk -b 4096 d.img >fdisk.out"));
    fixture
        .uxfs(&["mkfs", "-q", "--unsupported", "--partition", "big", "-s", "size=4096", "d.img"])
        .good();
    fixture.uxfs(&["check", "-q", "--partition", "1", "d.img"]).good();
    fixture.sh("dd status=none if=d.img of=p.img bs=4096 skip=256 count=10000");
    fixture.check("p.img");
}

#[test]
fn primary_and_logical_partitions_of_an_mbr() {
    let fixture = Fixture::new();
    let script = "label: dos\\nlabel-id: 0xfeedbeef\\n\
        start=2048, size=2048, type=83\\n\
        start=4096, type=5\\n\
        start=6144, size=81920, type=83\\n\
        start=90112, size=81920, type=83\\n";
    disk(&fixture, "d.img", script);
    for (partition, start) in [("5", 6144), ("feedbeef-06", 90_112)] {
        fixture.uxfs(&["mkfs", "-q", "--unsupported", "--partition", partition, "d.img"]).good();
        fixture.uxfs(&["mkdir", "d.img:/dir", "--partition", partition]).good();
        fixture.sh(&format!("dd status=none if=d.img of=p.img bs=512 skip={start} count=81920"));
        fixture.check("p.img");
    }
    let words = fixture.uxfs(&["stat", "d.img"]).bad(1);
    assert!(words.contains("(MBR)") && words.contains("5 (40 MiB), 6 (40 MiB)"), "{words}");
    // The extended partition cannot hold a volume, and the first partition is too small.
    fixture.uxfs(&["mkfs", "--partition", "2", "d.img"]).bad(1);
    fixture.uxfs(&["mkfs", "-q", "--unsupported", "--partition", "1", "d.img"]).bad(1);
    fixture.sh("sfdisk -q --verify d.img >/dev/null");
}

#[test]
fn a_volume_at_an_offset_is_made_and_read() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("truncate -s 3M o.img; cat a.img >>o.img; printf behind >>o.img");
    fixture.uxfs(&["mkdir", "--offset", "3MiB", "o.img:/dir"]).good();
    assert_eq!(fixture.uxfs(&["ls", "--offset=3145728", "o.img"]).good(), "dir\n");
    assert!(fixture.sh("tail -c 6 o.img").ends_with("behind"));
    assert!(
        fixture.uxfs(&["ls", "--offset=2M", "o.img"]).bad(2).contains("not an XFS file system")
    );
    assert!(fixture.uxfs(&["ls", "--offset=9G", "o.img"]).bad(2).contains("not all on the device"));
    assert!(fixture.uxfs(&["ls", "--partition=1", "o.img"]).bad(2).contains("no partition table"));
    fixture.uxfs(&["ls", "--offset=1x", "o.img"]).bad(2);
    fixture.uxfs(&["ls", "--offset=1", "--partition=1", "o.img"]).bad(2);
    // A new volume at an offset ends at the end of the file and does not shorten the file.
    fixture.sh("truncate -s 400M n.img; printf first | dd status=none of=n.img conv=notrunc");
    fixture.uxfs(&["mkfs", "-q", "--offset", "1M", "n.img"]).good();
    assert_eq!(fs::metadata(fixture.path("n.img")).unwrap().len(), 400 * MIB);
    fixture.uxfs(&["mkfs", "-f", "-q", "--offset", "1M", "-d", "size=401m", "n.img"]).bad(1);
    fixture.sh("[ \"$(head -c 5 n.img)\" = first ]; dd status=none if=n.img of=p.img bs=1M skip=1");
    fixture.check("p.img");
    fixture.uxfs(&["mkfs", "-q", "--offset", "1M", "none.img"]).bad(1);
}

/// Commands that read need only read permission on the file and its directory.
#[test]
fn reading_commands_need_only_read_permission() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    let uxfs = env!("CARGO_BIN_EXE_uxfs");
    fixture.sh("chmod 755 .; chmod 444 a.img; mkdir ro; ln a.img ro/a.img; chmod 555 ro");
    // Root can write everything, so use another user. An ordinary user needs no change.
    let other = "if [ $(id -u) = 0 ]; then setpriv --reuid=65534 --clear-groups --regid=65534 \"$@\"; \
                 else \"$@\"; fi";
    let run = |args: &str| fixture.sh(&format!("set -- {uxfs} {args}; {other}"));
    run("ls -lR ro/a.img");
    run("stat ro/a.img:/t/file");
    run("find ro/a.img");
    run("info ro/a.img");
    run("label ro/a.img");
    run("check -q ro/a.img");
    run("xattr list ro/a.img:/t/file");
    assert_eq!(run("cat ro/a.img:/t/file"), "hello");
    run("export ro/a.img -o /dev/null");
    fixture
        .sh(&format!("set -- {uxfs} mkdir ro/a.img:/new; ! ( {other} ) 2>err; grep -q denied err"));
    fixture.sh("chmod 755 ro");
}

/// Volumes in qcow2 images, in the whole disk and in partitions.
#[test]
fn volumes_in_qcow2_images_are_made_and_read() {
    let fixture = Fixture::new();
    fixture.tree();
    let _ = uxfs_oracle::program("qemu-img", "qemu-utils");
    fixture.sh("qemu-img create -q -f qcow2 a.qcow2 64M");
    fixture.uxfs(&["mkfs", "-q", "--unsupported", "a.qcow2"]).good();
    fixture.uxfs(&["import", "-q", "t", "a.qcow2"]).good();
    fixture.uxfs(&["cp", "t/file", "a.qcow2:/more"]).good();
    assert_eq!(fixture.uxfs(&["cat", "a.qcow2:/file"]).good(), "hello");
    fixture.uxfs(&["check", "-q", "a.qcow2"]).good();
    fixture.sh("qemu-img check -q a.qcow2; qemu-img convert -O raw a.qcow2 a.raw");
    fixture.check("a.raw");

    // An overlay gets the changes, and its backing image stays unchanged.
    fixture
        .sh("md5sum a.qcow2 >sum; qemu-img create -q -f qcow2 -b a.qcow2 -F qcow2 top.qcow2 80M");
    fixture.uxfs(&["rm", "top.qcow2:/more"]).good();
    let grown = fixture.uxfs(&["resize", "top.qcow2"]).good();
    assert!(grown.contains("grown from 67108864 to 83886080"), "{grown}");
    fixture.sh("md5sum -c --quiet sum; qemu-img convert -O raw top.qcow2 top.raw");
    fixture.check("top.raw");
    assert_eq!(fixture.uxfs(&["cat", "a.qcow2:/more"]).good(), "hello");
    fixture.uxfs(&["ls", "top.qcow2:/more"]).bad(2);
    fixture.uxfs(&["resize", "--minimize", "top.qcow2"]).bad(1);

    let script = "label: gpt\\nstart=2048, size=81920, name=root\\n";
    disk(&fixture, "d.raw", script);
    fixture.sh("qemu-img convert -f raw -O qcow2 d.raw d.qcow2");
    fixture.uxfs(&["mkfs", "-q", "--unsupported", "--partition", "root", "d.qcow2"]).good();
    assert!(fixture.uxfs(&["info", "d.qcow2"]).bad(1).contains("1 'root' (40 MiB)"));
    fixture.uxfs(&["import", "-q", "t", "d.qcow2", "--partition", "1"]).good();
    fixture.uxfs(&["check", "-q", "--partition", "root", "d.qcow2"]).good();

    fixture
        .sh("mkdir sub; qemu-img create -q -u -f qcow2 -b /etc/passwd -F raw sub/evil.qcow2 64M");
    let words = fixture.uxfs(&["info", "sub/evil.qcow2"]).bad(1);
    assert!(words.contains("/etc/passwd") && words.contains("does not open it"), "{words}");
}

/// Disks that qemu-img wrote in the formats of other hypervisors.
#[test]
fn vmdk_vhdx_and_vhd_images_are_read() {
    let fixture = Fixture::new();
    fixture.tree();
    let _ = uxfs_oracle::program("qemu-img", "qemu-utils");
    disk(&fixture, "d.raw", "label: gpt\\nstart=2048, size=81920, name=root\\n");
    let root = ["--partition", "root"];
    let uxfs = |args: &[&str]| fixture.uxfs(&[args, &root].concat());
    uxfs(&["mkfs", "-q", "--unsupported", "d.raw"]).good();
    uxfs(&["import", "-q", "t", "d.raw"]).good();
    fixture.sh("head -c 3000000 /dev/urandom >large");
    uxfs(&["cp", "large", "d.raw:/large"]).good();
    let export = |image: &str| uxfs(&["export", image, "-o", "tree.tar"]).good();
    export("d.raw");
    fixture.sh("mv tree.tar raw.tar");
    for (name, format) in [
        ("sparse.vmdk", "vmdk -o subformat=monolithicSparse"),
        ("stream.vmdk", "vmdk -o subformat=streamOptimized"),
        ("dynamic.vhdx", "vhdx"),
        ("fixed.vhdx", "vhdx -o subformat=fixed"),
        ("dynamic.vhd", "vpc -o subformat=dynamic"),
        ("exact.vhd", "vpc -o subformat=dynamic,force_size=on"),
    ] {
        fixture
            .sh(&format!("qemu-img convert -f raw -O {format} d.raw {name}; md5sum {name} >sum"));
        uxfs(&["check", "-q", name]).good();
        uxfs(&["ls", "-lR", name]).good();
        export(name);
        fixture.sh("cmp tree.tar raw.tar");
        let words = uxfs(&["rm", &format!("{name}:/large")]).bad(1);
        assert!(words.contains("only reads"), "{words}");
        uxfs(&["import", "-q", "t", name]).bad(1);
        let words = fixture.uxfs(&["disk", "resize", name, "1G"]).bad(1);
        assert!(words.contains("only reads"), "{words}");
        fixture.uxfs(&["disk", "info", name]).good();
        fixture.sh("md5sum -c --quiet sum");
        // In the midst of the data.
        fixture.sh(&format!("truncate -s 2500000 {name}"));
        let words = uxfs(&["export", name, "-o", "/dev/null"]).bad(1);
        assert!(words.contains(name), "{name}: {words}");
    }
    fixture.sh("qemu-img create -q -f vmdk base.vmdk 64M; \
         qemu-img create -q -f vmdk -b base.vmdk -F vmdk delta.vmdk; \
         qemu-img create -q -f vmdk -o subformat=twoGbMaxExtentFlat parts.vmdk 64M");
    assert!(fixture.uxfs(&["info", "delta.vmdk"]).bad(1).contains("continues another image"));
    // qemu-img makes no differencing VHD: the type of a dynamic one is changed, in the footer and in its copy.
    fixture.sh(r#"qemu-img create -q -f vpc -o subformat=dynamic delta.vhd 64M; python3 - <<'END'
raw = bytearray(open('delta.vhd', 'rb').read())
for at in 0, len(raw) - 512:
    raw[at + 63] = 4
    raw[at + 64:at + 68] = bytes(4)
    raw[at + 64:at + 68] = (0xffffffff - sum(raw[at:at + 512])).to_bytes(4, 'big')
open('delta.vhd', 'wb').write(raw)
END"#);
    let words = fixture.uxfs(&["info", "delta.vhd"]).bad(1);
    assert!(words.contains("a differencing VHD image") && words.contains("delta.vhd"), "{words}");
    assert!(fixture.uxfs(&["info", "parts.vmdk"]).bad(1).contains("qemu-img convert"));
}

#[test]
fn volumes_grow_and_shrink() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    let size = |name: &str| fs::metadata(fixture.path(name)).unwrap().len();
    let list =
        || fixture.uxfs(&["find", "a.img", "-printf", "%p %y %m %U %G %s %T@ %C@ %n %l\\n"]).good();
    let mut lines: Vec<String> = list().lines().map(str::to_owned).collect();
    lines.sort();
    let before = lines;
    for (args, how, bytes) in [
        (&["resize", "a.img", "700M"][..], "grown", 700 * MIB),
        (&["resize", "a.img"], "as before", 700 * MIB),
        (&["resize", "a.img", "400M"], "cut", 400 * MIB),
        (&["resize", "a.img", "310M"], "cut", 310 * MIB),
        (&["resize", "a.img", "--minimize"], "rebuilt", 0),
        (&["resize", "--json", "a.img", "330M"], "\"how\":\"grown\"", 330 * MIB),
    ] {
        let said = fixture.uxfs(args).good();
        assert!(said.contains(how), "{args:?}: {said}");
        assert!(
            bytes == 0 && size("a.img") < 64 * MIB || size("a.img") == bytes,
            "{args:?}: {said}"
        );
        fixture.check("a.img");
        let mut now: Vec<String> = list().lines().map(str::to_owned).collect();
        now.sort();
        assert_eq!(now, before, "{args:?}");
    }
    fixture.uxfs(&["resize", "a.img", "--minimize", "1G"]).bad(2);
    fixture.uxfs(&["resize", "none.img"]).bad(1);
    fixture.uxfs(&["resize", "a.img", "1M"]).bad(1);
    fixture.check("a.img");

    // A volume in a partition grows to the partition's end.
    disk(
        &fixture,
        "d.img",
        "label: gpt\\nstart=2048, size=204800, name=root\\nstart=206848, size=2048\\n",
    );
    fixture
        .uxfs(&["mkfs", "-q", "--unsupported", "-d", "size=64m", "--partition=1", "d.img"])
        .good();
    fill_block(&fixture, "d.img", 206_848 * 512);
    let after = outside(&fixture, "d.img", MIB, 100 * MIB);
    assert!(
        fixture
            .uxfs(&["resize", "--partition=1", "d.img", "101M"])
            .bad(1)
            .contains("cannot grow to")
    );
    assert!(fixture.uxfs(&["resize", "--partition=1", "d.img"]).good().contains("to 104857600"));
    assert!(fixture.uxfs(&["resize", "--partition=1", "d.img", "70M"]).good().contains("cut"));
    assert!(outside(&fixture, "d.img", MIB, 100 * MIB) == after, "written outside the partition");
    fixture.uxfs(&["check", "-q", "--partition=1", "d.img"]).good();
}
