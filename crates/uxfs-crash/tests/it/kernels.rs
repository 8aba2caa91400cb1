//! Kernels recover volumes that uxfs was writing when the power failed. Each kernel mounts many states
//! per boot, which replays their logs. The result must match a moment of the history and pass
//! xfs_repair, and the kernel and uxfs must list the same tree.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs::{Fs, OpenOptions};
use uxfs_crash::State;
use uxfs_disk::{FileDev, OpenMode};
use uxfs_oracle::vm::Vm;
use uxfs_oracle::{Fields, Kernel, Listing};

use crate::{listing, put, setting};

const PER_WORKLOAD: u64 = 6;
/// Images of one boot: the states of two workloads.
const PER_BOOT: usize = 12;
const _: () = assert!(PER_BOOT <= Vm::DRIVES_MAX && (PER_BOOT as u64).is_multiple_of(PER_WORKLOAD));

/// A state that a kernel recovers.
struct Subject {
    /// The options that repeat it.
    name: String,
    path: PathBuf,
    newest: bool,
    quotas: bool,
    state: State,
}

/// `count` states of volumes that the kernel supports, from `seed` on.
fn subjects(kernel: Kernel, dir: &Path, seed: u64, count: u64) -> Vec<Subject> {
    let newest = |seed: u64| State::volume(seed).contains("parent=1");
    let supported = |seed: &u64| kernel == Kernel::Current || !newest(*seed);
    let mut all = Vec::new();
    for seed in (seed..).filter(supported).take(count.div_ceil(PER_WORKLOAD) as usize) {
        // Every second workload runs in ordered mode, unless `UXFS_ORDERED` says all (1) or none (0).
        let ordered = match setting("UXFS_ORDERED", 2) {
            2 => seed % 2 == 1,
            all => all == 1,
        };
        let states = State::of(seed, PER_WORKLOAD, ordered);
        let states = states.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        for (number, state) in states.into_iter().enumerate() {
            let mode = if ordered { "--sync ordered " } else { "" };
            let volume = State::volume(seed);
            let name = format!("{mode}--seed {seed} --state {number} ({volume})");
            let path = dir.join(format!("{seed}-{number}.img"));
            put(state.disk(), &path);
            let quotas = State::accounts_quotas(seed);
            all.push(Subject { name, path, newest: newest(seed), quotas, state });
        }
    }
    all
}

/// The kernel recovers the states and lists their trees.
fn recover(kernel: Kernel, subjects: &[Subject]) -> Vec<Listing> {
    let mut vm = Vm::new(kernel).memory(1024);
    let mut script = "set -e\n".to_owned();
    for (number, subject) in subjects.iter().enumerate() {
        vm = vm.drive(&subject.path, true);
        let quotas = if subject.quotas { "-o uquota,gquota,pquota" } else { "" };
        writeln!(
            script,
            "step recovering '{}'\nmount -t xfs {quotas} /drive/{number} /mnt\numount /mnt\n\
             mount -t xfs -o ro /drive/{number} /mnt\nuxfs-lister /mnt >/out/{number}\numount /mnt",
            subject.name
        )
        .unwrap();
    }
    let output = vm.script(&script).run().unwrap_or_else(|f| panic!("{f}"));
    let listing = |number: usize| {
        let text = String::from_utf8_lossy(&output.files[&number.to_string()]).into_owned();
        listing::without_raw_lists(text.parse().unwrap_or_else(|e| panic!("{number}: {e}")))
    };
    (0..subjects.len()).map(listing).collect()
}

/// Checks the result of the kernel's recovery.
fn check(subject: &Subject, theirs: &Listing) -> Result<(), String> {
    let dev = FileDev::open(&subject.path, OpenMode::Read).map_err(|e| e.to_string())?;
    let fs = Fs::open(Arc::new(dev), OpenOptions::read_only()).map_err(|e| e.to_string())?;
    if fs.recovery().is_some() {
        return Err("the kernel left its log dirty".into());
    }
    subject.state.compare(&fs)?;
    let all = Fields::ALL.difference(Fields::SPACE);
    if let Some(first) = listing::list(&fs).differences(theirs, all).first() {
        return Err(format!("uxfs and the kernel list different trees: {first}"));
    }
    let checked = match subject.newest {
        true => uxfs_oracle::Xfsprogs::Current.repair(&subject.path),
        false => uxfs_oracle::both_after_old_kernel(&subject.path),
    };
    checked.map_err(|finding| finding.to_string())
}

fn kernel_recovers(kernel: Kernel) {
    let (seed, count) = (setting("UXFS_SEED", 0), setting("UXFS_COUNT", 60));
    let dir = tempfile::tempdir().unwrap();
    let mut failures = Vec::new();
    let mut at = seed;
    let mut left = count;
    while left > 0 {
        let some = left.min(PER_BOOT as u64);
        let subjects = subjects(kernel, dir.path(), at, some);
        let listings = recover(kernel, &subjects);
        for (subject, theirs) in subjects.iter().zip(&listings) {
            if let Err(problem) = check(subject, theirs) {
                failures.push(format!("{}: {problem}", subject.name));
            }
            std::fs::remove_file(&subject.path).unwrap();
        }
        left -= some;
        at += 2 * some.div_ceil(PER_WORKLOAD);
    }
    let what = kernel.version();
    assert!(failures.is_empty(), "kernel {what}: {}\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn stable_kernel_recovers_volumes_of_uxfs() {
    kernel_recovers(Kernel::Stable);
}

#[test]
fn current_kernel_recovers_volumes_of_uxfs() {
    kernel_recovers(Kernel::Current);
}
