//! What the program did to its files, in order: so that it is known which files there were at a moment,
//! and what was synced.
//!
//! A leg that cannot see this gives none; a failure is then explained by the lost writes alone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::tree::{Ino, Kind, Node, Tree};

/// A name in a directory.
pub type Name = (Ino, Vec<u8>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Made { name: Name, ino: Ino, generation: u64, mode: u16 },
    Symlink { name: Name, ino: Ino, generation: u64, target: Vec<u8> },
    Linked { name: Name, ino: Ino },
    Removed { name: Name },
    Renamed { from: Name, to: Name, exchanged: bool },
    Written { ino: Ino, offset: u64, data: Arc<[u8]>, mapped: bool },
    Resized { ino: Ino, size: u64 },
    Zeroed { ino: Ino, offset: u64, len: u64 },
    Copied { from: (Ino, u64), to: (Ino, u64), len: u64 },
    Synced { ino: Ino, data_only: bool },
    SyncedAll,
}

/// A change or a sync, and the process that asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    pub pid: u32,
    pub what: What,
}

/// All deeds of a run.
#[derive(Clone, Debug, Default)]
pub struct Deeds(Vec<Deed>);

impl Deeds {
    pub fn new(deeds: Vec<Deed>) -> Self {
        Self(deeds)
    }

    pub fn all(&self) -> &[Deed] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The files after the first `count` deeds.
    pub fn tree(&self, before: &Tree, count: usize) -> Tree {
        let mut tree = before.clone();
        self.0[..count].iter().for_each(|deed| apply(&mut tree, &deed.what));
        tree
    }

    /// The names that a file had during the first `count` deeds, first to last. An inode's number that is
    /// used again begins a new list.
    pub fn names_of(&self, before: &Tree, ino: Ino, count: usize) -> Vec<PathBuf> {
        let mut tree = before.clone();
        let mut names: Vec<PathBuf> = tree.paths().remove(&ino).into_iter().collect();
        for deed in &self.0[..count] {
            match &deed.what {
                // Contents have no part in it.
                What::Written { .. } | What::Copied { .. } | What::Resized { .. } => continue,
                What::Zeroed { .. } | What::Synced { .. } | What::SyncedAll => continue,
                What::Made { ino: made, .. } | What::Symlink { ino: made, .. } if *made == ino => {
                    names.clear();
                }
                _ => {}
            }
            apply(&mut tree, &deed.what);
            let name = tree.paths().remove(&ino);
            if let Some(name) = name.filter(|name| names.last() != Some(name)) {
                names.push(name);
            }
        }
        names
    }
}

/// Makes a change.
pub(crate) fn apply(tree: &mut Tree, what: &What) {
    let mut node = |ino: Ino, generation: u64, kind: Kind, mode: u16| {
        tree.nodes.insert(ino, Node { kind, mode, generation, attributes: 0 });
    };
    match what {
        What::Made { name, ino, generation, mode } => {
            let kind = match mode & 0o170_000 {
                0o040_000 => Kind::Dir(BTreeMap::new()),
                0o100_000 => Kind::File(Arc::default()),
                _ => Kind::Other,
            };
            node(*ino, *generation, kind, *mode);
            enter(tree, name, *ino);
        }
        What::Symlink { name, ino, generation, target } => {
            node(*ino, *generation, Kind::Symlink(target.clone()), 0o120_777);
            enter(tree, name, *ino);
        }
        What::Linked { name, ino } => enter(tree, name, *ino),
        What::Removed { name } => drop(take(tree, name)),
        What::Renamed { from, to, exchanged } => {
            let moved = take(tree, from);
            let replaced = take(tree, to);
            if let Some(ino) = moved {
                enter(tree, to, ino);
            }
            if let (true, Some(ino)) = (exchanged, replaced) {
                enter(tree, from, ino);
            }
        }
        What::Written { ino, offset, data, .. } => content(tree, *ino, |bytes| {
            let at = usize::try_from(*offset).unwrap_or(usize::MAX);
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[at..at + data.len()].copy_from_slice(data);
        }),
        What::Resized { ino, size } => content(tree, *ino, |bytes| {
            bytes.resize(usize::try_from(*size).unwrap_or(0), 0);
        }),
        What::Zeroed { ino, offset, len } => content(tree, *ino, |bytes| {
            let inside = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            let range = inside(*offset)..inside(offset.saturating_add(*len));
            bytes[range].fill(0);
        }),
        What::Copied { from: (from, from_at), to: (to, to_at), len } => {
            let Some(Node { kind: Kind::File(bytes), .. }) = tree.nodes.get(from) else { return };
            let inside = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            let data = bytes[inside(*from_at)..inside(from_at.saturating_add(*len))].into();
            apply(tree, &What::Written { ino: *to, offset: *to_at, data, mapped: false });
        }
        What::Synced { .. } | What::SyncedAll => {}
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
    fn deeds_lead_to_the_files_that_a_program_sees() {
        let before = tree(vec![(1, dir(&[("old", 2)])), (2, file(b"0123456789"))]);
        let what = vec![
            What::Made { name: name(1, "sub"), ino: 3, generation: 0, mode: 0o40_755 },
            What::Made { name: name(3, "new"), ino: 4, generation: 0, mode: 0o100_600 },
            What::Written { ino: 4, offset: 2, data: b"ab"[..].into(), mapped: false },
            What::Zeroed { ino: 2, offset: 1, len: 2 },
            What::Resized { ino: 2, size: 4 },
            What::Copied { from: (2, 3), to: (4, 0), len: 1 },
            What::Renamed { from: name(3, "new"), to: name(1, "old"), exchanged: true },
            What::Linked { name: name(1, "link"), ino: 4 },
            What::Removed { name: name(3, "new") },
            What::Symlink { name: name(1, "sym"), ino: 5, generation: 0, target: b"old".to_vec() },
        ];
        let deeds = Deeds::new(what.into_iter().map(|what| Deed { pid: 1, what }).collect());
        let after = deeds.tree(&before, deeds.all().len());
        let bytes = |ino: Ino| match &after.nodes[&ino].kind {
            Kind::File(bytes) => bytes.as_slice().to_vec(),
            _ => panic!("{ino} is no file"),
        };
        assert_eq!((bytes(4), bytes(2)), (b"3\0ab".to_vec(), b"0\x00\x003".to_vec()));
        let paths: Vec<String> =
            after.paths().values().map(|path| path.display().to_string()).collect();
        assert_eq!(paths, ["", "sub", "link", "sym"]);
        let names: Vec<String> = deeds
            .names_of(&before, 4, deeds.all().len())
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        assert_eq!(names, ["sub/new", "old", "link"]);
        assert_eq!(deeds.tree(&before, 0), before);
    }
}
