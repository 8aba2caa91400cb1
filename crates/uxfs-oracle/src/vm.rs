//! Real kernels in a throw-away virtual machine: no root, no risk to the host.
//!
//! 1. A drive that is not writable is left as it was, whatever the kernel does to it (log
//!    recovery included): its changes go to a temporary overlay.
//! 2. A run passes only if the script ended with status 0, the machine powered itself off, and the kernel complained of nothing on the console.
//! 3. The machine never outlives its run, also when the test panics.
//! 4. No run depends on how fast the machine is: only a hang ends one ([`crate::HangLimits`]), and the kernel's own
//!    watchdogs, which go by the clock, are off.
//!
//! Inside, a script run by busybox' `sh` finds its drives as `/drive/0`, `/drive/1`, … in the order
//! in which they were given, an empty directory `/mnt` to mount on, the programs `uxfs-lister`,
//! `uxfs-ager` and `uxfs-storm`, and a directory `/out` whose files come back in [`Output::files`].
//!
//! [`list`], [`age`], [`age_all`] and [`crash`] are all that most tests need. Machines run under User Mode
//! Linux, set up by `tools/setup-uml`. With `UXFS_VM=qemu` they run in qemu with the distribution's own
//! kernels, set up by `tools/setup-vm`; `UXFS_VM=stable:qemu,current:uml` chooses for each. In qemu `UXFS_VM_ACCEL=kvm` uses the host's virtualisation, and
//! `probe` only where it works; the default is `tcg`, plain emulation, which works everywhere.

mod archive;
mod console;
mod guest;
mod initramfs;
mod judge;
mod machine;
mod qemu;
mod uml;

use std::fs;
use std::io;
use std::path::Path;

use archive::untar;
use console::DONE;

use crate::Finding;

pub use judge::{Crash, POWER_CUT, age, age_all, crash, list};
pub use machine::{Engine, Kernel, Output, Vm};

/// Options for every kernel: the watchdogs are off, to which a machine that gets no processor for a while
/// looks like one that hangs.
const KERNEL_OPTIONS: &str = "quiet panic=-1 oops=panic \
    nowatchdog nosoftlockup rcupdate.rcu_cpu_stall_suppress=1 workqueue.watchdog_thresh=0 \
    sysctl.kernel.hung_task_timeout_secs=0";

impl Vm {
    /// Runs the machine.
    ///
    /// # Errors
    /// The kernel complained, the script failed, or the machine hung.
    ///
    /// # Panics
    /// When the kernels or qemu are missing, or a drive's image.
    pub fn run(self) -> Result<Output, Finding> {
        match self.engine() {
            Engine::Uml => self.run_with(uml::prepare, uml::wait),
            Engine::Qemu => {
                self.run_with(qemu::prepare, |vm, dir| qemu::wait(vm, dir, qemu::accel()))
            }
        }
    }

    /// Runs the machine with these steps of an engine: one lays out the files, the other runs the kernel
    /// to its end, and returns why that was not a good one.
    fn run_with(
        &self,
        prepare: impl FnOnce(&Self, &Path) -> io::Result<()>,
        wait: impl FnOnce(&Self, &Path) -> io::Result<Option<String>>,
    ) -> Result<Output, Finding> {
        for drive in &self.drives {
            assert!(drive.image.exists(), "{} is missing", drive.image.display());
        }
        let dir = tempfile::tempdir().unwrap_or_else(|e| panic!("temporary directory: {e}"));
        let prepared = prepare(self, dir.path()).and_then(|()| wait(self, dir.path()));
        let why = prepared.unwrap_or_else(|e| panic!("the test machine: {e}"));
        let console = fs::read(dir.path().join("console")).unwrap_or_default();
        let console = String::from_utf8_lossy(&console).into_owned();
        self.output(dir.path(), console, why)
    }

    /// Judges a run that has ended.
    fn output(&self, dir: &Path, console: String, why: Option<String>) -> Result<Output, Finding> {
        let complain = |why: Option<String>| Err(console::finding(self, why, &console));
        if why.is_some() {
            return complain(why);
        }
        if !console::alarms(&console).lines.is_empty() {
            return complain(None);
        }
        let tar = fs::read(dir.join("out")).unwrap_or_default();
        let files = untar(&tar).filter(|_| console.contains(DONE));
        let Some(mut files) = files else {
            return complain(Some("the machine stopped before the script ended".to_owned()));
        };
        let mut text = |name: &str| {
            String::from_utf8_lossy(&files.remove(name).unwrap_or_default()).into_owned()
        };
        let status = text(".status");
        let stdout = text(".stdout");
        if status.trim() != "0" {
            return complain(Some(format!("the script ended with status {}", status.trim())));
        }
        Ok(Output { console, stdout, files })
    }
}
