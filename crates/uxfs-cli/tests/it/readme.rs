//! Runs the examples of README, docs/IMAGES.md and docs/XFSPROGS.md unchanged as an ordinary user.
//!
//! A block marked `<!-- run -->` is a transcript: `$ ` begins a command, `> ` continues it, and the
//! lines below it are its standard output. A command without such lines may print anything. All blocks
//! of a page run in one directory, in order. Root runs them as user 1000, so they cannot depend on privilege.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::builds::OCI;

const USER: u32 = 1000;

struct Step {
    command: String,
    output: String,
}

/// The commands of all marked blocks.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in text.split("<!-- run -->\n```console\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        for line in block.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step { command: command.to_owned(), output: String::new() });
                continue;
            }
            if let Some(more) = line.strip_prefix('>') {
                let step = steps.last_mut().unwrap_or_else(|| panic!("no command above: {line}"));
                step.command.push('\n');
                step.command.push_str(more.strip_prefix(' ').unwrap_or(more));
            } else {
                let step = steps.last_mut().unwrap_or_else(|| panic!("no command above: {line}"));
                step.output.push_str(line);
                step.output.push('\n');
            }
        }
    }
    steps
}

/// A directory for the examples, and one with the command under test for PATH.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let place = Self { dir };
        for sub in ["bin", "run", "work"] {
            std::fs::create_dir(place.path(sub)).unwrap_or_else(|error| panic!("{error}"));
        }
        let (from, to) = (env!("CARGO_BIN_EXE_uxfs"), place.path("bin/uxfs"));
        if std::fs::hard_link(from, &to).is_err() {
            std::fs::copy(from, &to).unwrap_or_else(|error| panic!("{from}: {error}"));
        }
        if rustix::process::getuid().is_root() {
            for sub in ["", "run", "work"] {
                let owned = chown(place.path(sub), Some(USER), Some(USER));
                owned.unwrap_or_else(|error| panic!("{sub}: {error}"));
            }
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs shell text as an ordinary user.
    fn shell(&self, text: &str) -> std::process::Output {
        let mut command = if rustix::process::getuid().is_root() {
            let mut command = Command::new("setpriv");
            let user = USER.to_string();
            command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sh"]);
            command
        } else {
            Command::new("sh")
        };
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.path("bin").display());
        command.args(["-ec", text]).current_dir(self.path("work")).stdin(Stdio::null());
        command.env_clear().env("PATH", path).env("LC_ALL", "C").env("HOME", self.path("work"));
        command.env("XDG_RUNTIME_DIR", self.path("run"));
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// Runs the marked blocks of a text. The error names the wrong command and the reason.
    fn follow(&self, text: &str) -> Result<usize, String> {
        let steps = steps(text);
        for step in &steps {
            let out = self.shell(&step.command);
            let printed = String::from_utf8_lossy(&out.stdout);
            if !out.status.success() {
                let words = String::from_utf8_lossy(&out.stderr);
                return Err(format!("{}: {}\n{words}", step.command, out.status));
            }
            if !step.output.is_empty() && printed != step.output {
                return Err(format!("{}: prints\n{printed}not\n{}", step.command, step.output));
            }
        }
        Ok(steps.len())
    }
}

impl Drop for Place {
    /// A failed example may leave its volume mounted.
    fn drop(&mut self) {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let here = self.dir.path().display().to_string();
        for mount in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
            if mount.starts_with(&here) {
                self.shell(&format!("uxfs umount --force '{mount}'"));
            }
        }
    }
}

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{error}"))
}

fn readme() -> String {
    page("README.md")
}

#[test]
fn the_readmes_examples_work_for_an_ordinary_user() {
    let count = Place::new().follow(&readme()).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(count >= 12, "only {count} commands are run");
}

#[test]
fn the_examples_with_names_of_xfsprogs_work_for_an_ordinary_user() {
    let count =
        Place::new().follow(&page("docs/XFSPROGS.md")).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(count >= 4, "only {count} commands are run");
}

#[test]
fn the_recipes_for_disk_images_work_for_an_ordinary_user() {
    let _ = uxfs_oracle::program("veritysetup", "cryptsetup-bin");
    let place = Place::new();
    // The ordinary user may not look into root's cache.
    let repart = uxfs_oracle::systemd_repart();
    let copied = Command::new("cp").arg("-r").arg(repart).arg(place.path("repart")).status();
    assert!(copied.is_ok_and(|status| status.success()));
    std::os::unix::fs::symlink("../repart/bin/systemd-repart", place.path("bin/systemd-repart"))
        .unwrap();
    // The container image that the page says how to fetch.
    let image = place.shell(&format!(
        "{OCI}
        mkdir -p layer/bin; cp /bin/sh layer/bin; tar -C layer --owner 0 --group 0 -cf layer.tar .
        image amd64 layer.tar; index \"$(descriptor $M.manifest.v1+json \"$(tag 1)\")\"
        mv oci image; rm -r layer layer.tar config manifest"
    ));
    assert!(image.status.success(), "{}", String::from_utf8_lossy(&image.stderr));
    let count = place.follow(&page("docs/IMAGES.md")).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(count >= 25, "only {count} commands are run");
}

#[test]
fn every_example_of_the_command_is_marked_for_running() {
    let text = readme();
    let shown = text.lines().filter(|line| line.starts_with("$ ") && line.contains("uxfs "));
    let run: Vec<String> = steps(&text).into_iter().map(|step| step.command).collect();
    for line in shown {
        assert!(run.iter().any(|command| line == format!("$ {command}")), "not run: {line}");
    }
}

#[test]
fn wrong_examples_are_found() {
    let place = Place::new();
    let block = |lines: &str| format!("text\n<!-- run -->\n```console\n{lines}\n```\ntext\n");
    for (lines, said) in [
        ("$ uxfs ls none.img:/", "none.img"),
        ("$ uxfs mkfs --no-such-option x.img", "--no-such-option"),
        ("$ true\n$ echo one\ntwo", "prints"),
        ("$ touch /etc/uxfs-example", "Permission denied"),
    ] {
        let wrong = place.follow(&block(lines)).expect_err(lines);
        assert!(wrong.contains(said), "{lines}: {wrong}");
    }
    let lines = block("$ cat <<'END'\n> one\n>\n> END\none\n\n$ true");
    assert_eq!(place.follow(&lines), Ok(2));
    let right = block("$ echo one\none\n$ uxfs --version");
    assert_eq!(place.follow(&right), Ok(2));
    assert_eq!(place.follow(&right.replace("<!-- run -->\n", "")), Ok(0));
}
