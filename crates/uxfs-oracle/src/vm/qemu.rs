//! Starts qemu, waits for it, and takes its words apart.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::initramfs;
use super::machine::{Drive, Engine, Kernel, Vm};
use crate::hang::what_waits;
use crate::{HangLimits, program};

/// Options for the kernel, beside those of all engines; most save time under emulation.
const OPTIONS: &str = "console=ttyS0 random.trust_cpu=on \
    mitigations=off cryptomgr.notests no_timer_check";
/// Room for what comes out, in bytes; the file is sparse.
const OUT_SIZE: u64 = 2 << 30;
/// The drives' first slot on the bus; the ones before it are the machine's own.
const SLOT_FIRST: usize = 4;

/// Kills qemu when the run is over, however it ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lays out the initramfs and the drive for what comes out.
pub(super) fn prepare(vm: &Vm, dir: &Path) -> io::Result<()> {
    fs::write(dir.join("initramfs"), initramfs::build(vm, Engine::Qemu, &[])?)?;
    File::create(dir.join("out"))?.set_len(OUT_SIZE)
}

/// Runs qemu to its end; says why if it hangs, or that was not a good one.
pub(super) fn wait(vm: &Vm, dir: &Path, accel: &str) -> io::Result<Option<String>> {
    let log = File::create(dir.join("qemu"))?;
    let mut command = command(vm, dir, accel);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut running = Running(command.spawn()?);
    let console = dir.join("console");
    let said = || fs::metadata(&console).map_or(0, |file| file.len());
    match vm.hang_limits.wait(&mut running.0, said)? {
        Ok(status) => {
            let words = fs::read_to_string(dir.join("qemu"))?;
            Ok((!status.success()).then(|| format!("qemu: {status}: {words}")))
        }
        Err(hang) => Ok(Some(format!("{hang}: stopped{}", what_waits(running.0.id())))),
    }
}

fn command(vm: &Vm, dir: &Path, accel: &str) -> Command {
    let mut command = Command::new(program("qemu-system-x86_64", "qemu-system-x86"));
    command
        .env("TMPDIR", dir)
        .args(["-machine", "q35", "-cpu", "max", "-accel", accel])
        .args(["-m", &vm.memory_mib.to_string()])
        .args(["-nodefaults", "-display", "none", "-monitor", "none", "-no-reboot"])
        .args(["-append", &format!("{OPTIONS} {}", super::KERNEL_OPTIONS)])
        .arg("-kernel")
        .arg(vm.kernel.file(Engine::Qemu, "kernel"))
        .arg("-initrd")
        .arg(dir.join("initramfs"))
        .arg("-serial")
        .arg(with_path("file:", &dir.join("console")));
    let out = Drive { image: dir.join("out"), writable: true };
    for (number, drive) in vm.drives.iter().chain([&out]).enumerate() {
        let serial = if number == vm.drives.len() { "out".to_owned() } else { number.to_string() };
        // Nothing here has to survive the host's crash, so no flush need reach its disk.
        let mut options = format!(
            "id=d{number},if=none,format=raw,cache=unsafe,discard=unmap,file.locking=off,snapshot={}",
            if drive.writable { "off" } else { "on" }
        );
        options.push_str(",file=");
        command.arg("-drive").arg(with_path(&options, &drive.image)).arg("-device").arg(format!(
            "virtio-blk-pci,drive=d{number},serial={serial},multifunction=on,addr={:x}.{}",
            SLOT_FIRST + number / 8,
            number % 8
        ));
    }
    if !vm.shares.is_empty() || !vm.disks.is_empty() {
        // The server maps the machine's memory.
        let memory = format!("memory-backend-memfd,id=memory,share=on,size={}M", vm.memory_mib);
        command.args(["-object", &memory, "-numa", "node,memdev=memory"]);
    }
    for (number, share) in vm.shares.iter().enumerate() {
        let socket = with_path(&format!("socket,id=s{number},path="), share);
        let device = format!("vhost-user-fs-pci,chardev=s{number},tag=uxfs");
        command.arg("-chardev").arg(socket).args(["-device", &device]);
    }
    for (number, disk) in vm.disks.iter().enumerate() {
        let socket = with_path(&format!("socket,id=v{number},path="), disk);
        let device = format!("vhost-user-blk-pci,chardev=v{number}");
        command.arg("-chardev").arg(socket).args(["-device", &device]);
    }
    command
}

/// `options` with a path at their end; in options, a comma is doubled.
fn with_path(options: &str, path: &Path) -> OsString {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let path = path.to_str().unwrap_or_else(|| panic!("{}: not UTF-8", path.display()));
    format!("{options}{}", path.replace(',', ",,")).into()
}

/// How qemu is to run the machine's code.
pub(super) fn accel() -> &'static str {
    static ACCEL: OnceLock<&'static str> = OnceLock::new();
    ACCEL.get_or_init(|| match std::env::var("UXFS_VM_ACCEL").as_deref() {
        Err(_) | Ok("tcg") => "tcg",
        Ok("kvm") => "kvm",
        Ok("probe") => probe(),
        Ok(other) => panic!("UXFS_VM_ACCEL={other}: say tcg, kvm or probe"),
    })
}

/// Virtualisation where a machine comes up with it: on some hosts it hangs at boot. One that comes up
/// works for a few seconds.
fn probe() -> &'static str {
    let limits = HangLimits { idle: Duration::from_secs(20), work: Duration::from_secs(60) };
    let boots = || {
        let vm = Vm::new(Kernel::Stable).script("true\n").hang_limits(limits);
        vm.run_with(prepare, |vm, dir| wait(vm, dir, "kvm")).is_ok()
    };
    if Path::new("/dev/kvm").exists() && boots() { "kvm" } else { "tcg" }
}
