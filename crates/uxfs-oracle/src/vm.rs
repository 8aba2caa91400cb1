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
mod machine;
mod qemu;

use crate::Finding;

pub use judge::{Crash, age, age_all, crash, list};
pub use machine::{Kernel, Output, Vm};

impl Vm {
    /// Runs the machine.
    ///
    /// # Errors
    /// The kernel complained, the script failed, or the machine hung.
    ///
    /// # Panics
    /// When qemu or the kernels are missing, or a drive's image.
    pub fn run(self) -> Result<Output, Finding> {
        qemu::run(&self)
    }
}
