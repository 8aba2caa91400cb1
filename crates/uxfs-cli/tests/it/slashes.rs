//! A trailing slash requires a directory, as in coreutils and the kernel.

use crate::fixture::Fixture;

/// Runs a line on the host and on the image and compares the results. `P` marks the paths.
#[track_caller]
fn compare(fixture: &Fixture, line: &str, real: &str) {
    let ours = fixture.bash(&line.replace('P', "a.img:/t/").replace('H', "t/"));
    let theirs = fixture.bash(&format!("cd t; {real}"));
    assert_eq!(ours.code == 0, theirs.code == 0, "{line}: {ours:?}\n{real}: {theirs:?}");
    if theirs.code != 0 {
        let reason = |text: &str| {
            let text = text.trim().to_lowercase();
            text.rsplit(": ").next().unwrap_or_default().to_owned()
        };
        assert_eq!(reason(&ours.err), reason(&theirs.err), "{line}: {ours:?}\n{real}: {theirs:?}");
    }
}

#[test]
fn a_slash_at_the_end_asks_for_a_directory() {
    let fixture = Fixture::with_image(&[]);
    fixture
        .sh("mkdir -p t/dir/in; echo x >t/file; ln -s dir t/link; ln -s file t/flink; echo h >h");
    fixture.uxfs(&["cp", "-a", "t", "a.img:/"]).good();
    for (line, real) in [
        ("uxfs cp h Pnew/", "cp ../h new/"),
        ("uxfs cp h Pfile/", "cp ../h file/"),
        ("uxfs cp h Pdir/", "cp ../h dir/"),
        ("uxfs cp Pfile/ Pcopy", "cp file/ copy"),
        ("uxfs cp -r Pdir/ Pnewdir/", "cp -r dir/ newdir/"),
        ("uxfs mv Pfile Pnew/", "mv file new/"),
        ("uxfs mv Pfile/ Pnew", "mv file/ new"),
        ("uxfs mv Pnewdir/ Pmoved/", "mv newdir/ moved/"),
        ("uxfs ln Pfile Pnew/", "ln file new/"),
        ("uxfs ln -s file Pnew/", "ln -s file new/"),
        ("uxfs mkdir Pmade/", "mkdir made/"),
        ("uxfs mkdir Pfile/", "mkdir file/"),
        ("uxfs rm Pfile/", "rm file/"),
        ("uxfs rm Pflink/", "rm flink/"),
        ("uxfs rm -f Pfile/", "rm -f file/"),
        ("uxfs truncate -s 1 Pnew/", "truncate -s 1 new/"),
        ("uxfs cat Pfile/", "cat file/"),
        ("uxfs stat Pfile/ >/dev/null", "stat file/ >/dev/null"),
    ] {
        compare(&fixture, line, real);
    }
    assert_eq!(
        fixture.uxfs(&["ls", "-R", "a.img:/t"]).good().replace("a.img:/t", "t"),
        fixture.sh("ls -R t")
    );
    assert_eq!(fixture.uxfs(&["stat", "-c", "%F", "a.img:/t/link/"]).good(), "directory\n");
    assert!(
        fixture.uxfs(&["export", "a.img:/t/file/", "-o", "x"]).bad(1).contains("not a directory")
    );
    fixture.check("a.img");
}

#[test]
fn a_slash_at_the_end_of_a_host_path_asks_for_a_directory() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir -p t/dir; echo x >t/file; echo old >there; mkdir d");
    fixture.uxfs(&["cp", "-a", "t", "a.img:/"]).good();
    for target in ["new/", "there/", "new//"] {
        let words = fixture.uxfs(&["cp", "a.img:/t/file", target]).bad(1);
        assert!(words.contains("not a directory"), "{words}");
    }
    assert!(fixture.bash("echo x | uxfs cp - a.img:/new/").bad(1).contains("not a directory"));
    assert_eq!(fixture.sh("cat there; test ! -e new"), "old\n");
    fixture.uxfs(&["cp", "a.img:/t/file", "d/"]).good();
    fixture.uxfs(&["cp", "-r", "a.img:/t/dir", "new/"]).good();
    assert_eq!(fixture.sh("cat d/file; stat -c %F new"), "x\ndirectory\n");
}
