//! A mount of the kernel's type `fuseblk`, which receives `sync(2)` and `syncfs(2)`: for root, on
//! Linux 6.18 and later.
//!
//! The kernel wants a block device for such a mount, but does not use it. A loop device stands for
//! the image; the kernel releases it when the mount ends.
//!
//! 1. The kernel waits for the answer to its last request, and the volume is closed before that. So
//!    when umount(8) returns, everything is written in place.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Command;

use uxfs_transport::{MountOptions, Session, Settings};

use crate::mounts::BLOCK_TYPE;
use crate::server::Server;

/// Mounts a server with a loop device as its source.
///
/// # Errors
/// Errors of the kernel and of `losetup`; not root.
pub(crate) fn mount(
    server: Server,
    (source, dir): (&Path, &Path),
    words: Vec<String>,
    settings: Settings,
) -> io::Result<Session<Server>> {
    let mut attach = vec![OsStr::new("--find"), OsStr::new("--show"), source.as_os_str()];
    if words.iter().any(|word| word == "ro") {
        attach.push(OsStr::new("--read-only"));
    }
    // Its absence is reported before anything else is missing.
    std::fs::metadata("/dev/fuse")?;
    let device = losetup(&attach)?;
    let options = MountOptions { source: device.clone(), fs_type: BLOCK_TYPE.into(), words };
    let mounted = Session::mount(server, dir, &options, settings);
    // Released when its last user is gone: now, or when the mount ends.
    let given_back = losetup(&[OsStr::new("-d"), OsStr::new(&device)]);
    let session = mounted.map_err(|error| {
        io::Error::other(format!(
            "option 'fuseblk': mounting {device} on {}: {error}",
            dir.display()
        ))
    })?;
    given_back.map(|_| session)
}

/// Where losetup may be: a system command that is not in every root's `PATH`.
const LOSETUP: [&str; 3] = ["losetup", "/sbin/losetup", "/usr/sbin/losetup"];

/// Runs losetup. Returns its output.
fn losetup(args: &[&OsStr]) -> io::Result<String> {
    let failed = |why: &dyn core::fmt::Display| {
        io::Error::other(format!("option 'fuseblk' needs a loop device: {why}"))
    };
    for program in LOSETUP {
        let output = match Command::new(program).args(args).output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(|error| failed(&format_args!("{program}: {error}")))?,
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        return match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(failed(&text(&output.stderr))),
        };
    }
    Err(failed(&"losetup is missing (install util-linux or mount)"))
}
