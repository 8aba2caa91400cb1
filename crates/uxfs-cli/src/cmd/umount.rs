//! `uxfs umount`: ends a mount, and waits until its volume is whole on the device.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use uxfs::disk::{FileDev, OpenMode};
use uxfs_fuse::mounts;

use crate::session::{Failure, Result, Session};

/// Unmount a volume that uxfs has mounted, and wait until everything is written
///
/// umount(8) and fusermount3 -u return before that.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs umount /mnt\n  uxfs umount --lazy /mnt")]
pub(crate) struct Options {
    /// Even if it is in use: it goes from sight now, and ends when nobody uses it any more
    #[arg(short, long)]
    lazy: bool,
    /// Where it is mounted
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
}

/// Unmounts.
pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    for dir in &options.dirs {
        session.ok(unmount(dir, options.lazy));
    }
    Ok(())
}

fn unmount(dir: &Path, lazy: bool) -> Result<()> {
    let host = |error: std::io::Error| Failure::host(dir, &error);
    // What is dead can be named, but not looked at.
    let known = std::fs::canonicalize(dir).or_else(|_| std::path::absolute(dir)).map_err(host)?;
    let list = mounts::list().map_err(host)?;
    let Some(mount) = list.iter().rev().find(|mount| mount.dir == known) else {
        return Err(Failure::new(dir, "no volume is mounted here by uxfs"));
    };
    mounts::unmount(&mount.dir, lazy).map_err(host)?;
    if !lazy {
        wait_for(&mount.source);
    }
    Ok(())
}

/// Waits until the process that had the volume has closed it: until then it holds its lock.
fn wait_for(image: &Path) {
    let busy = || {
        let open = FileDev::open(image, OpenMode::Read);
        open.is_err_and(|error| error.kind() == ErrorKind::ResourceBusy)
    };
    let again = || mounts::list().is_ok_and(|all| all.iter().any(|mount| mount.source == image));
    while busy() && !again() {
        std::thread::sleep(Duration::from_millis(10));
    }
}
