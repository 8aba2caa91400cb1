//! The names of files, while operations change them: in one pass, for reports.
//!
//! 1. A file with several links has the name that it got last. When that is removed it has none
//!    here.
//! 2. A directory that is not known counts as the root: nothing is known without the files before.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::operations::{Action, Name};
use crate::tree::{Ino, Kind, Tree};

/// Most directories above a file that its path names.
const DEPTH_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct Names {
    root: Option<Ino>,
    of: HashMap<Ino, Name>,
    at: HashMap<Name, Ino>,
}

impl Names {
    /// The names in these files.
    pub(crate) fn new(before: Option<&Tree>) -> Self {
        let mut names = Self { root: before.map(|tree| tree.root), ..Self::default() };
        for (dir, node) in before.iter().flat_map(|tree| &tree.nodes) {
            let Kind::Dir(entries) = &node.kind else { continue };
            for (name, ino) in entries {
                names.enter((*dir, name.clone()), *ino);
            }
        }
        names
    }

    /// Follows an operation.
    pub(crate) fn apply(&mut self, what: &Action) {
        match what {
            Action::Made { name, ino, .. }
            | Action::Symlink { name, ino, .. }
            | Action::Linked { name, ino } => self.enter(name.clone(), *ino),
            Action::Removed { name } => drop(self.take(name)),
            Action::Renamed { from, to, exchanged } => {
                let (moved, replaced) = (self.take(from), self.take(to));
                if let Some(ino) = moved {
                    self.enter(to.clone(), ino);
                }
                if let (true, Some(ino)) = (*exchanged, replaced) {
                    self.enter(from.clone(), ino);
                }
            }
            Action::Written { .. } | Action::Resized { .. } | Action::Zeroed { .. } => {}
            Action::TooLong { .. } | Action::Copied { .. } => {}
            Action::Synced { .. } | Action::SyncedAll => {}
        }
    }

    fn enter(&mut self, name: Name, ino: Ino) {
        self.at.insert(name.clone(), ino);
        self.of.insert(ino, name);
    }

    fn take(&mut self, name: &Name) -> Option<Ino> {
        let ino = self.at.remove(name)?;
        if self.of.get(&ino) == Some(name) {
            self.of.remove(&ino);
        }
        Some(ino)
    }

    /// A file in words.
    pub(crate) fn file(&self, ino: Ino) -> String {
        match self.of.get(&ino) {
            Some(name) => self.place(name),
            None if self.root == Some(ino) => ".".into(),
            None => "a file without a name".into(),
        }
    }

    /// A name in a directory, in words.
    pub(crate) fn place(&self, name: &Name) -> String {
        let mut parts = vec![name.1.as_slice()];
        let mut dir = name.0;
        while let (Some((above, name)), true) = (self.of.get(&dir), parts.len() < DEPTH_MAX) {
            parts.push(name);
            dir = *above;
        }
        let parts = parts.iter().rev().map(|part| String::from_utf8_lossy(part).into_owned());
        parts.collect::<PathBuf>().display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::{dir, file, tree};

    #[test]
    fn names_follow_operations() {
        let before = tree(vec![(1, dir(&[("sub", 2)])), (2, dir(&[("old", 3)])), (3, file(b""))]);
        let mut names = Names::new(Some(&before));
        let name = |dir: Ino, name: &str| (dir, name.as_bytes().to_vec());
        assert_eq!((names.file(1), names.file(3)), (".".into(), "sub/old".into()));
        let renamed = |from, to, exchanged| Action::Renamed { from: name(2, from), to, exchanged };
        names.apply(&Action::Made { name: name(1, "new"), ino: 4, generation: 0, mode: 0 });
        names.apply(&renamed("old", name(1, "new"), true));
        assert_eq!((names.file(3), names.file(4)), ("new".into(), "sub/old".into()));
        names.apply(&renamed("old", name(1, "new"), false));
        assert_eq!((names.file(4), names.file(3)), ("new".into(), "a file without a name".into()));
        names.apply(&Action::Linked { name: name(2, "link"), ino: 4 });
        names.apply(&Action::Removed { name: name(1, "new") });
        assert_eq!(names.file(4), "sub/link");
        names.apply(&Action::Removed { name: name(2, "link") });
        assert_eq!(names.file(4), "a file without a name");
    }

    /// What operations say is not always true of a volume: a loop must end.
    #[test]
    fn directories_in_a_loop_have_a_path_all_the_same() {
        let mut names = Names::default();
        names.enter((1, b"a".to_vec()), 2);
        names.enter((2, b"b".to_vec()), 1);
        assert!(names.file(1).len() < 4 * DEPTH_MAX);
    }
}
