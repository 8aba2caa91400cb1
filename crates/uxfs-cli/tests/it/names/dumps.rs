//! `xfs_metadump` and `xfs_mdrestore`, and uxfs' own commands: their command lines, output and exit
//! codes. What is in the dumps is tested in `uxfs-metadump`.

use std::fs;

use uxfs_oracle::Xfsprogs::Current;

use super::Both;

/// Volumes that are dumped, sound ones and others, with dumps by the real program of the first in every
/// way.
fn dumps() -> Both {
    let both = super::zoo();
    for (name, options) in [
        ("d1", &[][..]),
        ("d1-o", &["-o"]),
        ("d1-a", &["-a"]),
        ("d1-ao", &["-ao"]),
        ("d2", &["-v", "2"]),
        ("d2-o", &["-v", "2", "-o"]),
        ("d2-ao", &["-v", "2", "-a", "-o"]),
    ] {
        both.theirs("xfs_metadump", &[options, &["clean", name]].concat()).good();
        both.share(name);
    }
    both.theirs("xfs_metadump", &["-o", "dirty", "d-dirty"]);
    both.0.sh("cd theirs; head -c 100 d1 >cut; head -c 1000000 d1 >half; \
               cp d1 untold; printf '\\000' | dd of=untold bs=1 seek=7 conv=notrunc status=none");
    for name in ["d-dirty", "cut", "half", "untold"] {
        both.share(name);
    }
    both
}

#[test]
fn xfs_mdrestore_is_that_of_xfsprogs() {
    let both = dumps();
    let shown = [
        "d1", "d1-o", "d1-a", "d1-ao", "d2", "d2-o", "d2-ao", "d-dirty", "untold", "clean",
        "noise", "empty", "missing",
    ];
    both.all_alike("xfs_mdrestore", &shown.map(|dump| ["-i", dump]).each_ref().map(|a| &a[..]));
    both.all_alike(
        "xfs_mdrestore",
        &[
            &["d1-o", "r1"][..],
            &["-g", "d1-ao", "r2"],
            &["-ig", "d1", "r3"],
            &["d2-o", "r4"],
            &["d2-o", "zeroes"],
            &["d-dirty", "r5"],
            &["d1", "dir"],
            &["d1", "missing/r"],
            &["half", "r6"],
            &["cut", "r7"],
            &["noise", "r7"],
            &["missing", "r7"],
            &["d1"],
            &[],
            &["-z", "d1", "r"],
            &["d1", "r", "r"],
            &["-i"],
        ],
    );
    for name in ["r1", "r2", "r3", "r4", "r5", "zeroes"] {
        assert!(both.same_bytes(name), "{name}");
    }
    // Theirs leaves a part of the volume, marked as unfinished.
    assert!(!both.0.path("ours/r6").exists());
    assert!(both.0.path("theirs/r6").exists());
    for (args, words) in [
        (&["half", "r6"][..], "cut off at byte 1000000"),
        (&["noise", "r6"], "no dump of an XFS volume"),
        (&["d1", "d1"], "is the file that is read"),
    ] {
        let said = both.ours("xfs_mdrestore", args).bad(1);
        assert!(said.contains(words), "{said}");
    }
    assert!(both.same_bytes("d1"));
}

#[test]
fn xfs_metadump_is_that_of_xfsprogs() {
    let both = super::zoo();
    let sound = ["clean", "old", "small", "dirty"];
    for file in sound {
        for options in [&["-g"][..], &["-go"], &["-gao"], &["-g", "-v", "2"], &["-we", "-m", "9"]] {
            both.alike("xfs_metadump", &[options, &[file, "out"]].concat());
            // Both releases restore what ours wrote, and ours what theirs wrote.
            let program = Current.program("xfs_mdrestore").display().to_string();
            both.0.sh(&format!("rm -f r; {program} ours/out r"));
            both.0.uxfs(&["mdrestore", "-q", "theirs/out", "r"]).good();
        }
    }
    both.all_alike(
        "xfs_metadump",
        &[
            &[][..],
            &["clean"],
            &["clean", "out", "more"],
            &["-z", "clean", "out"],
            &["clean", "out", "-o"],
            &["-v"],
            &["-v", "3", "clean", "out"],
            &["-m", "0", "clean", "out"],
            &["-m", "x", "clean", "out"],
            &["noise", "out"],
            &["empty", "out"],
            &["zeroes", "out"],
            &["missing", "out"],
            &["dir", "out"],
            &["clean", "dir"],
            &["clean", "missing/out"],
            &["counter", "out"],
            &["agi", "out"],
            &["inode", "out"],
        ],
    );
    // The dump goes to standard output, and the progress to standard error.
    let ran = both.0.bash("cd ours; uxfs as xfs_metadump -g -o clean - >piped");
    assert!(ran.code == 0 && ran.err.contains("Copying log"), "{ran:?}");
    both.ours("xfs_metadump", &["-o", "clean", "out"]).good();
    assert_eq!(
        fs::read(both.0.path("ours/piped")).unwrap(),
        fs::read(both.0.path("ours/out")).unwrap()
    );
    // A dirty log shows names.
    assert!(both.ours("xfs_metadump", &["dirty", "out"]).err.contains("may show names"));
    assert_eq!(both.ours("xfs_metadump", &["-o", "dirty", "out"]).err, "");
    // Nobody knows the key of the names.
    both.ours("xfs_metadump", &["clean", "one"]).good();
    both.ours("xfs_metadump", &["clean", "clean"]).bad(1);
    for file in sound {
        assert!(both.same_bytes(file), "{file} was changed");
    }
}

#[test]
fn metadump_and_mdrestore_are_commands() {
    let both = super::zoo();
    let fixture = &both.0;
    let said = fixture.uxfs(&["metadump", "ours/clean", "one"]);
    assert_eq!(said.good(), "");
    assert_eq!(
        fixture.uxfs(&["mdrestore", "--info", "one"]).good(),
        "format version: 1\nnames: replaced\nunused bytes: cleared\nlog: clean\n"
    );
    for (options, words) in [
        (&["--seed", "text"][..], r#""format_version":1,"obfuscated":true,"whole_blocks":false"#),
        (&["-v", "2", "-a", "-o"], r#""format_version":2,"obfuscated":false,"whole_blocks":true"#),
    ] {
        let args = [&["metadump", "--json"], options, &["ours/clean", "two"]].concat();
        let said = fixture.uxfs(&args).good();
        assert!(said.contains(words) && said.contains(r#""warnings":0"#), "{said}");
        let args = [&["metadump"], options, &["ours/clean", "three"]].concat();
        fixture.uxfs(&args).good();
        fixture.sh("cmp two three");
        let said = fixture.uxfs(&["mdrestore", "--json", "two", "restored"]).good();
        assert!(said.contains(words) && said.contains(r#""volume_bytes":335544320"#), "{said}");
        fixture.check("restored");
    }
    let piped = fixture.bash("uxfs metadump -v 2 -o -a ours/clean - | uxfs mdrestore - again");
    assert_eq!((piped.code, piped.err.as_str()), (0, ""));
    fixture.sh("cmp again restored");
    let said = fixture.uxfs(&["metadump", "ours/agi", "four"]);
    assert!(
        said.code == 0 && said.err.contains("1 damages or read errors; -w shows them"),
        "{said:?}"
    );
    let said = fixture.uxfs(&["metadump", "-w", "ours/agi", "four"]);
    assert!(said.code == 0 && said.err.contains("AGI at daddr"), "{said:?}");
    for (args, code, why) in [
        (&["metadump", "ours/noise", "x"][..], 1, "not an XFS volume"),
        (&["metadump", "ours/superblock", "x"], 1, "superblock"),
        (&["metadump", "ours/clean", "ours/clean"], 1, "is the file that is read"),
        (&["metadump", "--json", "ours/clean", "-"], 1, "--json takes standard output"),
        (&["metadump", "-v", "3", "ours/clean", "x"], 2, "version 1 or 2"),
        (&["metadump", "-o", "--seed", "s", "ours/clean", "x"], 2, "cannot be used with"),
        (&["mdrestore", "ours/noise", "x"], 1, "no dump of an XFS volume"),
        (&["mdrestore", "one"], 2, "IMAGE"),
        (&["mdrestore", "one", "one"], 1, "is the file that is read"),
    ] {
        let said = fixture.uxfs(args).bad(code);
        assert!(said.contains(why), "{args:?}: {said}");
        assert!(!fixture.path("x").exists(), "{args:?}");
    }
}
