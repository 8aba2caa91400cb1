//! Finds the call that a program lacks: adds to the failed state what a sync would have kept, and asks the
//! user's check whether that is enough.
//!
//! 1. A call is named only if the check passes with what it keeps, and fails without: the calls named
//!    are a smallest set.
//! 2. What is tried are trees in memory, written to a directory of the host. If the check does not fail
//!    on the failed state there, nothing is concluded from it.
//! 3. Not every fault lacks a call: a program may acknowledge too early, or pass through files that the
//!    check refuses, whatever is synced. Then that is said.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use uxfs_testkit::Event;

use crate::operations::{Action, Name, Operation, apply};
use crate::recorder::{Mark, Run};
use crate::tree::{Ino, Kind, Node, Tree};

/// Most later moments that are tried.
const LATER: usize = 200;

/// A call that was missing before an acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The call, as in `fsync of m0`.
    pub call: String,
    /// What it would have kept, and when that was done.
    pub keeps: String,
    /// The number of the operation after which it belongs, from 1, if that is known.
    pub after: Option<usize>,
}

/// Why a state fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// With these calls the state would have passed.
    Missing(Vec<Missing>),
    /// The program acknowledged before it did this.
    Early {
        operation: String,
        /// The operation's number, from 1.
        number: usize,
    },
    /// After this, and before what comes next, the files are ones that the check refuses, however they
    /// are synced.
    Order {
        operation: String,
        number: usize,
    },
    /// This overwrites content in place, and a power cut during it leaves some of both.
    Torn {
        operation: String,
        number: usize,
    },
    /// The program synced this, and the file system lost it.
    Broken {
        what: Vec<String>,
    },
    Unknown {
        why: String,
    },
}

/// What a call keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    File(Ino),
    Dir(Ino),
}

/// A failed state, and what is needed to explain it.
pub(crate) struct Case<'a> {
    pub(crate) run: &'a Run,
    /// The files before the program ran.
    pub(crate) before: &'a Tree,
    /// The event before which the power failed.
    pub(crate) at: usize,
    /// The files of the failed state.
    pub(crate) recovered: &'a Tree,
    /// Does the check accept these files?
    pub(crate) passes: &'a dyn Fn(&Tree) -> bool,
}

impl Case<'_> {
    pub(crate) fn explain(&self) -> Explanation {
        if self.run.operations.is_empty() {
            return unknown("what the program did to its files was not recorded");
        }
        if !self.run.operations.are_short() {
            return unknown("a file of the program was too long to be followed");
        }
        if (self.passes)(self.recovered) {
            return unknown("the check accepts the same files in a directory of the host");
        }
        let done = self.run.operations_before(self.at);
        let now = self.tree(done);
        if (self.passes)(&now) {
            return self.missing(&now, done);
        }
        if let Some(found) = self.unsynced_mapping(&now, done) {
            return found;
        }
        if let Some(found) = self.refused_between(done) {
            return found;
        }
        let mut later = (done + 1..=self.operations().len()).take(LATER);
        match later.find(|count| (self.passes)(&self.tree(*count))) {
            Some(number) => {
                let operation = self.words(&self.operations()[number - 1]);
                Explanation::Early { operation, number }
            }
            None => unknown(
                "the check refuses the files also as the program itself saw them at that moment",
            ),
        }
    }

    fn operations(&self) -> &[Operation] {
        self.run.operations.all()
    }

    fn tree(&self, count: usize) -> Tree {
        self.run.operations.tree(self.before, count)
    }

    /// The event of the last acknowledgement before the cut.
    fn last_ack(&self) -> usize {
        let last = Event::Mark(Mark::Acknowledged(self.run.acks_before(self.at)));
        self.run.recording.events().iter().position(|event| *event == last).unwrap_or(0)
    }

    /// Which operation after the last acknowledgement made files that the check refuses, from files that it
    /// accepts?
    fn refused_between(&self, done: usize) -> Option<Explanation> {
        let acked = self.run.operations_before(self.last_ack());
        let refused = |count: &usize| !(self.passes)(&self.tree(*count));
        if refused(&acked) {
            return None;
        }
        let number = (acked + 1..=done).find(refused)?;
        let operation = self.words(&self.operations()[number - 1]);
        Some(Explanation::Order { operation, number })
    }

    /// The fewest syncs that make the check pass.
    fn missing(&self, now: &Tree, done: usize) -> Explanation {
        let all = differences(now, self.recovered);
        let passes = |kept: &BTreeSet<Kept>| (self.passes)(&repaired(self.recovered, now, kept));
        if !passes(&all) {
            return unknown("owners, permissions or times differ, which are not followed");
        }
        let mut least = all.clone();
        for kept in &all {
            let mut fewer = least.clone();
            fewer.remove(kept);
            if passes(&fewer) {
                least = fewer;
            }
        }
        let operations = &self.operations()[..done];
        let returned = &operations[..self.returned(done)];
        let synced = |kept: &Kept| {
            let changed = changed_last(operations, *kept).unwrap_or(0);
            changed < returned.len() && is_synced(returned, *kept)
        };
        if least.iter().all(synced) {
            let what = least.iter().map(|kept| self.name(now, *kept)).collect();
            return Explanation::Broken { what };
        }
        if let Some(number) = self.torn(&least, done) {
            let operation = self.words(&self.operations()[number - 1]);
            return Explanation::Torn { operation, number };
        }
        // What is synced before the next acknowledgement was lost only because the power failed meanwhile.
        let acked = self.run.operations_before(self.last_ack());
        let promised = &self.operations()[..self.next_ack_operations()];
        let under_way = |kept: &Kept| {
            changed_last(operations, *kept) >= Some(acked) && is_synced(promised, *kept)
        };
        if let (true, Some(found)) = (least.iter().all(under_way), self.refused_between(done)) {
            return found;
        }
        // If the files of the acknowledgement are enough, the calls belong before it.
        let enough = (self.passes)(&repaired(self.recovered, &self.tree(acked), &least));
        let until = if enough { acked } else { done };
        let lacking = least.iter().filter(|kept| !synced(kept));
        Explanation::Missing(lacking.map(|kept| self.call(now, *kept, until, done)).collect())
    }

    /// How many operations had surely returned at the cut: one may have been under way, a sync for example.
    fn returned(&self, done: usize) -> usize {
        let acked = self.run.operations_before(self.last_ack());
        let Some(last) = done.checked_sub(1) else { return 0 };
        let pid = self.operations()[last].pid;
        let alone = self.operations()[..done].iter().all(|operation| operation.pid == pid);
        // Of several processes, each may have one under way.
        if alone { acked.max(last) } else { acked }
    }

    /// The overwriting of a file that the program does sync, before it acknowledges: then no sync is
    /// missing.
    fn torn(&self, least: &BTreeSet<Kept>, done: usize) -> Option<usize> {
        let [Kept::File(file)] = least.iter().copied().collect::<Vec<_>>()[..] else { return None };
        let acked = self.run.operations_before(self.last_ack());
        let old = self.tree(acked);
        let Some(Kind::File(old)) = old.nodes.get(&file).map(|node| &node.kind) else {
            return None;
        };
        let overwrites = |operation: &&Operation| match &operation.what {
            Action::Written { ino, offset, .. } => *ino == file && *offset < old.len() as u64,
            Action::Resized { ino, size } => *ino == file && *size < old.len() as u64,
            _ => false,
        };
        let place = self.operations()[acked..done].iter().position(|one| overwrites(&one))?;
        let next = self.next_ack_operations();
        is_synced(&self.operations()[..next], Kept::File(file)).then_some(acked + place + 1)
    }

    /// The number of operations before the next acknowledgement after the cut.
    fn next_ack_operations(&self) -> usize {
        let events = self.run.recording.events();
        let is_ack = |at: &usize| matches!(events[*at], Event::Mark(Mark::Acknowledged(_)));
        let next = (self.at..events.len()).find(is_ack).unwrap_or(events.len());
        self.run.operations_before(next)
    }

    /// Is it a page that was changed through a mapping, and that the kernel wrote back only later?
    fn unsynced_mapping(&self, now: &Tree, done: usize) -> Option<Explanation> {
        let mapped =
            |operation: &&Operation| matches!(operation.what, Action::Written { mapped: true, .. });
        let later: Vec<&Operation> = self.operations()[done..].iter().filter(mapped).collect();
        let files: BTreeSet<Ino> = later
            .iter()
            .filter_map(|operation| match operation.what {
                Action::Written { ino, .. } => Some(ino),
                _ => None,
            })
            .collect();
        let with = |files: &BTreeSet<Ino>| {
            let mut tree = now.clone();
            for operation in &later {
                if matches!(&operation.what, Action::Written { ino, .. } if files.contains(ino)) {
                    apply(&mut tree, &operation.what);
                }
            }
            (self.passes)(&tree)
        };
        if files.is_empty() || !with(&files) {
            return None;
        }
        let least = files.iter().fold(files.clone(), |least, file| {
            let mut fewer = least.clone();
            fewer.remove(file);
            if with(&fewer) { fewer } else { least }
        });
        let call = |ino: &Ino| unsynced_page(&self.name(now, Kept::File(*ino)), None);
        Some(Explanation::Missing(least.iter().map(call).collect()))
    }

    /// The name of what a call keeps.
    fn name(&self, now: &Tree, kept: Kept) -> String {
        let (Kept::File(ino) | Kept::Dir(ino)) = kept;
        let path = now.paths().remove(&ino);
        shown(path.or_else(|| self.names(ino, self.run.operations_before(self.at)).pop()))
    }

    /// The call that keeps this, as it was after `until` of the `done` operations.
    fn call(&self, now: &Tree, kept: Kept, until: usize, done: usize) -> Missing {
        let name = self.name(now, kept);
        let changed = |count: usize| changed_last(&self.operations()[..count], kept);
        let place = changed(until).or_else(|| changed(done));
        let last = place.map(|at| &self.operations()[at]);
        let keeps = last.map(|operation| self.words(operation));
        let after = place.map(|at| at + 1);
        match kept {
            Kept::File(ino) => {
                let is_mapped =
                    |what: &Action| matches!(what, Action::Written { mapped: true, .. });
                if last.is_some_and(|operation| is_mapped(&operation.what)) {
                    return unsynced_page(&name, after);
                }
                let names = self.names(ino, done);
                let first = names.first().filter(|first| shown(Some((*first).clone())) != name);
                let when = first.map_or(String::new(), |first| {
                    format!(", before {} is renamed to it", first.display())
                });
                let call = format!("fsync (or fdatasync) of {name}{when}");
                Missing { call, keeps: keeps.unwrap_or_else(|| "its content".into()), after }
            }
            Kept::Dir(_) => {
                let call = format!("fsync of the directory {name}");
                Missing { call, keeps: keeps.unwrap_or_else(|| "its names".into()), after }
            }
        }
    }

    /// The names of a file during the first `count` operations.
    fn names(&self, ino: Ino, count: usize) -> Vec<PathBuf> {
        self.run.operations.names_of(self.before, ino, count)
    }

    /// A operation in words.
    fn words(&self, operation: &Operation) -> String {
        let place = self.operations().iter().position(|other| std::ptr::eq(other, operation));
        let count = place.map_or(self.operations().len(), |at| at + 1);
        let file = |ino: Ino| shown(self.names(ino, count).pop());
        let dirs = |dir: Ino| self.names(dir, count).pop();
        let at = |(dir, name): &Name| {
            let name = String::from_utf8_lossy(name).into_owned();
            shown(Some(dirs(*dir).unwrap_or_default().join(name)))
        };
        operation.words(&file, &at)
    }
}

/// The call that keeps what was stored in a file's mapping.
fn unsynced_page(name: &str, after: Option<usize>) -> Missing {
    let keeps = "what was stored in its mapping".into();
    Missing { call: format!("msync(MS_SYNC) or fsync of {name}"), keeps, after }
}

fn unknown(why: &str) -> Explanation {
    Explanation::Unknown { why: why.into() }
}

fn shown(path: Option<PathBuf>) -> String {
    match path {
        Some(path) if path.as_os_str().is_empty() => ".".into(),
        Some(path) => path.display().to_string(),
        None => "a file without a name".into(),
    }
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
fn changed_last(operations: &[Operation], kept: Kept) -> Option<usize> {
    operations.iter().rposition(|operation| match kept {
        Kept::File(ino) => changes_content(operation, ino),
        Kept::Dir(ino) => changes_names(operation, ino),
    })
}

/// Was it synced after its last change?
fn is_synced(operations: &[Operation], kept: Kept) -> bool {
    let changed = changed_last(operations, kept);
    let (Kept::File(wanted) | Kept::Dir(wanted)) = kept;
    operations[changed.map_or(0, |at| at + 1)..].iter().any(|operation| match operation.what {
        Action::Synced { ino, .. } => ino == wanted,
        Action::SyncedAll => true,
        _ => false,
    })
}

/// The files and directories that differ from what the program sees.
fn differences(now: &Tree, recovered: &Tree) -> BTreeSet<Kept> {
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
fn repaired(recovered: &Tree, now: &Tree, kept: &BTreeSet<Kept>) -> Tree {
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
