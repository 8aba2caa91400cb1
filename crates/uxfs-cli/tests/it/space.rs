//! Space, flags and hints: cp --reflink, fallocate, chattr, lsattr, extsize.

use crate::bed::Bed;

fn stat(bed: &Bed, format: &str, file: &str) -> String {
    bed.uxfs(&["stat", "-c", format, file]).good().trim().to_owned()
}

/// Asserts that all checkers, including `uxfs check`, accept the image.
#[track_caller]
fn check(bed: &Bed, image: &str) {
    bed.check(image);
    let ours = bed.uxfs(&["check", image]);
    assert_eq!(ours.code, 0, "{ours:?}");
}

#[test]
fn copies_inside_an_image_share_blocks() {
    let bed = Bed::with_image(&["-m", "rmapbt=1"]);
    bed.sh("head -c 3000000 /dev/urandom >big");
    bed.uxfs(&["cp", "big", "a.img:/big"]).good();
    let free = |bed: &Bed| -> u64 {
        let text = bed.uxfs(&["info", "--json", "a.img"]).good();
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        value["free_bytes"].as_u64().unwrap_or_else(|| panic!("{text}"))
    };
    let before = free(&bed);
    bed.uxfs(&["cp", "--reflink", "a.img:/big", "a.img:/clone"]).good();
    bed.uxfs(&["cp", "--reflink=auto", "a.img:/big", "a.img:/auto"]).good();
    bed.uxfs(&["cp", "a.img:/big", "a.img:/plain"]).good();
    assert!(before - free(&bed) < 100_000, "copies take no room");
    bed.uxfs(&["cp", "--reflink=never", "a.img:/big", "a.img:/copy"]).good();
    assert!(before - free(&bed) > 2_900_000, "this one does");
    bed.uxfs(&["truncate", "-s", "12345", "a.img:/big"]).good();
    for name in ["clone", "auto", "plain", "copy"] {
        bed.uxfs(&["cp", &format!("a.img:/{name}"), "back"]).good();
        bed.sh("cmp big back");
    }
    check(&bed, "a.img");
    // Cases in which blocks cannot be shared.
    bed.uxfs(&["cp", "--reflink=always", "big", "a.img:/in"]).bad(1);
    bed.uxfs(&["cp", "--reflink=always", "a.img:/big", "out"]).bad(1);
    bed.uxfs(&["cp", "--reflink=auto", "big", "a.img:/in"]).good();
    bed.image("b.img", &["-m", "reflink=0"]);
    bed.uxfs(&["cp", "--reflink=always", "a.img:/big", "b.img:/big"]).bad(1);
    bed.uxfs(&["cp", "big", "b.img:/big"]).good();
    bed.uxfs(&["cp", "--reflink=always", "b.img:/big", "b.img:/clone"]).bad(1);
    bed.uxfs(&["stat", "b.img:/clone"]).bad(1);
    bed.uxfs(&["cp", "b.img:/big", "b.img:/clone"]).good();
    check(&bed, "b.img");
}

#[test]
fn fallocate_in_all_modes() {
    let bed = Bed::with_image(&[]);
    let file = "a.img:/f";
    let run = |args: &[&str]| bed.uxfs(&[&["fallocate"], args, &[file]].concat());
    run(&["-l", "1M"]).good();
    assert_eq!(stat(&bed, "%s %b", file), "1048576 2048");
    bed.sh("head -c 1048576 /dev/zero | tr '\\0' x >x");
    bed.uxfs(&["cp", "x", file]).good();
    run(&["-n", "-o", "1M", "-l", "1M"]).good();
    assert_eq!(stat(&bed, "%s %b", file), "1048576 4096");
    run(&["-p", "-o", "4096", "-l", "8KiB"]).good();
    run(&["-z", "-o", "64K", "-l", "4K"]).good();
    run(&["-c", "-o", "128K", "-l", "64K"]).good();
    assert_eq!(stat(&bed, "%s", file), "983040");
    run(&["-i", "-o", "0", "-l", "64K"]).good();
    assert_eq!(stat(&bed, "%s", file), "1048576");
    bed.uxfs(&["cp", file, "back"]).good();
    let zeroes = bed.sh("tr -d x <back | wc -c");
    assert_eq!(zeroes.trim(), "77824", "8 KiB, 4 KiB and 64 KiB");
    run(&["-d"]).good();
    let told = run(&["-v", "-u", "-l", "1M"]).good();
    assert_eq!(told, "a.img:/f: 1.0M (1048576 bytes) unshared\n");
    run(&["-c", "-o", "1", "-l", "4096"]).bad(1);
    run(&["-c", "-p", "-l", "4096"]).bad(2);
    run(&["-o", "4096"]).bad(2);
    bed.uxfs(&["fallocate", "-p", "-l", "4096", "a.img:/none"]).bad(1);
    check(&bed, "a.img");
}

#[test]
fn zeroes_become_holes() {
    let bed = Bed::with_image(&["-b", "size=1k"]);
    bed.sh("(head -c 100000 /dev/zero; echo text; head -c 50000 /dev/zero) >zeroes");
    bed.uxfs(&["cp", "zeroes", "a.img:/f"]).good();
    assert_eq!(stat(&bed, "%b", "a.img:/f"), "294");
    bed.uxfs(&["fallocate", "-d", "a.img:/f"]).good();
    assert_eq!(stat(&bed, "%s %b", "a.img:/f"), "150005 2");
    bed.uxfs(&["cp", "a.img:/f", "back"]).good();
    bed.sh("cmp zeroes back");
    check(&bed, "a.img");
}

#[test]
fn flags_and_projects() {
    let bed = Bed::with_image(&[]);
    bed.uxfs(&["mkdir", "a.img:/d", "a.img:/d/sub"]).good();
    bed.sh("echo x >x; ln -s x l");
    bed.uxfs(&["cp", "-P", "x", "l", "a.img:/d"]).good();
    bed.uxfs(&["chattr", "+iadAS", "a.img:/d/x"]).good();
    assert_eq!(bed.uxfs(&["lsattr", "a.img:/d/x"]).good(), "--S-iadA-------------- a.img:/d/x\n");
    bed.uxfs(&["rm", "-f", "a.img:/d/x"]).bad(1);
    bed.uxfs(&["mv", "a.img:/d/x", "a.img:/d/y"]).bad(1);
    bed.uxfs(&["ln", "a.img:/d/x", "a.img:/d/y"]).bad(1);
    bed.uxfs(&["chmod", "600", "a.img:/d/x"]).bad(1);
    bed.uxfs(&["truncate", "-s", "0", "a.img:/d/x"]).bad(1);
    bed.uxfs(&["xattr", "set", "-n", "user.a", "-v", "b", "a.img:/d/x"]).bad(1);
    bed.uxfs(&["chattr", "-ia", "a.img:/d/x"]).good();
    bed.uxfs(&["chattr", "=A", "a.img:/d/x"]).good();
    bed.uxfs(&["chattr", "-R", "-p", "99", "+P", "a.img:/d"]).good();
    let told = bed.uxfs(&["lsattr", "-Rp", "a.img:/d"]).good();
    let mut lines: Vec<&str> = told.lines().collect();
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
        bed.uxfs(&["lsattr", "-dl", "a.img:/d"]).good(),
        "a.img:/d                     Project_Hierarchy\n"
    );
    bed.uxfs(&["cp", "x", "a.img:/d/sub/y"]).good();
    assert!(bed.uxfs(&["lsattr", "-p", "a.img:/d/sub/y"]).good().starts_with("   99 "));
    // A link cannot bring a file of another project into the directory.
    bed.uxfs(&["cp", "x", "a.img:/x"]).good();
    bed.uxfs(&["ln", "a.img:/x", "a.img:/d/other"]).bad(1);
    bed.uxfs(&["chattr", "+c", "a.img:/x"]).bad(1);
    bed.uxfs(&["chattr", "+i", "a.img:/d/l"]).bad(1);
    let silent = bed.uxfs(&["chattr", "-f", "+i", "a.img:/d/l"]);
    assert!(silent.code == 1 && silent.err.is_empty(), "{silent:?}");
    check(&bed, "a.img");
}

#[test]
fn hints() {
    let bed = Bed::with_image(&["-m", "rmapbt=1"]);
    bed.uxfs(&["mkdir", "a.img:/d"]).good();
    bed.uxfs(&["extsize", "-s", "64K", "a.img:/d"]).good();
    bed.uxfs(&["cowextsize", "-s", "128K", "a.img:/d"]).good();
    bed.sh("echo x >x");
    bed.uxfs(&["cp", "x", "a.img:/d/x"]).good();
    assert_eq!(bed.uxfs(&["extsize", "a.img:/d/x"]).good(), "[65536] a.img:/d/x\n");
    assert_eq!(bed.uxfs(&["cowextsize", "a.img:/d/x"]).good(), "[131072] a.img:/d/x\n");
    assert_eq!(stat(&bed, "%s %b", "a.img:/d/x"), "2 128");
    bed.uxfs(&["extsize", "-s", "0", "a.img:/d/x"]).bad(1);
    bed.uxfs(&["extsize", "-s", "1000", "a.img:/d"]).bad(1);
    assert_eq!(bed.uxfs(&["extsize", "-D", "a.img:/"]).good(), "[0] a.img:/\n[65536] a.img:/d\n");
    check(&bed, "a.img");
}
