//! Finds what keeps a mount busy: processes that use it, and mount namespaces that have a copy of
//! it.
//!
//! The kernel only says "busy", and a copy of a mount in another namespace (of a container that was
//! started meanwhile) keeps the server running silently. `/proc` names the processes, as far as the
//! caller may read it.
//!
//! 1. A namespace that only has a copy uses nothing. A process in it that has a file open does.
//! 2. A file belongs to a mount if the numbers of the mount and of its device are both right. The kernel gives
//!    the number of a mount that was unmounted to the next one; that of its device only after its end.
//!
//! Called by `session` and by `uxfs umount`.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::mounts::{self, Mount};

/// Most holders that are named.
const NAMED: usize = 4;

/// A process that keeps a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub process: u32,
    pub command: String,
}

/// Text that names several holders.
pub struct Named<'a>(pub &'a [Holder]);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, holder) in self.0.iter().take(NAMED).enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{} (process {})", holder.command, holder.process)?;
        }
        match self.0.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn holder(process: u32) -> Holder {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    let name = name.trim_end();
    let command = if name.is_empty() { "a command" } else { name }.to_owned();
    Holder { process, command }
}

/// A mount in another mount namespace.
struct Copied {
    namespace: PathBuf,
    /// A process of the namespace.
    process: u32,
    mount: Mount,
}

/// The namespace of a process, if the caller may know it.
fn namespace(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}

/// The copies of a mount in other mount namespaces.
fn copies(wanted: &Mount) -> Vec<Copied> {
    let mut seen: BTreeSet<PathBuf> = namespace("self").into_iter().collect();
    let mut found = Vec::new();
    for process in processes() {
        let Some(namespace) = namespace(&process.to_string()) else { continue };
        if seen.contains(&namespace) {
            continue;
        }
        let Ok(list) = mounts::list_of(&process.to_string()) else { continue };
        seen.insert(namespace.clone());
        let copies = list.into_iter().filter(|mount| mount.is_copy_of(wanted));
        found.extend(copies.map(|mount| Copied { namespace: namespace.clone(), process, mount }));
    }
    found
}

/// A process of each other mount namespace that still has this mount.
pub fn elsewhere(wanted: &Mount) -> Vec<Holder> {
    let mut copies = copies(wanted);
    copies.dedup_by_key(|copy| copy.process);
    copies.iter().map(|copy| holder(copy.process)).collect()
}

/// The processes that use a mount in other mount namespaces, as [`users`] says.
pub fn users_elsewhere(mount: &Mount) -> Vec<Holder> {
    let copies = copies(mount);
    let uses = |process: u32| {
        let own = namespace(&process.to_string());
        copies.iter().any(|copy| {
            let is_there = own.as_ref() == Some(&copy.namespace);
            has_open(process, &copy.mount) || is_there && stands_in(process, &copy.mount)
        })
    };
    processes().filter(|process| uses(*process)).map(holder).collect()
}

/// The processes that have files of a mount open or mapped, or their working directory there.
pub fn users(mount: &Mount) -> Vec<Holder> {
    let uses = |process: &u32| stands_in(*process, mount) || has_open(*process, mount);
    processes().filter(uses).map(holder).collect()
}

fn of(process: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{process}/{name}"))
}

/// Does a process of the mount's namespace have its working directory, root or program there?
fn stands_in(process: u32, mount: &Mount) -> bool {
    let within = |name: &str| {
        fs::read_link(of(process, name)).is_ok_and(|path: PathBuf| path.starts_with(&mount.dir))
    };
    ["cwd", "root", "exe"].into_iter().any(within)
}

/// Does a process of any namespace have files of the mount open or mapped? Mappings only tell the device,
/// which all copies of a mount share.
fn has_open(process: u32, mount: &Mount) -> bool {
    let wanted = format!("mnt_id:\t{}", mount.id);
    let device = numbers(&mount.device);
    let is_of_mount = |info: &Path| {
        let text = fs::read_to_string(info).unwrap_or_default();
        let file = || Some(of(process, "fd").join(info.file_name()?));
        text.lines().any(|line| line == wanted)
            && (file().and_then(|file| device_of(&file)).is_none_or(|found| Some(found) == device))
    };
    let mut open = fs::read_dir(of(process, "fdinfo")).into_iter().flatten().flatten();
    open.any(|entry| is_of_mount(&entry.path())) || maps(process, device)
}

/// The two numbers of a device, as `MAJOR:MINOR` names it.
fn numbers(device: &str) -> Option<(u32, u32)> {
    let number = |text: &str| text.parse().ok();
    device.split_once(':').and_then(|(major, minor)| number(major).zip(number(minor)))
}

/// The device of an open file, if the caller may know it. Its file system is asked for nothing else, so a server
/// may look at files of its own mount.
fn device_of(file: &Path) -> Option<(u32, u32)> {
    let nothing = StatxFlags::empty();
    let found = rustix::fs::statx(CWD, file, AtFlags::STATX_DONT_SYNC, nothing).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor))
}

/// Has a process bytes of a file on a device mapped?
fn maps(process: u32, device: Option<(u32, u32)>) -> bool {
    let Some((major, minor)) = device else { return false };
    let wanted = format!("{major:02x}:{minor:02x}").into_bytes();
    // The names of files may hold any bytes.
    let text = fs::read(of(process, "maps")).unwrap_or_default();
    // `FROM-TO RIGHTS OFFSET DEVICE INODE NAME`
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.any(|line| line.split(|byte| *byte == b' ').nth(3) == Some(&wanted))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_number_that_another_mount_has_now_names_no_user() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let info = format!("/proc/self/fdinfo/{}", file.as_file().as_raw_fd());
        let info = fs::read_to_string(info).unwrap();
        let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:\t")).unwrap();
        let (major, minor) = device_of(file.path()).unwrap();
        let mount = |device| Mount {
            source: "/image".into(),
            dir: "/mount/point".into(),
            device,
            id: id.parse().unwrap(),
            flags: String::new(),
        };
        let own = std::process::id();
        assert!(has_open(own, &mount(format!("{major}:{minor}"))));
        assert!(!has_open(own, &mount(format!("{major}:{}", minor + 1_000_000))));
    }

    #[test]
    fn holders_are_named() {
        let holder = |process| Holder { process, command: "sh".into() };
        let all: Vec<_> = (1..=6).map(holder).collect();
        assert_eq!(Named(&all[..2]).to_string(), "sh (process 1), sh (process 2)");
        assert!(Named(&all).to_string().ends_with("sh (process 4) and 2 more"));
    }
}
