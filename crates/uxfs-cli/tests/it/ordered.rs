//! Servers of mounts with `sync=ordered`, killed while programs work: what is left is that of one moment, and
//! everything that `uxfs sync` acknowledged is there.
//!
//! `UXFS_ROUNDS` sets the number of kills, `UXFS_SEED` the seed. The moment of a kill is that of the machine.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use uxfs_oracle::Rng;

use crate::fixture::Fixture;
use crate::mounts::{serve, with_dir};

const OPTIONS: &str = "sync=ordered,loss=1";

/// A repository with numbered commits. Lists them outside of the mount: `N HASH`, and `durable N`.
const COMMITS: &str = r#"
uxfs=$1 last=$2; cd mnt/repo
for n in $(seq $((last + 1)) $((last + 20))); do
    echo $n >>all; seq $n $((n * 40)) >f$((n % 7))
    git add -A; git commit -qm $n
    echo $n $(git rev-parse HEAD) >>../../made
    [ $((n % 6)) != 0 ] || git repack -qad
    [ $((n % 8)) != 0 ] || { $uxfs sync . && echo durable $n >>../../made; }
done"#;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A server and a program on its mount, until it is dropped.
struct Running<'a> {
    fixture: &'a Fixture,
    server: Child,
    program: Option<Child>,
}

impl<'a> Running<'a> {
    fn new(fixture: &'a Fixture) -> Self {
        Self { fixture, server: serve(fixture, OPTIONS), program: None }
    }

    /// Runs a program for some time, kills the server, and returns when that was.
    fn kill_amid(mut self, program: &mut Command, milliseconds: u64) -> f64 {
        let program = program.stdin(Stdio::null()).stderr(Stdio::null());
        let started = program.spawn().unwrap_or_else(|error| {
            panic!("{:?}: {error}: ./test installs it", program.get_program())
        });
        self.program = Some(started);
        std::thread::sleep(Duration::from_millis(milliseconds));
        now()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        if let Some(program) = &mut self.program {
            let _ = program.kill();
            let _ = program.wait();
        }
        let _ =
            self.fixture.run(&["sh", "-c", "fusermount3 -u -z mnt 2>/dev/null || umount -l mnt"]);
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

fn sqlite(fixture: &Fixture) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../uxfs-fuse/tests/clients/sqlite.py");
    let mut command = Command::new("python3");
    command.arg("-B").arg(script).args(["mnt", "w"]).current_dir(fixture.path(""));
    command
}

/// The rows of a database after the recovery. `log` is what its writer printed, `end` when the server was
/// killed. Returns how old they were then.
fn judge_rows(fixture: &Fixture, log: &str, end: f64) -> Result<f64, String> {
    let output = sqlite(fixture).arg("check").output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let rows: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    let (mut durable, mut age) = (0, 0.0_f64);
    // The last line may lack its end.
    for line in log.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["durable", number] => durable = number.parse().unwrap(),
            ["commit", number, at] if number.parse::<u64>().unwrap() > rows => {
                age = age.max(end - at.parse::<f64>().unwrap());
            }
            _ => {}
        }
    }
    if rows < durable {
        return Err(format!("{rows} rows are left, and {durable} were durable"));
    }
    // How old they may be depends on how busy the machine is, so it is only printed.
    Ok(age)
}

fn sqlite_survives(journal: &str, synchronous: &str) {
    let seed = number("UXFS_SEED", 1);
    let mut random = Rng::new(seed);
    let fixture = with_dir();
    let mut oldest = 0.0_f64;
    let rounds = number("UXFS_ROUNDS", 3);
    for round in 0..rounds {
        let log = fixture.path("log");
        let options = ["do", journal, synchronous, "0", &random.below(1 << 30).to_string()];
        let mut writer = sqlite(&fixture);
        let writer = writer.args(options).stdout(File::create(&log).unwrap());
        let end = Running::new(&fixture).kill_amid(writer, random.range(200..2500));
        let log = std::fs::read_to_string(&log).unwrap();
        std::fs::copy(fixture.path("a.img"), fixture.path("killed.img")).unwrap();
        let running = Running::new(&fixture);
        let judged = judge_rows(&fixture, &log, end);
        // It goes on with what is left.
        fixture.unmount("mnt");
        drop(running);
        match judged {
            Ok(age) => oldest = oldest.max(age),
            Err(wrong) => {
                let kept = std::env::temp_dir().join(format!("uxfs-killed-{seed}-{round}.img"));
                std::fs::copy(fixture.path("killed.img"), &kept).unwrap();
                let kept = kept.display();
                panic!(
                    "UXFS_SEED={seed} round {round}, {journal} {synchronous}: {wrong}\n\
                     image after the kill: {kept}"
                );
            }
        }
        if round % 16 == 0 || round + 1 == rounds {
            fixture.check("a.img");
        }
    }
    println!(
        "{journal}, synchronous={synchronous}: {rounds} kills; the oldest lacked {oldest:.2} s"
    );
}

#[test]
fn sqlite_with_a_wal_survives_killed_servers() {
    sqlite_survives("wal", "full");
}

#[test]
fn sqlite_with_a_rollback_journal_survives_killed_servers() {
    sqlite_survives("delete", "full");
}

#[test]
fn sqlite_that_never_syncs_survives_killed_servers() {
    sqlite_survives("truncate", "off");
}

#[test]
fn a_git_repository_survives_killed_servers() {
    let seed = number("UXFS_SEED", 1);
    let mut random = Rng::new(seed);
    let fixture = with_dir();
    let env = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a \
               GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; ";
    let git =
        |text: &str| fixture.bash(&format!("{env}cd mnt/repo && git -c safe.directory='*' {text}"));
    {
        let running = Running::new(&fixture);
        let made = fixture.bash(&format!(
            "{env}git init -q mnt/repo && git -C mnt/repo config gc.auto 0 && uxfs sync mnt"
        ));
        assert_eq!(made.code, 0, "{made:?}: ./test installs git");
        drop(running);
    }
    let mut last = 0;
    for round in 0..number("UXFS_ROUNDS", 3) {
        let mut program = Command::new("bash");
        let script = format!("{env}set -e; {COMMITS}");
        program.args(["-c", &script, "-", env!("CARGO_BIN_EXE_uxfs"), &last.to_string()]);
        program.current_dir(fixture.path(""));
        Running::new(&fixture).kill_amid(&mut program, random.range(100..2000));
        let running = Running::new(&fixture);
        let where_ = format!("UXFS_SEED={seed} round {round}");
        let made = std::fs::read_to_string(fixture.path("made")).unwrap_or_default();
        let (mut durable, mut hashes) = (0, BTreeMap::new());
        for line in made.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["durable", number] => durable = number.parse().unwrap(),
                [number, hash] => drop(hashes.insert(number.parse::<usize>().unwrap(), hash)),
                _ => {}
            }
        }
        let checked = git("fsck --full --strict");
        assert_eq!(checked.code, 0, "{where_}: {checked:?}");
        let log = git("log --reverse --format='%s %H'");
        // No commit yet is no error of the volume.
        assert!(
            log.code == 0 || durable == 0 && log.err.contains("does not have any commits"),
            "{where_}: {log:?}"
        );
        let commits: Vec<&str> = log.out.lines().collect();
        assert!(
            commits.len() >= durable,
            "{where_}: {} commits, {durable} were durable",
            commits.len()
        );
        for (commit, n) in commits.iter().zip(1..) {
            let (number, hash) = commit.split_once(' ').unwrap();
            assert_eq!(number, n.to_string(), "{where_}");
            // The last may not have been listed.
            let made = hashes.get(&n);
            assert!(
                made == Some(&hash) || made.is_none() && n == commits.len(),
                "{where_}: {commit} {made:?}"
            );
        }
        // Go on with what is left: locks are those of a git that was killed.
        last = commits.len();
        let clean = git("status --porcelain").out;
        assert!(clean.lines().count() <= 2, "{where_}: more than one step is under way: {clean}");
        fixture.bash(
            "find mnt/repo/.git -name '*.lock' -delete; cd mnt/repo && \
             { git reset -q --hard || rm -f f* all; }",
        );
        fixture.uxfs(&["sync", "mnt"]).good();
        std::fs::write(fixture.path("made"), made_of(&commits)).unwrap();
        fixture.unmount("mnt");
        drop(running);
    }
    fixture.check("a.img");
}

/// The list of the commits that are left.
fn made_of(commits: &[&str]) -> String {
    let lines: String = commits.iter().map(|line| format!("{line}\n")).collect();
    format!("{lines}durable {}\n", commits.len())
}
