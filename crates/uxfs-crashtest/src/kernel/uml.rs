//! User Mode Linux: a kernel that runs as a process of the host, without root.
//!
//! 1. The kernel is looked for in `UXFS_UML`, in the cache of tools/setup-uml, and as Debian's `linux.uml`. One
//!    that does not come up is passed over: that of Debian 12 does not on processors with AMX.
//! 2. The root of the machine is that of the host, read-only, so the programs of the host run in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::machine::{Start, cache};

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
    let built = cache().map(|cache| cache.join("uml/current/kernel"));
    let found = built.into_iter().chain([PACKAGED.into()]);
    found.filter(|kernel| kernel.exists()).collect()
}

/// Adds the words that start a kernel.
pub(crate) fn add(command: &mut Command, kernel: &Path, start: &Start<'_>) {
    // It looks for a directory in memory by itself.
    command.env_remove("TMPDIR").env_remove("TMP").env_remove("TEMP");
    command.arg(kernel).arg(MEMORY).args(OPTIONS);
    command.arg(option("uml_dir=", &start.dir.join("uml"), "/"));
    for socket in start.disks {
        command.arg(option("virtio_uml.device=", socket, &format!(":{DISK}")));
    }
    command.arg(option("init=", start.init, "")).arg("--").args(start.arguments);
}

fn option(name: &str, path: &Path, end: &str) -> OsString {
    let mut text = OsString::from(name);
    text.push(path);
    text.push(end);
    text
}
