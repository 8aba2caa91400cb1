//! xfsprogs as a judge: `mkfs.xfs`, `xfs_repair -n`, `xfs_db`.
//!
//! 1. No function here changes an image but [`mkfs`] and [`db_write`].
//! 2. A judge's every unusual line counts, whatever its exit code: the tools warn of some damage
//!    with exit code 0.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::Finding;

/// Where an ordinary user's `PATH` does not look, but Debian keeps the tools.
const SBIN: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Finds a program.
///
/// # Panics
/// When it is missing: a test that cannot ask its judge has failed.
#[must_use]
pub fn program(name: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(SBIN.iter().map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing: install {package} (./test does)"))
}

/// Makes `path` a file of `size` bytes with a volume on it, by the real `mkfs.xfs` with `options`.
///
/// # Panics
/// When it refuses, with what it said.
pub fn mkfs(path: &Path, size: u64, options: &[&str]) {
    let file = File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.set_len(size).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    drop(file);
    let out = run(Command::new(xfsprogs("mkfs.xfs")).args(["-f", "-q"]).args(options).arg(path));
    assert!(out.status.success(), "mkfs.xfs {options:?}: {}", text(&out.stderr));
}

/// What `xfs_db -r` prints when it carries out `commands`.
///
/// # Panics
/// When it fails, with what it said.
#[must_use]
pub fn db(image: &Path, commands: &[&str]) -> String {
    xfs_db(image, "-r", commands)
}

/// As [`db`], but in expert mode and writing: to break an image in a chosen way.
///
/// # Panics
/// As [`db`].
pub fn db_write(image: &Path, commands: &[&str]) -> String {
    xfs_db(image, "-x", commands)
}

/// One field as `xfs_db` prints it: `db_value(image, &["agf 0"], "freeblks")`.
///
/// # Panics
/// As [`db`], and when there is no such field where `commands` lead.
#[must_use]
pub fn db_value(image: &Path, commands: &[&str], field: &str) -> String {
    let print = format!("print {field}");
    let out = db(image, &[commands, &[&print]].concat());
    let value = out.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(" = "));
    value.unwrap_or_else(|| panic!("xfs_db {commands:?} shows no {field}: {out}")).to_owned()
}

/// `xfs_repair -n`: does it find nothing to repair?
///
/// # Errors
/// Its complaints.
pub fn repair(image: &Path) -> Result<(), Finding> {
    let out = run(Command::new(xfsprogs("xfs_repair")).arg("-n").arg(image));
    let mut lines: Vec<String> = text(&out.stdout)
        .lines()
        .chain(text(&out.stderr).lines())
        .filter(|line| !is_progress(line))
        .map(str::to_owned)
        .collect();
    if !out.status.success() {
        lines.push(out.status.to_string());
    }
    verdict("xfs_repair -n", image, lines)
}

/// `xfs_db -r -c check`: does it find every block either in use or free? It sees leaked blocks,
/// which `xfs_repair -n` misses.
///
/// # Errors
/// Its complaints.
pub fn db_check(image: &Path) -> Result<(), Finding> {
    let out = run(Command::new(xfsprogs("xfs_db")).args(["-r", "-c", "check"]).arg(image));
    let mut lines: Vec<String> =
        text(&out.stdout).lines().chain(text(&out.stderr).lines()).map(str::to_owned).collect();
    if !out.status.success() {
        lines.push(out.status.to_string());
    }
    verdict("xfs_db -c check", image, lines)
}

/// [`repair`] and [`db_check`].
///
/// # Errors
/// The first one's complaints.
pub fn both(image: &Path) -> Result<(), Finding> {
    repair(image)?;
    db_check(image)
}

fn verdict(judge: &str, image: &Path, lines: Vec<String>) -> Result<(), Finding> {
    if lines.is_empty() { Ok(()) } else { Err(Finding::new(judge, Some(image), lines)) }
}

/// What `xfs_repair -n` prints of a sound volume, on any host file system.
fn is_progress(line: &str) -> bool {
    const HOST: [&str; 3] = [
        "Cannot get host filesystem geometry.",
        "Repair may fail if there is a sector size mismatch between",
        "the image and the host filesystem.",
    ];
    let starts = ["Phase ", "        - ", "No modify flag set"];
    line.is_empty() || HOST.contains(&line) || starts.iter().any(|start| line.starts_with(start))
}

fn xfs_db(image: &Path, mode: &str, commands: &[&str]) -> String {
    let mut command = Command::new(xfsprogs("xfs_db"));
    command.arg(mode);
    for each in commands {
        command.args(["-c", each]);
    }
    let out = run(command.arg(image));
    assert!(out.status.success(), "xfs_db {mode} {commands:?}: {}", text(&out.stderr));
    text(&out.stdout)
}

fn xfsprogs(name: &str) -> PathBuf {
    program(name, "xfsprogs")
}

fn run(command: &mut Command) -> Output {
    let out = command.stdin(Stdio::null()).env("LC_ALL", "C").output();
    out.unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(dir: &tempfile::TempDir, options: &[&str]) -> PathBuf {
        let path = dir.path().join("t.img");
        mkfs(&path, 300 << 20, options);
        path
    }

    #[test]
    fn sound_volumes_pass() {
        let dir = tempfile::tempdir().unwrap();
        for options in [
            &[][..],
            &["-m", "rmapbt=1"],
            &["-i", "nrext64=1", "-m", "inobtcount=0,finobt=0"],
            &["-b", "size=1k", "-n", "size=8k"],
            &["-s", "size=4k", "-d", "agcount=3"],
        ] {
            let path = image(&dir, options);
            both(&path).unwrap_or_else(|f| panic!("{options:?}: {f}"));
        }
    }

    #[test]
    fn repair_sees_a_wrong_count_of_free_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let path = image(&dir, &[]);
        db_write(&path, &["sb 0", "write fdblocks 7"]);
        let finding = repair(&path).unwrap_err();
        assert!(finding.says("sb_fdblocks 7, counted"), "{finding}");
        assert_eq!(finding.image.as_deref(), Some(path.as_path()));
    }

    #[test]
    fn repair_sees_a_broken_check_sum() {
        let dir = tempfile::tempdir().unwrap();
        let path = image(&dir, &[]);
        db_write(&path, &["agf 1", "write -c freeblks 5"]);
        assert!(repair(&path).unwrap_err().says("agf"), "no word of the agf");
        assert!(db_check(&path).is_err());
    }

    /// The case that `xfs_repair -n` misses: all counts agree, but a block is neither used nor free.
    #[test]
    fn db_check_sees_a_leaked_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = image(&dir, &[]);
        let number = |commands: &[&str], field: &str| -> u64 {
            db_value(&path, commands, field).parse().unwrap()
        };
        let free = number(&["agf 1"], "freeblks");
        let longest = number(&["agf 1"], "longest");
        let total = number(&["sb 0"], "fdblocks");
        for root in ["bnoroot", "cntroot"] {
            let last = number(&["agf 1", &format!("addr {root}")], "numrecs");
            let field = format!("recs[{last}].blockcount");
            db_write(
                &path,
                &["agf 1", &format!("addr {root}"), &format!("write {field} {}", longest - 1)],
            );
        }
        db_write(&path, &["agf 1", &format!("write freeblks {}", free - 1)]);
        db_write(&path, &["agf 1", &format!("write longest {}", longest - 1)]);
        db_write(&path, &["sb 0", &format!("write fdblocks {}", total - 1)]);
        let finding = db_check(&path).unwrap_err();
        assert!(finding.says("block 1/"), "{finding}");
        assert!(both(&path).is_err());
    }

    #[test]
    #[should_panic(expected = "install xfsprogs")]
    fn a_missing_judge_is_a_failure() {
        let _ = xfsprogs("xfs_no_such_tool");
    }
}
