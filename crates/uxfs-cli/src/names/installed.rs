//! The xfsprogs of this machine, in whose place a link with a program's name stands.
//!
//! 1. Programs of xfsprogs are asked for their version, and for nothing else.
//!
//! Called by `mkfs_xfs`.

use std::path::Path;
use std::process::{Command, Stdio};

/// Its release, as the first `xfs_repair` in PATH reports it that is not uxfs.
pub(super) fn release() -> Option<(u32, u32)> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find_map(|dir| release_of(&dir.join("xfs_repair")))
}

fn release_of(program: &Path) -> Option<(u32, u32)> {
    if !program.is_file() {
        return None;
    }
    let said = Command::new(program).arg("-V").stdin(Stdio::null()).output().ok()?;
    parse(&String::from_utf8_lossy(&said.stdout))
}

fn parse(said: &str) -> Option<(u32, u32)> {
    let version = said.trim().strip_prefix("xfs_repair version ")?;
    if version.contains("(uxfs") {
        return None;
    }
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        for (said, release) in [
            ("xfs_repair version 6.1.0\n", Some((6, 1))),
            ("xfs_repair version 7.2.0-rc1\n", Some((7, 2))),
            ("xfs_repair version 7.2.0 (uxfs 0.1.0)\n", None),
            ("xfs_repair version 6\n", None),
            ("usage\n", None),
            ("", None),
        ] {
            assert_eq!(parse(said), release, "{said}");
        }
    }
}
