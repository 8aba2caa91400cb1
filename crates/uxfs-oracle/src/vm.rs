//! Real kernels in a throw-away virtual machine: no root, no risk to the host.
//!
//! 1. A drive that is not writable is left as it was, whatever the kernel does to it (log
//!    recovery included): its changes go to a temporary overlay.
//! 2. A run passes only if the script ended with status 0, the machine powered itself off, and the kernel complained of nothing on the console.
//! 3. qemu never outlives its run, also when the test panics.
//! 4. No run depends on how fast the machine is: only a hang ends one ([`crate::Patience`]), and the kernel's own
//!    watchdogs, which go by the clock, are off.
//!
//! Inside, a script run by busybox' `sh` finds its drives as `/drive/0`, `/drive/1`, … in the order
//! in which they were given, an empty directory `/mnt` to mount on, the programs `uxfs-lister`,
//! `uxfs-ager` and `uxfs-storm`, and a directory `/out` whose files come back in [`Output::files`].
//!
//! [`list`], [`age`], [`age_all`] and [`crash`] are all that most tests need. `UXFS_VM_ACCEL=kvm` uses
//! the host's
//! virtualisation, `probe` only where it works; the default is `tcg`, plain emulation, which
//! works everywhere. Set up by `tools/setup-vm`.

mod archive;
mod console;
mod guest;
mod judge;
mod qemu;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Finding, Patience, cache};

pub use judge::{Crash, age, age_all, crash, list};

/// Which kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Debian 12's: 6.1.
    Stable,
    /// Debian unstable's when the cache was made.
    Current,
}

impl Kernel {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Stable, Self::Current];

    /// Its directory in the cache, and its name for `tools/setup-vm`.
    fn name(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Current => "current",
        }
    }

    /// What `uname -r` says.
    ///
    /// # Panics
    /// When `tools/setup-vm` has not been run.
    #[must_use]
    pub fn version(self) -> String {
        let file = self.file("version");
        let text = std::fs::read_to_string(&file);
        text.unwrap_or_else(|e| panic!("{}: {e}", file.display())).trim().to_owned()
    }

    /// A file of this kernel's in the cache.
    fn file(self, name: &str) -> PathBuf {
        let file = cache().join(self.name()).join(name);
        assert!(file.exists(), "{} is missing: run tools/setup-vm {}", file.display(), self.name());
        file
    }
}

/// What a run left.
#[derive(Debug, Clone)]
pub struct Output {
    /// Everything on the serial console: the kernel's words and the script's standard error.
    pub console: String,
    /// The script's standard output.
    pub stdout: String,
    /// The files in `/out`, by name.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// When a machine counts as hanging. The longest runs work for a quarter of an hour.
const PATIENCE: Patience =
    Patience { idle: Duration::from_secs(300), work: Duration::from_secs(4 * 3600) };

#[derive(Debug, Clone)]
struct Drive {
    image: PathBuf,
    writable: bool,
}

/// A machine to be run once.
#[derive(Debug, Clone)]
pub struct Vm {
    kernel: Kernel,
    drives: Vec<Drive>,
    files: Vec<(String, Vec<u8>)>,
    script: String,
    patience: Patience,
    memory_mib: u32,
}

impl Vm {
    /// The most drives that a machine takes.
    pub const DRIVES_MAX: usize = 160;

    /// A machine with `kernel`, without drives, and nothing to do.
    #[must_use]
    pub fn new(kernel: Kernel) -> Self {
        Self {
            kernel,
            drives: Vec::new(),
            files: Vec::new(),
            script: String::new(),
            patience: PATIENCE,
            memory_mib: 768,
        }
    }

    /// Adds a drive. One that is not writable can be written to inside, but not lastingly.
    ///
    /// # Panics
    /// At more than [`Vm::DRIVES_MAX`].
    #[must_use]
    pub fn drive(mut self, image: &Path, writable: bool) -> Self {
        assert!(self.drives.len() < Self::DRIVES_MAX, "more than {} drives", Self::DRIVES_MAX);
        self.drives.push(Drive { image: image.to_path_buf(), writable });
        self
    }

    /// Adds a file, executable, as `/job/NAME`.
    #[must_use]
    pub fn file(mut self, name: &str, content: &[u8]) -> Self {
        self.files.push((name.to_owned(), content.to_vec()));
        self
    }

    /// What to do, for `sh`; a line `step "WORDS"` says in findings how far it had come.
    #[must_use]
    pub fn script(mut self, script: &str) -> Self {
        self.script = script.to_owned();
        self
    }

    /// When the machine counts as hanging: 5 minutes idle, or 4 hours of work, unless told.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Memory in MiB; 768 unless told.
    #[must_use]
    pub fn memory(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Runs it.
    ///
    /// # Errors
    /// The kernel complained, the script failed, or the machine hung.
    ///
    /// # Panics
    /// When qemu or the kernels are missing, or a drive's image.
    pub fn run(self) -> Result<Output, Finding> {
        qemu::run(&self)
    }

    /// The name that findings give this machine.
    fn judge(&self) -> String {
        format!("kernel {}", self.kernel.version())
    }

    /// The image in question, if there is only one.
    fn only_image(&self) -> Option<&Path> {
        match &self.drives[..] {
            [one] => Some(&one.image),
            _ => None,
        }
    }
}
