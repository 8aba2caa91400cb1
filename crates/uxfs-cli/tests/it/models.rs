//! `uxfs disk serve` and `uxfs disk power`, with qemu-io and a kernel as clients.

use std::os::unix::net::UnixStream;

use uxfs_oracle::Kernel;
use uxfs_oracle::vm::{Engine, Vm};

use crate::fixture::Fixture;
use crate::mount_ends::until;
use crate::nbd::Process;

const NBD: &str = "nbd+unix:///?socket=nbd.sock";

/// Serves a disk with these options.
fn served(fixture: &Fixture, options: &[&str]) -> Process {
    let args = [&["disk", "serve", "--no-delay", "--control", "power.sock"], options].concat();
    let process = Process::start(fixture, env!("CARGO_BIN_EXE_uxfs"), &args);
    let ready =
        || std::fs::read_to_string(fixture.path("said")).is_ok_and(|said| said.contains("ready"));
    until("ready", ready);
    process
}

fn power(fixture: &Fixture, order: &[&str]) -> String {
    fixture.uxfs(&[&["disk", "power", "power.sock"], order].concat()).good()
}

/// Runs commands of qemu-io, with a cache that leaves flushes to the commands.
fn qemu_io(fixture: &Fixture, commands: &[&str]) -> String {
    let mut args = vec!["qemu-io", "-f", "raw", "-t", "writeback"];
    for command in commands {
        args.extend(["-c", command]);
    }
    args.push(NBD);
    fixture.run(&args).good()
}

#[test]
fn what_was_flushed_outlives_the_power_and_the_rest_need_not() {
    let fixture = Fixture::new();
    let server = served(&fixture, &["nvme", "--size", "64M", "--nbd", "nbd.sock"]);
    qemu_io(&fixture, &["write -P 1 0 64k", "flush"]);
    // Closing flushes too, so the power goes while the client sleeps.
    let client =
        ["-f", "raw", "-t", "writeback", "-c", "write -P 2 0 64k", "-c", "sleep 600000", NBD];
    let mut lost = 0;
    for seed in ["1", "2", "3", "4", "5", "6"] {
        let client = Process::start(&fixture, "qemu-io", &client);
        until("written", || power(&fixture, &["status"]).contains("65536 bytes"));
        power(&fixture, &["off", "--seed", seed]);
        client.kill();
        assert!(power(&fixture, &["status"]).contains("power off"), "seed {seed}");
        let refused = fixture.run(&["qemu-io", "-f", "raw", "-c", "read 0 512", NBD]);
        assert!(refused.out.contains("rror") || refused.err.contains("rror"), "{refused:?}");
        assert_eq!(power(&fixture, &["on"]), "power on\n");
        let kept = fixture.run(&["qemu-io", "-f", "raw", "-c", "read -P 1 0 64k", NBD]);
        lost += u32::from(!kept.out.contains("Pattern verification failed"));
        qemu_io(&fixture, &["write -P 1 0 64k", "flush"]);
    }
    assert!((1..6).contains(&lost), "of six writes {lost} were lost");
    assert_eq!(server.terminate(), Some(0));
    for socket in ["nbd.sock", "power.sock"] {
        assert!(!fixture.path(socket).exists(), "{socket}");
    }
}

#[test]
fn a_volume_on_a_disk_whose_power_fails_recovers() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir mnt");
    let server = served(&fixture, &["hdd-7200", "--image", "a.img", "--nbd", "nbd.sock"]);
    fixture.uxfs(&["mount", NBD, "mnt"]).good();
    fixture.sh("echo kept >mnt/kept; sync mnt/kept; echo more >mnt/more");
    power(&fixture, &["off", "--seed", "7"]);
    let failed = fixture.bash("echo lost >mnt/lost && sync mnt/lost");
    assert!(failed.code != 0, "{failed:?}");
    fixture.run(&["umount", "-l", "mnt"]);
    power(&fixture, &["on"]);
    until("the volume is free", || fixture.uxfs(&["log", "status", NBD]).code == 0);
    assert_eq!(fixture.uxfs(&["cat", &format!("{NBD}:/kept")]).good(), "kept\n");
    fixture.uxfs(&["log", "quiesce", NBD]).good();
    assert_eq!(server.terminate(), Some(0));
    fixture.check("a.img");
}

#[test]
fn a_kernel_uses_it_as_its_disk() {
    let fixture = Fixture::with_image(&[]);
    let server = served(&fixture, &["ssd-2015", "--image", "a.img", "--vhost-user", "disk.sock"]);
    until("listening", || UnixStream::connect(fixture.path("disk.sock")).is_ok());
    let script =
        "set -e\nmount -t xfs /dev/vda /mnt\nseq 1 5000 >/mnt/numbers\nsync\numount /mnt\n";
    let vm = Vm::new(Kernel::Current).under(Engine::chosen(Kernel::Current));
    let ran = vm.disk(&fixture.path("disk.sock")).script(script).run();
    ran.unwrap_or_else(|finding| panic!("{finding}"));
    let status = power(&fixture, &["status", "--json"]);
    assert!(status.contains("\"power\":\"on\""), "{status}");
    assert_eq!(server.terminate(), Some(0));
    let numbers: String = (1..=5000).map(|number| format!("{number}\n")).collect();
    assert_eq!(fixture.uxfs(&["cat", "a.img:/numbers"]).good(), numbers);
    fixture.check("a.img");
}

#[test]
fn mistakes_are_named() {
    let fixture = Fixture::new();
    let bad = |args: &[&str]| fixture.uxfs(&[&["disk"], args].concat()).err;
    assert!(bad(&["serve", "nvmee", "--size", "1M", "--nbd", "s"]).contains("hdd-7200"));
    fixture.sh("echo x >wrong.toml");
    assert!(bad(&["serve", "wrong.toml", "--size", "1M", "--nbd", "s"]).contains("wrong.toml"));
    let fault = ["serve", "nvme", "--size", "1M", "--nbd", "s", "--fault", "torn"];
    assert!(bad(&fault).contains("write-torn"));
    assert!(bad(&["serve", "nvme", "--size", "1M"]).contains("--vhost-user"));
    assert!(bad(&["power", "none.sock", "on"]).contains("none.sock"));
}
