//! `uxfs check` of volumes whose mount was killed: sound, and the log not replayed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::fixture::Fixture;

fn mounted(fixture: &Fixture) -> Child {
    fixture.sh("mkdir -p m");
    let mut server = Command::new(env!("CARGO_BIN_EXE_uxfs"))
        .args(["mount", "-f", "a.img", "m"])
        .current_dir(fixture.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let dev = |name: &str| std::fs::metadata(fixture.path(name)).unwrap().dev();
    while dev("m") == dev("") {
        assert!(server.try_wait().unwrap().is_none(), "the mount did not come up");
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}

#[test]
fn check_of_a_killed_mount_reports_sound_log_not_replayed() {
    let fixture = Fixture::with_image(&[]);
    let mut server = mounted(&fixture);
    fixture.sh("i=0; while [ $i -lt 200 ]; do echo $i >m/$i; i=$((i+1)); done");
    fixture.uxfs(&["sync", "m"]).good();
    server.kill().unwrap();
    server.wait().unwrap();
    fixture.sh("fusermount3 -u -z m 2>/dev/null || umount -l m");
    let before = fixture.sh("sha256sum a.img");
    let ran = fixture.uxfs(&["check", "a.img"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.out.contains("sound, log not replayed: ") && !ran.out.contains("damaged"),
        "{ran:?}"
    );
    assert!(ran.out.contains(" 200 entries"), "{ran:?}");
    let json = fixture.uxfs(&["check", "--json", "a.img"]);
    assert_eq!(json.code, 2, "{json:?}");
    let head = r#"{"schema":"uxfs.check","version":1,"image":"a.img","verdict":"log-not-replayed","log":"replayed-in-memory","clean":true,"#;
    assert!(json.out.starts_with(head), "{json:?}");
    let raw = fixture.uxfs(&["check", "--norecovery", "a.img"]);
    assert!(raw.out.contains("[log-dirty]") && !raw.out.contains(" 200 entries"), "{raw:?}");
    // A mount without what the log holds would look damaged to a scrub.
    let ran = fixture.uxfs(&["mount", "-o", "ro,norecovery", "a.img", "m"]);
    assert!(ran.code == 0 && ran.err.contains("norecovery"), "{ran:?}");
    assert!(fixture.uxfs(&["scrub", "m"]).bad(8).contains("norecovery"));
    fixture.unmount("m");
    assert_eq!(fixture.sh("sha256sum a.img"), before, "it was written to");
    // After the replay the volume is clean.
    fixture.uxfs(&["log", "quiesce", "a.img"]).good();
    assert!(fixture.uxfs(&["check", "a.img"]).good().starts_with("clean: "));
    assert!(
        fixture
            .uxfs(&["check", "--json", "a.img"])
            .good()
            .contains(r#""verdict":"clean","log":"clean""#)
    );
    fixture.check("a.img");
}

/// `uxfs log settle` is the former name of `uxfs log quiesce`. It works, and help does not show it.
#[test]
fn log_settle_is_a_hidden_alias_of_log_quiesce() {
    let fixture = Fixture::with_image(&[]);
    let quiesced = fixture.uxfs(&["log", "quiesce", "--json", "a.img"]).good();
    assert!(quiesced.contains(r#""state":"clean""#), "{quiesced}");
    assert_eq!(fixture.uxfs(&["log", "settle", "--json", "a.img"]).good(), quiesced);
    let help = fixture.uxfs(&["log", "--help"]).good();
    assert!(help.contains("quiesce") && !help.contains("settle"), "{help}");
}

/// As in fsck(8); exit code 2 is one of the results of check.
#[test]
fn a_wrong_command_line_of_check_ends_with_16() {
    let fixture = Fixture::with_image(&[]);
    fixture.uxfs(&["check", "--no-such-option", "a.img"]).bad(16);
    fixture.uxfs(&["check"]).bad(16);
    fixture.uxfs(&["ls", "--no-such-option", "a.img"]).bad(2);
}
