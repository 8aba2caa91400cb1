//! `uxfs mount -o remount`: changes the options of an existing mount.
//!
//! 1. To become read-only, the kernel's mount changes first, then the server's volume. To become
//!    writable, the order is the reverse. As on any file system, a file that is open for writing
//!    prevents read-only.
//! 2. If the server refuses the change, the kernel's flags are restored.

use std::path::Path;

use rustix::mount::{MountFlags, mount_remount};
use uxfs_fuse::holders::{self, Named};
use uxfs_fuse::mounts::{self, Mount};
use uxfs_fuse::{Options, control};

use crate::session::{Failure, Result};

/// Do the mount options contain `remount`?
pub(super) fn is_asked_for(options: &str) -> bool {
    options.split(',').any(|word| word == "remount")
}

/// Kernel flags, each with the option that sets it and the option that clears it.
const FLAGS: [(&str, &str, MountFlags); 6] = [
    ("ro", "rw", MountFlags::RDONLY),
    ("nosuid", "suid", MountFlags::NOSUID),
    ("nodev", "dev", MountFlags::NODEV),
    ("noexec", "exec", MountFlags::NOEXEC),
    ("noatime", "atime", MountFlags::NOATIME),
    ("nodiratime", "diratime", MountFlags::NODIRATIME),
];

fn apply(mut flags: MountFlags, words: &str) -> MountFlags {
    for word in words.split(',') {
        for (set, clear, flag) in FLAGS {
            if word == set {
                flags.insert(flag);
            } else if word == clear {
                flags.remove(flag);
            }
        }
        if matches!(word, "relatime" | "strictatime") {
            flags.remove(MountFlags::NOATIME);
        }
    }
    flags
}

/// Changes the options of the mount on `dir`. With `helper` the caller is mount(8), which also passes
/// options from the list of mounts.
pub(super) fn run(dir: &Path, words: &str, helper: bool) -> Result<()> {
    let host = |error: std::io::Error| Failure::host(dir, &error);
    // Reject wrong options before anything changes.
    Options::default().remount(&without_fixed(words)).map_err(Failure::bare)?;
    let Some(mount) = mounts::on(dir).map_err(host)? else {
        return Err(Failure::new(dir, "no volume is mounted here by uxfs"));
    };
    // The kernel lists `relatime` by default, so mount(8) passes it without the user's request.
    let passed_on =
        |word: &&str| helper && *word == "relatime" && mount.flags.split(',').any(|f| f == *word);
    let words: Vec<&str> = words.split(',').filter(|word| !passed_on(word)).collect();
    let words = words.join(",");
    let was = apply(MountFlags::empty(), &mount.flags);
    let now = apply(was, &words);
    let closes = now.contains(MountFlags::RDONLY) && !was.contains(MountFlags::RDONLY);
    if closes {
        set_flags(dir, &mount, now)?;
    }
    if let Err(error) = control::remount(&mount.dir, &words) {
        if closes {
            // These flags were valid before, so restoring them is expected to work.
            let _ = set_flags(dir, &mount, was);
        }
        return Err(host(error));
    }
    if now != was && !closes {
        set_flags(dir, &mount, now)?;
    }
    Ok(())
}

/// Removes options that cannot change. The mount itself compares them with its current options.
fn without_fixed(words: &str) -> String {
    let fixed = [
        "threads",
        "strict_open",
        "allow_other",
        "fuseblk",
        "io_uring",
        "noio_uring",
        "awake",
        "noawake",
    ];
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    let rest = words.split(',').filter(|word| !fixed.contains(&&*name(word)));
    rest.collect::<Vec<_>>().join(",")
}

fn set_flags(dir: &Path, mount: &Mount, flags: MountFlags) -> Result<()> {
    use rustix::io::Errno;
    // Without one of these flags the kernel would switch to strictatime.
    let times = MountFlags::NOATIME;
    let flags = if flags.contains(times) { flags } else { flags | MountFlags::RELATIME };
    mount_remount(&mount.dir, flags, c"").map_err(|error| {
        let text = match error {
            Errno::PERM => {
                "only root can change ro, rw, suid, dev, exec and their opposites".into()
            }
            Errno::BUSY => {
                let users = holders::users(mount);
                match users.is_empty() {
                    true => "busy: files are open for writing".to_owned(),
                    false => format!("busy: files are open for writing; used by {}", Named(&users)),
                }
            }
            other => return Failure::host(dir, &other.into()),
        };
        Failure::new(dir, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_set_and_clear_flags() {
        let flags = apply(MountFlags::empty(), "rw,nosuid,nodev,noatime");
        assert_eq!(flags, MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME);
        let flags = apply(flags, "remount,ro,suid,relatime,commit=5");
        assert_eq!(flags, MountFlags::RDONLY | MountFlags::NODEV);
        assert!(is_asked_for("noatime,remount") && !is_asked_for("noatime"));
    }
}
