//! The list of mounts, and unmounting.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::UnmountFlags;

/// The file system type in the list of mounts.
pub const TYPE: &str = "fuse.uxfs";
/// The file system type of a mount with a block device.
pub(crate) const BLOCK_TYPE: &str = "fuseblk.uxfs";

/// A volume that is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub dir: PathBuf,
    /// The image, or its loop device.
    pub source: PathBuf,
    /// The kernel's device number of the mount: two numbers and a colon. Bind mounts of it have the
    /// same device.
    pub device: String,
    /// The mount id of this entry.
    pub id: u64,
    /// Its flags, as the list shows them.
    pub flags: String,
}

impl Mount {
    /// Is this the same mount, perhaps bound to another directory? The kernel gives the device number
    /// of a mount that has ended to the next one, so the image is compared as well.
    pub fn is_copy_of(&self, other: &Self) -> bool {
        self.device == other.device && self.source == other.source
    }
}

/// All mounts of uxfs, in the order of mounting.
///
/// # Errors
/// If the list of mounts cannot be read.
pub fn list() -> io::Result<Vec<Mount>> {
    list_of("self")
}

/// All mounts of uxfs in the namespace of a process.
pub(crate) fn list_of(process: &str) -> io::Result<Vec<Mount>> {
    let text = std::fs::read(format!("/proc/{process}/mountinfo"))?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// The mount on a directory whose server may be dead, so that the directory itself cannot be read.
///
/// # Errors
/// As [`list`]; if the directory's path cannot be determined.
pub fn on(dir: &Path) -> io::Result<Option<Mount>> {
    let known = std::fs::canonicalize(dir).or_else(|_| std::path::absolute(dir))?;
    Ok(list()?.into_iter().rev().find(|mount| mount.dir == known))
}

/// Parses a line of the list, if it is a mount of uxfs.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let id = text(fields.next()?).parse().ok()?;
    let device = text(fields.nth(1)?);
    let dir = fields.nth(1)?;
    let flags = text(fields.next()?);
    // Optional fields, up to a dash.
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = rest.next()?;
    if kind != TYPE.as_bytes() && kind != BLOCK_TYPE.as_bytes() {
        return None;
    }
    Some(Mount { dir: unescaped(dir), source: unescaped(rest.next()?), device, id, flags })
}

/// Decodes the octal escapes of the list.
pub(crate) fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let octal = |digits: &[u8]| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        };
        match behind.get(..3).and_then(octal) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    OsStr::from_bytes(&bytes).into()
}

/// Writes newlines and backslashes as octal numbers.
pub(crate) fn escaped(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    for byte in field {
        match byte {
            b'\n' => text.extend_from_slice(b"\\012"),
            b'\\' => text.extend_from_slice(b"\\134"),
            other => text.push(*other),
        }
    }
    text
}

/// Unmounts. With `detach` also a mount in use, which then disappears for new users.
///
/// # Errors
/// If it is in use, or not this user's; the errors of `fusermount3`.
pub fn unmount(dir: &Path, detach: bool) -> io::Result<()> {
    let flags = if detach { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(dir, flags) {
        Ok(()) => return Ok(()),
        // Ordinary users have a helper.
        Err(rustix::io::Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let mut command = Command::new("fusermount3");
    command.env("LC_ALL", "C");
    command.args(if detach { &["-u", "-z", "--"][..] } else { &["-u", "--"] }).arg(dir);
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("fusermount3 is missing: install fuse3"),
        _ => error,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let busy = text.contains("busy");
    Err(io::Error::new(if busy { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other }, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo_are_parsed() {
        let line =
            b"36 35 0:40 / /mnt/a\\040b rw,nosuid shared:1 - fuse.uxfs /img\\054x rw,user_id=0";
        let mount = parse(line).unwrap();
        assert_eq!(mount.dir, Path::new("/mnt/a b"));
        assert_eq!(mount.source, Path::new("/img,x"));
        assert_eq!((&*mount.device, mount.id, &*mount.flags), ("0:40", 36, "rw,nosuid"));
        let bound = Mount { dir: "/srv".into(), id: 37, ..mount.clone() };
        let next = Mount { source: "/other".into(), ..mount.clone() };
        assert!(bound.is_copy_of(&mount) && !next.is_copy_of(&mount));
        assert_eq!(parse(b"36 35 0:40 / /mnt rw - ext4 /dev/sda rw"), None);
        assert_eq!(parse(b""), None);
    }
}
