//! The virtual machine passes sound volumes and reports damage.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use uxfs_oracle::vm::{self, Vm};
use uxfs_oracle::{
    ContentSum, Fields, Finding, HangLimits, Kernel, Kind, both, both_after_old_kernel, checksum,
    db_write, mkfs,
};

const SIZE: u64 = 300 << 20;

fn image(dir: &TempDir, name: &str, options: &[&str]) -> PathBuf {
    let path = dir.path().join(name);
    mkfs(&path, SIZE, options);
    path
}

fn sum(path: &Path) -> u64 {
    checksum(&std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

fn good<T>(result: Result<T, Finding>) -> T {
    result.unwrap_or_else(|finding| panic!("{finding}"))
}

/// Files put there by mkfs.xfs itself are listed as they are, by both kernels, in one boot each,
/// and the images stay as they were.
#[test]
fn kernels_list_the_tree_of_an_image() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::write(&source, b"some words").unwrap();
    let proto = dir.path().join("proto");
    let tree = format!(
        "/none\n0 0\nd--755 0 0\nfile -u-640 7 8 {}\nnode c--600 0 0 4 64\n\
        link l--777 0 0 over/there\nsub d--700 1 2\nfifo p--644 0 0\n$\n$\n",
        source.display()
    );
    std::fs::write(&proto, tree).unwrap();
    let full = image(&dir, "full, with a comma.img", &["-p", proto.to_str().unwrap()]);
    let empty = image(&dir, "empty.img", &["-m", "rmapbt=1"]);
    let before = (sum(&full), sum(&empty));
    let mut all = Vec::new();
    for kernel in Kernel::ALL {
        let mut listings = good(vm::list(kernel, &[&full, &empty]));
        assert_eq!(listings.len(), 2);
        assert_eq!(listings[1].entries.len(), 1);
        all.push(listings.swap_remove(0));
    }
    assert_eq!((sum(&full), sum(&empty)), before, "a listed image was written to");
    let paths: Vec<_> = all[0].entries.iter().map(|entry| entry.path.as_slice()).collect();
    assert_eq!(paths, [&b"/"[..], b"/file", b"/link", b"/node", b"/sub", b"/sub/fifo"]);
    let file = all[0].get(b"/file").unwrap();
    assert_eq!((file.mode, file.uid, file.gid, file.size), (0o4640, 7, 8, 10));
    assert_eq!(file.content, Some(ContentSum::of(b"some words")));
    assert_eq!(all[0].get(b"/node").unwrap().rdev, Some((4, 64)));
    assert_eq!(all[0].get(b"/sub/fifo").unwrap().kind, Kind::Fifo);
    all[0].assert_same(&all[1], Fields::ALL - Fields::SPACE);
}

/// Rounds of aging: xfsprogs find no damage, and the other kernel lists the same tree.
#[test]
fn kernels_age_an_image_in_turns() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, "turns.img", &["-m", "rmapbt=1,reflink=1", "-i", "sparse=1"]);
    let mut entries = 1;
    for (seed, kernel) in [(1, Kernel::Stable), (2, Kernel::Current)] {
        let aged = good(vm::age(kernel, &path, seed, 300));
        assert!(aged.entries.len() > entries, "seed {seed} added nothing");
        entries = aged.entries.len().min(50);
        good(both_after_old_kernel(&path));
        let other = if kernel == Kernel::Stable { Kernel::Current } else { Kernel::Stable };
        let listed = good(vm::list(other, &[&path])).remove(0);
        aged.assert_same(&listed, Fields::ALL - Fields::SPACE);
    }
}

/// A dirty log is recovered inside the machine, without a change to the image.
#[test]
fn a_dirty_log_is_recovered_to_list() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, "dirty.img", &[]);
    let script =
        "mount -t xfs /drive/0 /mnt && echo words >/mnt/file && sync && echo still mounted";
    let output = good(Vm::new(Kernel::Stable).drive(&path, true).script(script).run());
    assert_eq!(output.stdout, "still mounted\n");
    let finding = both(&path).unwrap_err();
    assert!(finding.says("log"), "{finding}");
    let before = sum(&path);
    let listing = good(vm::list(Kernel::Stable, &[&path])).remove(0);
    assert_eq!(listing.get(b"/file").unwrap().content, Some(ContentSum::of(b"words\n")));
    assert_eq!(sum(&path), before);
}

#[test]
fn a_broken_image_is_a_finding_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let sound = image(&dir, "sound.img", &[]);
    let root = image(&dir, "root.img", &[]);
    db_write(&root, &["sb 0", "addr rootino", "write -c core.uid 5"]);
    let finding = vm::list(Kernel::Stable, &[&sound, &root]).unwrap_err();
    assert_eq!(finding.image.as_deref(), Some(root.as_path()), "{finding}");
    assert!(finding.says("orruption"), "{finding}");
    assert!(finding.says("listing drive 1"), "{finding}");

    let agf = image(&dir, "agf.img", &[]);
    for ag in 0..4 {
        db_write(&agf, &[&format!("agf {ag}"), "write -c freeblks 5"]);
    }
    let finding = vm::age(Kernel::Stable, &agf, 1, 10).unwrap_err();
    assert!(finding.says("agf"), "{finding}");
    assert!(finding.to_string().contains("agf.img"), "{finding}");
}

#[test]
fn failures_of_the_machine_are_findings() {
    let run = |script: &str| Vm::new(Kernel::Stable).script(script).run().unwrap_err();
    let finding = run("echo some words >&2\nexit 3\n");
    assert!(finding.says("status 3") && finding.says("some words"), "{finding}");
    let finding = run("echo c >/proc/sysrq-trigger\n");
    assert!(finding.says("Kernel panic"), "{finding}");
    let finding = run("poweroff -f\n");
    assert!(finding.says("before the script ended"), "{finding}");
}

/// Both kinds of hang, with low limits. Booting is work, however long it takes.
#[test]
fn a_machine_that_hangs_is_killed() {
    let run = |script: &str, idle, work| {
        let [idle, work] = [idle, work].map(Duration::from_secs);
        let vm = Vm::new(Kernel::Stable).script(script).hang_limits(HangLimits { idle, work });
        vm.run().unwrap_err()
    };
    let finding = run("step asleep\nsleep 36000\n", 10, 36000);
    assert!(finding.says("it hangs: idle for") && finding.says("asleep"), "{finding}");
    let finding = run("step at work\nwhile :; do :; done\n", 36000, 20);
    assert!(finding.says("it hangs: no end after") && finding.says("at work"), "{finding}");
}

/// A busy host looks like a hang to the kernel. Its watchdogs are off; those that it
/// may have are switched off on its command line.
#[test]
fn the_watchdogs_of_the_kernel_are_off() {
    for kernel in Kernel::ALL {
        let script = "show() { [ ! -e $1 ] || echo $1 $(cat $1); }\n\
            cd /proc/sys/kernel\n\
            for of in watchdog soft_watchdog nmi_watchdog hung_task_timeout_secs; do show $of; done\n\
            cd /sys/module\nshow workqueue/parameters/watchdog_thresh\n\
            show rcupdate/parameters/rcu_cpu_stall_suppress\ncat /proc/cmdline\n";
        let output = good(Vm::new(kernel).script(script).run()).stdout;
        let (shown, options) = output.trim_end().rsplit_once('\n').unwrap_or(("", &output));
        for line in shown.lines() {
            let off = if line.contains("suppress") { "1" } else { "0" };
            let value = line.split_once(' ').map(|(_, value)| value);
            assert_eq!(value, Some(off), "{kernel:?}: {output}");
        }
        for option in [
            "nowatchdog",
            "nosoftlockup",
            "rcupdate.rcu_cpu_stall_suppress=1",
            "workqueue.watchdog_thresh=0",
            "sysctl.kernel.hung_task_timeout_secs=0",
        ] {
            assert!(options.contains(option), "{kernel:?}: {output}");
        }
    }
}
