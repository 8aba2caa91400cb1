//! xfsprogs as a judge: `mkfs.xfs`, `xfs_repair -n` and `xfs_db` of two releases.
//!
//! 1. Only functions named `mkfs` and `db_write` change an image.
//! 2. Every unusual line of a judge counts, regardless of its exit code: the tools report some
//!    damage with exit code 0.
//! 3. The free functions ask the installed release; [`both`] asks the newer one as well.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::{Finding, cache};

/// Directories of Debian's administration tools, which are not in an ordinary user's `PATH`.
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

/// The directory with systemd-repart of Debian unstable, which the script in its `bin` starts. It can be
/// copied elsewhere.
///
/// # Panics
/// When it is missing: a test that cannot ask its judge has failed.
#[must_use]
pub fn systemd_repart() -> PathBuf {
    let dir = cache().join("repart");
    let script = dir.join("bin/systemd-repart");
    assert!(script.exists(), "{} is missing: run tools/setup-repart", script.display());
    dir
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Xfsprogs {
    /// The one that is installed: Debian 12's, 6.1. It alone has `xfs_db -c check`.
    Installed,
    /// Debian unstable's when the cache was made, 7.x: it alone knows parent pointers and
    /// exchange-range. Put into the cache by `tools/setup-xfsprogs`.
    Current,
}

impl Xfsprogs {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Installed, Self::Current];

    /// One of its programs: `mkfs.xfs`, `xfs_repair`, `xfs_db`.
    ///
    /// # Panics
    /// When it is missing: a test that cannot ask its judge has failed.
    #[must_use]
    pub fn program(self, name: &str) -> PathBuf {
        match self {
            Self::Installed => program(name, "xfsprogs"),
            Self::Current => {
                let file = cache().join("xfsprogs/bin").join(name);
                assert!(file.exists(), "{} is missing: run tools/setup-xfsprogs", file.display());
                file
            }
        }
    }

    /// An option file as this release installs it, by its name without `.conf`: `lts_6.12`.
    ///
    /// # Panics
    /// When it is missing.
    #[must_use]
    pub fn option_file(self, name: &str) -> PathBuf {
        let dir = match self {
            Self::Installed => PathBuf::from("/usr/share/xfsprogs/mkfs"),
            Self::Current => cache().join("xfsprogs/root/mkfs"),
        };
        let file = dir.join(format!("{name}.conf"));
        assert!(file.exists(), "{} is missing: run tools/setup-xfsprogs", file.display());
        file
    }

    /// Makes `path` a file of `size` bytes with a volume on it, by the real `mkfs.xfs` with
    /// `options`.
    ///
    /// # Panics
    /// When it refuses, with what it said.
    pub fn mkfs(self, path: &Path, size: u64, options: &[&str]) {
        let file = File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        file.set_len(size).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        drop(file);
        let mut command = Command::new(self.program("mkfs.xfs"));
        let out = run(command.args(["-f", "-q"]).args(options).arg(path));
        assert!(out.status.success(), "mkfs.xfs {options:?}: {}", text(&out.stderr));
    }

    /// What `xfs_db -r` prints when it carries out `commands`.
    ///
    /// # Panics
    /// When it fails, with what it said.
    #[must_use]
    pub fn db(self, image: &Path, commands: &[&str]) -> String {
        self.xfs_db(image, "-r", commands)
    }

    /// As [`Xfsprogs::db`], but in expert mode and writing: to break an image in a chosen way.
    ///
    /// # Panics
    /// As [`Xfsprogs::db`].
    pub fn db_write(self, image: &Path, commands: &[&str]) -> String {
        self.xfs_db(image, "-x", commands)
    }

    fn xfs_db(self, image: &Path, mode: &str, commands: &[&str]) -> String {
        let mut command = Command::new(self.program("xfs_db"));
        command.arg(mode);
        for each in commands {
            command.args(["-c", each]);
        }
        let out = run(command.arg(image));
        assert!(out.status.success(), "xfs_db {mode} {commands:?}: {}", text(&out.stderr));
        text(&out.stdout)
    }

    /// `xfs_repair -n`: does it find nothing to repair?
    ///
    /// # Errors
    /// The complaints of xfs_repair.
    pub fn repair(self, image: &Path) -> Result<(), Finding> {
        // On a busy machine, a read-ahead thread can mistake another thread's lock for its own, and
        // warns. Without read-ahead there is one thread.
        const OWN_LOCKS: &str = "Warning: recursive buffer locking at block";
        let mut lines = self.complaints(image, &["-n"]);
        if !lines.is_empty() && lines.iter().all(|line| line.starts_with(OWN_LOCKS)) {
            lines = self.complaints(image, &["-n", "-P"]);
        }
        let judge = match self {
            Self::Installed => "xfs_repair -n",
            Self::Current => "the newer xfs_repair -n",
        };
        verdict(judge, image, lines)
    }

    /// The output of `xfs_repair` with these options, but for its progress.
    fn complaints(self, image: &Path, options: &[&str]) -> Vec<String> {
        let out = run(Command::new(self.program("xfs_repair")).args(options).arg(image));
        let mut lines: Vec<String> = text(&out.stdout)
            .lines()
            .chain(text(&out.stderr).lines())
            .filter(|line| !is_progress(line))
            .map(str::to_owned)
            .collect();
        if !out.status.success() {
            lines.push(out.status.to_string());
        }
        lines
    }
}

/// Has the volume a feature that only the newer release knows?
fn is_new(image: &Path) -> bool {
    // The word of incompatible features in the superblock, and those up to 6.1's.
    const AT: u64 = 216;
    const KNOWN: u32 = 0x3f;
    let mut word = [0; 4];
    let read = File::open(image).and_then(|file| file.read_exact_at(&mut word, AT));
    read.unwrap_or_else(|e| panic!("{}: {e}", image.display()));
    u32::from_be_bytes(word) & !KNOWN != 0
}

/// Asks everything: `xfs_repair -n` of each release that knows the volume's features, and `xfs_db
/// -c check`.
///
/// # Errors
/// The complaints of the first judge that has some.
///
/// # Panics
/// When a judge is missing, or the image cannot be read.
pub fn both(image: &Path) -> Result<(), Finding> {
    if !is_new(image) {
        repair(image)?;
    }
    db_check(image)?;
    Xfsprogs::Current.repair(image)
}

/// As [`both`], for a volume that a kernel of the installed release's time has changed: such
/// kernels put the flag of unwritten extents into keys of the reverse mapping tree, and the newer
/// release reports that. Nothing else is ignored.
///
/// # Errors
/// As [`both`].
///
/// # Panics
/// As [`both`].
pub fn both_after_old_kernel(image: &Path) -> Result<(), Finding> {
    const REMARK: &str = "would clear unwritten flag on rmapbt key";
    match both(image) {
        Err(finding) if finding.says(REMARK) => {
            let known = |line: &String| line.contains(REMARK) || line.starts_with("exit status: 1");
            if finding.lines.iter().all(known) { Ok(()) } else { Err(finding) }
        }
        other => other,
    }
}

/// [`Xfsprogs::mkfs`] of the installed release.
///
/// # Panics
/// When it refuses, with what it said.
pub fn mkfs(path: &Path, size: u64, options: &[&str]) {
    Xfsprogs::Installed.mkfs(path, size, options);
}

/// What the installed `xfs_db -r` prints when it carries out `commands`.
///
/// # Panics
/// When it fails, with what it said.
#[must_use]
pub fn db(image: &Path, commands: &[&str]) -> String {
    Xfsprogs::Installed.db(image, commands)
}

/// As [`db`], but in expert mode and writing: to break an image in a chosen way.
///
/// # Panics
/// As [`db`].
pub fn db_write(image: &Path, commands: &[&str]) -> String {
    Xfsprogs::Installed.db_write(image, commands)
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

/// `xfs_repair -n` of the installed release: does it find nothing to repair?
///
/// # Errors
/// The complaints of xfs_repair.
pub fn repair(image: &Path) -> Result<(), Finding> {
    Xfsprogs::Installed.repair(image)
}

/// `xfs_db -r -c check`: does it find every block either in use or free? It sees leaked blocks,
/// which `xfs_repair -n` misses.
///
/// # Errors
/// The complaints of xfs_db.
pub fn db_check(image: &Path) -> Result<(), Finding> {
    let program = Xfsprogs::Installed.program("xfs_db");
    let out = run(Command::new(program).args(["-r", "-c", "check"]).arg(image));
    let mut lines: Vec<String> = text(&out.stdout)
        .lines()
        .chain(text(&out.stderr).lines())
        .filter(|line| !is_newness(line))
        .map(str::to_owned)
        .collect();
    if !out.status.success() {
        lines.push(out.status.to_string());
    }
    verdict("xfs_db -c check", image, lines)
}

fn verdict(judge: &str, image: &Path, lines: Vec<String>) -> Result<(), Finding> {
    if lines.is_empty() { Ok(()) } else { Err(Finding::new(judge, Some(image), lines)) }
}

/// What the installed `xfs_db` prints of every volume with newer features; it checks them all the
/// same.
fn is_newness(line: &str) -> bool {
    line.starts_with("Superblock has unknown incompatible features (")
        || line == "Filesystem cannot be safely mounted by this kernel."
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

    /// `xfs_repair -n` misses this damage: all counts agree, but a block is neither used nor free.
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

    /// A volume with a file that has two names, made as mkfs.xfs 7 makes it by default.
    fn with_parents(dir: &tempfile::TempDir) -> PathBuf {
        let source = dir.path().join("source");
        std::fs::create_dir_all(source.join("sub")).unwrap();
        std::fs::write(source.join("file"), b"words").unwrap();
        std::fs::hard_link(source.join("file"), source.join("sub/other")).unwrap();
        let path = dir.path().join("t.img");
        Xfsprogs::Current.mkfs(&path, 300 << 20, &["-p", source.to_str().unwrap()]);
        path
    }

    #[test]
    fn sound_volumes_pass_both_releases() {
        let dir = tempfile::tempdir().unwrap();
        both(&with_parents(&dir)).unwrap_or_else(|f| panic!("{f}"));
        both(&image(&dir, &["-m", "rmapbt=1"])).unwrap_or_else(|f| panic!("{f}"));
    }

    /// Damage that only the newer release sees.
    #[test]
    fn repair_sees_a_wrong_parent_pointer() {
        let dir = tempfile::tempdir().unwrap();
        let path = with_parents(&dir);
        let wrong = ["path /file", "write a.sfattr.list[0].parent_dir.gen 7"];
        Xfsprogs::Current.db_write(&path, &wrong);
        let finding = both(&path).unwrap_err();
        assert!(finding.says("parent pointer"), "{finding}");
        assert_eq!(finding.judge, "the newer xfs_repair -n");
    }

    /// Both releases are asked, and `xfs_db -c check`, of a volume that both know.
    #[test]
    fn damage_that_one_release_finds_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = image(&dir, &[]);
        db_write(&path, &["sb 0", "write fdblocks 7"]);
        for release in Xfsprogs::ALL {
            assert!(release.repair(&path).is_err(), "{release:?}");
        }
        assert!(both(&path).is_err());
    }

    #[test]
    #[should_panic(expected = "run tools/setup-xfsprogs")]
    fn a_missing_newer_xfs_repair_fails() {
        let _ = Xfsprogs::Current.program("xfs_no_such_tool");
    }

    #[test]
    #[should_panic(expected = "install xfsprogs")]
    fn a_missing_xfs_repair_fails() {
        let _ = Xfsprogs::Installed.program("xfs_no_such_tool");
    }
}
