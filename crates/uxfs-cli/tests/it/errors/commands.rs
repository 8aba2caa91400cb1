//! The exit codes of all commands that change an image, on a host that refuses requests.
//!
//! 1. With exit code 0, the requested change is on the volume.
//! 2. With another exit code, standard error names the host's error.
//! 3. In both cases the volume is consistent and keeps its previous content.

use uxfs_oracle::Rng;

use super::out::{Found, Plan, Scene, Trouble};
use super::{TROUBLES, each, has, page, row, seed};

/// A command line, in which `I` means the image, and the test whether its change is on the volume.
struct Command {
    line: &'static str,
    is_done: fn(&Scene) -> bool,
}

const fn command(line: &'static str, is_done: fn(&Scene) -> bool) -> Command {
    Command { line, is_done }
}

/// The output of a command about the image.
fn says(scene: &Scene, line: &str) -> String {
    let ran = scene.uxfs(line);
    format!("{}{}", ran.out, ran.err)
}

const COMMANDS: [Command; 18] = [
    command("mkdir I:/new", |s| says(s, "stat -c %F I:/new") == "directory\n"),
    command("cp -r t I:/copy", |s| says(s, "cat I:/copy/f") == "content\n"),
    command("cp --reflink=always I:/t/f I:/clone", |s| says(s, "cat I:/clone") == "content\n"),
    command("mv I:/t/f I:/moved", |s| says(s, "cat I:/moved") == "content\n"),
    command("ln I:/t/f I:/link", |s| says(s, "cat I:/link") == "content\n"),
    command("ln -s t/f I:/link", |s| says(s, "cat I:/link") == "content\n"),
    command("rm -r I:/t", |s| says(s, "ls I:/t").contains("no such file")),
    command("truncate -s 3 I:/t/f", |s| says(s, "cat I:/t/f") == "con"),
    command("chmod 604 I:/t/f", |s| says(s, "stat -c %a I:/t/f") == "604\n"),
    command("chown 77 I:/t/f", |s| says(s, "stat -c %u I:/t/f") == "77\n"),
    command("chattr +a I:/t/f", |s| says(s, "lsattr I:/t/f").contains("-a-")),
    command("xattr set -n user.x -v y I:/t/f", |s| {
        says(s, "xattr get -n user.x I:/t/f").contains('y')
    }),
    command("fallocate -l 3M I:/t/f", |s| says(s, "stat -c %s I:/t/f") == "3145728\n"),
    command("extsize -s 1M I:/t", |s| says(s, "extsize I:/t").contains("1048576")),
    command("label I name", |s| says(s, "label I").contains("name")),
    command("resize I 500M", |s| says(s, "info I").contains("blocks=128000,")),
    command("import t I", |s| says(s, "cat I:/f") == "content\n"),
    command("import --durable t I", |s| says(s, "cat I:/f") == "content\n"),
];

fn look(command: &Command, plan: Plan, words: &[String]) -> Result<(), String> {
    let mut scene = Scene::with_tree();
    let last = scene.last_group().0;
    scene.trouble(plan, last);
    let ran = scene.uxfs(command.line);
    scene.mend();
    if command.line.starts_with("resize") && ran.code != 0 {
        // resize does not use the log, and asks for a repair if it fails: docs/ERRORS.md.
        scene.repair();
    }
    // The next open recovers the volume.
    let after = scene.uxfs("mkdir I:/replayed");
    if after.code != 0 {
        return Err(format!("{ran:?}, and then {after:?}"));
    }
    let is_done = (command.is_done)(&scene);
    let (kept, check) = (scene.acknowledged(), scene.uxfs("check I").code);
    scene.judge();
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
            let (name, trouble) = TROUBLES[1 + rng.index(TROUBLES.len() - 1)];
            let before = if trouble == Trouble::Cut { 0 } else { rng.below(6) };
            all.push((command, name, Plan { trouble, before, times: u64::MAX }));
        }
    }
    let wrong = each(&all, |(command, name, plan)| {
        let words = row(&rows, name).words;
        let seen = std::panic::catch_unwind(|| look(command, *plan, &words));
        let wrong = match seen {
            Ok(Ok(())) => return String::new(),
            Ok(Err(wrong)) => wrong,
            Err(panic) => panic.downcast_ref::<String>().cloned().unwrap_or_default(),
        };
        format!("{name}, uxfs {}, {plan:?}:\n  {wrong}\n", command.line)
    });
    assert!(wrong.is_empty(), "UXFS_SEED={seed}:\n{wrong}");
}
