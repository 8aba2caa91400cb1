//! Makes one volume twice: with `mkfs.xfs` and with this crate.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use uxfs_disk::{FileDev, OpenMode};
use uxfs_mkfs::{Layout, MkfsError, Options, WriteOptions, table, write, write_with_log};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;
pub(crate) const TIB: u64 = 1 << 40;
const UUID: &str = "uuid=01234567-89ab-4def-8123-456789abcdef";

/// Runs an xfsprogs tool, which must be installed.
pub(crate) fn tool(name: &str, args: &[&str], path: &Path) -> Output {
    Command::new(format!("/sbin/{name}"))
        .args(args)
        .arg(path)
        .output()
        .unwrap_or_else(|error| panic!("these tests need {name} of xfsprogs: {error}"))
}

/// Runs `mkfs.xfs`; with `unsupported`, sets the environment of its own tests, which lifts limits.
pub(crate) fn mkfs(args: &[&str], path: &Path, unsupported: bool) -> Output {
    let mut command = Command::new("/sbin/mkfs.xfs");
    if unsupported {
        for name in ["TEST_DIR", "TEST_DEV", "QA_CHECK_FS"] {
            command.env(name, "1");
        }
    }
    command
        .arg("-f")
        .args(args)
        .arg(path)
        .output()
        .unwrap_or_else(|error| panic!("these tests need mkfs.xfs of xfsprogs: {error}"))
}

/// Parses options from a command line, for example `-d agcount=4 -m rmapbt=1`.
pub(crate) fn options(line: &str) -> Result<Options, MkfsError> {
    let mut options = Options::default();
    let words: Vec<&str> = line.split_whitespace().collect();
    for pair in words.chunks(2) {
        let letter = pair[0].chars().nth(1).expect("an option letter");
        options.apply(letter, pair.get(1).copied().unwrap_or_default())?;
    }
    Ok(options)
}

/// Result of making a volume twice.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Both made the volume, in these two files.
    Made,
    /// Both refused.
    Refused,
    /// Ours made the volume. `mkfs.xfs` made another one that `xfs_repair` finds damaged, or ended in
    /// the middle because its own write verifier refused what it wrote. Only `xfs_repair` can judge
    /// ours.
    OnlyOurs,
}

/// Stands in a command line for the file of an external log.
pub(crate) const LOG: &str = "@LOG";

/// Two files of the same length.
pub(crate) struct Pair {
    dir: TempDir,
    pub(crate) theirs: PathBuf,
    pub(crate) ours: PathBuf,
    /// The files of their external log and of ours.
    pub(crate) logs: Option<[PathBuf; 2]>,
}

impl Pair {
    pub(crate) fn new(size: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (theirs, ours) = (dir.path().join("a.img"), dir.path().join("b.img"));
        for path in [&theirs, &ours] {
            std::fs::File::create(path).unwrap().set_len(size).unwrap();
        }
        Self { dir, theirs, ours, logs: None }
    }

    /// The same with two files of `size` bytes for external logs, which hold other data.
    pub(crate) fn with_logs(self, size: u64) -> Self {
        let logs = ["a.log", "b.log"].map(|name| self.dir.path().join(name));
        for path in &logs {
            let file = std::fs::File::create(path).unwrap();
            file.set_len(size).unwrap();
            file.write_all_at(&[0xa5; 70_000], size / 2).unwrap();
        }
        Self { logs: Some(logs), ..self }
    }

    /// A command line with the name of their log. Ours has its name in the table.
    fn line(&self, line: &str) -> String {
        match &self.logs {
            Some([theirs, _]) => line.replace(LOG, &theirs.to_string_lossy()),
            None => line.to_owned(),
        }
    }

    /// Makes the volume twice; with `dry` only computes it. The tables must be equal.
    pub(crate) fn make(&self, line: &str, unsupported: bool, dry: bool) -> Result<Outcome, String> {
        let line = &self.line(line);
        let mut args = vec!["-m", UUID];
        args.extend(line.split_whitespace());
        if dry {
            args.push("-N");
        }
        let theirs = mkfs(&args, &self.theirs, unsupported);
        let ours = self.make_ours(line, unsupported, dry);
        match (theirs.status.code(), ours) {
            (Some(0), Ok(table)) => {
                let wanted = String::from_utf8_lossy(&theirs.stdout);
                match wanted == table {
                    true => Ok(Outcome::Made),
                    false if !dry && self.repair_theirs().is_err() => Ok(Outcome::OnlyOurs),
                    false => Err(format!("{line}: table\n{wanted}\nis\n{table}")),
                }
            }
            (Some(1), Err(error)) if error.is_usage() => Ok(Outcome::Refused),
            (Some(1), Ok(_)) if failed_its_verifier(&theirs) => Ok(Outcome::OnlyOurs),
            (code, ours) => {
                let said = String::from_utf8_lossy(&theirs.stderr).into_owned();
                let said = said.split("Usage").next().unwrap_or_default().trim().to_owned();
                Err(format!("{line}: mkfs.xfs ends with {code:?} ({said}), ours with {ours:?}"))
            }
        }
    }

    fn make_ours(&self, line: &str, unsupported: bool, dry: bool) -> Result<String, MkfsError> {
        let mut options = options(line)?;
        options.unsupported = unsupported;
        options.apply('m', UUID)?;
        let len = std::fs::metadata(&self.ours).unwrap().len();
        if let Some([_, log]) = &self.logs {
            options.log.device_bytes = Some(std::fs::metadata(log).unwrap().len());
        }
        let layout = Layout::new(&options, len)?;
        if !dry {
            let dev = FileDev::open(&self.ours, OpenMode::Write).unwrap();
            match self.logs.as_ref().filter(|_| layout.log_device_bytes().is_some()) {
                Some([_, log]) => {
                    let log = FileDev::open(log, OpenMode::Write).unwrap();
                    write_with_log(&layout, &dev, &log, &WriteOptions::default())?;
                }
                None => write(&layout, &dev, &WriteOptions::default())?,
            }
        }
        Ok(table(&layout, &self.theirs.to_string_lossy()))
    }

    /// Checks that xfs_repair finds no problem in our volume.
    pub(crate) fn repair(&self) -> Result<(), String> {
        repair_with(&self.ours, self.logs.as_ref().map(|[_, log]| log.as_path()))
    }

    /// The same for theirs.
    pub(crate) fn repair_theirs(&self) -> Result<(), String> {
        repair_with(&self.theirs, self.logs.as_ref().map(|[log, _]| log.as_path()))
    }
}

/// Whether `mkfs.xfs` failed because its own verifier refuses what it would have written. Version 6.1
/// does so if the rounding of the groups to the stripe makes one group fewer than it counted.
fn failed_its_verifier(theirs: &Output) -> bool {
    String::from_utf8_lossy(&theirs.stderr).contains("write verifier failed")
}

/// Checks that xfs_repair finds no problem in a volume.
pub(crate) fn repair(path: &Path) -> Result<(), String> {
    repair_with(path, None)
}

fn repair_with(path: &Path, log: Option<&Path>) -> Result<(), String> {
    let log = log.map(Path::to_string_lossy);
    let mut args = vec!["-n", "-f"];
    args.extend(log.iter().flat_map(|log| ["-l", log]));
    let output = tool("xfs_repair", &args, path);
    match output.status.code() {
        Some(0) => Ok(()),
        code => Err(format!(
            "xfs_repair -n ends with {code:?}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}
