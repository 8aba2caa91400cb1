//! What a sync of one file or directory keeps, and which of them a state lacks.
//!
//! 1. A sync of a file keeps its content. One of a directory keeps its names, and of a new file below no
//!    content.
//! 2. A file is known by number and generation: a number is used again.
//!
//! `explain` puts trees together with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::operations::{Action, Operation};
use crate::tree::{Ino, Kind, Node, Tree};

/// What a call keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kept {
    File(Ino),
    Dir(Ino),
}

fn changes_content(operation: &Operation, file: Ino) -> bool {
    match &operation.what {
        Action::Written { ino, .. } | Action::Resized { ino, .. } | Action::Zeroed { ino, .. } => {
            *ino == file
        }
        Action::Copied { to, .. } => to.0 == file,
        _ => false,
    }
}

fn changes_names(operation: &Operation, dir: Ino) -> bool {
    match &operation.what {
        Action::Made { name, .. }
        | Action::Symlink { name, .. }
        | Action::Linked { name, .. }
        | Action::Removed { name } => name.0 == dir,
        Action::Renamed { from, to, .. } => from.0 == dir || to.0 == dir,
        _ => false,
    }
}

/// The number of its last change.
pub(crate) fn changed_last(operations: &[Operation], kept: Kept) -> Option<usize> {
    operations.iter().rposition(|operation| match kept {
        Kept::File(ino) => changes_content(operation, ino),
        Kept::Dir(ino) => changes_names(operation, ino),
    })
}

/// Was it synced after its last change?
pub(crate) fn is_synced(operations: &[Operation], kept: Kept) -> bool {
    let changed = changed_last(operations, kept);
    let (Kept::File(wanted) | Kept::Dir(wanted)) = kept;
    operations[changed.map_or(0, |at| at + 1)..].iter().any(|operation| match operation.what {
        Action::Synced { ino, .. } => ino == wanted,
        Action::SyncedAll => true,
        _ => false,
    })
}

/// The files and directories that differ from what the program sees.
pub(crate) fn differences(now: &Tree, recovered: &Tree) -> BTreeSet<Kept> {
    let mut found = BTreeSet::new();
    now.walk(&mut |_, ino, node| {
        let other = recovered.same(ino, node).map(|node| &node.kind);
        let is_another =
            |ino: &Ino| now.nodes.get(ino).is_some_and(|node| recovered.same(*ino, node).is_none());
        match &node.kind {
            // An empty file comes with its name.
            Kind::File(bytes)
                if other != Some(&node.kind) && (other.is_some() || !bytes.is_empty()) =>
            {
                found.insert(Kept::File(ino));
            }
            Kind::Dir(names) if other != Some(&node.kind) || names.values().any(is_another) => {
                found.insert(Kept::Dir(ino));
            }
            _ => {}
        }
    });
    found
}

/// The recovered files with what these calls keep.
pub(crate) fn repaired(recovered: &Tree, now: &Tree, kept: &BTreeSet<Kept>) -> Tree {
    let mut tree = recovered.clone();
    // Directories come first: without its name a new file cannot be seen.
    for kept in kept.iter().rev() {
        match kept {
            Kept::File(ino) => {
                let node = now.nodes.get(ino).filter(|node| tree.same(*ino, node).is_some());
                tree.nodes.extend(node.map(|node| (*ino, node.clone())));
            }
            Kept::Dir(dir) => {
                let Some(node) = now.nodes.get(dir) else { continue };
                tree.nodes.insert(*dir, node.clone());
                let Kind::Dir(names) = &node.kind else { continue };
                for ino in names.values() {
                    let node = now.nodes.get(ino).filter(|node| tree.same(*ino, node).is_none());
                    if let Some(node) = node {
                        tree.nodes.insert(*ino, empty(node));
                    }
                }
            }
        }
    }
    tree
}

/// What a directory's sync alone keeps of a new file.
fn empty(node: &Node) -> Node {
    let kind = match &node.kind {
        Kind::File(_) => Kind::File(Arc::default()),
        Kind::Dir(_) => Kind::Dir(Default::default()),
        other => other.clone(),
    };
    Node { kind, ..node.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::{dir, file, tree};

    /// A journal that was removed has come back. Its number is that of the next one meanwhile.
    #[test]
    fn a_file_that_has_the_number_of_another_is_not_taken_for_it() {
        let names = || dir(&[("journal", 2)]);
        let recovered = tree(vec![(1, names()), (2, file(b"old"))]);
        let now = tree(vec![(1, names()), (2, Node { generation: 1, ..file(b"new") })]);
        let all = BTreeSet::from([Kept::File(2), Kept::Dir(1)]);
        assert_eq!(differences(&now, &recovered), all);
        let journal = |kept: &[Kept]| {
            let tree = repaired(&recovered, &now, &kept.iter().copied().collect());
            tree.nodes[&2].kind.clone()
        };
        assert_eq!(journal(&[Kept::Dir(1)]), file(b"").kind);
        assert_eq!(journal(&[Kept::File(2)]), file(b"old").kind);
        assert_eq!(journal(&[Kept::Dir(1), Kept::File(2)]), file(b"new").kind);
        let changed = tree(vec![(1, names()), (2, file(b"new"))]);
        assert_eq!(differences(&changed, &recovered), BTreeSet::from([Kept::File(2)]));
    }
}
