//! User Mode Linux: a kernel that runs as a process of the host, without root.
//!
//! 1. The kernel is looked for in `UXFS_UML`, in the cache of tools/setup-uml, and as Debian's `linux.uml`. One
//!    that does not come up is passed over: that of Debian 12 does not on processors with AMX.
//! 2. The root of the machine is that of the host, read-only, so the programs of the host run in it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The kernel of the package user-mode-linux.
const PACKAGED: &str = "/usr/bin/linux.uml";
/// The number of disks among virtio's devices.
const DISK: u32 = 2;
/// The memory of a machine. The host gives it when it is used.
const MEMORY: &str = "mem=512M";

/// Options for the kernel. With seccomp (6.16 and later) system calls take less time than with ptrace. Its watchdogs are off: a machine that gets no processor for a while is no finding.
const OPTIONS: [&str; 15] = [
    "root=/dev/root",
    "rootfstype=hostfs",
    "rootflags=/",
    "ro",
    "noreboot",
    "con=null",
    "con0=null,fd:1",
    "quiet",
    "panic=-1",
    "oops=panic",
    "seccomp=auto",
    "nowatchdog",
    "nosoftlockup",
    "rcupdate.rcu_cpu_stall_suppress=1",
    "workqueue.watchdog_thresh=0",
];

/// What to do when no kernel comes up.
pub(crate) const ADVICE: &str = "the package user-mode-linux brings a kernel, tools/setup-uml of uxfs' sources \
                                 builds a newer one, and UXFS_UML names another";

/// Kernels that may be on this host, the best first.
pub(crate) fn kernels() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os("UXFS_UML") {
        return vec![named.into()];
    }
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/uxfs/vm"));
    let cache = std::env::var_os("UXFS_CACHE").map(PathBuf::from).or(home);
    let built = cache.map(|cache| cache.join("uml/current/kernel"));
    let found = built.into_iter().chain([PACKAGED.into()]);
    found.filter(|kernel| kernel.exists()).collect()
}

/// Starts of a kernel: its files are in `dir`.
pub(crate) struct Start<'a> {
    pub(crate) kernel: &'a Path,
    pub(crate) dir: &'a Path,
    /// Sockets of its disks.
    pub(crate) disks: &'a [PathBuf],
    /// The first program, and its arguments. The program's path has no spaces.
    pub(crate) init: &'a Path,
    pub(crate) arguments: &'a [OsString],
    pub(crate) console: Stdio,
}

impl Start<'_> {
    pub(crate) fn command(self) -> Command {
        // The kernel dies with the thread that starts it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(self.kernel);
        // It looks for a directory in memory by itself.
        command.env_remove("TMPDIR").env_remove("TMP").env_remove("TEMP");
        command.arg(MEMORY).args(OPTIONS).arg(option("uml_dir=", self.dir, "/"));
        for socket in self.disks {
            command.arg(option("virtio_uml.device=", socket, &format!(":{DISK}")));
        }
        command.arg(option("init=", self.init, "")).arg("--").args(self.arguments);
        command.stdin(Stdio::null()).stdout(self.console).stderr(Stdio::null());
        command
    }
}

fn option(name: &str, path: &Path, end: &str) -> OsString {
    let mut text = OsString::from(name);
    text.push(path);
    text.push(end);
    text
}

/// The search path with the directories in which tools of file systems are.
pub(crate) fn path_with_sbin() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(OsStr::new(":/usr/local/sbin:/usr/sbin:/sbin"));
    path
}
