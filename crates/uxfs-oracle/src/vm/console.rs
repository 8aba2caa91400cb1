//! Reads the machine's console: what the kernel complained of, and of which image.

use std::path::Path;

use super::machine::Vm;
use crate::Finding;

/// The last line of init.
pub(super) const DONE: &str = "uxfs-done";
/// What the kernel prints when it has stopped: no file system and no drive is in use any more.
const HALTED: &str = "reboot: System halted";
/// What init says of each drive: its name in the kernel, its number here.
const DRIVE: &str = "uxfs-drive ";
/// What a script says with `step`.
const STEP: &str = "uxfs-step ";

/// Words on the console that are a finding, wherever they stand.
const ALARMS: [&str; 14] = [
    "Internal error",
    "orruption",
    "orrupt ",
    "WARNING:",
    "BUG:",
    "kernel BUG",
    "Oops",
    "Kernel panic",
    "general protection",
    "Assertion failed",
    "I/O error",
    "blocked for more than",
    "rcu_sched self-detected stall",
    "Call Trace",
];
/// Words of XFS' own that are a finding. (`failed` covers `log mount failed`.)
const XFS_ALARMS: [&str; 7] =
    ["error", "Error", "failed", "Shutting down", "shut down", "unmount and run", "Invalid"];

/// The machine's words that make a finding, with the drive that they are about where they say so.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Alarms {
    pub(super) lines: Vec<String>,
    pub(super) drive: Option<usize>,
}

/// Whether init came to its end and the kernel stopped after it.
pub(super) fn halted(console: &str) -> bool {
    let end = console.rfind(DONE).map_or("", |at| &console[at..]);
    end.lines().any(|line| line.trim_end_matches('\r').ends_with(HALTED))
}

/// Goes through the console.
pub(super) fn alarms(console: &str) -> Alarms {
    let mut out = Alarms::default();
    let mut names: Vec<(&str, usize)> = Vec::new();
    let mut step = None;
    for line in console.lines().map(|line| line.trim_end_matches('\r')) {
        if let Some(words) = line.strip_prefix(DRIVE) {
            if let Some((name, number)) = words.split_once(' ') {
                names.extend(number.parse().ok().map(|number| (name, number)));
            }
        } else if let Some(words) = line.strip_prefix(STEP) {
            step = Some(words);
        } else if is_alarm(line) {
            if out.lines.is_empty() {
                out.lines.extend(step.map(|step| format!("at: {step}")));
            }
            let about = names.iter().find(|(name, _)| line.contains(&format!("({name})")));
            out.drive = out.drive.or(about.map(|(_, number)| *number));
            out.lines.push(line.to_owned());
        }
    }
    out
}

fn is_alarm(line: &str) -> bool {
    ALARMS.iter().any(|words| line.contains(words))
        || line.contains("XFS (") && XFS_ALARMS.iter().any(|words| line.contains(words))
}

/// The finding for a run that went wrong: `why`, the alarms, and the console's end.
pub(super) fn finding(vm: &Vm, why: Option<String>, console: &str) -> Finding {
    let alarms = alarms(console);
    let image = alarms.drive.and_then(|drive| vm.drives.get(drive));
    let image = image.map(|drive| drive.image.as_path()).or(vm.only_image());
    let mut lines: Vec<String> = why.into_iter().collect();
    lines.extend(alarms.lines.into_iter().take(40));
    if image.is_none() {
        lines.extend(vm.drives.iter().map(|d| format!("drive: {}", d.image.display())));
    }
    lines.push("the console's end:".to_owned());
    let all: Vec<_> = console.lines().collect();
    lines.extend(all[all.len().saturating_sub(25)..].iter().map(|line| format!("  {line}")));
    Finding::new(&vm.judge(), image.map(Path::new), lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_a_normal_mount_are_no_alarm() {
        let console = "uxfs-drive vda 0\n\
            [    2.1] XFS (vda): Mounting V5 Filesystem\n\
            [    2.1] XFS (vda): Starting recovery (logdev: internal)\n\
            [    2.1] XFS (vda): EXPERIMENTAL large extent counts feature in use. \
            Use at your own risk!\n\
            [    2.2] XFS (vda): Ending recovery (logdev: internal)\n\
            [    2.3] XFS (vda): Unmounting Filesystem\nuxfs-done\n";
        assert_eq!(alarms(console), Alarms::default());
    }

    #[test]
    fn a_kernel_has_halted_after_init_ended_and_not_before() {
        assert!(halted("uxfs-drive vda 0\nuxfs-done\nreboot: System halted\n"));
        assert!(halted("uxfs-done\r\n[    2.3] reboot: System halted\r\n"));
        assert!(!halted("uxfs-drive vda 0\nuxfs-done\n"));
        assert!(!halted("reboot: System halted\n"));
        assert!(!halted("reboot: System halted\nuxfs-done\n"));
    }

    #[test]
    fn an_alarm_names_its_drive_and_step() {
        let console = "uxfs-drive vda 0\nuxfs-drive vdb 1\nuxfs-step mounting 1\n\
            [    2.1] XFS (vdb): Metadata CRC error detected at xfs_agf_read_verify\n\
            [    2.1] XFS (vdb): Unmount and run xfs_repair\n";
        let found = alarms(console);
        assert_eq!(found.drive, Some(1));
        assert_eq!(found.lines.len(), 2);
        assert_eq!(found.lines[0], "at: mounting 1");
    }

    #[test]
    fn each_kind_of_complaint_is_an_alarm() {
        for line in [
            "[ 1.0] XFS (vda): Internal error xfs_trans_cancel at line 1",
            "[ 1.0] XFS (vda): Corruption of in-memory data (0x8) detected",
            "[ 1.0] WARNING: CPU: 0 PID: 1 at fs/xfs/xfs_message.c:104",
            "[ 1.0] BUG: kernel NULL pointer dereference, address: 0000000000000000",
            "[ 1.0] Oops: 0000 [#1] PREEMPT SMP",
            "[ 1.0] Kernel panic - not syncing: Fatal exception",
            "[ 1.0] XFS (vda): log mount/recovery failed: error -117",
            "[ 1.0] XFS (vda): Filesystem has been shut down due to log error (0x2).",
        ] {
            assert!(is_alarm(line), "{line}");
        }
    }
}
