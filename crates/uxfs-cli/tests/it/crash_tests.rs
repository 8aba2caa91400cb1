//! `uxfs crash-test`: exit statuses, the reports that it writes, and a failure that repeats.

use std::process::{Command, Stdio};

use crate::fixture::{Fixture, Ran};
use crate::mount_ends::until;

/// The file's content and name are synced if `$1` is `good`.
const STORE: &str = r#"
    echo content > stored
    [ "$1" = good ] && sync stored && sync .
    "$2" ack stored
"#;
const CHECK: &str = "! [ -s \"$UXFS_ACKED\" ] || [ \"$(cat stored)\" = content ]";

/// `uxfs crash-test` of [`STORE`].
fn store(fixture: &Fixture, options: &[&str], how: &str) -> Ran {
    fixture.uxfs(&stored(options, how))
}

fn stored<'a>(options: &[&'a str], how: &'a str) -> Vec<&'a str> {
    let program = ["--", "sh", "-c", STORE, "sh", how, env!("CARGO_BIN_EXE_uxfs")];
    let own = ["crash-test", "--count", "12", "--check", CHECK];
    [&own, options, &program].concat()
}

fn read(fixture: &Fixture, name: &str) -> String {
    std::fs::read_to_string(fixture.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn a_program_that_keeps_its_word_passes() {
    let fixture = Fixture::new();
    let good = store(&fixture, &["--junit", "j.xml", "--html", "page.html"], "good");
    assert_eq!(good.code, 0, "{good:?}");
    assert!(good.out.starts_with("passed on uxfs: "), "{good:?}");
    let junit = read(&fixture, "j.xml");
    assert!(junit.contains("failures=\"0\"") && !junit.contains("<failure"), "{junit}");
    assert!(read(&fixture, "page.html").contains("passed on uxfs: "));
}

/// The reports name the missing call, and the kept run fails in the same state again.
#[test]
fn a_program_that_breaks_its_word_fails_and_the_reports_say_why() {
    let fixture = Fixture::new();
    let options = ["--json", "--keep", "kept", "--junit", "j.xml", "--html", "page.html"];
    let bad = store(&fixture, &options, "bad");
    assert_eq!(bad.code, 1, "{bad:?}");
    let document: serde_json::Value = serde_json::from_str(&bad.out).unwrap();
    assert_eq!(document["passed"], false, "{document}");
    let failure = &document["failure"];
    let calls = failure["missing_calls"].as_array().unwrap();
    let called = |name: &str| calls.iter().any(|call| call["call"] == name);
    assert!(called("fsync (or fdatasync) of stored"), "{document}");
    assert!(read(&fixture, "j.xml").contains("failures=\"1\""));
    for page in ["j.xml", "page.html"] {
        assert!(read(&fixture, page).contains("fsync (or fdatasync) of stored"), "{page}");
    }
    fixture.uxfs(&["ls", "kept/state.img:/"]).good();

    let state = failure["state"].as_str().unwrap();
    let repeat =
        ["crash-test", "--state", state, "--recording", "kept/recording", "--check", CHECK];
    let again = fixture.uxfs(&repeat);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.out.starts_with(&format!("failed: state {state}\n")), "{again:?}");
}

/// A test that cannot run gives no verdict on the program, and says so before any state is tried.
#[test]
fn what_cannot_be_tested_ends_with_2() {
    let fixture = Fixture::new();
    let test = |words: &[&str]| fixture.uxfs(&[&["crash-test", "--count", "3"], words].concat());
    let fails = test(&["--", "sh", "-c", "echo why; exit 7"]).bad(2);
    assert!(fails.contains("without any power cut: exit status 7") && fails.contains("why"));
    assert!(test(&["--", "/no/such/program"]).bad(2).contains("/no/such/program"));
    assert!(test(&["--run", "no-such-test"]).bad(2).contains("--list"));
    assert!(test(&["--recording", "none"]).bad(2).contains("none"));
    assert!(test(&["--state", "late", "--", "true"]).bad(2).contains("PACE:CUT:WRITES"));
    assert!(fixture.uxfs(&["ack", "text"]).bad(1).contains("UXFS_ACK"));
}

#[test]
fn a_program_that_acknowledges_nothing_gets_a_note() {
    let fixture = Fixture::new();
    let ran = fixture.uxfs(&["crash-test", "--count", "6", "--", "sh", "-c", "echo x > f"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("acknowledged nothing"), "{ran:?}");
}

#[test]
fn the_list_names_the_ready_made_tests() {
    let fixture = Fixture::new();
    let list = fixture.uxfs(&["crash-test", "--list"]).good();
    let names: Vec<&str> = list.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"sqlite-wal") && names.contains(&"mail"), "{list}");
}

/// Ctrl-C while the program runs, or a terminal that is closed: it is ended, and nothing stays mounted.
#[test]
fn an_interrupt_leaves_nothing_mounted() {
    ["-INT", "-HUP"].into_iter().for_each(interrupted);
}

fn interrupted(signal: &str) {
    let fixture = Fixture::new();
    let (dir, started) = (fixture.path(""), fixture.path("started"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_uxfs"));
    command.args(["crash-test", "--", "sh", "-c", "> \"$1\"; sleep 600", "sh"]).arg(&started);
    command.env("TMPDIR", &dir).stdout(Stdio::piped()).stderr(Stdio::null());
    let test = command.spawn().expect("the test starts");
    until("started", || started.exists());
    let mounted = || {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
        mounts.contains(dir.to_str().expect("a path in UTF-8"))
    };
    assert!(mounted());
    let sent = Command::new("kill").arg(signal).arg(test.id().to_string()).status();
    assert!(sent.expect("kill runs").success());
    let ended = test.wait_with_output().expect("the test ends");
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stdout).starts_with("interrupted on uxfs"), "{ended:?}");
    assert!(!mounted());
}

/// The program passes and fails on a kernel's ext4, and without a kernel the error says what brings one.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_kernel_is_tested_without_root_and_without_fuse() {
    let fixture = Fixture::new();
    // Where the kernel of tools/setup-uml is found.
    let found = ["HOME", "UXFS_CACHE"].map(|name| (name, std::env::var(name)));
    let found: Vec<String> = found
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", value.ok()?)))
        .collect();
    let store = |how: &'static str| {
        let mut command = vec!["env"];
        command.extend(found.iter().map(String::as_str));
        command.push(env!("CARGO_BIN_EXE_uxfs"));
        fixture.run(&[command, stored(&["--fs", "ext4"], how)].concat())
    };
    let good = store("good");
    assert!(good.code == 0 && good.out.starts_with("passed on ext4: "), "{good:?}");
    let bad = store("bad");
    assert!(bad.code == 1 && bad.out.contains("fsync (or fdatasync) of stored"), "{bad:?}");
    assert!(bad.out.contains(" --fs ext4 "), "{bad:?}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_uxfs"));
    command.args(["crash-test", "--fs", "ext4", "--", "true"]);
    command.env("UXFS_UML", "/bin/false").env("UXFS_QEMU", "/dev/null");
    let ended = command.output().unwrap();
    let words = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(2), "{words}");
    for part in ["user-mode-linux", "/bin/false", "qemu-system-x86", "/dev/null"] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_killed_test_takes_its_kernel_with_it() {
    let fixture = Fixture::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_uxfs"));
    command
        .args(["crash-test", "--fs", "ext4", "--", "sleep", "600"])
        .current_dir(fixture.path("."));
    let command =
        command.env("TMPDIR", fixture.path(".")).stdout(Stdio::null()).stderr(Stdio::null());
    let mut test = command.spawn().unwrap();
    let here = fixture.path(".").display().to_string();
    // The kernel is the leader of a group with all that it starts.
    let kernels = || fixture.run(&["pgrep", "-f", &format!("uml_dir={here}")]).out;
    until("a kernel", || !kernels().is_empty());
    let kernel = kernels().lines().next().map(str::to_owned).unwrap();
    let group = || fixture.run(&["pgrep", "-g", &kernel]).out;
    until("its processes", || group().lines().count() > 1);
    test.kill().unwrap();
    test.wait().unwrap();
    until("their end", || group().is_empty());
}
