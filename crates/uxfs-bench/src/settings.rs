//! The settings that the tables of fs_mark and dbench compare, and the order they take turns in.

use crate::kernel::Kind;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Setting {
    /// In process, with this option.
    Own(&'static str),
    /// Mounted by the kernel.
    Kernel(Kind),
}

pub(crate) const DELAYLOG: &str = "uxfs delaylog";
pub(crate) const NODELAYLOG: &str = "uxfs nodelaylog";
pub(crate) const KERNEL: &str = "kernel xfs";
pub(crate) const EXT4: &str = "kernel ext4";

/// All of them, by name, in the order that tables have.
pub(crate) const SETTINGS: [(&str, Setting); 4] = [
    (DELAYLOG, Setting::Own("delaylog")),
    (NODELAYLOG, Setting::Own("nodelaylog")),
    (KERNEL, Setting::Kernel(Kind::Xfs)),
    (EXT4, Setting::Kernel(Kind::Ext4)),
];

/// What is to be measured in a round, counted from 1: every other round the other way round, the
/// first as it is told. What a run leaves to the disk, and what the machine does by the minute, so falls to all alike.
pub(crate) fn in_turn<T, const N: usize>(round: u32, mut all: [T; N]) -> [T; N] {
    if round.is_multiple_of(2) {
        all.reverse();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_go_there_and_back() {
        assert_eq!(
            [1, 2, 3].map(|round| in_turn(round, ["a", "b"])),
            [["a", "b"], ["b", "a"], ["a", "b"]]
        );
    }
}
