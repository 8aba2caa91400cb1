//! A failed or interrupted command leaves nothing that prevents the next one.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::fixture::Fixture;

#[test]
fn a_mistyped_source_leaves_no_image() {
    let fixture = Fixture::new();
    fixture.tree();
    fixture.sh("echo this is no archive at all >text; : >empty; tar cf t.tar t; \
            head -c 5000 t.tar >cut.tar; echo '/ nonsense' >bad.dump");
    for source in [
        &["none.tar"][..],
        &["text"],
        &["empty"],
        &["cut.tar"],
        &["--manifest", "none.dump", "t"],
        &["--manifest", "bad.dump", "t"],
        &["--layers", "t.tar", "none.tar"],
        &["oci:none"],
    ] {
        for size in [&["--size", "320M"][..], &[]] {
            fixture.uxfs(&[&["import", "-q"], source, &["a.img"], size].concat()).bad(1);
            assert!(!fixture.path("a.img").exists(), "{source:?} {size:?}");
        }
    }
    // A failed import leaves an existing blank file blank.
    fixture.sh("truncate -s 320M a.img");
    fixture.uxfs(&["import", "-q", "cut.tar", "a.img"]).bad(1);
    assert_eq!(fixture.sh("stat -c '%s %b' a.img"), "335544320 0\n");
    fixture.uxfs(&["import", "-q", "t", "a.img"]).good();
    fixture.check("a.img");
    // A mistyped command does not overwrite a file with content.
    let before = fixture.sh("sha256sum a.img t.tar");
    fixture.uxfs(&["import", "-q", "none.tar", "a.img"]).bad(1);
    let words = fixture.uxfs(&["import", "-q", "t", "t.tar"]).bad(1);
    assert!(words.contains("tar archive"), "{words}");
    assert_eq!(fixture.sh("sha256sum a.img t.tar"), before);
}

#[test]
fn a_full_host_leaves_no_image() {
    let fixture = Fixture::new();
    fixture.sh("head -c 400000000 /dev/zero | tr '\\0' x >big");
    let words = fixture.uxfs(&["import", "-q", "--size", "320M", ".", "a.img"]).bad(1);
    assert!(words.contains("big"), "{words}");
    assert!(!fixture.path("a.img").exists());
    fixture.bash("ulimit -f 1000; trap '' XFSZ; uxfs mkfs -q -d size=320m b.img").bad(1);
    assert!(!fixture.path("b.img").exists());
}

/// Its data is written by threads of its own, whose error names no file.
#[test]
fn an_import_names_the_image_that_has_no_room_on_its_host() {
    let fixture = Fixture::new();
    fixture.sh("mkdir host; head -c 40000000 /dev/zero | tr '\\0' x >big; tar cf big.tar big");
    let script = format!(
        "mount -t tmpfs -o size=30M none host; {} import -q --size 320M big.tar host/c.img; code=$?; \
         [ -z \"$(ls -A host)\" ] || exit 99; exit $code",
        env!("CARGO_BIN_EXE_uxfs")
    );
    let words = fixture.bash(&format!("unshare -m bash -c '{script}'")).bad(1);
    assert!(words.contains("host/c.img: no space left on device"), "{words}");
}

/// Starts an import from a pipe that stays open, and sends the signal after the import has begun to
/// write. Returns exit code and messages.
fn interrupted(fixture: &Fixture, args: &[&str], signal: &str) -> (i32, String) {
    let tar = std::fs::read(fixture.path("t.tar")).expect("the child is as it was set up");
    // A shell that starts the tests in the background lets them ignore SIGINT, and a child inherits
    // that.
    let mut child = Command::new("env")
        .args(["--default-signal", env!("CARGO_BIN_EXE_uxfs")])
        .args(args)
        .current_dir(fixture.path(""))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the child is as it was set up");
    let mut input = child.stdin.take().expect("the child is as it was set up");
    // The archive is not complete, so the import waits for more.
    input.write_all(&tar[..tar.len() / 2]).expect("the child is as it was set up");
    // The import has begun when it holds the image's lock.
    let (begun, id) = (Instant::now(), child.id().to_string());
    let holds = || {
        let locks = std::fs::read_to_string("/proc/locks").expect("the child is as it was set up");
        locks.lines().any(|line| line.contains("WRITE") && line.split(' ').any(|word| word == id))
    };
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(600), "it never began");
        std::thread::sleep(Duration::from_millis(5));
    }
    fixture.sh(&format!("kill -{signal} {}", child.id()));
    let out = child.wait_with_output().expect("the child is as it was set up");
    drop(input);
    let code = out
        .status
        .code()
        .unwrap_or_else(|| 1000 + out.status.signal().expect("the child is as it was set up"));
    (code, String::from_utf8(out.stderr).expect("the child is as it was set up"))
}

#[test]
fn an_interrupted_import_leaves_nothing_behind() {
    let fixture = Fixture::new();
    fixture.tree();
    fixture.sh("rm -f t/fifo; tar cf t.tar t");
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let args = ["import", "-q", "-", "new.img", "--size", "320M"];
        let (ended, words) = interrupted(&fixture, &args, signal);
        assert_eq!(ended, code, "{words}");
        assert!(words.contains("interrupted") && words.contains("nothing was left"), "{words}");
        assert!(!fixture.path("new.img").exists());
    }
    // The interrupted import does not prevent the next one.
    fixture.uxfs(&["import", "-q", "t.tar", "new.img"]).good();
    let args = ["import", "-q", "-", "new.img"];
    let (ended, words) = interrupted(&fixture, &args, "INT");
    assert_eq!(ended, 130, "{words}");
    assert!(words.contains("interrupted") && words.contains("consistent"), "{words}");
    fixture.uxfs(&["log", "quiesce", "new.img"]).good();
    fixture.check("new.img");
}

#[test]
fn an_interrupted_import_over_an_old_image_says_so() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree();
    fixture.sh("rm -f t/fifo; tar cf t.tar t");
    let args = ["import", "-q", "-f", "-", "a.img", "--size", "320M"];
    let (ended, words) = interrupted(&fixture, &args, "INT");
    assert_eq!(ended, 130, "{words}");
    assert!(words.contains("the volume in a.img is unfinished until import runs again"), "{words}");
    fixture.uxfs(&["import", "-q", "t.tar", "a.img"]).good();
    fixture.check("a.img");
}

#[test]
fn a_killed_import_can_be_done_again() {
    let fixture = Fixture::new();
    fixture.tree();
    fixture.sh("rm -f t/fifo; tar cf t.tar t");
    let args = ["import", "-q", "-", "new.img", "--size", "320M"];
    let (ended, _) = interrupted(&fixture, &args, "KILL");
    assert_eq!(ended, 1009);
    assert!(fixture.path("new.img").exists());
    fixture.uxfs(&["import", "-q", "t.tar", "new.img"]).good();
    fixture.check("new.img");
}

#[test]
fn a_broken_export_leaves_no_archive() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    fixture.bash("ulimit -f 100; trap '' XFSZ; uxfs export a.img -o x.tar").bad(1);
    assert!(!fixture.path("x.tar").exists());
    fixture.uxfs(&["export", "a.img", "-o", "x.tar"]).good();
    fixture.sh("tar tf x.tar | grep -q t/file");
}

#[test]
fn images_named_qcow2_have_that_format() {
    let fixture = Fixture::new();
    fixture.tree();
    fixture.uxfs(&["import", "-q", "t", "tree.qcow2"]).good();
    fixture.uxfs(&["mkfs", "-q", "-d", "size=320m", "made.QCOW2"]).good();
    for image in ["tree.qcow2", "made.QCOW2"] {
        assert_eq!(&std::fs::read(fixture.path(image)).unwrap()[..4], b"QFI\xfb");
        fixture.sh(&format!("qemu-img check -q {image}; qemu-img convert -O raw {image} raw.img"));
        fixture.check("raw.img");
    }
    assert_eq!(fixture.uxfs(&["cat", "tree.qcow2:/file"]).good(), "hello");
    fixture.uxfs(&["cp", "t/file", "made.QCOW2:/x"]).good();
    fixture.sh("qemu-img check -q made.QCOW2; truncate -s 320M raw.qcow2");
    for image in ["a.vmdk", "a.vhdx", "a.vdi", "raw.qcow2"] {
        let there = fixture.path(image).exists();
        for args in [
            &["mkfs", "-d", "size=320m", image][..],
            &["import", "-q", "--size", "320M", "t", image],
        ] {
            let ran = fixture.uxfs(args);
            assert_eq!(ran.out, "");
            let words = ran.bad(1);
            assert!(words.contains("image"), "{words}");
            assert!(there || words.contains("qemu-img convert -O"), "{words}");
            assert_eq!(fixture.path(image).exists(), there);
        }
    }
}

#[test]
fn owner_sets_the_owner_of_the_root_directory() {
    let fixture = Fixture::new();
    fixture.tree();
    let owner = |image: &str| fixture.uxfs(&["stat", "-c", "%u:%g", &format!("{image}:/")]).good();
    let args = ["mkfs", "-q", "-d", "size=320m", "-m", "uuid=12341234-a4ec-4304-a70f-c549ea829da9"];
    fixture.uxfs(&[&args[..], &["--owner", "1234:77", "a.img"]].concat()).good();
    assert_eq!(owner("a.img"), "1234:77\n");
    fixture.check("a.img");
    fixture.uxfs(&[&args[..], &["--owner", "root", "b.img"]].concat()).good();
    assert_eq!(owner("b.img"), "0:0\n");
    fixture.uxfs(&["mkfs", "-d", "size=320m", "--owner", "no-such-user", "c.img"]).bad(1);
    fixture.sh("tar cf t.tar -C t file");
    fixture.uxfs(&["import", "-q", "--owner", "1234:77", "t.tar", "d.img"]).good();
    assert_eq!(owner("d.img"), "1234:77\n");
    fixture.uxfs(&["import", "-q", "t.tar", "e.img"]).good();
    assert_eq!(owner("e.img"), "0:0\n");
}

#[test]
fn users_without_root_get_a_hint_about_the_owner() {
    let fixture = Fixture::new();
    // If root runs the test, use another user.
    let line = |args: &str| {
        format!(
            "chmod 777 .; if [ $(id -u) = 0 ]; then \
             setpriv --reuid 1234 --regid 77 --clear-groups \
             bash -c '\"$0\" {args}' ./uxfs-copy; else ./uxfs-copy {args}; fi"
        )
    };
    fixture.sh(&format!("cp {} uxfs-copy; chmod 755 uxfs-copy", env!("CARGO_BIN_EXE_uxfs")));
    let ran = fixture.bash(&line("mkfs -d size=320m a.img"));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.lines().count() == 1 && ran.err.contains("--owner"), "{ran:?}");
    fixture.bash(&line("mkfs -q -d size=320m b.img")).good();
    let ran = fixture.bash(&line("mkfs -d size=320m --owner 1234:77 c.img"));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}
