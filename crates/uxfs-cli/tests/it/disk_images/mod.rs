//! `uxfs disk`: the tools of others judge the disks: sgdisk and sfdisk the tables, dosfstools and mtools
//! the EFI system partitions, veritysetup the hash trees, xfs_repair the volumes, qemu-img and zstd the
//! formats.

mod formats;
mod refusals;
mod types;

use std::fs;

use crate::fixture::Fixture;

/// Runs bash text in which `uxfs` builds disks that can be repeated.
fn repeatable(fixture: &Fixture, text: &str) -> String {
    fixture.bash(&format!("set -e; export SOURCE_DATE_EPOCH=1700000000; {text}")).good()
}

/// A value of a JSON document, by the path of its keys and indices.
fn value(document: &str, path: &str) -> String {
    // The fixture escapes what is not ASCII.
    let mut parts = document.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(
            u8::from_str_radix(&part[..2], 16).unwrap_or_else(|error| panic!("{part}: {error}")),
        );
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    let document: serde_json::Value =
        serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{document}: {error}"));
    let found = document.pointer(path).unwrap_or_else(|| panic!("{document}: no {path}"));
    found.as_str().map_or_else(|| found.to_string(), str::to_owned)
}

const SPEC: &str = r#"
[disk]
seed = "a test"

[[partition]]
type = "esp"
size = "64M"
fat = { source = "esp", files = { "EFI/Linux/kernel.efi" = "blob", "more" = "t/many" }, label = "ESP" }

[[partition]]
type = "root-x86-64"
name = "root"
size = "minimize"
read-only = true
xfs = { source = "t", label = "root", owner = "0:0", mkfs = ["-m rmapbt=1", "-i size=1024"] }

[[partition]]
type = "root-x86-64-verity"
name = "root verity"
verity = { data = "root", salt = "00112233445566778899aabbccddeeff" }

[[partition]]
type = "linux-generic"
name = "Größe in 36 Zeichen, länger geht nix"
file = "blob"

[[partition]]
type = "home"
size = "320M"
uuid = "0a0b0c0d-1111-4222-8333-444455556666"
grow-fs = true
xfs = { source = "t.tar", uuid = "12341234-a4ec-4304-a70f-c549ea829da9", map-uid = ["0:1000:3"] }

[[partition]]
type = "swap"
size = "8M"
no-auto = true
"#;

/// Writes the description of a disk.
fn describe(fixture: &Fixture, spec: impl AsRef<str>) {
    let written = fs::write(fixture.path("disk.toml"), spec.as_ref());
    written.unwrap_or_else(|error| panic!("disk.toml: {error}"));
}

/// A fixture with the files that [`SPEC`] names.
fn sources() -> Fixture {
    let fixture = Fixture::new();
    fixture.tree();
    fixture.sh("mkdir -p esp/EFI/BOOT esp/empty esp/loader/entries; \
                head -c 300001 /dev/urandom >esp/EFI/BOOT/BOOTX64.EFI; \
                echo timeout 0 >esp/loader/loader.conf; : >esp/loader/entries/none; \
                echo x >'esp/A long name with größe.txt'; head -c 700001 /dev/urandom >blob; \
                tar -C t -cf t.tar --exclude=bad* .");
    describe(&fixture, SPEC);
    fixture
}

/// Cuts partitions out of a raw disk.
fn cut(fixture: &Fixture, disk: &str) {
    let list = fixture.uxfs(&["disk", "info", "--json", disk]).good();
    let partitions = value(&list, "/partitions");
    for at in 0..partitions.matches("start_bytes").count() {
        let number = |key: &str| -> u64 {
            let text = value(&partitions, &format!("/{at}/{key}"));
            text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
        };
        fixture.sh(&format!(
            "dd status=none if={disk} of=p{}.img bs=4096 skip={} count={} conv=sparse",
            number("number"),
            number("start_bytes") / 4096,
            number("size_bytes") / 4096
        ));
    }
}

#[test]
fn tools_accept_each_part_of_a_disk() {
    for (command, package) in [
        ("sgdisk", "gdisk"),
        ("fsck.fat", "dosfstools"),
        ("mcopy", "mtools"),
        ("veritysetup", "cryptsetup-bin"),
    ] {
        let _ = uxfs_oracle::program(command, package);
    }
    let fixture = sources();
    let built = repeatable(&fixture, "uxfs disk build disk.toml -o d.img --json");
    assert!(fixture.sh("sgdisk -v d.img").contains("No problems found"));
    fixture.sh("sfdisk -q --verify d.img >/dev/null");
    let table = fixture.sh("sfdisk --json d.img");
    let at = |number: usize, key: &str| {
        value(&table, &format!("/partitiontable/partitions/{number}/{key}"))
    };
    for number in 0..6 {
        let ours = |key: &str| value(&built, &format!("/partitions/{number}/{key}"));
        let sectors = |key: &str| ours(key).parse::<u64>().unwrap() / 512;
        assert_eq!(at(number, "start"), sectors("start_bytes").to_string());
        assert_eq!(at(number, "size"), sectors("size_bytes").to_string());
        assert_eq!(at(number, "uuid").to_lowercase(), ours("partition_uuid"));
        assert_eq!(at(number, "type").to_lowercase(), ours("type_uuid"));
        assert_eq!(at(number, "name"), ours("name"));
    }
    assert_eq!(at(1, "attrs"), "GUID:60");
    assert_eq!(at(2, "attrs"), "GUID:60");
    assert_eq!(at(4, "attrs"), "GUID:59");
    assert_eq!(at(5, "attrs"), "GUID:63");
    assert_eq!(value(&built, "/partitions/3/name").encode_utf16().count(), 36);
    let info = fixture.uxfs(&["disk", "info", "--json", "d.img"]).good();
    let contents = ["vfat", "xfs", "DM_verity_hash", "null", "xfs", "null"];
    for (number, content) in contents.iter().enumerate() {
        assert_eq!(value(&info, &format!("/partitions/{number}/content")), *content);
        let name = format!("/partitions/{number}/name");
        assert_eq!(value(&info, &name), value(&built, &name));
    }
    cut(&fixture, "d.img");

    fixture.sh("export LC_ALL=C.UTF-8; fsck.fat -n p1.img >/dev/null; mkdir out; mcopy -s -n -Q -i p1.img '::*' out; \
                mkdir -p esp/EFI/Linux esp/more; cp blob esp/EFI/Linux/kernel.efi; \
                cp t/many/* esp/more; diff -r esp out");

    for volume in ["p2.img", "p5.img"] {
        fixture.check(volume);
    }
    assert_eq!(fixture.uxfs(&["cat", "--partition", "root", "d.img:/file"]).good(), "hello");
    assert_eq!(fixture.uxfs(&["find", "p2.img", "-not", "-uid", "0"]).good(), "");
    assert_eq!(fixture.uxfs(&["label", "p2.img"]).good(), "label = \"root\"\n");
    let uuid = "12341234-a4ec-4304-a70f-c549ea829da9";
    assert!(fixture.uxfs(&["info", "--json", "p5.img"]).good().contains(uuid));
    assert_eq!(value(&built, "/partitions/4/volume_uuid"), uuid);

    let root = value(&built, "/partitions/2/root_hash");
    fixture.sh(&format!("veritysetup verify p2.img p3.img {root}"));
    let printed = fixture.sh("veritysetup format --salt 00112233445566778899aabbccddeeff \
         --uuid $(veritysetup dump p3.img | sed -n 's/^UUID: *//p') p2.img other >said; \
         cmp -n $(stat -c %s other) other p3.img; sed -n 's/^Root hash: *//p' said");
    assert_eq!(printed.trim(), root);
    // The Discoverable Partitions Specification: the halves of the root hash are the UUIDs.
    let halves = [&root[..32], &root[32..]];
    for (number, half) in [1, 2].into_iter().zip(halves) {
        let uuid = value(&built, &format!("/partitions/{number}/partition_uuid"));
        assert_eq!(uuid.replace('-', ""), half);
    }
    fixture.sh("cmp -n 700001 blob p4.img");
    fixture.sh("[ \"$(tr -d '\\0' <p6.img | wc -c)\" = 0 ]");
}

/// A kernel mounts a volume from dm-verity only if its sectors have 4 KiB; `tools/boot verity` asks one.
#[test]
fn volumes_under_hash_trees_have_large_sectors() {
    let fixture = sources();
    let build = |options: &str, image: &str| {
        let spec = format!(
            "[disk]\nseed='s'\n[[partition]]\ntype='root-x86-64-verity'\nname='tree'\nstart='700M'\n\
             verity={{data='root'}}\n\
             [[partition]]\ntype='root-x86-64'\nname='root'\nstart='1M'\nsize='minimize'\n\
             xfs={{source='t'{options}}}\n\
             [[partition]]\ntype='home'\nsize='32M'\nxfs={{source='t'}}\n"
        );
        describe(&fixture, spec);
        repeatable(&fixture, &format!("uxfs disk build -q disk.toml -o {image}"));
        cut(&fixture, image);
        for volume in ["p2.img", "p3.img"] {
            fixture.check(volume);
        }
        [2, 3].map(|number| {
            let shown = fixture.sh(&format!("xfs_db -r -c 'sb 0' -c 'p sectsize' p{number}.img"));
            shown.trim().to_owned()
        })
    };
    assert_eq!(build("", "a.img"), ["sectsize = 4096", "sectsize = 512"]);
    // What the description names is not changed, and the same size gives the same bytes.
    assert_eq!(build(",mkfs=['-s size=4096']", "b.img"), ["sectsize = 4096", "sectsize = 512"]);
    fixture.sh("cmp a.img b.img");
    assert_eq!(build(",mkfs=['-l sectsize=4096']", "c.img")[0], "sectsize = 4096");
    let large = build(",mkfs=['-b size=8192','-s size=8192']", "d.img");
    assert_eq!(large[0], "sectsize = 8192");
}

/// Hash trees of every shape: one block, one level, a full level, one block more, three levels.
#[test]
fn hash_trees_equal_those_of_veritysetup() {
    let _ = uxfs_oracle::program("veritysetup", "cryptsetup-bin");
    let fixture = Fixture::new();
    for (blocks, salt) in
        [(256, ""), (128 * 128, "00"), (128 * 128 + 256, "ff".repeat(256).as_str())]
    {
        fixture.sh(&format!(
            "rm -f data h*; head -c {} /dev/urandom >data; truncate -s {} data",
            300_000,
            blocks * 4096
        ));
        let spec = format!(
            "[[partition]]\ntype = 'usr-arm64'\nfile = 'data'\n\
             [[partition]]\ntype = 'usr-arm64-verity'\nverity = {{ data = 'usr-arm64', salt = '{salt}' }}\n"
        );
        describe(&fixture, spec);
        let built =
            fixture.uxfs(&["disk", "build", "-f", "disk.toml", "-o", "d.img", "--json"]).good();
        let root = value(&built, "/partitions/1/root_hash");
        let salt = if salt.is_empty() { "-" } else { salt };
        let printed = fixture
            .sh(&format!("veritysetup format --salt {salt} data h | sed -n 's/^Root hash: *//p'"));
        assert_eq!(printed.trim(), root, "{blocks} blocks");
        cut(&fixture, "d.img");
        fixture.sh(&format!("veritysetup verify p1.img p2.img {root}"));
    }
}

/// FAT16 and FAT32 at the edges of clusters, directories of many clusters, names of every length.
#[test]
fn fat_volumes_hold_what_was_given() {
    let _ = uxfs_oracle::program("fsck.fat", "dosfstools");
    let _ = uxfs_oracle::program("mcopy", "mtools");
    let fixture = Fixture::new();
    fixture.sh("mkdir -p t/a/b/c/d/e/f t/many; cd t; \
                for n in 0 1 511 512 513 4095 4096 4097 65536 1000003; do head -c $n /dev/urandom >a/b/f$n; done; \
                i=1; while [ $i -lt 256 ]; do printf %${i}s x | tr ' ' n >many/$(printf %${i}s x | tr ' ' n); \
                i=$((i + 9)); done; \
                for i in $(seq 600); do echo $i >many/File.number-$i.conf; done; \
                echo 1 >UPPER.TXT; echo 2 >lower.txt; echo 3 >two.dots.tar; echo 4 >.hidden; echo 5 >ünï.çod");
    for (size, bits, says) in [
        ("\"16M\"", "", 16),
        ("\"minimize\"", "", 16),
        ("\"minimize\"", ", bits = 32", 32),
        ("\"40M\"", "", 32),
        ("\"300M\"", "", 32),
        ("\"300M\"", ", bits = 16", 16),
    ] {
        let spec = format!("[[partition]]\ntype='esp'\nsize={size}\nfat={{source='t'{bits}}}\n");
        describe(&fixture, spec);
        fixture.uxfs(&["disk", "build", "-q", "-f", "disk.toml", "-o", "d.img"]).good();
        cut(&fixture, "d.img");
        fixture.sh("export LC_ALL=C.UTF-8; fsck.fat -n p1.img >/dev/null; rm -rf out; mkdir out; \
                    mcopy -s -n -Q -i p1.img '::*' out; diff -r t out");
        let printed = fixture.sh("fsck.fat -nv p1.img");
        assert!(printed.contains(&format!("{says} bit entries")), "{size}{bits}: {printed}");
    }
}

/// Sources other than directories, explicit places, and the rest of a disk.
#[test]
fn partitions_take_layers_places_and_the_rest() {
    let fixture = sources();
    fixture.sh("mkdir -p low/d high/d; echo 1 >low/d/one; echo 2 >low/two; touch high/d/.wh.one; \
                echo 3 >high/three; tar -C low -czf low.tgz .");
    let spec = "[disk]\nsize='1G'\n\
        [[partition]]\ntype='srv'\nstart='512M'\nsize='64M'\nxfs={layers=['low.tgz','high']}\n\
        [[partition]]\ntype='esp'\nstart='1M'\nsize='40M'\nfat={}\n\
        [[partition]]\ntype='swap'\nsize='16M'\n\
        [[partition]]\ntype='home'\nstart='600M'\nsize='rest'\nxfs={}\n";
    describe(&fixture, spec);
    let built = fixture.uxfs(&["disk", "build", "--json", "disk.toml", "-o", "d.img"]).good();
    assert!(fixture.sh("sgdisk -v d.img").contains("No problems found"));
    for (number, start, size) in [(0, 512, 64), (1, 1, 40), (2, 41, 16), (3, 600, 423)] {
        let mib = |key: &str| {
            value(&built, &format!("/partitions/{number}/{key}")).parse::<u64>().unwrap() >> 20
        };
        assert_eq!((mib("start_bytes"), mib("size_bytes")), (start, size), "{number}");
    }
    let list = fixture.uxfs(&["find", "--partition", "srv", "d.img", "-type", "f"]).good();
    let mut names: Vec<&str> = list.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["d.img:/three", "d.img:/two"]);
    cut(&fixture, "d.img");
    fixture.check("p1.img");
    fixture.check("p4.img");
    fixture.sh("fsck.fat -n p2.img >/dev/null");
    assert_eq!(fixture.uxfs(&["ls", "-A", "p4.img"]).good(), "");
}

#[test]
fn directories_that_the_description_makes_have_the_time_of_the_build() {
    let fixture = Fixture::new();
    fixture.sh("echo 1 >f");
    let spec = "[[partition]]\ntype='esp'\nsize='16M'\nfat={files={'EFI/BOOT/F'='f'}}\n";
    describe(&fixture, spec);
    for (around, year) in
        [("true", "$(date -u +%Y)"), ("export SOURCE_DATE_EPOCH=1000000000", "2001")]
    {
        fixture.bash(&format!("set -e; {around}; uxfs disk build -q -f disk.toml -o d.img")).good();
        cut(&fixture, "d.img");
        fixture.sh(&format!(
            "test $(TZ=UTC mdir -i p1.img ::EFI | grep -c \"BOOT.*$(echo {year})\") = 1"
        ));
    }
}

#[test]
fn a_disk_with_a_partition_beyond_its_end_is_not_resized() {
    let fixture = Fixture::new();
    describe(&fixture, "[disk]\nsize='64M'\n[[partition]]\ntype='swap'\nsize='8M'\n");
    fixture.uxfs(&["disk", "build", "-q", "disk.toml", "-o", "d.img"]).good();
    // The last sector of the first entry, in both copies, and the sums over entries and headers.
    fixture.sh(r#"python3 - <<'END'
import struct, zlib
disk = bytearray(open('d.img', 'rb').read())
for at in 512, len(disk) - 512:
    head = disk[at:at + 92]
    start, count, size = struct.unpack_from('<QII', head, 72)
    entries = slice(start * 512, start * 512 + count * size)
    struct.pack_into('<Q', disk, start * 512 + 40, 2**55 - 2)
    struct.pack_into('<I', head, 88, zlib.crc32(disk[entries]))
    struct.pack_into('<I', head, 16, 0)
    struct.pack_into('<I', head, 16, zlib.crc32(head))
    disk[at:at + 92] = head
open('d.img', 'wb').write(disk)
END"#);
    for size in ["16M", "128M"] {
        let words = fixture.uxfs(&["disk", "resize", "d.img", size]).bad(1);
        assert!(words.contains("behind the disk"), "{words}");
    }
    assert_eq!(fs::metadata(fixture.path("d.img")).unwrap().len(), 64 << 20);
}

#[test]
fn a_disk_grows_and_shrinks() {
    let _ = uxfs_oracle::program("sgdisk", "gdisk");
    let fixture = Fixture::new();
    fixture.tree();
    let spec = "[disk]\nsize='800M'\n[[partition]]\ntype='swap'\nsize='8M'\n\
                [[partition]]\ntype='root-x86-64'\nname='root'\nsize='320M'\nxfs={source='t'}\n";
    describe(&fixture, spec);
    fixture.uxfs(&["disk", "build", "-q", "disk.toml", "-o", "d.img"]).good();
    let sound = |len: u64| {
        assert_eq!(fs::metadata(fixture.path("d.img")).unwrap().len(), len);
        assert!(fixture.sh("sgdisk -v d.img").contains("No problems found"));
        cut(&fixture, "d.img");
        fixture.check("p2.img");
        assert_eq!(fixture.uxfs(&["cat", "--partition=root", "d.img:/file"]).good(), "hello");
    };
    let resize = |size: &str| fixture.uxfs(&["disk", "resize", "--json", "d.img", size]);
    // The free end is cut, and the partition keeps its length.
    let said = resize("400M").good();
    assert_eq!(value(&said, "/partition/after_bytes"), (320u64 << 20).to_string());
    assert_eq!(value(&said, "/volume"), "null");
    sound(400 << 20);
    assert!(resize("329M").bad(1).contains("the partitions and the table need"));
    sound(400 << 20);
    let said = resize("2G").good();
    assert_eq!(value(&said, "/volume/before_bytes"), (320u64 << 20).to_string());
    assert_eq!(value(&said, "/after_bytes"), (2u64 << 30).to_string());
    sound(2 << 30);
    // A file that was extended by hand: the backup is no longer at the end.
    fixture.sh("truncate -s 3G d.img");
    resize("3G").good();
    sound(3 << 30);
    // The primary copy is damaged: the backup has all.
    fixture.sh("printf x | dd status=none of=d.img bs=1 seek=600 conv=notrunc");
    resize("3100M").good();
    sound(3100 << 20);
    assert!(resize("1001").bad(1).contains("no whole sectors"));
    fixture.sh("truncate -s 100M none.img");
    assert!(fixture.uxfs(&["disk", "resize", "none.img", "1G"]).bad(1).contains("no GUID"));
    assert!(fixture.uxfs(&["disk", "info", "none.img"]).bad(1).contains("no partition table"));
}
