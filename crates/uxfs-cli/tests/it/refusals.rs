//! Refused requests: their messages, their exit codes, and what stays unchanged.

use std::fs;

use crate::fixture::Fixture;

#[test]
fn usage_is_two_and_failure_is_one() {
    let fixture = Fixture::with_image(&[]);
    for args in
        [&["frobnicate"][..], &["ls"], &["cp"], &["ls", "--frob", "a.img"], &["chmod", "755"]]
    {
        fixture.uxfs(args).bad(2);
    }
    for args in [
        &["cat", "a.img:/none"][..],
        &["rm", "a.img:/none"],
        &["mv", "a.img:/none", "a.img:/x"],
        &["ln", "a.img:/none", "a.img:/x"],
        &["mkdir", "a.img:/a/b"],
        &["mkdir", "a.img:/"],
        &["chmod", "q+x", "a.img:/"],
        &["chown", "root", "a.img:/none"],
        &["truncate", "-s", "1", "a.img:/"],
        &["info", "none.img"],
        &["export", "none.img"],
        &["label", "a.img", "thirteen-byte"],
    ] {
        let words = fixture.uxfs(args).bad(1);
        assert!(words.starts_with(&format!("uxfs: {}: ", args[0])), "{words}");
        assert!(!words.contains("os error"), "{words}");
    }
    fixture.check("a.img");
}

/// Opening a FIFO without a writer would wait for ever.
#[test]
fn files_that_are_no_images_are_refused_at_once() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree();
    fixture.sh("mkfifo fifo; mkdir dir; tar -C t -cf t.tar .; ln -s fifo link");
    fixture.sh("qemu-img create -q -u -f qcow2 -b fifo -F raw top.qcow2 320M");
    let exe = env!("CARGO_BIN_EXE_uxfs");
    // timeout(1) ends a hanging command with exit code 124.
    let ran = |line: &str| fixture.sh(&format!("timeout 300 {exe} {line} 2>&1 || echo code=$?"));
    for (image, what) in [
        ("fifo", "is a FIFO"),
        ("link", "is a FIFO"),
        ("/dev/tty", "is a character device"),
        ("dir", "is a directory"),
        ("top.qcow2", "is a FIFO"),
    ] {
        for line in ["ls IMAGE:/", "info IMAGE", "check IMAGE", "mkdir IMAGE:/x", "resize IMAGE 1G"]
        {
            let said = ran(&line.replace("IMAGE", image));
            assert!(said.contains(what) && said.contains("code="), "{line}, {image}: {said}");
        }
        let said = ran(&format!("import -q t.tar {image} --size 320M"));
        assert!(said.contains("code=") && !said.contains("code=124"), "import, {image}: {said}");
        let said = ran(&format!("mount {image} dir"));
        assert!(said.contains("code=") && !said.contains("code=124"), "mount, {image}: {said}");
    }
    for option in ["--rtdev", "--logdev"] {
        let said = ran(&format!("ls {option} fifo a.img:/"));
        assert!(said.contains("is a FIFO"), "{option}: {said}");
    }
}

/// A FIFO, such as a shell's `<(…)`, works where a stream is enough. It cannot be read twice.
#[test]
fn streams_come_from_fifos() {
    let fixture = Fixture::new();
    fixture.tree();
    let exe = env!("CARGO_BIN_EXE_uxfs");
    fixture.sh("mkfifo fifo; tar -C t -cf t.tar .; printf '/ 0 40755 2 0 0 0 0.0 - - -\n' >dump");
    for (image, source, stream) in
        [("a.img", "fifo", "t.tar"), ("b.img", "--manifest fifo t", "dump")]
    {
        let sized = format!("timeout 300 {exe} import -q {source} {image} --size 320M");
        fixture.sh(&format!("cat {stream} >fifo & {sized}; wait"));
        fixture.check(image);
        let twice = format!("timeout 300 {exe} import -q {source} new.img");
        let said = fixture.sh(&format!("{twice} 2>&1 || echo code=$?"));
        assert!(said.contains("read only once: give --size"), "{said}");
        assert!(said.contains("code=1") && !said.contains("code=124"), "{said}");
    }
}

#[test]
fn the_root_is_not_removed() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    for path in ["a.img:/", "a.img", "a.img://", "a.img:/t/.."] {
        fixture.uxfs(&["rm", "-rf", path]).bad(1);
    }
    assert_eq!(fixture.uxfs(&["ls", "a.img"]).good(), "t\n");
    fixture.uxfs(&["rm", "a.img:/t"]).bad(1);
    fixture.uxfs(&["rm", "-d", "a.img:/t"]).bad(1);
}

#[test]
fn impossible_moves_are_refused() {
    let fixture = Fixture::with_image(&[]);
    fixture.image("b.img", &[]);
    fixture.tree_in_image();
    fixture.uxfs(&["mv", "a.img:/t/dir", "a.img:/t/dir/deeper"]).bad(1);
    fixture.uxfs(&["mv", "-T", "a.img:/t/dir", "a.img:/t/many"]).bad(1);
    fixture.uxfs(&["mv", "-T", "a.img:/t/file", "a.img:/t/many"]).bad(1);
    fixture.uxfs(&["mv", "a.img:/t/file", "a.img:/t/file"]).bad(1);
    assert!(fixture.uxfs(&["mv", "a.img:/t/file", "b.img:/"]).bad(1).contains("another image"));
    fixture.uxfs(&["ln", "a.img:/t/dir", "a.img:/t/dir2"]).bad(1);
    fixture.uxfs(&["ln", "a.img:/t/file", "a.img:/t/hard"]).bad(1);
    fixture.check("a.img");
}

#[test]
fn a_second_process_is_refused() {
    let fixture = Fixture::with_image(&[]);
    let path = fixture.path("a.img");
    let file = fs::File::open(&path).unwrap();
    file.try_lock().unwrap();
    let words = fixture.uxfs(&["ls", "a.img"]).bad(2);
    let holder = format!("(process {})", std::process::id());
    assert!(words.contains("a.img: in use by ") && words.contains(&holder), "{words}");
    fixture.uxfs(&["mkdir", "a.img:/x"]).bad(1);
    file.unlock().unwrap();
    file.try_lock_shared().unwrap();
    fixture.uxfs(&["ls", "a.img"]).good();
    fixture.uxfs(&["mkdir", "a.img:/x"]).bad(1);
}

#[test]
fn damaged_images_are_named_and_left_alone() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    fs::write(fixture.path("noise.img"), vec![0xa5; 1 << 20]).unwrap();
    fs::write(fixture.path("short.img"), b"XFSB").unwrap();
    for image in ["noise.img", "short.img"] {
        let before = fs::read(fixture.path(image)).unwrap();
        fixture.uxfs(&["ls", image]).bad(2);
        fixture.uxfs(&["mkdir", &format!("{image}:/x")]).bad(1);
        fixture.uxfs(&["cp", "t/file", &format!("{image}:/x")]).bad(1);
        assert_eq!(fs::read(fixture.path(image)).unwrap(), before);
    }
    let _ = uxfs_oracle::db_write(&fixture.path("a.img"), &["agi 0", "write -c magicnum 7"]);
    let before = fixture.sh("sha256sum a.img");
    let words = fixture.uxfs(&["mkdir", "a.img:/x"]).bad(1);
    assert!(words.contains("AGI") || words.contains("agi"), "{words}");
    assert_eq!(fixture.sh("sha256sum a.img"), before);
}

#[test]
fn reading_changes_nothing() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    let before = fixture.sh("sha256sum a.img; stat -c %y a.img");
    for args in [
        &["ls", "-lR", "a.img"][..],
        &["find", "a.img:/"],
        &["stat", "a.img:/t"],
        &["cat", "a.img:/t/file"],
        &["info", "a.img"],
        &["label", "a.img"],
        &["xattr", "list", "a.img:/t/file"],
        &["export", "a.img", "-o", "x.tar"],
    ] {
        fixture.uxfs(args).good();
    }
    assert_eq!(fixture.sh("sha256sum a.img; stat -c %y a.img"), before);
}

#[test]
fn out_of_space_is_reported_and_the_image_stays_consistent() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("head -c 400000000 /dev/zero | tr '\\0' z >big");
    let words = fixture.uxfs(&["cp", "big", "a.img:/big"]).bad(1);
    assert!(words.contains("no space left"), "{words}");
    fixture.check("a.img");
    fixture.uxfs(&["rm", "-f", "a.img:/big"]).good();
    fixture.check("a.img");
}
