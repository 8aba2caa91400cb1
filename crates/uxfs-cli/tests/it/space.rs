//! Space, flags and hints: cp --reflink, fallocate, chattr, lsattr, extsize.

use crate::fixture::Fixture;

fn stat(fixture: &Fixture, format: &str, file: &str) -> String {
    fixture.uxfs(&["stat", "-c", format, file]).good().trim().to_owned()
}

/// Asserts that all checkers, including `uxfs check`, accept the image.
#[track_caller]
fn check(fixture: &Fixture, image: &str) {
    fixture.check(image);
    let ours = fixture.uxfs(&["check", image]);
    assert_eq!(ours.code, 0, "{ours:?}");
}

#[test]
fn copies_inside_an_image_share_blocks() {
    let fixture = Fixture::with_image(&["-m", "rmapbt=1"]);
    fixture.sh("head -c 3000000 /dev/urandom >big");
    fixture.uxfs(&["cp", "big", "a.img:/big"]).good();
    let free = |fixture: &Fixture| -> u64 {
        let text = fixture.uxfs(&["info", "--json", "a.img"]).good();
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        value["free_bytes"].as_u64().unwrap_or_else(|| panic!("{text}"))
    };
    let before = free(&fixture);
    fixture.uxfs(&["cp", "--reflink", "a.img:/big", "a.img:/clone"]).good();
    fixture.uxfs(&["cp", "--reflink=auto", "a.img:/big", "a.img:/auto"]).good();
    fixture.uxfs(&["cp", "a.img:/big", "a.img:/plain"]).good();
    assert!(before - free(&fixture) < 100_000, "copies take no room");
    fixture.uxfs(&["cp", "--reflink=never", "a.img:/big", "a.img:/copy"]).good();
    assert!(before - free(&fixture) > 2_900_000, "this one does");
    fixture.uxfs(&["truncate", "-s", "12345", "a.img:/big"]).good();
    for name in ["clone", "auto", "plain", "copy"] {
        fixture.uxfs(&["cp", &format!("a.img:/{name}"), "back"]).good();
        fixture.sh("cmp big back");
    }
    check(&fixture, "a.img");
    // Cases in which blocks cannot be shared.
    fixture.uxfs(&["cp", "--reflink=always", "big", "a.img:/in"]).bad(1);
    fixture.uxfs(&["cp", "--reflink=always", "a.img:/big", "out"]).bad(1);
    fixture.uxfs(&["cp", "--reflink=auto", "big", "a.img:/in"]).good();
    fixture.image("b.img", &["-m", "reflink=0"]);
    fixture.uxfs(&["cp", "--reflink=always", "a.img:/big", "b.img:/big"]).bad(1);
    fixture.uxfs(&["cp", "big", "b.img:/big"]).good();
    fixture.uxfs(&["cp", "--reflink=always", "b.img:/big", "b.img:/clone"]).bad(1);
    fixture.uxfs(&["stat", "b.img:/clone"]).bad(1);
    fixture.uxfs(&["cp", "b.img:/big", "b.img:/clone"]).good();
    check(&fixture, "b.img");
}

#[test]
fn fallocate_in_all_modes() {
    let fixture = Fixture::with_image(&[]);
    let file = "a.img:/f";
    let run = |args: &[&str]| fixture.uxfs(&[&["fallocate"], args, &[file]].concat());
    run(&["-l", "1M"]).good();
    assert_eq!(stat(&fixture, "%s %b", file), "1048576 2048");
    fixture.sh("head -c 1048576 /dev/zero | tr '\\0' x >x");
    fixture.uxfs(&["cp", "x", file]).good();
    run(&["-n", "-o", "1M", "-l", "1M"]).good();
    assert_eq!(stat(&fixture, "%s %b", file), "1048576 4096");
    run(&["-p", "-o", "4096", "-l", "8KiB"]).good();
    run(&["-z", "-o", "64K", "-l", "4K"]).good();
    run(&["-c", "-o", "128K", "-l", "64K"]).good();
    assert_eq!(stat(&fixture, "%s", file), "983040");
    run(&["-i", "-o", "0", "-l", "64K"]).good();
    assert_eq!(stat(&fixture, "%s", file), "1048576");
    fixture.uxfs(&["cp", file, "back"]).good();
    let zeroes = fixture.sh("tr -d x <back | wc -c");
    assert_eq!(zeroes.trim(), "77824", "8 KiB, 4 KiB and 64 KiB");
    run(&["-d"]).good();
    let output = run(&["-v", "-u", "-l", "1M"]).good();
    assert_eq!(output, "a.img:/f: 1.0M (1048576 bytes) unshared\n");
    run(&["-c", "-o", "1", "-l", "4096"]).bad(1);
    run(&["-c", "-p", "-l", "4096"]).bad(2);
    run(&["-o", "4096"]).bad(2);
    fixture.uxfs(&["fallocate", "-p", "-l", "4096", "a.img:/none"]).bad(1);
    check(&fixture, "a.img");
}

#[test]
fn zeroes_become_holes() {
    let fixture = Fixture::with_image(&["-b", "size=1k"]);
    fixture.sh("(head -c 100000 /dev/zero; echo text; head -c 50000 /dev/zero) >zeroes");
    fixture.uxfs(&["cp", "zeroes", "a.img:/f"]).good();
    assert_eq!(stat(&fixture, "%b", "a.img:/f"), "294");
    fixture.uxfs(&["fallocate", "-d", "a.img:/f"]).good();
    assert_eq!(stat(&fixture, "%s %b", "a.img:/f"), "150005 2");
    fixture.uxfs(&["cp", "a.img:/f", "back"]).good();
    fixture.sh("cmp zeroes back");
    check(&fixture, "a.img");
}

#[test]
fn flags_and_projects() {
    let fixture = Fixture::with_image(&[]);
    fixture.uxfs(&["mkdir", "a.img:/d", "a.img:/d/sub"]).good();
    fixture.sh("echo x >x; ln -s x l");
    fixture.uxfs(&["cp", "-P", "x", "l", "a.img:/d"]).good();
    fixture.uxfs(&["chattr", "+iadAS", "a.img:/d/x"]).good();
    assert_eq!(
        fixture.uxfs(&["lsattr", "a.img:/d/x"]).good(),
        "--S-iadA-------------- a.img:/d/x\n"
    );
    fixture.uxfs(&["rm", "-f", "a.img:/d/x"]).bad(1);
    fixture.uxfs(&["mv", "a.img:/d/x", "a.img:/d/y"]).bad(1);
    fixture.uxfs(&["ln", "a.img:/d/x", "a.img:/d/y"]).bad(1);
    fixture.uxfs(&["chmod", "600", "a.img:/d/x"]).bad(1);
    fixture.uxfs(&["truncate", "-s", "0", "a.img:/d/x"]).bad(1);
    fixture.uxfs(&["xattr", "set", "-n", "user.a", "-v", "b", "a.img:/d/x"]).bad(1);
    fixture.uxfs(&["chattr", "-ia", "a.img:/d/x"]).good();
    fixture.uxfs(&["chattr", "=A", "a.img:/d/x"]).good();
    fixture.uxfs(&["chattr", "-R", "-p", "99", "+P", "a.img:/d"]).good();
    let output = fixture.uxfs(&["lsattr", "-Rp", "a.img:/d"]).good();
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    let wanted = [
        "",
        "",
        "   99 -------------------P-- a.img:/d/sub",
        "   99 -------A-------------- a.img:/d/x",
        "a.img:/d/sub:",
    ];
    assert_eq!(lines, wanted);
    assert_eq!(
        fixture.uxfs(&["lsattr", "-dl", "a.img:/d"]).good(),
        "a.img:/d                     Project_Hierarchy\n"
    );
    fixture.uxfs(&["cp", "x", "a.img:/d/sub/y"]).good();
    assert!(fixture.uxfs(&["lsattr", "-p", "a.img:/d/sub/y"]).good().starts_with("   99 "));
    // A link cannot bring a file of another project into the directory.
    fixture.uxfs(&["cp", "x", "a.img:/x"]).good();
    fixture.uxfs(&["ln", "a.img:/x", "a.img:/d/other"]).bad(1);
    fixture.uxfs(&["chattr", "+c", "a.img:/x"]).bad(1);
    fixture.uxfs(&["chattr", "+i", "a.img:/d/l"]).bad(1);
    let silent = fixture.uxfs(&["chattr", "-f", "+i", "a.img:/d/l"]);
    assert!(silent.code == 1 && silent.err.is_empty(), "{silent:?}");
    check(&fixture, "a.img");
}

#[test]
fn extent_size_hints_are_set_and_inherited() {
    let fixture = Fixture::with_image(&["-m", "rmapbt=1"]);
    fixture.uxfs(&["mkdir", "a.img:/d"]).good();
    fixture.uxfs(&["extsize", "-s", "64K", "a.img:/d"]).good();
    fixture.uxfs(&["cowextsize", "-s", "128K", "a.img:/d"]).good();
    fixture.sh("echo x >x");
    fixture.uxfs(&["cp", "x", "a.img:/d/x"]).good();
    assert_eq!(fixture.uxfs(&["extsize", "a.img:/d/x"]).good(), "[65536] a.img:/d/x\n");
    assert_eq!(fixture.uxfs(&["cowextsize", "a.img:/d/x"]).good(), "[131072] a.img:/d/x\n");
    assert_eq!(stat(&fixture, "%s %b", "a.img:/d/x"), "2 128");
    fixture.uxfs(&["extsize", "-s", "0", "a.img:/d/x"]).bad(1);
    fixture.uxfs(&["extsize", "-s", "1000", "a.img:/d"]).bad(1);
    assert_eq!(
        fixture.uxfs(&["extsize", "-D", "a.img:/"]).good(),
        "[0] a.img:/\n[65536] a.img:/d\n"
    );
    check(&fixture, "a.img");
}
