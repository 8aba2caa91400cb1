//! The exit codes of all commands that change an image, on a host that refuses requests.
//!
//! 1. With exit code 0, the requested change is on the volume.
//! 2. With another exit code, standard error names the host's error.
//! 3. In both cases the volume is consistent and keeps its previous content.

use uxfs_oracle::Rng;

use super::out::{Found, HostFailure, Plan, Setup};
use super::{HOST_FAILURES, each, has, page, row, seed};

/// A command line, in which `I` means the image, and the test whether its change is on the volume.
struct Command {
    line: &'static str,
    is_done: fn(&Setup) -> bool,
}

const fn command(line: &'static str, is_done: fn(&Setup) -> bool) -> Command {
    Command { line, is_done }
}

/// The output of a command about the image.
fn output_of(setup: &Setup, line: &str) -> String {
    let ran = setup.uxfs(line);
    format!("{}{}", ran.out, ran.err)
}

const COMMANDS: [Command; 18] = [
    command("mkdir I:/new", |s| output_of(s, "stat -c %F I:/new") == "directory\n"),
    command("cp -r t I:/copy", |s| output_of(s, "cat I:/copy/f") == "content\n"),
    command("cp --reflink=always I:/t/f I:/clone", |s| output_of(s, "cat I:/clone") == "content\n"),
    command("mv I:/t/f I:/moved", |s| output_of(s, "cat I:/moved") == "content\n"),
    command("ln I:/t/f I:/link", |s| output_of(s, "cat I:/link") == "content\n"),
    command("ln -s t/f I:/link", |s| output_of(s, "cat I:/link") == "content\n"),
    command("rm -r I:/t", |s| output_of(s, "ls I:/t").contains("no such file")),
    command("truncate -s 3 I:/t/f", |s| output_of(s, "cat I:/t/f") == "con"),
    command("chmod 604 I:/t/f", |s| output_of(s, "stat -c %a I:/t/f") == "604\n"),
    command("chown 77 I:/t/f", |s| output_of(s, "stat -c %u I:/t/f") == "77\n"),
    command("chattr +a I:/t/f", |s| output_of(s, "lsattr I:/t/f").contains("-a-")),
    command("xattr set -n user.x -v y I:/t/f", |s| {
        output_of(s, "xattr get -n user.x I:/t/f").contains('y')
    }),
    command("fallocate -l 3M I:/t/f", |s| output_of(s, "stat -c %s I:/t/f") == "3145728\n"),
    command("extsize -s 1M I:/t", |s| output_of(s, "extsize I:/t").contains("1048576")),
    command("label I name", |s| output_of(s, "label I").contains("name")),
    command("resize I 500M", |s| output_of(s, "info I").contains("blocks=128000,")),
    command("import t I", |s| output_of(s, "cat I:/f") == "content\n"),
    command("import --durable t I", |s| output_of(s, "cat I:/f") == "content\n"),
];

fn look(command: &Command, plan: Plan, words: &[String]) -> Result<(), String> {
    let mut setup = Setup::with_tree();
    let last = setup.last_group().0;
    setup.failure(plan, last);
    let ran = setup.uxfs(command.line);
    setup.stop_refusing();
    if command.line.starts_with("resize") && ran.code != 0 {
        // resize does not use the log, and asks for a repair if it fails: docs/ERRORS.md.
        setup.repair();
    }
    // The next open recovers the volume.
    let after = setup.uxfs("mkdir I:/replayed");
    if after.code != 0 {
        return Err(format!("{ran:?}, and then {after:?}"));
    }
    let is_done = (command.is_done)(&setup);
    let (kept, check) = (setup.acknowledged(), setup.uxfs("check I").code);
    setup.judge();
    let wrong = match () {
        () if kept != Found::Whole => "what was there before is not",
        () if check != 0 => "uxfs check finds damage",
        () if ran.code == 0 && !is_done => "exit 0, and it is not done",
        () if ran.code != 0 && !has(&ran.err, words) => "no word of what the host said",
        () => return Ok(()),
    };
    Err(format!("{wrong}: {ran:?}"))
}

#[test]
fn every_command_reports_a_refusal_of_the_host() {
    let rows = page::matrix(&page::text());
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut all = Vec::new();
    for command in &COMMANDS {
        for _ in 0..2 {
            let (name, failure) = HOST_FAILURES[1 + rng.index(HOST_FAILURES.len() - 1)];
            let before = if failure == HostFailure::Cut { 0 } else { rng.below(6) };
            all.push((command, name, Plan { failure, before, times: u64::MAX }));
        }
    }
    let wrong = each(&all, |(command, name, plan)| {
        let words = row(&rows, name).words;
        let observed = std::panic::catch_unwind(|| look(command, *plan, &words));
        let wrong = match observed {
            Ok(Ok(())) => return String::new(),
            Ok(Err(wrong)) => wrong,
            Err(panic) => panic.downcast_ref::<String>().cloned().unwrap_or_default(),
        };
        format!("{name}, uxfs {}, {plan:?}:\n  {wrong}\n", command.line)
    });
    assert!(wrong.is_empty(), "UXFS_SEED={seed}:\n{wrong}");
}
