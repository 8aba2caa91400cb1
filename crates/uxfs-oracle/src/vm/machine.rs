//! The description of a virtual machine (kernel, drives, files, script), and the output of its run.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{HangLimits, cache};

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

    /// Its name for the setup scripts.
    fn name(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Current => "current",
        }
    }

    /// The output of `uname -r` inside.
    ///
    /// # Panics
    /// When the engine's setup script has not been run.
    #[must_use]
    pub fn version(self) -> String {
        self.version_in(Engine::chosen(self))
    }

    /// The output of `uname -r` inside, under an engine.
    pub(super) fn version_in(self, engine: Engine) -> String {
        let file = self.file(engine, "version");
        let text = std::fs::read_to_string(&file);
        text.unwrap_or_else(|e| panic!("{}: {e}", file.display())).trim().to_owned()
    }

    /// A file of this kernel in the cache.
    pub(super) fn file(self, engine: Engine, name: &str) -> PathBuf {
        let (dir, setup) = match engine {
            Engine::Uml => ("uml", "tools/setup-uml"),
            Engine::Qemu => (".", "tools/setup-vm"),
        };
        let file = cache().join(dir).join(self.name()).join(name);
        assert!(file.exists(), "{} is missing: run {setup} {}", file.display(), self.name());
        file
    }
}

/// The program that runs a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// User Mode Linux: the kernel as a process of the host, at the speed of the host.
    Uml,
    /// qemu, which emulates a machine, and can use the host's virtualisation.
    Qemu,
}

impl Engine {
    /// The engine of a kernel by the environment variable `UXFS_VM`: `uml`, the default, `qemu`, or one for
    /// each kernel, as in `stable:qemu,current:uml`.
    ///
    /// # Panics
    /// If it names another one.
    #[must_use]
    pub fn chosen(kernel: Kernel) -> Self {
        let Ok(text) = std::env::var("UXFS_VM") else { return Self::Uml };
        Self::named(&text, kernel).unwrap_or_else(|| {
            panic!("UXFS_VM={text}: say uml, qemu, or one for each kernel: stable:qemu,current:uml")
        })
    }

    /// The engine of a kernel in a value of `UXFS_VM`.
    fn named(text: &str, kernel: Kernel) -> Option<Self> {
        let own =
            |part: &'_ str| part.strip_prefix(kernel.name())?.strip_prefix(':').map(str::to_owned);
        let name = match text.contains(':') {
            true => text.split(',').find_map(own)?,
            false => text.to_owned(),
        };
        match name.as_str() {
            "uml" => Some(Self::Uml),
            "qemu" => Some(Self::Qemu),
            _ => None,
        }
    }

    /// The engine for an image: the chosen one, but User Mode Linux mounts no volume whose blocks are
    /// larger than a page, so those take qemu.
    pub(super) fn for_image(kernel: Kernel, image: &Path) -> Self {
        let mut head = [0; 8];
        let read = File::open(image).and_then(|mut file| file.read_exact(&mut head));
        let [m0, m1, m2, m3, block_size @ ..] = head;
        let is_xfs = read.is_ok() && [m0, m1, m2, m3] == *b"XFSB";
        match is_xfs && u32::from_be_bytes(block_size) > PAGE {
            true => Self::Qemu,
            false => Self::chosen(kernel),
        }
    }
}

/// Bytes of a page.
const PAGE: u32 = 4096;

#[derive(Debug, Clone)]
pub struct Output {
    /// Everything on the serial console: the kernel's words and the script's standard error.
    pub console: String,
    /// The script's standard output.
    pub stdout: String,
    /// The files in `/out`, by name.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Time limits of a machine that hangs. The longest runs take a quarter of an hour of work.
const HANG_LIMITS: HangLimits =
    HangLimits { idle: Duration::from_secs(300), work: Duration::from_secs(4 * 3600) };

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
    /// Sockets of servers of virtiofs.
    pub(super) shares: Vec<PathBuf>,
    pub(super) disks: Vec<PathBuf>,
    /// The engine, if the machine has a wish.
    pub(super) wanted: Option<Engine>,
    pub(super) hang_limits: HangLimits,
    pub(super) memory_mib: u32,
}

impl Vm {
    /// The most drives that a machine takes: those of User Mode Linux.
    pub const DRIVES_MAX: usize = 16;

    /// A machine with `kernel`, without drives, and nothing to do.
    #[must_use]
    pub fn new(kernel: Kernel) -> Self {
        Self {
            kernel,
            drives: Vec::new(),
            files: Vec::new(),
            script: String::new(),
            shares: Vec::new(),
            disks: Vec::new(),
            wanted: None,
            hang_limits: HANG_LIMITS,
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

    /// Adds a program of this host with the libraries that it needs. The script calls it as
    /// `/job/loaded NAME ARGUMENT...`.
    ///
    /// # Panics
    /// If it is not installed.
    #[must_use]
    pub fn host_program(mut self, path: &str) -> Self {
        const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
        let ldd = Command::new("ldd").arg(path).output().unwrap_or_else(|e| panic!("ldd: {e}"));
        let listed = String::from_utf8_lossy(&ldd.stdout).into_owned();
        let libraries = listed.lines().filter_map(|line| {
            line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned)
        });
        for file in libraries.chain([path.to_owned(), LOADER.to_owned()]) {
            let name = file.rsplit('/').next().unwrap_or_default().to_owned();
            let content = std::fs::read(&file).unwrap_or_else(|e| panic!("{file}: {e}"));
            self = self.file(&name, &content);
        }
        let run = "#!/bin/sh\nname=$1; shift\n\
            exec /job/ld-linux-x86-64.so.2 --library-path /job /job/$name \"$@\"\n";
        self.file("loaded", run.as_bytes())
    }

    /// Adds a file system that a server of virtiofs serves on a socket. The machine mounts it by the name
    /// `uxfs`, or the one that the server gives it under User Mode Linux. Needs [`Kernel::Current`].
    #[must_use]
    pub fn share(mut self, socket: &Path) -> Self {
        self.shares.push(socket.to_path_buf());
        self
    }

    /// Adds a disk that a server of vhost-user serves on a socket, `/dev/vda` in the machine. Needs
    /// [`Kernel::Current`] in User Mode Linux.
    #[must_use]
    pub fn disk(mut self, socket: &Path) -> Self {
        self.disks.push(socket.to_path_buf());
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
    pub fn hang_limits(mut self, limits: HangLimits) -> Self {
        self.hang_limits = limits;
        self
    }

    /// Runs it with this engine, whatever the environment says.
    #[must_use]
    pub fn under(mut self, engine: Engine) -> Self {
        self.wanted = Some(engine);
        self
    }

    /// Sets the memory in MiB. The default is 768.
    #[must_use]
    pub fn memory(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// The engine of this machine.
    pub(super) fn engine(&self) -> Engine {
        if let Some(wanted) = self.wanted {
            return wanted;
        }
        let images = || self.drives.iter().map(|drive| drive.image.as_path());
        if images().any(|image| Engine::for_image(self.kernel, image) == Engine::Qemu) {
            return Engine::Qemu;
        }
        Engine::chosen(self.kernel)
    }

    /// The machine's name in findings.
    pub(super) fn judge(&self) -> String {
        format!("kernel {}", self.kernel.version_in(self.engine()))
    }

    /// The image, if there is only one.
    pub(super) fn only_image(&self) -> Option<&Path> {
        match &self.drives[..] {
            [one] => Some(&one.image),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_has_the_engine_that_is_named_for_it() {
        let both = |text| Kernel::ALL.map(|kernel| Engine::named(text, kernel));
        assert_eq!(both("uml"), [Some(Engine::Uml); 2]);
        assert_eq!(both("qemu"), [Some(Engine::Qemu); 2]);
        assert_eq!(both("stable:qemu,current:uml"), [Some(Engine::Qemu), Some(Engine::Uml)]);
        assert_eq!(both("current:uml"), [None, Some(Engine::Uml)]);
        for wrong in ["", "kvm", "stable:kvm,current:", "stable=qemu"] {
            assert_eq!(both(wrong), [None; 2], "{wrong}");
        }
    }
}
