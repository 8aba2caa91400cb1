//! Further options and odd cases of coreutils, compared with coreutils on the same tree.

use std::process::{Command, Stdio};

use crate::fixture::Fixture;

const UXFS: &str = env!("CARGO_BIN_EXE_uxfs");

#[test]
fn cp_updates_and_asks_as_coreutils_do() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh(
        "mkdir s d h; for n in old same new; do echo from-$n >s/$n; echo to-$n >d/$n; done; \
            echo from-none >s/none; touch -d @1500 s/*; \
            touch -d @1000 d/old; touch -d @1500 d/same; touch -d @2000 d/new; cp -a d h/d",
    );
    fixture.uxfs(&["cp", "-a", "d", "a.img:/d"]).good();
    let ours = |args: &str| fixture.sh(&format!("{UXFS} cp {args}"));
    let theirs = |args: &str| fixture.sh(&format!("cp {args}"));
    let same = || {
        assert_eq!(
            fixture
                .uxfs(&["cat", "a.img:/d/new", "a.img:/d/none", "a.img:/d/old", "a.img:/d/same"])
                .good(),
            fixture.sh("cat h/d/new h/d/none h/d/old h/d/same")
        );
    };
    assert_eq!(
        ours("-uv s/new s/none s/old s/same a.img:/d").replace("a.img:/", ""),
        theirs("-uv s/new s/none s/old s/same h/d").replace("h/", "")
    );
    same();
    // Answer no, then yes. The last of -i and -n applies.
    for (answer, options) in [("n", "-i"), ("y", "-i"), ("y", "-n -i"), ("n", "-f -i")] {
        fixture.sh("rm -rf h/d; cp -a d h/d; touch h/d/none");
        fixture.uxfs(&["rm", "-r", "a.img:/d"]).good();
        fixture.uxfs(&["cp", "-a", "h/d", "a.img:/d"]).good();
        let ask = |program: &str, target: &str| {
            fixture.sh(&format!(
                "echo {answer} | {program} {options} s/new {target} 2>asked || true; cat asked"
            ))
        };
        let asked = ask(&format!("{UXFS} cp"), "a.img:/d/new");
        assert!(asked.contains("overwrite 'a.img:/d/new'?"), "{asked}");
        ask("cp", "h/d/new");
        same();
    }
    let never = fixture.sh(&format!("echo y | {UXFS} cp -i -n s/new a.img:/d/same 2>&1"));
    assert_eq!(never, "");
    same();
    // The same out of an image.
    fixture.sh("rm -rf h/d; cp -a d h/d; touch -d @3000 h/d/old");
    ours("-rut h a.img:/d");
    assert_eq!(fixture.sh("cat h/d/old"), "to-old\n");
    fixture.check("a.img");
}

#[test]
fn rmdir_removes_as_coreutils_do() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir -p t/a/b/c t/full/x t/one; touch t/file; cp -a t h");
    fixture.uxfs(&["cp", "-a", "t", "a.img:/t"]).good();
    for (args, code) in [
        ("T/one", 0),
        ("T/none", 1),
        ("T/file", 1),
        ("T/full", 1),
        ("--ignore-fail-on-non-empty T/full", 0),
        ("T/a/b/c/", 0),
        ("-p --ignore-fail-on-non-empty T/a/b", 0),
        ("-v T/full/x T/full", 0),
    ] {
        let ran = |program: &str, tree: &str| {
            let line = format!("{program} {}", args.replace('T', tree));
            let script =
                format!("{line} >out 2>err && code=0 || code=$?; cat out; echo code=$code");
            fixture.sh(&script).replace("rmdir: ", "")
        };
        let theirs = ran("rmdir", "h");
        assert!(theirs.ends_with(&format!("code={code}\n")), "{args}: {theirs}");
        assert_eq!(
            ran(&format!("{UXFS} rmdir"), "a.img:/t").replace("a.img:/t", "h"),
            theirs,
            "{args}"
        );
        let list = |text: String| {
            text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
        };
        let here = list(fixture.sh("find h -mindepth 1 -printf '%P\\n'"));
        let there =
            fixture.uxfs(&["find", "a.img:/t", "-mindepth", "1", "-printf", "%P\\n"]).good();
        assert_eq!(list(there), here, "{args}");
    }
    assert!(fixture.uxfs(&["rmdir", "a.img:/"]).bad(1).contains("root"));
    fixture.uxfs(&["mkdir", "a.img:/t/d1", "a.img:/t/d2"]).good();
    fixture.uxfs(&["rmdir", "a.img:/t/d?"]).good();
    fixture.check("a.img");
}

#[test]
fn mkfs_names_its_version_and_refuses_realtime_sections() {
    let fixture = Fixture::new();
    assert!(fixture.uxfs(&["mkfs", "-V"]).good().contains(env!("CARGO_PKG_VERSION")));
    let said = fixture.uxfs(&["mkfs", "-d", "size=320m", "-r", "rtdev=/dev/x", "a.img"]).bad(1);
    assert!(said.contains("-r rtdev=/dev/x") && said.contains("realtime"), "{said}");
    assert!(!fixture.path("a.img").exists());
}

#[test]
fn check_takes_the_letter_of_xfs_repair() {
    let fixture = Fixture::with_image(&[]);
    assert_eq!(fixture.uxfs(&["check", "-n", "a.img"]).code, 0);
}

/// Creating a file through a dangling link creates it at the link's target.
#[test]
fn files_are_created_at_the_target_of_a_dangling_link() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh(
        "mkdir -p h/d; ln -s d/one h/l1; ln -s l1 h/l2; ln -s no/where h/bad; ln -s loop h/loop",
    );
    for (program, makes) in [("touch", "touch"), ("truncate -s 5", "truncate -s 5"), ("tee", "tee")]
    {
        fixture.uxfs(&["cp", "-a", "h", "a.img:/h"]).good();
        fixture.sh("cp -a h k");
        for name in ["l2", "bad", "loop", "l2"] {
            let here =
                fixture.sh(&format!("echo x | {program} k/{name} 2>err && echo good || echo bad"));
            let there = fixture.sh(&format!(
                "echo x | {UXFS} {makes} a.img:/h/{name} 2>err && echo good || echo bad"
            ));
            assert_eq!(there, here, "{program} {name}");
        }
        let format = "%y %s %P %l\n";
        let here = fixture.sh("find k -mindepth 2 -printf '%y %s %P %l\\n'");
        let there = fixture.uxfs(&["find", "a.img:/h", "-mindepth", "2", "-printf", format]).good();
        assert_eq!(there, here, "{program}");
        assert!(here.contains("d/one"), "{here}");
        fixture.uxfs(&["rm", "-r", "a.img:/h"]).good();
        fixture.sh("rm -r k");
    }
    fixture.check("a.img");
}

#[test]
fn du_totals_equal_the_sum_of_its_lines() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh(
        "mkdir -p t/a/b t/c; head -c 10000 /dev/zero >t/a/1; head -c 5000 /dev/zero >t/a/b/2; \
            echo x >t/c/3; ln t/a/1 t/c/again; ln -s 12345 t/l",
    );
    fixture.uxfs(&["cp", "-a", "t", "a.img:/t"]).good();
    let du = |options: &[&str]| fixture.uxfs(&[&["du"], options, &["a.img:/t"]].concat()).good();
    // As in coreutils since 9.2, lengths count files and links, each file once.
    assert!(du(&["-sb"]).starts_with("15007\t"), "{}", du(&["-sb"]));
    assert!(du(&["-sbl"]).starts_with("25007\t"));
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let own = sorted(du(&["-Sb"]));
    assert!(own.contains(&"5\ta.img:/t".to_owned()), "{own:?}");
    assert!(own.contains(&"5000\ta.img:/t/a/b".to_owned()), "{own:?}");
    let sum: u64 = own.iter().filter_map(|line| line.split('\t').next()?.parse::<u64>().ok()).sum();
    assert_eq!(sum, 15007);
    assert_eq!(du(&["-x", "-sb"]), du(&["-sb"]));
    // The last unit applies, as in coreutils.
    assert_eq!(du(&["-h", "-k", "-s"]), du(&["-s"]));
    assert_eq!(du(&["-k", "-h", "-s"]), du(&["-hs"]));
    assert_eq!(du(&["-m", "-b", "-s"]), du(&["-sb"]));
    assert!(fixture.uxfs(&["df", "-h", "-k", "a.img"]).good().contains("1K-blocks"));
}

#[test]
fn ls_sorts_and_hides_as_coreutils_do() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir t; cd t; printf 1 >b.c; printf 333 >a.txt; printf 22 >c; echo >x~; echo >.dot; \
            printf 55555 >'q\"uo te.c'; mkdir d.d; touch -d @1000 -a b.c; touch -d @3000 -a a.txt; \
            touch -d @2000 -a c; touch -a -d @500 x~ 'q\"uo te.c' d.d; touch -m -d @100 c; \
            touch -m -d @300 b.c; touch -m -d @200 a.txt; touch -m -d @50 x~ 'q\"uo te.c'; touch -m -d @40 d.d");
    fixture.uxfs(&["cp", "-a", "t", "a.img:/t"]).good();
    for options in [
        "-X",
        "-Xr",
        "--sort=size",
        "--sort=time",
        "--sort=extension",
        "--time=atime --sort=time",
        "-t --time=access",
        "-B",
        "-I '*.c'",
        "-a -I '.d*' -I x~",
        "-Q",
        "-Q -l --time-style=+%s -go -I d.d",
        "-C -w 20",
        "-x -w 30",
        "-m -w 0",
        "-C -w 0",
        "-A -B -X",
    ] {
        let ours = fixture.sh(&format!("TZ=UTC {UXFS} ls {options} a.img:/t"));
        let theirs = fixture.sh(&format!("TZ=UTC LC_ALL=C ls {options} t"));
        let blind = |text: String| -> Vec<String> {
            // Blocks depend on the file system.
            text.lines().filter(|line| !line.starts_with("total")).map(str::to_owned).collect()
        };
        assert_eq!(blind(ours), blind(theirs), "{options}");
    }
    let raw = fixture.uxfs(&["ls", "-f", "a.img:/t"]).good();
    assert!(raw.contains(".dot\n") && raw.contains("..\n"), "{raw}");
    assert_eq!(raw, fixture.uxfs(&["ls", "--sort=none", "-a", "a.img:/t"]).good());
}

#[test]
fn find_supports_further_predicates_of_find_1() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh(
        "mkdir -p t/d; touch t/d/f; ln -s d t/l; touch -a -d @1000 t/d/f; touch -m -d @900 ref",
    );
    fixture.uxfs(&["cp", "-a", "t", "a.img:/t"]).good();
    for (ours, theirs) in [
        ("-H a.img:/t/l -mindepth 1", "-H t/l -mindepth 1"),
        ("-P a.img:/t/l", "-P t/l"),
        ("a.img:/t -anewer ref -type f", "t -anewer ref -type f"),
        ("a.img:/t -cnewer ref -type f", "t -cnewer ref -type f"),
        (
            "a.img:/t -regextype posix-extended -regex '.*/(f|l)'",
            "t -regextype posix-extended -regex '.*/(f|l)'",
        ),
    ] {
        let found = fixture.sh(&format!("{UXFS} find {ours} | sort")).replace("a.img:/", "");
        assert_eq!(found, fixture.sh(&format!("find {theirs} | sort")), "{ours}");
        assert!(!found.is_empty(), "{ours}");
    }
    // Patterns are expanded in starting points, but not in the expression.
    assert_eq!(
        fixture.uxfs(&["find", "-H", "a.img:/t/[d]", "-name", "f*"]).good(),
        "a.img:/t/d/f\n"
    );
    assert_eq!(
        fixture.uxfs(&["find", "a.img:/t", "-path", "a.img:/t/d/*"]).good(),
        "a.img:/t/d/f\n"
    );
    assert!(fixture.uxfs(&["find", "-h"]).good().contains("Usage:"));
    for (words, why) in [
        (&["-execdir", "true", ";"][..], "-exec"),
        (&["-regextype", "emacs", "-regex", "x"], "extended"),
        (&["-follow"], "-L"),
    ] {
        let said = fixture.uxfs(&[&["find", "a.img:/t"], words].concat()).bad(1);
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn patterns_name_leading_dots_and_files_to_write() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir -p t; touch t/.one t/.two t/three; mkdir e");
    fixture.uxfs(&["cp", "-a", "t", "a.img:/t"]).good();
    let ls = |pattern: &str| fixture.uxfs(&["ls", "-d", &format!("a.img:/t/{pattern}")]).good();
    assert_eq!(ls("\\.o*"), "a.img:/t/.one\n");
    assert_eq!(ls("*"), "a.img:/t/three\n");
    // A set never matches a leading dot.
    assert!(fixture.uxfs(&["ls", "-d", "a.img:/t/[.]*"]).bad(2).contains("[.]*"));
    fixture.sh(&format!("echo hi | {UXFS} tee 'a.img:/t/thr*' >/dev/null"));
    assert_eq!(fixture.uxfs(&["cat", "a.img:/t/three"]).good(), "hi\n");
    fixture.check("a.img");
}

/// A closed pipe on standard output does not stop the writes to files.
#[test]
fn tee_goes_on_after_a_closed_pipe() {
    let fixture = Fixture::with_image(&[]);
    let made = Command::new("sh")
        .args(["-c", &format!("head -c 3000000 /dev/zero | {UXFS} tee a.img:/z | true")])
        .current_dir(fixture.path("."))
        .stderr(Stdio::null())
        .status();
    assert!(made.is_ok_and(|status| status.success()));
    assert_eq!(fixture.uxfs(&["stat", "-c", "%s", "a.img:/z"]).good(), "3000000\n");
    fixture.check("a.img");
}
