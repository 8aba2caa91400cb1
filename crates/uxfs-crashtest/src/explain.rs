//! Finds the call that a program lacks: adds to the failed state what a sync would have kept, and asks the
//! user's check whether that is enough.
//!
//! 1. A call is named only if the check passes with what it keeps, and fails without: the calls named
//!    are a smallest set.
//! 2. What is tried are trees in memory, written to a directory of the host. If the check does not fail
//!    on the failed state there, nothing is concluded from it.
//!    If it cannot be asked, or only of too many files, nothing is concluded either.
//! 3. Not every fault lacks a call: a program may acknowledge too early, or pass through files that the
//!    check refuses, whatever is synced. Then that is said.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::PathBuf;

use uxfs_testkit::Event;

use crate::kept::{Kept, changed_last, differences, is_synced, repaired};
use crate::operations::{Action, Name, Operation, apply};
use crate::recorder::{Mark, Run};
use crate::tree::{Ino, Kind, Tree};

/// Most later moments that are tried.
const LATER: usize = 200;

/// Most files of which the check is asked.
const ASKED_MAX: usize = 500;

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

/// Does the check accept these files? An error says why that is unknown.
type Accepts<'a> = dyn Fn(&Tree) -> Result<bool, String> + 'a;

/// A failed state, and what is needed to explain it.
pub(crate) struct Case<'a> {
    run: &'a Run,
    /// The files before the program ran.
    before: &'a Tree,
    /// The event before which the power failed.
    at: usize,
    /// The files of the failed state.
    recovered: &'a Tree,
    accepts: &'a Accepts<'a>,
    asked: Cell<usize>,
    /// Why an answer is missing.
    unsure: RefCell<Option<String>>,
}

impl<'a> Case<'a> {
    pub(crate) fn new(
        run: &'a Run,
        before: &'a Tree,
        at: usize,
        recovered: &'a Tree,
        accepts: &'a Accepts<'a>,
    ) -> Self {
        let (asked, unsure) = (Cell::new(0), RefCell::new(None));
        Self { run, before, at, recovered, accepts, asked, unsure }
    }

    pub(crate) fn explain(&self) -> Explanation {
        let found = self.explained();
        match self.unsure.take() {
            None => found,
            Some(why) => unknown(&format!("the check could not be asked: {why}")),
        }
    }

    /// Does the check accept these files? If that is unknown, no explanation is given.
    fn passes(&self, tree: &Tree) -> bool {
        let mut unsure = self.unsure.borrow_mut();
        if unsure.is_some() {
            return false;
        }
        self.asked.set(self.asked.get() + 1);
        let accepted = match self.asked.get() > ASKED_MAX {
            true => Err("too many files would have to be tried".into()),
            false => (self.accepts)(tree),
        };
        accepted.unwrap_or_else(|why| {
            *unsure = Some(why);
            false
        })
    }

    fn explained(&self) -> Explanation {
        if self.run.operations.is_empty() {
            return unknown("what the program did to its files was not recorded");
        }
        if !self.run.operations.are_short() {
            return unknown("what the program wrote is too long to be followed");
        }
        if self.passes(self.recovered) {
            return unknown("the check accepts the same files in a directory of the host");
        }
        let done = self.run.operations_before(self.at);
        let now = self.tree(done);
        if self.passes(&now) {
            return self.missing(&now, done);
        }
        if let Some(found) = self.unsynced_mapping(&now, done) {
            return found;
        }
        if let Some(found) = self.refused_between(done) {
            return found;
        }
        let mut later = (done + 1..=self.operations().len()).take(LATER);
        match later.find(|count| self.passes(&self.tree(*count))) {
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
        let refused = |count: &usize| !self.passes(&self.tree(*count));
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
        let passes = |kept: &BTreeSet<Kept>| self.passes(&repaired(self.recovered, now, kept));
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
        if least.iter().all(under_way)
            && let Some(found) = self.refused_between(done)
        {
            return found;
        }
        // If the files of the acknowledgement are enough, the calls belong before it.
        let enough = self.passes(&repaired(self.recovered, &self.tree(acked), &least));
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
        // A new file may have the number of one that is gone.
        let now = self.tree(done);
        let same = old.nodes.get(&file).filter(|node| now.same(file, node).is_some());
        let Some(Kind::File(old)) = same.map(|node| &node.kind) else { return None };
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
            self.passes(&tree)
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

#[cfg(test)]
mod tests {
    use uxfs_disk::MemDev;

    use super::*;
    use crate::recorder::Recorder;
    use crate::tree::tests::{dir, tree};

    /// What is said of a run with `count` changes after an acknowledgement, of which the power failed behind all.
    fn explained(count: u64, accepts: &Accepts<'_>) -> Explanation {
        let recorder = Recorder::new(MemDev::new(4096), 1 << 20);
        recorder.acknowledge("one");
        for ino in 2..2 + count {
            let name = (1, ino.to_string().into_bytes());
            let what = Action::Made { name, ino, generation: 0, mode: 0o100_644 };
            recorder.record_operation(Operation { pid: 1, what });
        }
        let run = recorder.finish(MemDev::new(4096));
        let before = tree(vec![(1, dir(&[]))]);
        Case::new(&run, &before, run.recording.len(), &before, accepts).explain()
    }

    /// A check that cannot be run does not refuse anything.
    #[test]
    fn nothing_is_concluded_from_a_check_that_could_not_be_asked() {
        let asked = Cell::new(0);
        for fails_at in 1..4 {
            asked.set(0);
            let full = |tree: &Tree| {
                asked.set(asked.get() + 1);
                let full = asked.get() >= fails_at;
                if full { Err("no space".into()) } else { Ok(tree.nodes.len() == 4) }
            };
            let explanation = explained(3, &full).to_string();
            assert!(explanation.contains("could not be asked: no space"), "{explanation}");
            assert_eq!(asked.get(), fails_at, "asked on after the failure");
        }
    }

    #[test]
    fn the_check_is_not_asked_without_end() {
        let asked = Cell::new(0);
        let refuses_at_last = |tree: &Tree| {
            asked.set(asked.get() + 1);
            Ok(asked.get() > 2 && tree.nodes.len() <= 2000)
        };
        let explanation = explained(2000, &refuses_at_last).to_string();
        assert!(asked.get() <= ASKED_MAX, "{}", asked.get());
        assert!(explanation.contains("too many files"), "{explanation}");
    }
}
