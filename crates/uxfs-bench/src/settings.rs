//! The settings that the tables of fs_mark and dbench compare, and their order.

use crate::kernel::Kind;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Setting {
    /// In process, with this option.
    Own(&'static str),
    /// Mounted by the kernel.
    Kernel(Kind),
}

pub(crate) const DELAYLOG: &str = "uxfs delaylog";
const NODELAYLOG: &str = "uxfs nodelaylog";
pub(crate) const KERNEL: &str = "kernel xfs";
const EXT4: &str = "kernel ext4";

/// All of them, by name, in the order that tables have.
const SETTINGS: [(&str, Setting); 4] = [
    (DELAYLOG, Setting::Own("delaylog")),
    (NODELAYLOG, Setting::Own("nodelaylog")),
    (KERNEL, Setting::Kernel(Kind::Xfs)),
    (EXT4, Setting::Kernel(Kind::Ext4)),
];

/// The order of a round, counted from 1: every other round runs in reverse, so that what a run
/// leaves to the disk and changes of the machine affect all alike.
pub(crate) fn alternating<T, const N: usize>(round: u32, mut all: [T; N]) -> [T; N] {
    if round.is_multiple_of(2) {
        all.reverse();
    }
    all
}

/// The settings to measure in a round: those whose name contains `only`, and the kernel's only if
/// they can be measured.
pub(crate) fn settings_of_round(
    round: u32,
    only: &str,
    with_kernel: bool,
) -> impl Iterator<Item = (&'static str, Setting)> {
    let wanted = move |(name, setting): &(&'static str, Setting)| {
        name.contains(only) && (with_kernel || matches!(setting, Setting::Own(_)))
    };
    alternating(round, SETTINGS).into_iter().filter(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_round_is_reversed() {
        assert_eq!(
            [1, 2, 3].map(|round| alternating(round, ["a", "b"])),
            [["a", "b"], ["b", "a"], ["a", "b"]]
        );
    }

    #[test]
    fn only_the_wanted_settings_are_measured() {
        let names = |round, only, with_kernel| -> Vec<&str> {
            settings_of_round(round, only, with_kernel).map(|(name, _)| name).collect()
        };
        assert_eq!(names(2, "xfs", true), [KERNEL, NODELAYLOG, DELAYLOG]);
        assert_eq!(names(1, "", false), [DELAYLOG, NODELAYLOG]);
    }
}
