//! `uxfs check` of volumes whose mount was killed: sound, and the log not replayed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::bed::Bed;

fn mounted(bed: &Bed) -> Child {
    bed.sh("mkdir -p m");
    let mut server = Command::new(env!("CARGO_BIN_EXE_uxfs"))
        .args(["mount", "-f", "a.img", "m"])
        .current_dir(bed.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let dev = |name: &str| std::fs::metadata(bed.path(name)).unwrap().dev();
    while dev("m") == dev("") {
        assert!(server.try_wait().unwrap().is_none(), "the mount did not come up");
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}

#[test]
fn check_of_a_killed_mount_says_sound_log_not_replayed() {
    let bed = Bed::with_image(&[]);
    let mut server = mounted(&bed);
    bed.sh("i=0; while [ $i -lt 200 ]; do echo $i >m/$i; i=$((i+1)); done");
    bed.uxfs(&["sync", "m"]).good();
    server.kill().unwrap();
    server.wait().unwrap();
    bed.sh("fusermount3 -u -z m 2>/dev/null || umount -l m");
    let before = bed.sh("sha256sum a.img");
    let ran = bed.uxfs(&["check", "a.img"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.out.contains("sound, log not replayed: ") && !ran.out.contains("damaged"),
        "{ran:?}"
    );
    assert!(ran.out.contains(" 200 entries"), "{ran:?}");
    let json = bed.uxfs(&["check", "--json", "a.img"]);
    assert_eq!(json.code, 2, "{json:?}");
    let head = r#"{"schema":"uxfs.check","version":1,"image":"a.img","verdict":"log-not-replayed","log":"replayed-in-memory","clean":true,"#;
    assert!(json.out.starts_with(head), "{json:?}");
    let raw = bed.uxfs(&["check", "--norecovery", "a.img"]);
    assert!(raw.out.contains("[log-dirty]") && !raw.out.contains(" 200 entries"), "{raw:?}");
    assert_eq!(bed.sh("sha256sum a.img"), before, "it was written to");
    // After the replay the volume is clean.
    bed.uxfs(&["log", "quiesce", "a.img"]).good();
    assert!(bed.uxfs(&["check", "a.img"]).good().starts_with("clean: "));
    assert!(
        bed.uxfs(&["check", "--json", "a.img"])
            .good()
            .contains(r#""verdict":"clean","log":"clean""#)
    );
    bed.check("a.img");
}

/// `uxfs log settle` is the former name of `uxfs log quiesce`. It works, and help does not show it.
#[test]
fn log_settle_is_a_hidden_alias_of_log_quiesce() {
    let bed = Bed::with_image(&[]);
    let quiesced = bed.uxfs(&["log", "quiesce", "--json", "a.img"]).good();
    assert!(quiesced.contains(r#""state":"clean""#), "{quiesced}");
    assert_eq!(bed.uxfs(&["log", "settle", "--json", "a.img"]).good(), quiesced);
    let help = bed.uxfs(&["log", "--help"]).good();
    assert!(help.contains("quiesce") && !help.contains("settle"), "{help}");
}

/// As in fsck(8); exit code 2 is one of the results of check.
#[test]
fn a_wrong_command_line_of_check_ends_with_16() {
    let bed = Bed::with_image(&[]);
    bed.uxfs(&["check", "--no-such-option", "a.img"]).bad(16);
    bed.uxfs(&["check"]).bad(16);
    bed.uxfs(&["ls", "--no-such-option", "a.img"]).bad(2);
}
