//! Commands killed at random moments during their changes: the next open recovers the volume, which is
//! then consistent.

use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use uxfs_oracle::Rng;

use crate::fixture::Fixture;

/// Kills the command after this many microseconds; `false` if it had ended before.
fn killed(fixture: &Fixture, args: &[&str], after: u64) -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uxfs"));
    command.args(args).current_dir(fixture.path("")).stdin(Stdio::null()).stderr(Stdio::null());
    let ended = command.spawn().and_then(|mut child| {
        std::thread::sleep(Duration::from_micros(after));
        child.kill()?;
        child.wait()
    });
    !ended.unwrap_or_else(|error| panic!("{command:?}: {error}")).success()
}

/// The seed differs from run to run. A failure prints it.
#[test]
fn the_volume_of_a_killed_command_is_recovered() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = std::env::var("UXFS_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or(u64::from(now.subsec_nanos()));
    println!("UXFS_SEED={seed}");
    let mut random = Rng::new(seed);
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir t; i=0; while [ $i -lt 20 ]; do mkdir t/d$i; j=0; while [ $j -lt 60 ]; do \
         echo $i $j >t/d$i/a-name-of-some-length-$j; j=$((j+1)); done; i=$((i+1)); done");
    // Measure an undisturbed command, to choose the moments.
    let start = std::time::Instant::now();
    fixture.uxfs(&["cp", "-r", "t", "a.img:/whole"]).good();
    let length = u64::try_from(start.elapsed().as_micros()).unwrap().max(1000);
    let whole = fixture.uxfs(&["find", "a.img:/whole", "-type", "f"]).good().lines().count();
    assert_eq!(whole, 1200);
    let mut kills = 0;
    for round in 0..10 {
        let logged = ["delaylog", "nodelaylog", "logbsize=262144"][round % 3];
        let to = format!("a.img:/k{}", round / 2);
        let args = match round % 2 {
            0 => vec!["-o", logged, "cp", "-r", "t", &to],
            _ => vec!["-o", logged, "rm", "-r", &to],
        };
        kills += u32::from(killed(&fixture, &args, random.below(length)));
        // Reading replays in memory and changes nothing. All files are complete.
        fixture.uxfs(&["ls", "-lR", "a.img:/"]).good();
        let before = std::fs::metadata(fixture.path("a.img")).unwrap().modified().unwrap();
        fixture.uxfs(&["ls", "a.img:/whole"]).good();
        let after = std::fs::metadata(fixture.path("a.img")).unwrap().modified().unwrap();
        assert_eq!(before, after, "UXFS_SEED={seed} round {round}: a reader wrote");
        // The next command that writes recovers the volume.
        fixture.uxfs(&["mkdir", &format!("a.img:/after{round}")]).good();
        let ran = fixture.uxfs(&["check", "a.img"]);
        assert_eq!(ran.code, 0, "UXFS_SEED={seed} round {round} {args:?}: {ran:?}");
        if round % 2 == 0 {
            // Make sure that there is something to remove.
            fixture.uxfs(&["mkdir", "-p", &to]).good();
        }
    }
    assert!(kills > 0, "UXFS_SEED={seed}: every command ended before its moment");
    assert_eq!(fixture.uxfs(&["find", "a.img:/whole", "-type", "f"]).good().lines().count(), 1200);
    fixture.check("a.img");
}

#[test]
fn log_options_are_those_of_xfs() {
    let fixture = Fixture::with_image(&[]);
    fixture.uxfs(&["mkdir", "-o", "nodelaylog,logbufs=4", "-o", "logbsize=64k", "a.img:/a"]).good();
    fixture.uxfs(&["-o", "wsync", "mkdir", "a.img:/b"]).good();
    fixture
        .uxfs(&["fallocate", "-o", "4096", "-l", "4096", "--options", "delaylog", "a.img:/a/f"])
        .good();
    let words = fixture.uxfs(&["mkdir", "-o", "logbsize=5", "a.img:/c"]).bad(2);
    assert!(words.contains("logbsize"), "{words}");
    let words = fixture.uxfs(&["mkdir", "-o", "frobnicate", "a.img:/c"]).bad(2);
    assert!(words.contains("frobnicate"), "{words}");
    fixture.check("a.img");
}

#[test]
fn a_durable_import_is_consistent_at_every_moment() {
    let fixture = Fixture::new();
    fixture.tree();
    fixture.uxfs(&["import", "-q", "--durable", "--size", "320m", "t", "a.img"]).good();
    fixture.check("a.img");
    fixture.uxfs(&["import", "-q", "--size", "320m", "t", "b.img"]).good();
    let tree = |image: &str| {
        fixture.uxfs(&["find", &format!("{image}:/"), "-printf", "%y %m %s %n %T@ %P %l\\n"]).good()
    };
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(tree("a.img")), sorted(tree("b.img")));
    // An import into an existing image is journaled.
    fixture.sh("mkdir u; echo more >u/new; tar -C u -cf u.tar new");
    fixture.uxfs(&["import", "-q", "u.tar", "a.img"]).good();
    assert_eq!(fixture.uxfs(&["cat", "a.img:/new"]).good(), "more\n");
    fixture.check("a.img");
}
