//! The kinds of virtual machines, and where their kernels are.
//!
//! 1. A kernel is looked for in the places of its kind, the best first. One that does not come up is passed
//!    over.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{qemu, uml};

/// How a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// As a process of the host.
    Uml,
    /// In QEMU, emulated unless `UXFS_VM_ACCEL` says `kvm`.
    Qemu,
}

/// A kernel that a machine can run.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) machine: Machine,
    /// The kernel's file, of QEMU the directory that has it.
    pub(crate) path: PathBuf,
}

/// The start of a kernel.
pub(crate) struct Start<'a> {
    /// A directory for the machine's own files, which exists.
    pub(crate) dir: &'a Path,
    /// Sockets of its disks.
    pub(crate) disks: &'a [PathBuf],
    /// The first program, and its arguments, without spaces.
    pub(crate) init: &'a Path,
    pub(crate) arguments: &'a [OsString],
    pub(crate) console: Stdio,
}

impl Machine {
    /// What to do when no kernel of this kind comes up.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::Uml => uml::ADVICE,
            Self::Qemu => qemu::ADVICE,
        }
    }

    /// Kernels that may be on this host, the best first.
    pub(crate) fn kernels(self) -> Vec<Kernel> {
        let paths = match self {
            Self::Uml => uml::kernels(),
            Self::Qemu => qemu::kernels(),
        };
        paths.into_iter().map(|path| Kernel { machine: self, path }).collect()
    }

    /// How much longer than User Mode Linux this kind may take.
    pub(crate) fn patience(self, time: Duration) -> Duration {
        match self {
            Self::Uml => time,
            Self::Qemu => time * 10,
        }
    }
}

impl Kernel {
    pub(crate) fn command(&self, start: Start<'_>) -> Command {
        // The kernel dies with the thread that starts it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        match self.machine {
            Machine::Uml => uml::add(&mut command, &self.path, &start),
            Machine::Qemu => qemu::add(&mut command, &self.path, &start),
        }
        command.stdin(Stdio::null()).stdout(start.console).stderr(Stdio::null());
        command
    }
}

/// The cache of tools/setup-uml and tools/setup-vm.
pub(crate) fn cache() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/uxfs/vm"));
    std::env::var_os("UXFS_CACHE").map(PathBuf::from).or(home)
}

/// The search path with the directories in which tools of file systems are.
pub(crate) fn path_with_sbin() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(OsStr::new(":/usr/local/sbin:/usr/sbin:/sbin"));
    path
}
