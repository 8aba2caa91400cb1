//! Volumes of version 4 and with a realtime device, which uxfs only reads, and with an external log.

use uxfs_oracle::{Kernel, vm::Vm};

use crate::fixture::Fixture;
use crate::mount_ends::{server, signal, until};

/// A protofile for mkfs.xfs' option -p.
const PROTO: &str = "\
unused
0 0
d--755 0 0
: Files
file ---644 7 8 content
many d--755 0 0
ENTRIES
$
link l--777 0 0 many/entry-100
fifo p--600 0 0
null c--666 0 0 1 3
$
";

#[test]
fn version_4_is_read_and_not_written() {
    let fixture = Fixture::new();
    fixture.sh("printf 'some text\\n' >content; head -c 100000 /dev/zero | tr '\\0' z >>content");
    let entries: Vec<String> = (0..300).map(|n| format!("entry-{n} ---600 0 0 content")).collect();
    let proto = PROTO.replace("ENTRIES", &entries.join("\n"));
    std::fs::write(fixture.path("proto"), proto).unwrap_or_else(|e| panic!("{e}"));
    for options in
        ["-n ftype=0", "-b size=512 -n ftype=1", "-b size=1k -n size=8k,ftype=0 -i align=0"]
    {
        fixture.sh(&format!(
            "rm -f v4.img; truncate -s 300m v4.img; \
             mkfs.xfs -q -m crc=0 {options} -p proto v4.img 2>/dev/null"
        ));
        assert_eq!(fixture.uxfs(&["ls", "v4.img"]).good(), "fifo\nfile\nlink\nmany\nnull\n");
        assert_eq!(fixture.uxfs(&["ls", "v4.img:/many"]).good().lines().count(), 300);
        assert_eq!(fixture.uxfs(&["find", "v4.img:/", "-type", "f"]).good().lines().count(), 301);
        let content = fixture.sh("cat content");
        assert_eq!(fixture.uxfs(&["cat", "v4.img:/link"]).good(), content, "{options}");
        let stat = fixture.uxfs(&["stat", "-c", "%s %u %g %a", "v4.img:/file"]).good();
        assert_eq!(stat, "100010 7 8 644\n");
        fixture.sh("rm -rf out");
        fixture.uxfs(&["cp", "-r", "v4.img:/many", "out"]).good();
        fixture.sh("cmp content out/entry-299; test $(ls out | wc -l) = 300");
        fixture.uxfs(&["export", "-o", "t.tar", "v4.img"]).good();
        assert_eq!(fixture.sh("tar -tf t.tar | wc -l").trim(), "306");
        assert_eq!(fixture.uxfs(&["xattr", "list", "v4.img:/file"]).good(), "");
        assert!(fixture.uxfs(&["info", "v4.img"]).good().contains("crc=0"));
        fixture.uxfs(&["info", "--json", "v4.img"]).good();
        let before = fixture.sh("cksum v4.img");
        for write in [
            &["mkdir", "v4.img:/new"][..],
            &["rm", "v4.img:/file"],
            &["cp", "content", "v4.img:/"],
            &["label", "v4.img", "new"],
        ] {
            let said = fixture.uxfs(write).bad(1);
            assert!(said.contains("v4") && said.contains("not supported"), "{write:?}: {said}");
        }
        assert_eq!(fixture.sh("cksum v4.img"), before);
        assert!(fixture.uxfs(&["check", "v4.img"]).bad(8).contains("v4"));
    }
}

#[test]
fn a_realtime_file_needs_its_device() {
    let fixture = Fixture::new();
    fixture.sh("truncate -s 300m a.img; truncate -s 64m rt.img; \
            mkfs.xfs -q -d rtinherit=1 -r rtdev=rt.img a.img");
    let script = "set -e\nmount -t xfs -o rtdev=/drive/1 /drive/0 /mnt\n\
                  echo realtime >/mnt/file\nmkdir /mnt/dir\numount /mnt\n";
    let vm = Vm::new(Kernel::Stable);
    let vm = vm.drive(&fixture.path("a.img"), true).drive(&fixture.path("rt.img"), true);
    vm.script(script).run().unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(fixture.uxfs(&["ls", "a.img"]).good(), "dir\nfile\n");
    assert_eq!(fixture.uxfs(&["cat", "--rtdev", "rt.img", "a.img:/file"]).good(), "realtime\n");
    assert!(fixture.uxfs(&["cat", "a.img:/file"]).bad(1).contains("realtime"));
    fixture.uxfs(&["cp", "a.img:/file", "out", "--rtdev", "rt.img"]).good();
    fixture.uxfs(&["export", "--rtdev", "rt.img", "-o", "t.tar", "a.img"]).good();
    assert_eq!(fixture.sh("cat out; tar -xOf t.tar file"), "realtime\nrealtime\n");
    assert!(
        fixture.uxfs(&["mkdir", "--rtdev", "rt.img", "a.img:/new"]).bad(1).contains("realtime")
    );
    assert!(
        fixture.uxfs(&["cat", "--rtdev", "none.img", "a.img:/file"]).bad(1).contains("none.img")
    );
}

#[test]
fn an_external_log_is_given_or_not_replayed() {
    let fixture = Fixture::new();
    fixture.sh("truncate -s 300m a.img; truncate -s 80m log.img; \
            mkfs.xfs -q -l logdev=log.img a.img");
    assert_eq!(fixture.uxfs(&["ls", "--logdev", "log.img", "a.img"]).good(), "");
    assert_eq!(fixture.uxfs(&["ls", "--norecovery", "a.img"]).good(), "");
    assert!(fixture.uxfs(&["ls", "a.img"]).bad(2).contains("logdev"));
    assert!(fixture.uxfs(&["mkdir", "a.img:/new"]).bad(1).contains("logdev"));
    fixture.uxfs(&["mkdir", "--logdev", "log.img", "a.img:/new"]).good();
    fixture.sh("xfs_repair -n -l log.img a.img >/dev/null 2>&1");

    // A log that is not this volume's, or is in use.
    fixture.sh("truncate -s 300m b.img; truncate -s 80m other.img; \
            mkfs.xfs -q -l logdev=other.img b.img");
    fixture.uxfs(&["mkdir", "--logdev", "other.img", "b.img:/other"]).good();
    let sums = fixture.sh("cat a.img other.img | cksum");
    let refused = fixture.uxfs(&["mkdir", "--logdev", "other.img", "a.img:/no"]).bad(1);
    assert!(refused.contains("another volume"), "{refused}");
    assert_eq!(fixture.sh("cat a.img other.img | cksum"), sums);
    fixture.uxfs(&["mkdir", "--logdev", "a.img", "a.img:/no"]).bad(1);
}

#[test]
fn mkfs_makes_volumes_with_external_logs() {
    let fixture = Fixture::new();
    fixture.sh("mkdir -p tree/dir; seq 1 20000 >tree/dir/numbers; ln -s dir/numbers tree/link; \
            truncate -s 400m a.img");
    // The table of mkfs.xfs, which names the device of the log.
    fixture.sh("truncate -s 400m b.img; truncate -s 80m disk.log");
    let theirs = fixture.sh("mkfs.xfs -m uuid=01234567-89ab-cdef-0123-456789abcdef \
                             -l logdev=disk.log,size=70m b.img");
    fixture.sh("rm disk.log");
    let make = ["mkfs", "-l", "logdev=disk.log,size=70m", "-p", "tree", "a.img"];
    let ours = fixture.uxfs(&make).good();
    assert_eq!(ours, theirs.replace("b.img", "a.img"));
    assert_eq!(fixture.sh("stat -c %s disk.log").trim(), (70 << 20).to_string());
    fixture.sh("xfs_repair -n -l disk.log a.img >/dev/null 2>&1");

    // A kernel finds the tree and uses the log, and then the library.
    let script = "set -e\nmount -t xfs -o logdev=/drive/1 /drive/0 /mnt\n\
                  readlink /mnt/link\nmd5sum </mnt/link\necho kernel >/mnt/new\numount /mnt\n";
    let vm = Vm::new(Kernel::Stable);
    let vm = vm.drive(&fixture.path("a.img"), true).drive(&fixture.path("disk.log"), true);
    let run = vm.script(script).run().unwrap_or_else(|f| panic!("{f}"));
    let expected = fixture.sh("echo dir/numbers; md5sum <tree/link");
    assert!(run.stdout.contains(&expected), "{run:?}");
    let read = fixture.uxfs(&["cat", "--logdev", "disk.log", "a.img:/new"]).good();
    assert_eq!(read, "kernel\n");

    // What is there stays, unless -f is given; nothing is made of a mistake.
    let sums = fixture.sh("cat a.img disk.log | cksum");
    fixture.sh("truncate -s 400m c.img");
    let refused = fixture.uxfs(&["mkfs", "-l", "logdev=disk.log", "c.img"]).bad(1);
    assert!(refused.contains("xfs_external_log") && refused.contains("-f"), "{refused}");
    for (log, why) in [
        ("a.img", "a.img appears to contain an existing filesystem"),
        ("none.log", "-l size="),
        ("./c.img", "same device"),
        ("/dev/null", "neither a file nor a block device"),
        ("nbd://localhost/x", "in a file or on a block device"),
    ] {
        let option = format!("logdev={log}");
        let refused = fixture.uxfs(&["mkfs", "-l", &option, "c.img"]).bad(1);
        assert!(refused.contains(why), "{log}: {refused}");
    }
    let missing = ["as", "mkfs.xfs", "-l", "logdev=none.log,size=70m", "c.img"];
    assert!(fixture.uxfs(&missing).bad(1).contains("none.log"));
    let import = fixture.uxfs(&["import", "-l", "logdev=x.log,size=70m", "tree", "d.img"]).bad(1);
    assert!(import.contains("-l logdev is for mkfs"), "{import}");
    assert_eq!(
        fixture.sh("cat a.img disk.log | cksum; ls"),
        format!("{sums}a.img\nb.img\nc.img\ndisk.log\ntree\n")
    );
    assert_eq!(fixture.sh("tr -d '\\0' <c.img | wc -c").trim(), "0");
    fixture.uxfs(&["mkfs", "-q", "-f", "-l", "logdev=disk.log", "c.img"]).good();
    fixture.sh("xfs_repair -n -l disk.log c.img >/dev/null 2>&1");
    let log_was_lost = fixture.uxfs(&["ls", "--logdev", "disk.log", "a.img"]).bad(2);
    assert!(log_was_lost.contains("another volume"), "{log_was_lost}");
    assert_eq!(
        fixture
            .uxfs(&["mkfs", "-f", "-N", "-l", "logdev=new.log,size=64m", "c.img"])
            .good()
            .lines()
            .count(),
        10
    );
    assert!(!fixture.path("new.log").exists());
}

#[test]
fn identity_and_features_of_a_volume_with_an_external_log_change() {
    let fixture = Fixture::new();
    fixture.sh("truncate -s 300m a.img; truncate -s 70m a.log; mkdir tree; seq 1 999 >tree/file; \
            mkfs.xfs -q -m bigtime=0 -i nrext64=0 -l logdev=a.log a.img; \
            cp --sparse=always a.img b.img; cp --sparse=always a.log b.log");
    fixture.uxfs(&["cp", "-r", "--logdev", "a.log", "tree", "a.img:/"]).good();
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let admin = |args: &[&str]| fixture.uxfs(&[&["as", "xfs_admin"], args].concat());
    let said = admin(&["-L", "labelled", "-U", uuid, "a.img", "a.log"]).good();
    assert!(said.contains("new label = \"labelled\"") && said.contains(uuid), "{said}");
    admin(&["-O", "bigtime=1,nrext64=1", "a.img", "a.log"]).good();
    fixture.sh("xfs_repair -n -l a.log a.img >/dev/null 2>&1");
    let shown = fixture.sh("xfs_admin -l -u a.img a.log");
    assert_eq!(shown, format!("label = \"labelled\"\nUUID = {uuid}\n"));
    // A kernel refuses a log with another UUID than the volume's.
    let script = "set -e\nmount -t xfs -o logdev=/drive/1 /drive/0 /mnt\n\
                  md5sum </mnt/tree/file\necho more >/mnt/more\numount /mnt\n";
    let vm = Vm::new(Kernel::Current);
    let vm = vm.drive(&fixture.path("a.img"), true).drive(&fixture.path("a.log"), true);
    let run = vm.script(script).run().unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(run.stdout, fixture.sh("md5sum <tree/file"));
    let report = fixture.uxfs(&["check", "--logdev", "a.log", "a.img"]).good();
    assert!(report.starts_with("clean: "), "{report}");

    // Nothing changes without the log, with that of another volume, or with a dirty one.
    let sums = fixture.sh("cat a.img b.log | cksum");
    assert!(admin(&["-L", "no", "a.img"]).bad(1).contains("another device"));
    admin(&["-L", "no", "a.img", "b.log"]).bad(1);
    assert_eq!(fixture.sh("cat a.img b.log | cksum"), sums);
    assert_eq!(admin(&["-l", "b.img"]).good(), "label = \"\"\n");
}

#[test]
fn a_volume_with_an_external_log_is_mounted() {
    let fixture = Fixture::new();
    fixture.sh("mkdir dir; truncate -s 300m a.img; truncate -s 80m log.img; \
            mkfs.xfs -q -l logdev=log.img a.img");
    let mount = ["mount", "--logdev", "log.img", "a.img", "dir"];
    fixture.uxfs(&mount).good();
    let busy = fixture.uxfs(&["ls", "--logdev", "log.img", "a.img"]).bad(2);
    assert!(busy.contains("in use"), "{busy}");
    fixture.sh("cp -r /etc/apt dir/; echo kept >dir/file; sync dir/file");
    // Its log is dirty then.
    signal(server(&fixture, "dir"), "KILL");
    let list = ["ls", "--logdev", "log.img", "a.img"];
    until("dead", || !fixture.uxfs(&list).err.contains("in use"));
    let died = fixture.uxfs(&["umount", "dir"]).bad(1);
    assert!(died.contains("server had died"), "{died}");
    assert!(fixture.bash("xfs_repair -n -l log.img a.img").err.contains("log"));
    let sums = fixture.sh("cat a.img log.img | cksum");
    let report = fixture.uxfs(&["check", "--logdev", "log.img", "a.img"]);
    assert!(report.code == 2 && report.out.contains("sound, log not replayed"), "{report:?}");
    let dirty = fixture.uxfs(&["as", "xfs_repair", "-n", "-l", "log.img", "a.img"]).bad(1);
    assert!(dirty.contains("log is dirty"), "{dirty}");
    assert_eq!(fixture.sh("cat a.img log.img | cksum"), sums);
    let again = fixture.uxfs(&mount);
    assert!(again.code == 0 && again.err.contains("the log was dirty: recovered"), "{again:?}");
    assert_eq!(fixture.sh("cat dir/file"), "kept\n");
    assert!(fixture.uxfs(&["scrub", "dir"]).good().contains("clean"));
    fixture.unmount("dir");
    let report = fixture.uxfs(&["check", "--logdev", "log.img", "a.img"]).good();
    assert!(report.starts_with("clean: ") && !report.contains("log-external"), "{report}");
    let alone = fixture.uxfs(&["check", "a.img"]).good();
    assert!(alone.contains("log-external"), "{alone}");
    fixture.sh("truncate -s 1m short.log");
    let short = fixture.uxfs(&["check", "--logdev", "short.log", "a.img"]).bad(8);
    assert!(short.contains("its device has"), "{short}");
    fixture.sh("xfs_repair -n -l log.img a.img >/dev/null 2>&1");
    assert_eq!(fixture.uxfs(&["cat", "--logdev", "log.img", "a.img:/file"]).good(), "kept\n");
}

#[test]
fn a_damaged_primary_superblock_is_reported() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("printf gone | dd of=a.img conv=notrunc status=none");
    assert!(fixture.uxfs(&["ls", "a.img"]).bad(2).contains("a good copy is at AG 1"));
    let report = fixture.uxfs(&["check", "a.img"]);
    assert_eq!(report.code, 4, "{report:?}");
    assert!(report.out.contains("the copy in AG 1 is used"), "{report:?}");
}
