//! What the program did to its files, in order. From it follow the files of each moment, and what was synced.
//!
//! 1. A file longer than [`BYTES_MAX`], and files that are longer together than [`FOLLOWED_MAX`], are not followed:
//!    their content is kept in memory. Nor are operations beyond as many bytes ([`Operations::cut_short`]).
//! 2. A leg that cannot see operations records none. A failure then has its lost writes and no explanation.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::tree::{BYTES_MAX, Ino, Kind, Node, Tree};

/// Most bytes of operations that are kept, and of the files that they make.
pub(crate) const FOLLOWED_MAX: u64 = 4 * BYTES_MAX;

/// A name in a directory.
pub type Name = (Ino, Vec<u8>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    Made {
        name: Name,
        ino: Ino,
        generation: u64,
        mode: u16,
    },
    Symlink {
        name: Name,
        ino: Ino,
        generation: u64,
        target: Vec<u8>,
    },
    Linked {
        name: Name,
        ino: Ino,
    },
    Removed {
        name: Name,
    },
    Renamed {
        from: Name,
        to: Name,
        exchanged: bool,
    },
    Written {
        ino: Ino,
        offset: u64,
        data: Arc<[u8]>,
        mapped: bool,
    },
    Resized {
        ino: Ino,
        size: u64,
    },
    Zeroed {
        ino: Ino,
        offset: u64,
        len: u64,
    },
    /// More was written at once than is kept.
    TooLong {
        ino: Ino,
        offset: u64,
        len: u64,
    },
    Copied {
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
    },
    Synced {
        ino: Ino,
        data_only: bool,
    },
    SyncedAll,
}

/// A change or a sync, and the process that asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub pid: u32,
    pub what: Action,
}

impl Operation {
    /// Bytes of memory that it takes, about.
    pub(crate) fn held(&self) -> u64 {
        let more = match &self.what {
            Action::Written { data, .. } => data.len(),
            Action::Symlink { target, .. } => target.len(),
            _ => 0,
        };
        (more + size_of::<Self>()) as u64
    }

    /// It in words. `file` names a file, and `at` a name in a directory.
    pub(crate) fn words(
        &self,
        file: &dyn Fn(Ino) -> String,
        at: &dyn Fn(&Name) -> String,
    ) -> String {
        let what = match &self.what {
            Action::Made { name, mode, .. } if mode & 0o170_000 == 0o040_000 => {
                format!("making the directory {}", at(name))
            }
            Action::Made { name, .. } => format!("creating {}", at(name)),
            Action::Symlink { name, .. } | Action::Linked { name, .. } => {
                format!("making the link {}", at(name))
            }
            Action::Removed { name } => format!("removing {}", at(name)),
            Action::Renamed { from, to, .. } => format!("renaming {} to {}", at(from), at(to)),
            Action::Written { ino, offset, data, .. } => {
                format!("writing {} bytes at offset {offset} of {}", data.len(), file(*ino))
            }
            Action::TooLong { ino, offset, len } => {
                format!("writing {len} bytes at offset {offset} of {}", file(*ino))
            }
            Action::Resized { ino, size } => {
                format!("setting the length of {} to {size}", file(*ino))
            }
            Action::Zeroed { ino, offset, len } => {
                format!("zeroing {len} bytes at offset {offset} of {}", file(*ino))
            }
            Action::Copied { to: (ino, offset), len, .. } => {
                format!("copying {len} bytes to offset {offset} of {}", file(*ino))
            }
            Action::Synced { ino, .. } => format!("syncing {}", file(*ino)),
            Action::SyncedAll => "syncing everything".into(),
        };
        match self.pid {
            0 => what,
            pid => format!("{what} (process {pid})"),
        }
    }
}

/// The operations of a run: all, or the first of them.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    list: Vec<Operation>,
    cut_short: bool,
}

impl Operations {
    pub fn new(list: Vec<Operation>) -> Self {
        Self { list, cut_short: false }
    }

    /// The first operations of a run; the others were too many to be kept.
    #[must_use]
    pub fn cut_short(mut self) -> Self {
        self.cut_short = true;
        self
    }

    pub fn all(&self) -> &[Operation] {
        &self.list
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Were the operations few enough, and did the files stay short enough, to be followed?
    pub fn are_short(&self) -> bool {
        let mut ends: BTreeMap<Ino, u64> = BTreeMap::new();
        let mut sum = 0_u64;
        !self.cut_short
            && self.list.iter().all(|operation| {
                let (ino, end) = match &operation.what {
                    Action::Written { ino, offset, data, .. } => {
                        (*ino, offset.saturating_add(data.len() as u64))
                    }
                    Action::Copied { to: (ino, offset), len, .. } => {
                        (*ino, offset.saturating_add(*len))
                    }
                    Action::Resized { ino, size } => (*ino, *size),
                    Action::TooLong { .. } => return false,
                    _ => return true,
                };
                let longest = ends.entry(ino).or_default();
                sum = sum.saturating_add(end.saturating_sub(*longest));
                *longest = end.max(*longest);
                end <= BYTES_MAX && sum <= FOLLOWED_MAX
            })
    }

    /// The files after the first `count` operations.
    pub fn tree(&self, before: &Tree, count: usize) -> Tree {
        let mut tree = before.clone();
        self.list[..count].iter().for_each(|operation| apply(&mut tree, &operation.what));
        tree
    }

    /// The names that a file had during the first `count` operations, first to last. An inode's number that is
    /// used again begins a new list.
    pub fn names_of(&self, before: &Tree, ino: Ino, count: usize) -> Vec<PathBuf> {
        let mut tree = before.clone();
        let mut names: Vec<PathBuf> = tree.paths().remove(&ino).into_iter().collect();
        for operation in &self.list[..count] {
            match &operation.what {
                // Contents have no part in it.
                Action::Written { .. } | Action::Copied { .. } | Action::Resized { .. } => continue,
                Action::Zeroed { .. } | Action::TooLong { .. } => continue,
                Action::Synced { .. } | Action::SyncedAll => continue,
                Action::Made { ino: made, .. } | Action::Symlink { ino: made, .. }
                    if *made == ino =>
                {
                    names.clear();
                }
                _ => {}
            }
            apply(&mut tree, &operation.what);
            let name = tree.paths().remove(&ino);
            if let Some(name) = name.filter(|name| names.last() != Some(name)) {
                names.push(name);
            }
        }
        names
    }
}

/// Permissions that the owner of a new file always gets here. A program may create a file with mode 0 and call chmod
/// later. Operations do not include chmod, and the check must be able to read the file.
const OWNER: u16 = 0o600;

/// Makes a change.
pub(crate) fn apply(tree: &mut Tree, what: &Action) {
    let mut node = |ino: Ino, generation: u64, kind: Kind, mode: u16| {
        tree.nodes.insert(ino, Node { kind, mode, generation, attributes: 0 });
    };
    match what {
        Action::Made { name, ino, generation, mode } => {
            let kind = match mode & 0o170_000 {
                0o040_000 => Kind::Dir(BTreeMap::new()),
                0o100_000 => Kind::File(Arc::default()),
                _ => Kind::Other,
            };
            node(*ino, *generation, kind, *mode | OWNER);
            enter(tree, name, *ino);
        }
        Action::Symlink { name, ino, generation, target } => {
            node(*ino, *generation, Kind::Symlink(target.clone()), 0o120_777);
            enter(tree, name, *ino);
        }
        Action::Linked { name, ino } => enter(tree, name, *ino),
        Action::Removed { name } => drop(take(tree, name)),
        Action::Renamed { from, to, exchanged } => {
            let moved = take(tree, from);
            let replaced = take(tree, to);
            if let Some(ino) = moved {
                enter(tree, to, ino);
            }
            if let (true, Some(ino)) = (exchanged, replaced) {
                enter(tree, from, ino);
            }
        }
        Action::Written { ino, offset, data, .. } => content(tree, *ino, |bytes| {
            let at = usize::try_from(*offset).unwrap_or(usize::MAX);
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[at..at + data.len()].copy_from_slice(data);
        }),
        Action::Resized { ino, size } => content(tree, *ino, |bytes| {
            bytes.resize(usize::try_from(*size).unwrap_or(0), 0);
        }),
        Action::Zeroed { ino, offset, len } => content(tree, *ino, |bytes| {
            let inside = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            let range = inside(*offset)..inside(offset.saturating_add(*len));
            bytes[range].fill(0);
        }),
        Action::Copied { from: (from, from_at), to: (to, to_at), len } => {
            let Some(Node { kind: Kind::File(bytes), .. }) = tree.nodes.get(from) else { return };
            let inside = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            let data = bytes[inside(*from_at)..inside(from_at.saturating_add(*len))].into();
            apply(tree, &Action::Written { ino: *to, offset: *to_at, data, mapped: false });
        }
        Action::TooLong { .. } | Action::Synced { .. } | Action::SyncedAll => {}
    }
}

fn enter(tree: &mut Tree, (dir, name): &Name, ino: Ino) {
    if let Some(Node { kind: Kind::Dir(names), .. }) = tree.nodes.get_mut(dir) {
        names.insert(name.clone(), ino);
    }
}

fn take(tree: &mut Tree, (dir, name): &Name) -> Option<Ino> {
    match tree.nodes.get_mut(dir) {
        Some(Node { kind: Kind::Dir(names), .. }) => names.remove(name),
        _ => None,
    }
}

fn content(tree: &mut Tree, ino: Ino, change: impl FnOnce(&mut Vec<u8>)) {
    if let Some(Node { kind: Kind::File(bytes), .. }) = tree.nodes.get_mut(&ino) {
        change(Arc::make_mut(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::{dir, file, tree};

    fn name(dir: Ino, name: &str) -> Name {
        (dir, name.as_bytes().to_vec())
    }

    #[test]
    fn long_files_are_not_followed() {
        let after = |what| Operations::new(vec![Operation { pid: 1, what }]).are_short();
        assert!(after(Action::Resized { ino: 2, size: BYTES_MAX }));
        assert!(!after(Action::Resized { ino: 2, size: BYTES_MAX + 1 }));
        let data: Arc<[u8]> = b"x"[..].into();
        let written =
            |offset| Action::Written { ino: 2, offset, data: data.clone(), mapped: false };
        assert!(after(written(BYTES_MAX - 1)));
        assert!(!after(written(BYTES_MAX)) && !after(written(u64::MAX)));
        assert!(!after(Action::TooLong { ino: 2, offset: 0, len: 1 }));
        let resized = |ino, size| Operation { pid: 1, what: Action::Resized { ino, size } };
        let files = |count| Operations::new((0..count).map(|at| resized(at, BYTES_MAX)).collect());
        assert!(files(4).are_short() && !files(5).are_short());
        assert!(!files(1).cut_short().are_short());
        // One file that shrinks and grows is counted once.
        let again = (0..100).map(|at| resized(2, at % 2 * BYTES_MAX)).collect();
        assert!(Operations::new(again).are_short());
        assert!(!after(Action::Copied { from: (1, 0), to: (2, 1), len: BYTES_MAX }));
    }

    #[test]
    fn operations_lead_to_the_files_that_a_program_sees() {
        let before = tree(vec![(1, dir(&[("old", 2)])), (2, file(b"0123456789"))]);
        let what = vec![
            Action::Made { name: name(1, "sub"), ino: 3, generation: 0, mode: 0o40_755 },
            Action::Made { name: name(3, "new"), ino: 4, generation: 0, mode: 0o100_000 },
            Action::Written { ino: 4, offset: 2, data: b"ab"[..].into(), mapped: false },
            Action::Zeroed { ino: 2, offset: 1, len: 2 },
            Action::Resized { ino: 2, size: 4 },
            Action::Copied { from: (2, 3), to: (4, 0), len: 1 },
            Action::Renamed { from: name(3, "new"), to: name(1, "old"), exchanged: true },
            Action::Linked { name: name(1, "link"), ino: 4 },
            Action::Removed { name: name(3, "new") },
            Action::Symlink {
                name: name(1, "sym"),
                ino: 5,
                generation: 0,
                target: b"old".to_vec(),
            },
        ];
        let operations =
            Operations::new(what.into_iter().map(|what| Operation { pid: 1, what }).collect());
        let after = operations.tree(&before, operations.all().len());
        let bytes = |ino: Ino| match &after.nodes[&ino].kind {
            Kind::File(bytes) => bytes.as_slice().to_vec(),
            _ => panic!("{ino} is no file"),
        };
        assert_eq!(after.nodes[&4].mode, 0o100_600);
        assert_eq!((bytes(4), bytes(2)), (b"3\0ab".to_vec(), b"0\x00\x003".to_vec()));
        let paths: Vec<String> =
            after.paths().values().map(|path| path.display().to_string()).collect();
        assert_eq!(paths, ["", "sub", "link", "sym"]);
        let names: Vec<String> = operations
            .names_of(&before, 4, operations.all().len())
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        assert_eq!(names, ["sub/new", "old", "link"]);
        assert_eq!(operations.tree(&before, 0), before);
    }
}
