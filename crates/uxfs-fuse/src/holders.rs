//! Finds what keeps a mount busy: processes that use it, and mount namespaces that have a copy of
//! it.
//!
//! The kernel only says "busy", and a copy of a mount in another namespace (of a container that was
//! started meanwhile) keeps the server running silently. `/proc` names the processes, as far as the
//! caller may read it.
//!
//! Called by `session` and by `uxfs umount`.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

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

/// A process of each other mount namespace that still has this mount.
pub fn elsewhere(wanted: &Mount) -> Vec<Holder> {
    let space = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let mut seen: BTreeSet<PathBuf> = space("self").into_iter().collect();
    let mut found = Vec::new();
    for process in processes() {
        let Some(space) = space(&process.to_string()) else { continue };
        if seen.contains(&space) {
            continue;
        }
        let Ok(list) = mounts::list_of(&process.to_string()) else { continue };
        seen.insert(space);
        if list.iter().any(|mount| mount.is_copy_of(wanted)) {
            found.push(holder(process));
        }
    }
    found
}

/// The processes that have files of a mount open, or their working directory there.
pub fn users(mount: &Mount) -> Vec<Holder> {
    let wanted = format!("mnt_id:\t{}", mount.id);
    let uses = |process: u32| {
        let of = |name: &str| PathBuf::from(format!("/proc/{process}/{name}"));
        let within = |name: &str| {
            fs::read_link(of(name)).is_ok_and(|path: PathBuf| path.starts_with(&mount.dir))
        };
        let has = |file: &Path| {
            let text = fs::read_to_string(file).unwrap_or_default();
            text.lines().any(|line| line == wanted)
        };
        let open = || fs::read_dir(of("fdinfo")).into_iter().flatten().flatten();
        ["cwd", "root", "exe"].into_iter().any(within) || open().any(|entry| has(&entry.path()))
    };
    processes().filter(|process| uses(*process)).map(holder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_named() {
        let holder = |process| Holder { process, command: "sh".into() };
        let all: Vec<_> = (1..=6).map(holder).collect();
        assert_eq!(Named(&all[..2]).to_string(), "sh (process 1), sh (process 2)");
        assert!(Named(&all).to_string().ends_with("sh (process 4) and 2 more"));
    }
}
