//! Runs the machine under User Mode Linux: the kernel is a process of the host, and runs programs at the
//! speed of the host.
//!
//! 1. The kernel and all its processes are one process group, which is killed when the run is over.
//! 2. A drive that is not writable has a copy-on-write file before it. Drives are given by links in the
//!    run's directory, because the kernel's options cannot hold every path.
//! 3. The process's exit status counts until the kernel has halted. After that it has nothing left to do
//!    but exit, and sometimes it aborts instead.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use super::initramfs;
use super::machine::{Engine, Vm};
use crate::hang::what_waits;

/// Options for the kernel, beside those of all engines.
const OPTIONS: [&str; 3] = ["noreboot", "con=null", "con0=null,fd:1"];

/// Kills the process group when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if everything has ended already.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// The name of a drive in the kernel.
fn device(number: usize) -> String {
    format!("ubd{}", char::from(b'a' + number as u8))
}

/// Lays out the initramfs.
pub(super) fn prepare(vm: &Vm, dir: &Path) -> io::Result<()> {
    let drives: String =
        (0..vm.drives.len()).map(|number| format!("{} {number}\n", device(number))).collect();
    let host = dir.to_str().ok_or_else(|| io::Error::other("a directory that is not UTF-8"))?;
    let own = [("drives".to_owned(), drives.into_bytes()), ("host".to_owned(), host.into())];
    File::create(dir.join("out"))?;
    fs::write(dir.join("initramfs"), initramfs::build(vm, Engine::Uml, &own)?)
}

/// Runs the kernel to its end. Returns why that was not a good one.
pub(super) fn wait(vm: &Vm, dir: &Path) -> io::Result<Option<String>> {
    let console = dir.join("console");
    let log = File::create(&console)?;
    let mut command = command(vm, dir)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut running = Running(command.process_group(0).spawn()?);
    let written = || fs::metadata(&console).map_or(0, |file| file.len());
    match vm.hang_limits.wait(&mut running.0, written)? {
        Ok(status) if status.success() || super::console::halted(&read_lossy(&console)?) => {
            Ok(None)
        }
        Ok(status) => Ok(Some(format!("the kernel's process: {status}"))),
        Err(hang) => Ok(Some(format!("{hang}: stopped{}", what_waits(running.0.id())))),
    }
}

fn read_lossy(file: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(file)?).into_owned())
}

fn command(vm: &Vm, dir: &Path) -> io::Result<Command> {
    let at = |name: &str| format!("{}/{name}", dir.display());
    let mut command = Command::new(vm.kernel.file(Engine::Uml, "kernel"));
    // It looks for a directory in memory by itself.
    command.env_remove("TMPDIR").env_remove("TMP").env_remove("TEMP");
    command
        .arg(format!("mem={}M", vm.memory_mib))
        .arg(format!("initrd={}", at("initramfs")))
        .arg(format!("uml_dir={}/", at("uml")))
        .args(OPTIONS)
        .args(super::KERNEL_OPTIONS.split_whitespace());
    for (number, drive) in vm.drives.iter().enumerate() {
        let link = dir.join(format!("drive{number}"));
        symlink(std::path::absolute(&drive.image)?, &link)?;
        let file = match drive.writable {
            true => at(&format!("drive{number}")),
            false => {
                format!("{},{}", at(&format!("overlay{number}")), at(&format!("drive{number}")))
            }
        };
        // c: the image may be open in the test, which holds a lock.
        command.arg(format!("{}c={file}", device(number)));
    }
    // The numbers of a disk and of a file system among virtio's devices.
    for (kind, device, sockets) in [("disk", 2, &vm.disks), ("share", 26, &vm.shares)] {
        for (number, socket) in sockets.iter().enumerate() {
            let name = format!("{kind}{number}");
            symlink(std::path::absolute(socket)?, dir.join(&name))?;
            command.arg(format!("virtio_uml.device={}:{device}", at(&name)));
        }
    }
    Ok(command)
}
