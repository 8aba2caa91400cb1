//! QEMU: a kernel as distributions build it, without root, for hosts whose processor User Mode Linux does not know
//! and for kernels that it does not run.
//!
//! 1. The kernel is Debian's, from the cache of tools/setup-vm, with an initramfs that loads its modules and
//!    changes into the root of the host.
//! 2. That root is shared over 9P, read-only, so the programs of the host run in the machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::machine::{Start, cache};

const PROGRAM: &str = "qemu-system-x86_64";
/// The files of a kernel's directory.
const KERNEL: &str = "kernel";
const INITRAMFS: &str = "base.cpio";
/// The memory of a machine, in MiB. The host gives it when it is used.
const MEMORY: u32 = 512;
/// Options for the kernel; most save time under emulation. Its watchdogs are off: a machine that gets no processor for
/// a while is no finding.
const OPTIONS: &str = "console=ttyS0 quiet panic=-1 oops=panic random.trust_cpu=on mitigations=off \
                       cryptomgr.notests no_timer_check nowatchdog nosoftlockup \
                       rcupdate.rcu_cpu_stall_suppress=1 workqueue.watchdog_thresh=0";

/// What to do when no kernel comes up.
pub(crate) const ADVICE: &str = "`tools/setup-vm crash-test` in uxfs' sources fetches a kernel for QEMU (package qemu-system-x86), \
                                 and UXFS_QEMU names the directory of another";

/// Directories of kernels that may be on this host, the best first.
pub(crate) fn kernels() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os("UXFS_QEMU") {
        return vec![named.into()];
    }
    let known = cache().map(|cache| cache.join("crash-test"));
    known.into_iter().filter(|dir| dir.join(INITRAMFS).exists()).collect()
}

/// Adds the words that start a kernel.
pub(crate) fn add(command: &mut Command, kernel: &Path, start: &Start<'_>) {
    let accel = std::env::var("UXFS_VM_ACCEL").unwrap_or_else(|_| "tcg".into());
    // The servers of the disks map the machine's memory.
    let memory = format!("memory-backend-memfd,id=memory,share=on,size={MEMORY}M");
    command.arg(PROGRAM);
    command.args(["-machine", "q35,memory-backend=memory", "-object", &memory]);
    command.args(["-m", &MEMORY.to_string(), "-cpu", "max", "-accel", &accel]);
    command.args(["-nodefaults", "-display", "none", "-monitor", "none", "-no-reboot"]);
    command.args(["-serial", "stdio"]);
    command.args([
        "-virtfs",
        "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap",
    ]);
    command.arg("-kernel").arg(kernel.join(KERNEL)).arg("-initrd").arg(kernel.join(INITRAMFS));
    // What the kernel does not know is the environment of the initramfs' first program.
    let mut words = OsString::from(OPTIONS);
    words.push(" uxfs_init=");
    words.push(start.init);
    debug_assert!(start.arguments.len() <= 1, "the initramfs passes one argument on");
    if let Some(argument) = start.arguments.first() {
        words.push(" uxfs_argument=");
        words.push(argument);
    }
    command.arg("-append").arg(words);
    for (number, socket) in start.disks.iter().enumerate() {
        let mut disk = OsString::from(format!("socket,id=disk{number},path="));
        disk.push(socket);
        command.arg("-chardev").arg(disk);
        command.args(["-device", &format!("vhost-user-blk-pci,chardev=disk{number}")]);
    }
}
