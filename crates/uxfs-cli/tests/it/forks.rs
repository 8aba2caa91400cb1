//! `uxfs fork`, `uxfs mount --delta`, `uxfs diff` and `uxfs commit`, with xfs_repair and diff(1) as judges.

use crate::fixture::Fixture;
use crate::mount_ends::until;
use crate::nbd::{Process, serve};

/// `a.img` with a tree, and its fork `child`.
fn family() -> Fixture {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    assert_eq!(fixture.uxfs(&["fork", "a.img", "child"]).good(), "");
    fixture
}

/// Judges an image of any format by a raw copy of it.
fn check(fixture: &Fixture, image: &str) {
    let served = serve(fixture, &["--read-only", image, "--socket", "judge.sock"]);
    fixture.sh("qemu-img convert -f raw -O raw 'nbd+unix:///?socket=judge.sock' raw.img");
    drop(served);
    fixture.check("raw.img");
}

#[test]
fn a_fork_is_an_image_of_its_own() {
    let fixture = family();
    let before = fixture.sh("sha256sum <a.img");
    let small = std::fs::metadata(fixture.path("child")).expect("the fork").len();
    assert_eq!(small, 8192);
    let ran = |args: &[&str]| fixture.uxfs(args).good();
    assert_eq!(ran(&["cat", "child:/t/file"]), "hello");
    ran(&["rm", "-r", "child:/t/many"]);
    ran(&["cp", "-a", "t/dir", "child:/more"]);
    ran(&["check", "child"]);
    check(&fixture, "child");
    // A fork of a fork, and a second one of the same base.
    ran(&["fork", "child", "grandchild"]);
    ran(&["fork", "a.img", "sibling"]);
    ran(&["mkdir", "grandchild:/third"]);
    assert_eq!(ran(&["ls", "grandchild:/"]), "more\nt\nthird\n");
    assert_eq!(ran(&["ls", "child:/"]), "more\nt\n");
    assert_eq!(ran(&["ls", "sibling:/"]), "t\n");
    check(&fixture, "grandchild");
    assert_eq!(fixture.sh("sha256sum <a.img"), before);
    // A fork has the length of its base.
    assert!(fixture.uxfs(&["resize", "sibling", "1G"]).bad(1).contains("cannot grow"));
    // The base has changed: nothing that was made of it is taken for whole.
    ran(&["touch", "a.img:/new"]);
    let said = fixture.uxfs(&["ls", "child:/"]).bad(2);
    assert!(said.contains("a.img is not what it was"), "{said}");
    let said = fixture.uxfs(&["fork", "a.img", "child"]).bad(1);
    assert!(said.contains("exists"), "{said}");
}

#[test]
fn a_mount_writes_into_its_delta() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir mnt other; cp a.img copy");
    let ran = |args: &[&str]| fixture.uxfs(args).good();
    ran(&["mount", "a.img", "--delta", "one", "mnt"]);
    ran(&["mount", "a.img", "--delta", "two", "other"]);
    fixture.sh(
        "echo one >mnt/file; echo two >other/file; mkdir mnt/dir; cp -r /usr/include/linux mnt/dir",
    );
    let busy = fixture.uxfs(&["touch", "a.img:/x"]).bad(1);
    assert!(busy.contains("in use"), "{busy}");
    assert!(fixture.uxfs(&["commit", "one"]).bad(1).contains("in use"));
    fixture.unmount("mnt");
    fixture.unmount("other");
    fixture.sh("cmp a.img copy");
    ran(&["mount", "a.img", "--delta", "one", "mnt"]);
    fixture.sh("diff -r --no-dereference /usr/include/linux mnt/dir/linux; rm -r mnt/dir");
    fixture.unmount("mnt");
    assert_eq!(ran(&["cat", "one:/file"]), "one\n");
    assert_eq!(ran(&["cat", "two:/file"]), "two\n");
    check(&fixture, "one");
    check(&fixture, "two");
    let wrong = fixture.uxfs(&["mount", "copy", "--delta", "one", "mnt"]).bad(1);
    assert!(wrong.contains("is a fork of"), "{wrong}");
    let wrong = fixture.uxfs(&["mount", "a.img", "--delta", "copy", "mnt"]).bad(1);
    assert!(wrong.contains("is not a fork"), "{wrong}");
}

#[test]
fn a_killed_mount_keeps_what_was_synced_in_its_delta() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir mnt");
    for round in 0..3 {
        let args = ["mount", "-f", "a.img", "--delta", "child", "mnt"];
        let mount = Process::start(&fixture, env!("CARGO_BIN_EXE_uxfs"), &args);
        until("mounted", || fixture.run(&["mountpoint", "-q", "mnt"]).code == 0);
        fixture
            .sh(&format!("cp -r /usr/include/linux mnt/{round}; echo {round} >mnt/kept-{round}"));
        fixture.uxfs(&["sync", "mnt"]).good();
        fixture.sh(&format!("cp -r /usr/include/linux mnt/loose-{round}"));
        mount.kill();
        fixture.run(&["umount", "-l", "mnt"]);
    }
    fixture.uxfs(&["log", "quiesce", "child"]).good();
    check(&fixture, "child");
    for round in 0..3 {
        let kept = fixture.uxfs(&["cat", &format!("child:/kept-{round}")]).good();
        assert_eq!(kept, format!("{round}\n"));
        fixture.uxfs(&["cp", "-a", &format!("child:/{round}"), "back"]).good();
        fixture.sh("diff -r --no-dereference /usr/include/linux back; rm -r back");
    }
}

#[test]
fn diff_names_what_differs_and_reads_nothing_that_is_shared() {
    let fixture = family();
    let ran = |args: &[&str]| fixture.uxfs(args).good();
    fixture.sh("head -c 20000000 /dev/urandom >big; cp big changed; printf XY | \
                dd of=changed bs=1 seek=10000000 conv=notrunc status=none; truncate -s +5 changed");
    ran(&["cp", "-a", "big", "a.img:/big"]);
    ran(&["cp", "-a", "big", "a.img:/same"]);
    fixture.sh("rm child");
    ran(&["fork", "a.img", "child"]);
    assert_eq!(ran(&["diff", "a.img", "child"]), "");
    ran(&["rm", "-r", "child:/t/many"]);
    ran(&["cp", "-r", "t/dir", "child:/new"]);
    ran(&["chmod", "600", "child:/t/file"]);
    ran(&["ln", "-sf", "elsewhere", "child:/t/link"]);
    ran(&["xattr", "set", "-n", "user.new", "-v", "value", "child:/t/dir/big"]);
    ran(&["cp", "--preserve=timestamps", "changed", "child:/big"]);
    let found = fixture.uxfs(&["diff", "a.img", "child"]);
    assert_eq!((found.code, found.err.as_str()), (1, ""));
    let lines: Vec<&str> = found.out.lines().collect();
    let line = |path: &str| {
        *lines
            .iter()
            .find(|line| line.ends_with(path))
            .unwrap_or_else(|| panic!("{path}: {lines:?}"))
    };
    let big = line(" /big");
    assert!(big.starts_with("M ") && big.contains("content"), "{big}");
    let bytes: u64 = big.split(' ').nth(1).and_then(|text| text.parse().ok()).expect("a number");
    // Two bytes, of which one may be the same by chance, and five behind the end.
    assert!((5..=7).contains(&bytes), "{big}");
    assert!(line("/new/").starts_with("A 300000 "));
    assert!(line("/t/many/").starts_with("D "));
    assert_eq!(line("/t/file"), "M 0 mode /t/file");
    assert!(line("/t/hard").contains("mode"), "the other name of the file");
    assert!(line("/t/link").contains("target"));
    assert!(line("/t/dir/big").starts_with("M 0 xattr"));
    assert_eq!(lines.len(), 7, "{lines:?}");
    let json = fixture.bash("uxfs diff --json a.img child >d.json; \
        python3 -c 'import json; d = json.load(open(\"d.json\")); print(d[\"paths\"], d[\"read_bytes\"])'");
    let mut numbers =
        json.out.split_whitespace().map(|word| word.parse::<u64>().expect("a number"));
    assert_eq!(numbers.next(), Some(7));
    // The changed file is read in both; its twin and all others are not.
    let read = numbers.next().expect("bytes");
    assert!(read <= 2 * 20_000_000, "{read}");
    assert!(fixture.uxfs(&["diff", "-q", "a.img:/t/dir/deeper", "child:/t/dir/deeper"]).code == 0);
    fixture.uxfs(&["diff", "a.img", "none.img"]).bad(2);
    // Without a common base everything is read, and found the same.
    fixture.sh("cp a.img copy.img");
    assert_eq!(ran(&["diff", "a.img", "copy.img"]), "");
    assert_eq!(fixture.uxfs(&["diff", "copy.img", "child"]).out, found.out);
}

#[test]
fn commit_writes_the_changes_into_the_base() {
    let fixture = family();
    let ran = |args: &[&str]| fixture.uxfs(args).good();
    ran(&["fork", "a.img", "sibling"]);
    ran(&["cp", "-a", "t", "child:/again"]);
    ran(&["rm", "-r", "child:/t"]);
    let said = ran(&["commit", "child"]);
    assert!(said.contains("a.img: ") && said.ends_with(" bytes written\n"), "{said}");
    fixture.check("a.img");
    ran(&["cp", "-a", "a.img:/again", "back"]);
    fixture.sh("diff -r --no-dereference t/dir back/dir");
    assert_eq!(ran(&["diff", "a.img", "child"]), "");
    assert_eq!(
        ran(&["commit", "child"]),
        said.split(": ").next().expect("a path").to_owned() + ": 0 bytes written\n"
    );
    fixture.uxfs(&["ls", "sibling:/"]).bad(2);
    ran(&["mkdir", "child:/later"]);
    ran(&["commit", "-q", "child"]);
    assert_eq!(ran(&["ls", "a.img:/"]), "again\nlater\n");
    fixture.check("a.img");
    assert!(fixture.uxfs(&["commit", "a.img"]).bad(1).contains("is not a fork"));
}

#[test]
fn a_base_may_be_a_qcow2_image() {
    let fixture = Fixture::new();
    let ran = |args: &[&str]| fixture.uxfs(args).good();
    ran(&["mkfs", "-q", "-d", "size=320m", "a.qcow2"]);
    ran(&["fork", "a.qcow2", "child"]);
    ran(&["mkdir", "child:/dir"]);
    check(&fixture, "child");
    assert_eq!(ran(&["ls", "a.qcow2:/"]), "");
    ran(&["commit", "-q", "child"]);
    assert_eq!(ran(&["ls", "a.qcow2:/"]), "dir\n");
    assert_eq!(ran(&["ls", "child:/"]), "dir\n");
    fixture.sh("qemu-img check -q a.qcow2");
    check(&fixture, "a.qcow2");
}

#[test]
fn an_image_of_another_format_stays_locked_while_it_is_open() {
    let fixture = Fixture::new();
    fixture.sh("mkdir mnt");
    fixture.uxfs(&["mkfs", "-q", "-d", "size=320m", "a.qcow2"]).good();
    fixture.uxfs(&["mount", "a.qcow2", "mnt"]).good();
    let busy = fixture.uxfs(&["touch", "a.qcow2:/x"]);
    fixture.unmount("mnt");
    assert!(busy.bad(1).contains("in use"));
}
