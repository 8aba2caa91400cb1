//! The list of mounts, and taking a mount away.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::UnmountFlags;

/// The type that the list of mounts shows.
pub const TYPE: &str = "fuse.uxfs";
/// The same of a mount that takes a block device.
pub(crate) const BLOCK_TYPE: &str = "fuseblk.uxfs";

/// A volume that is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub dir: PathBuf,
    /// The image, or the device that stands for it.
    pub source: PathBuf,
    /// By what the kernel knows it: two numbers and a colon. A mount that is bound to further
    /// directories has the same device there.
    pub device: String,
    /// The number of this entry of the list.
    pub id: u64,
    /// Its flags, as the list shows them.
    pub flags: String,
}

/// All volumes that are mounted through uxfs, in the order of mounting.
///
/// # Errors
/// If the list of mounts cannot be read.
pub fn list() -> io::Result<Vec<Mount>> {
    list_of("self")
}

/// The same as a process sees them, given by its number.
pub(crate) fn list_of(process: &str) -> io::Result<Vec<Mount>> {
    let text = std::fs::read(format!("/proc/{process}/mountinfo"))?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// The mount on a directory that may be dead, so that it can be named but not looked at.
///
/// # Errors
/// As [`list`]; that the directory cannot be named.
pub fn on(dir: &Path) -> io::Result<Option<Mount>> {
    let known = std::fs::canonicalize(dir).or_else(|_| std::path::absolute(dir))?;
    Ok(list()?.into_iter().rev().find(|mount| mount.dir == known))
}

/// A line of the list, if it is about a volume of ours.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let id = text(fields.next()?).parse().ok()?;
    let device = text(fields.nth(1)?);
    let dir = fields.nth(1)?;
    let flags = text(fields.next()?);
    // Some optional fields, up to a dash.
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = rest.next()?;
    if kind != TYPE.as_bytes() && kind != BLOCK_TYPE.as_bytes() {
        return None;
    }
    Some(Mount { dir: unescaped(dir), source: unescaped(rest.next()?), device, id, flags })
}

/// Spaces and the like are written as octal numbers.
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

/// Takes a mount away; with `detach` even if it is in use, for those who look for it from then on.
///
/// # Errors
/// If it is in use, or not this user's; what `fusermount3` says.
pub fn unmount(dir: &Path, detach: bool) -> io::Result<()> {
    let flags = if detach { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(dir, flags) {
        Ok(()) => return Ok(()),
        // Ordinary users have a helper.
        Err(rustix::io::Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let mut command = Command::new("fusermount3");
    command.args(if detach { &["-u", "-z", "--"][..] } else { &["-u", "--"] }).arg(dir);
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("fusermount3 is missing: install fuse3"),
        _ => error,
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_list() {
        let line =
            b"36 35 0:40 / /mnt/a\\040b rw,nosuid shared:1 - fuse.uxfs /img\\054x rw,user_id=0";
        let mount = parse(line).unwrap();
        assert_eq!(mount.dir, Path::new("/mnt/a b"));
        assert_eq!(mount.source, Path::new("/img,x"));
        assert_eq!((&*mount.device, mount.id, &*mount.flags), ("0:40", 36, "rw,nosuid"));
        assert_eq!(parse(b"36 35 0:40 / /mnt rw - ext4 /dev/sda rw"), None);
        assert_eq!(parse(b""), None);
    }
}
