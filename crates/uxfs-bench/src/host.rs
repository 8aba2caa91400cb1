//! The host's side of a benchmark: commands, mounts, caches, a scratch directory.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{BenchError, Result};

/// A scratch directory. Its end unmounts everything in it and removes it.
///
/// A shell beside this process does that: it reads from a pipe that ends with this process, also if
/// the process is interrupted or killed.
pub struct Scratch {
    path: PathBuf,
    guard: Child,
}

/// The shell's script, with the directory as `$1`. Processes that still use the mount may take a
/// moment to end.
const CLEANUP_SCRIPT: &str = r#"
    trap '' INT TERM HUP
    cat >/dev/null
    if [ "$(id -u)" = 0 ]; then
        n=0
        while grep -q " $1/mnt " /proc/self/mounts && [ $n -lt 50 ]; do
            umount "$1/mnt" 2>/dev/null || sleep 0.1
            n=$((n + 1))
        done
        umount -l "$1/mnt" 2>/dev/null
    fi
    rm -rf "$1"
"#;

impl Scratch {
    /// Makes one in this directory.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(under: &Path) -> Result<Self> {
        use std::os::unix::process::CommandExt;
        let path = under.join(format!("uxfs-bench-{}", std::process::id()));
        let failed = |e| BenchError::new(format!("making {}", path.display()), e);
        std::fs::create_dir_all(path.join("mnt")).map_err(failed)?;
        // /proc/self/mounts shows the whole path.
        let path = path.canonicalize().map_err(failed)?;
        let guard = Command::new("sh")
            .args(["-c", CLEANUP_SCRIPT, "sh"])
            .arg(&path)
            .process_group(0)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        Ok(Self { path, guard })
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A directory to mount on.
    pub fn mnt(&self) -> PathBuf {
        self.path.join("mnt")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub fn has(program: &str) -> bool {
    found(program).is_some()
}

/// The path of a program; its bare name if it is not found.
pub(crate) fn program(name: &str) -> PathBuf {
    found(name).unwrap_or_else(|| name.into())
}

/// An ordinary user's path may lack the directories of root's programs.
fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

/// Runs a command to its end.
///
/// # Errors
/// If it fails.
pub(crate) fn run(program: &str, args: &[&dyn AsRef<std::ffi::OsStr>]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args.iter().map(|a| a.as_ref())).stdin(Stdio::null());
    let out = command.output().map_err(|e| BenchError::new(program, e))?;
    if !out.status.success() {
        let words = String::from_utf8_lossy(&out.stderr).trim().to_owned();
        return Err(BenchError::new(program, format!("{}: {words}", out.status)));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

pub(crate) fn sync(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|f| f.sync_all());
    synced.map_err(|e| BenchError::new(format!("syncing {}", path.display()), e))
}

/// Drops the host's cache of one file.
pub(crate) fn drop_from_cache(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(|e| BenchError::new(path.display().to_string(), e))?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
        .map_err(|e| BenchError::new(path.display().to_string(), e))
}

/// Makes the file system of a directory durable, and no other.
///
/// # Errors
/// An error of the system.
pub fn sync_fs(dir: &Path) -> std::io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(dir)?)?)
}

/// Reads a whole file, so that the host caches it.
pub(crate) fn read_into_cache(path: &Path) -> Result<u64> {
    let mut file = File::open(path).map_err(|e| BenchError::new(path.display().to_string(), e))?;
    drain(&mut file).map_err(|e| BenchError::new(path.display().to_string(), e))
}

pub(crate) fn drain(from: &mut dyn Read) -> std::io::Result<u64> {
    let mut buf = vec![0; 1 << 20];
    let mut total = 0;
    loop {
        match from.read(&mut buf)? {
            0 => return Ok(total),
            count => total += count as u64,
        }
    }
}

pub(crate) fn timed<R>(f: impl FnOnce() -> Result<R>) -> Result<(f64, R)> {
    let start = Instant::now();
    let result = f()?;
    Ok((start.elapsed().as_secs_f64(), result))
}

/// Runs a child to its end and returns its largest resident memory in KiB.
pub(crate) fn peak_memory_kib(mut child: Child, what: &str) -> Result<u64> {
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let status = std::fs::read_to_string(&status_file).unwrap_or_default();
        let high = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let kib = high.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0));
        match child.try_wait().map_err(|e| BenchError::new(what, e))? {
            Some(status) if status.success() => return Ok(peak),
            Some(status) => return Err(BenchError::new(what, status)),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}
