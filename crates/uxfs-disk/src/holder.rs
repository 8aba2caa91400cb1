//! Finds the process that holds the lock of an image, by reading `/proc`. Used by `lock`.
//!
//! 1. The code distinguishes a holder that is about to release the image from one that keeps it. A
//!    mount's server without a mount is closing the volume; a process that exited releases it soon.
//! 2. Information that `/proc` hides from this process is left out of the answer; this is no error.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The process that has an image in use, as far as `/proc` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holder {
    process: Option<u32>,
    /// The command that the process runs, for example `uxfs mount`.
    command: String,
    /// Where the process has the image mounted.
    mounts: Vec<PathBuf>,
    /// Is the process about to release the image?
    pub(crate) ending: Ending,
}

/// Is a holder about to release the image?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// There is no sign that it will.
    #[default]
    No,
    /// Probably: the process exited, or its mount is gone.
    Soon,
    /// Yes: the process reports that it is writing back and closing the volume.
    Closing,
}

/// Process name of a mount's server while it closes the volume.
const CLOSING: &str = "uxfs-closing";

impl Holder {
    /// The process that holds a lock on the file at `path`; `None` if `/proc` shows none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let process = locks.lines().filter_map(lock).find(|lock| lock.is_on(&meta))?.process;
        let image = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Some(Self::describe(process, &image))
    }

    fn describe(process: u32, image: &Path) -> Self {
        let of = |name: &str| fs::read(format!("/proc/{process}/{name}")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&of("stat")).into_owned();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if matches!(state, None | Some('Z' | 'X')) && Path::new("/proc/self/stat").exists() {
            return Self { process: Some(process), ending: Ending::Soon, ..Self::default() };
        }
        let line = of("cmdline");
        let comm = String::from_utf8_lossy(&of("comm")).trim_end().to_owned();
        let command = command(&line, &comm);
        let mounts = of("mountinfo");
        let mounts: Vec<_> =
            mounts.split(|b| *b == b'\n').filter_map(|l| mount(l, image)).collect();
        let ending = match command == "uxfs mount" && mounts.is_empty() {
            true if comm == CLOSING => Ending::Closing,
            true => Ending::Soon,
            false => Ending::No,
        };
        Self { process: Some(process), command, mounts, ending }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(process) = self.process else { return f.write_str("another process") };
        match self.command.is_empty() {
            true => write!(f, "process {process}")?,
            false => write!(f, "{} (process {process})", self.command)?,
        }
        for (at, dir) in self.mounts.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { ", mounted on " } else { " and " }, dir.display())?;
        }
        Ok(())
    }
}

/// A line of `/proc/locks` about a flock(2) lock.
#[derive(Debug, PartialEq, Eq)]
struct Lock {
    process: u32,
    device: (u32, u32),
    inode: u64,
}

fn lock(line: &str) -> Option<Lock> {
    let mut fields = line.split_whitespace().skip(1);
    // A waiting process has an arrow in this field.
    if fields.next()? != "FLOCK" {
        return None;
    }
    let process = fields.nth(2)?.parse().ok().filter(|process| *process > 0)?;
    let mut file = fields.next()?.split(':');
    let mut number = || u32::from_str_radix(file.next()?, 16).ok();
    let device = (number()?, number()?);
    Some(Lock { process, device, inode: file.next()?.parse().ok()? })
}

impl Lock {
    fn is_on(&self, meta: &fs::Metadata) -> bool {
        if self.inode != meta.ino() {
            return false;
        }
        let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        // Some file systems report another device here than stat(2) does.
        self.device == device || has_open(self.process, meta)
    }
}

fn has_open(process: u32, meta: &fs::Metadata) -> bool {
    let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let same = |file: &fs::DirEntry| {
        fs::metadata(file.path())
            .is_ok_and(|other| (other.dev(), other.ino()) == (meta.dev(), meta.ino()))
    };
    files.into_iter().any(|file| same(&file))
}

/// The command that a process runs; for uxfs, including the subcommand.
fn command(line: &[u8], comm: &str) -> String {
    let mut words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    match words.find(|word| !word.starts_with('-')) {
        Some(verb) if program == "uxfs" => format!("uxfs {verb}"),
        _ if program == "mount.fuse.uxfs" => "uxfs mount".into(),
        _ => comm.to_owned(),
    }
}

/// The mount point in a line of `mountinfo`, if uxfs mounted the image there.
fn mount(line: &[u8], image: &Path) -> Option<PathBuf> {
    let mut fields = line.split(|byte| *byte == b' ');
    let dir = fields.nth(4)?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (rest.next()?, rest.next()?);
    let is_it = match kind {
        b"fuse.uxfs" => unescaped(source) == image,
        b"fuseblk.uxfs" => stands_for(&unescaped(source), image),
        _ => false,
    };
    is_it.then(|| unescaped(dir))
}

/// Is `device` a loop device of `image`?
fn stands_for(device: &Path, image: &Path) -> bool {
    let Some(name) = device.file_name() else { return false };
    let meta = fs::metadata(device);
    if !meta.is_ok_and(|meta| meta.file_type().is_block_device()) {
        return false;
    }
    let file = Path::new("/sys/block").join(name).join("loop/backing_file");
    fs::read(file).is_ok_and(|text| Path::new(OsStr::from_bytes(text.trim_ascii_end())) == image)
}

/// Decodes the octal escapes of `mountinfo`, for example of spaces.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while let Some(byte) = field.get(at) {
        let octal = field.get(at + 1..at + 4).filter(|_| *byte == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) => {
                bytes.push(escaped);
                at += 4;
            }
            None => {
                bytes.push(*byte);
                at += 1;
            }
        }
    }
    OsStr::from_bytes(&bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_lines_are_parsed() {
        let found = lock("1: FLOCK  ADVISORY  WRITE 14966 fe:00:10018852 0 EOF");
        let expected = Lock { process: 14966, device: (0xfe, 0), inode: 10_018_852 };
        assert_eq!(found, Some(expected));
        assert_eq!(lock("1: -> FLOCK  ADVISORY  WRITE 14966 fe:00:10018852 0 EOF"), None);
        assert_eq!(lock("2: POSIX  ADVISORY  WRITE 7 00:19:1 0 EOF"), None);
        assert_eq!(lock(""), None);
    }

    #[test]
    fn commands_and_mount_lines_are_parsed() {
        assert_eq!(command(b"uxfs\0mount\0--background\0", "x"), "uxfs mount");
        assert_eq!(command(b"/usr/bin/uxfs\0--norecovery\0cp\0", "x"), "uxfs cp");
        assert_eq!(command(b"qemu\0-drive\0", "qemu-system-x86"), "qemu-system-x86");
        let line = b"36 35 0:40 / /mnt/a\\040b rw - fuse.uxfs /i\\040m rw,user_id=0";
        assert_eq!(mount(line, Path::new("/i m")), Some("/mnt/a b".into()));
        assert_eq!(mount(line, Path::new("/other")), None);
    }

    #[test]
    fn a_holder_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(Holder::of(file.path()), None);
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let holder = Holder::of(file.path()).unwrap();
        assert_eq!((holder.process, holder.ending), (Some(std::process::id()), Ending::No));
        let mounted = Holder { mounts: vec!["/mnt".into(), "/b".into()], ..holder };
        let end = format!("(process {}), mounted on /mnt and /b", std::process::id());
        assert!(mounted.to_string().ends_with(&end), "{mounted}");
    }
}
