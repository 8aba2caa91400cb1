//! Starts qemu, waits for it, and takes its words apart.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::archive::{cpio, untar};
use super::console::{self, DONE};
use super::guest;
use super::machine::{Drive, Kernel, Output, Vm};
use crate::{Finding, Patience, program};

/// First process inside.
const INIT: &[u8] = include_bytes!("../../guest/init");
/// What every script can call.
const PRELUDE: &str = "step() { echo \"uxfs-step $*\" >&2; }\n";
/// For the kernel. The second line saves time under emulation. The others switch watchdogs off, to which a
/// machine that gets no processor for a while looks like one that hangs.
const CMDLINE: &str = "console=ttyS0 quiet panic=-1 oops=panic random.trust_cpu=on \
    mitigations=off cryptomgr.notests no_timer_check \
    nowatchdog nosoftlockup rcupdate.rcu_cpu_stall_suppress=1 workqueue.watchdog_thresh=0 \
    sysctl.kernel.hung_task_timeout_secs=0";
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

pub(super) fn run(vm: &Vm) -> Result<Output, Finding> {
    run_with(vm, accel())
}

fn run_with(vm: &Vm, accel: &str) -> Result<Output, Finding> {
    for drive in &vm.drives {
        assert!(drive.image.exists(), "{} is missing", drive.image.display());
    }
    let dir = tempfile::tempdir().unwrap_or_else(|e| panic!("temporary directory: {e}"));
    let prepared = prepare(vm, dir.path()).and_then(|()| wait(vm, dir.path(), accel));
    let why = prepared.unwrap_or_else(|e| panic!("the test machine: {e}"));
    let console = fs::read(dir.path().join("console")).unwrap_or_default();
    let console = String::from_utf8_lossy(&console).into_owned();
    output(vm, dir.path(), console, why)
}

/// Lays out the initramfs and the drive for what comes out.
fn prepare(vm: &Vm, dir: &Path) -> io::Result<()> {
    let programs = guest::programs();
    let mut files = vec![("init".to_owned(), INIT.to_vec())];
    for name in guest::PROGRAMS {
        files.push((format!("job/{name}"), fs::read(programs.join(name))?));
    }
    files.push(("job/run".to_owned(), format!("{PRELUDE}{}", vm.script).into_bytes()));
    files.extend(vm.files.iter().map(|(name, bytes)| (format!("job/{name}"), bytes.clone())));
    let views: Vec<_> =
        files.iter().map(|(path, bytes)| (path.clone(), bytes.as_slice())).collect();
    let mut initramfs = fs::read(vm.kernel.file("base.cpio"))?;
    initramfs.extend(cpio(&views));
    fs::write(dir.join("initramfs"), initramfs)?;
    File::create(dir.join("out"))?.set_len(OUT_SIZE)
}

/// Runs qemu to its end; says why if it hangs, or that was not a good one.
fn wait(vm: &Vm, dir: &Path, accel: &str) -> io::Result<Option<String>> {
    let log = File::create(dir.join("qemu"))?;
    let mut command = command(vm, dir, accel);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut running = Running(command.spawn()?);
    let console = dir.join("console");
    let said = || fs::metadata(&console).map_or(0, |file| file.len());
    match vm.patience.wait(&mut running.0, said)? {
        Ok(status) => {
            let words = fs::read_to_string(dir.join("qemu"))?;
            Ok((!status.success()).then(|| format!("qemu: {status}: {words}")))
        }
        Err(hang) => Ok(Some(format!("{hang}: stopped"))),
    }
}

fn command(vm: &Vm, dir: &Path, accel: &str) -> Command {
    let mut command = Command::new(program("qemu-system-x86_64", "qemu-system-x86"));
    command
        .env("TMPDIR", dir)
        .args(["-machine", "q35", "-cpu", "max", "-accel", accel])
        .args(["-m", &vm.memory_mib.to_string()])
        .args(["-nodefaults", "-display", "none", "-monitor", "none", "-no-reboot"])
        .args(["-append", CMDLINE])
        .arg("-kernel")
        .arg(vm.kernel.file("kernel"))
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
    command
}

/// `options` with a path at their end; in options, a comma is doubled.
fn with_path(options: &str, path: &Path) -> OsString {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let path = path.to_str().unwrap_or_else(|| panic!("{}: not UTF-8", path.display()));
    format!("{options}{}", path.replace(',', ",,")).into()
}

/// Judges a run that has ended.
fn output(vm: &Vm, dir: &Path, console: String, why: Option<String>) -> Result<Output, Finding> {
    let complain = |why: Option<String>| Err(console::finding(vm, why, &console));
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
    let mut text =
        |name: &str| String::from_utf8_lossy(&files.remove(name).unwrap_or_default()).into_owned();
    let status = text(".status");
    let stdout = text(".stdout");
    if status.trim() != "0" {
        return complain(Some(format!("the script ended with status {}", status.trim())));
    }
    Ok(Output { console, stdout, files })
}

/// How qemu is to run the machine's code.
fn accel() -> &'static str {
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
    let patience = Patience { idle: Duration::from_secs(20), work: Duration::from_secs(60) };
    let boots = || {
        let vm = Vm::new(Kernel::Stable).script("true\n").patience(patience);
        run_with(&vm, "kvm").is_ok()
    };
    if Path::new("/dev/kvm").exists() && boots() { "kvm" } else { "tcg" }
}
