//! A virtual machine, described: its kernel, drives, files and script; and the output of its run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Patience, cache};

/// A kernel.
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
    pub(super) fn file(self, name: &str) -> PathBuf {
        let file = cache().join(self.name()).join(name);
        assert!(file.exists(), "{} is missing: run tools/setup-vm {}", file.display(), self.name());
        file
    }
}

/// The output of a run.
#[derive(Debug, Clone)]
pub struct Output {
    /// Everything on the serial console: the kernel's words and the script's standard error.
    pub console: String,
    /// The script's standard output.
    pub stdout: String,
    /// The files in `/out`, by name.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// The time limits of a hanging machine. The longest runs work for a quarter of an hour.
const PATIENCE: Patience =
    Patience { idle: Duration::from_secs(300), work: Duration::from_secs(4 * 3600) };

#[derive(Debug, Clone)]
pub(super) struct Drive {
    pub(super) image: PathBuf,
    pub(super) writable: bool,
}

/// A virtual machine that runs once.
#[derive(Debug, Clone)]
pub struct Vm {
    pub(super) kernel: Kernel,
    pub(super) drives: Vec<Drive>,
    pub(super) files: Vec<(String, Vec<u8>)>,
    pub(super) script: String,
    pub(super) patience: Patience,
    pub(super) memory_mib: u32,
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

    /// Adds a drive. The machine can write to one that is not writable, but the writes are dropped.
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

    /// Sets the script for `sh`. A line `step "WORDS"` marks in findings how far it came.
    #[must_use]
    pub fn script(mut self, script: &str) -> Self {
        self.script = script.to_owned();
        self
    }

    /// Sets the time limits of a hang. The defaults are 5 minutes idle, or 4 hours of work.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the memory in MiB. The default is 768.
    #[must_use]
    pub fn memory(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// The machine's name in findings.
    pub(super) fn judge(&self) -> String {
        format!("kernel {}", self.kernel.version())
    }

    /// The image, if there is only one.
    pub(super) fn only_image(&self) -> Option<&Path> {
        match &self.drives[..] {
            [one] => Some(&one.image),
            _ => None,
        }
    }
}
