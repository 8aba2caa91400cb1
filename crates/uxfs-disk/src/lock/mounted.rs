//! Finds out whether Linux has a file or a device mounted, or otherwise in use.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Explains why the kernel refused the exclusive claim on a block device.
pub(super) fn explain(path: &Path) -> io::Error {
    let how = std::fs::metadata(path)
        .ok()
        .and_then(|meta| mount_of(rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev())));
    let text = match how {
        Some(at) => format!("in use: mounted by the kernel on {at}; unmount it first"),
        None => "in use by the kernel: it or a part of it is mounted, or belongs to another device"
            .into(),
    };
    io::Error::new(io::ErrorKind::ResourceBusy, text)
}

/// Fails for a file or device that the kernel has mounted, directly or through a loop device.
pub(crate) fn refuse_mounted(file: &File) -> io::Result<()> {
    let meta = file.metadata()?;
    let busy = |how: &str| {
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!("in use: mounted by the kernel {how}; unmount it first"),
        ))
    };
    if meta.file_type().is_block_device() {
        let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        if let Some(at) = mount_of(major, minor) {
            return busy(&format!("on {at}"));
        }
        return Ok(());
    }
    let Ok(devices) = std::fs::read_dir("/sys/block") else { return Ok(()) };
    for device in devices.flatten() {
        let backing = device.path().join("loop/backing_file");
        let Ok(text) = std::fs::read_to_string(backing) else { continue };
        let Ok(other) = std::fs::metadata(text.trim_end_matches('\n')) else { continue };
        if (other.dev(), other.ino()) != (meta.dev(), meta.ino()) {
            continue;
        }
        let name = device.file_name().to_string_lossy().into_owned();
        let number = std::fs::read_to_string(device.path().join("dev")).unwrap_or_default();
        if let Some((major, minor)) = number.trim().split_once(':')
            && let (Ok(major), Ok(minor)) = (major.parse(), minor.parse())
            && let Some(at) = mount_of(major, minor)
        {
            return busy(&format!("through /dev/{name} on {at}"));
        }
    }
    Ok(())
}

/// The mount point of a device, if it is mounted.
fn mount_of(major: u32, minor: u32) -> Option<String> {
    let wanted = format!("{major}:{minor}");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(2)? == wanted).then(|| fields.nth(1).unwrap_or("?").to_owned())
    })
}
