//! Which syncs made what durable, where a program has several threads.
//!
//! 1. A sync is recorded when it has returned. It covers what was changed before it began: a file that
//!    another thread changed meanwhile is not covered, and no sync of it is recorded.
//! 2. Changes are counted in the order in which they are recorded.
//!
//! `tracer` asks it before it records a call.

use std::collections::BTreeMap;

use crate::operations::Action;
use crate::tree::Ino;

/// The number of the last change of each file and directory.
#[derive(Default)]
pub(crate) struct Changes {
    count: u64,
    last: BTreeMap<Ino, u64>,
}

impl Changes {
    /// The number of changes so far: what a sync that begins now covers.
    pub(crate) fn now(&self) -> u64 {
        self.count
    }

    /// What is recorded of an action whose call began after so many changes.
    pub(crate) fn seen(&mut self, what: Action, began: u64) -> Vec<Action> {
        let is_covered = |last: &u64| *last <= began;
        match what {
            Action::Synced { ino, .. } => {
                let covered = self.last.get(&ino).is_none_or(is_covered);
                if covered { vec![what] } else { Vec::new() }
            }
            Action::SyncedAll if self.count > began => {
                let covered = self.last.iter().filter(|(_, last)| is_covered(last));
                covered.map(|(ino, _)| Action::Synced { ino: *ino, data_only: false }).collect()
            }
            Action::SyncedAll => vec![what],
            _ => {
                self.count += 1;
                for ino in changed(&what) {
                    self.last.insert(ino, self.count);
                }
                vec![what]
            }
        }
    }
}

/// The files and directories that an action changes.
fn changed(what: &Action) -> Vec<Ino> {
    match what {
        Action::Made { name, .. } | Action::Symlink { name, .. } => vec![name.0],
        Action::Linked { name, .. } | Action::Removed { name } => vec![name.0],
        Action::Renamed { from, to, .. } => vec![from.0, to.0],
        Action::Written { ino, .. } | Action::TooLong { ino, .. } => vec![*ino],
        Action::Resized { ino, .. } | Action::Zeroed { ino, .. } => vec![*ino],
        Action::Copied { to, .. } => vec![to.0],
        Action::Synced { .. } | Action::SyncedAll => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(ino: Ino) -> Action {
        Action::Written { ino, offset: 0, data: b"x"[..].into(), mapped: false }
    }

    fn synced(ino: Ino) -> Action {
        Action::Synced { ino, data_only: false }
    }

    /// One thread is in fsync while another writes the same file and acknowledges: that write is not synced.
    #[test]
    fn a_sync_does_not_cover_what_was_written_while_it_ran() {
        let mut changes = Changes::default();
        changes.seen(written(2), 0);
        let began = changes.now();
        changes.seen(written(2), began);
        assert_eq!(changes.seen(synced(2), began), []);
        // It covers a file that was left alone, and a later sync covers all.
        assert_eq!(changes.seen(synced(3), began), [synced(3)]);
        assert_eq!(changes.seen(synced(2), changes.now()), [synced(2)]);
    }

    #[test]
    fn a_sync_of_everything_covers_the_files_that_were_left_alone() {
        let mut changes = Changes::default();
        changes.seen(written(2), 0);
        changes.seen(written(3), 0);
        let began = changes.now();
        assert_eq!(changes.seen(Action::SyncedAll, began), [Action::SyncedAll]);
        changes.seen(written(3), began);
        assert_eq!(changes.seen(Action::SyncedAll, began), [synced(2)]);
    }

    #[test]
    fn names_are_changes_of_their_directories() {
        let mut changes = Changes::default();
        let name = |dir| (dir, b"a".to_vec());
        let renamed = Action::Renamed { from: name(1), to: name(4), exchanged: false };
        changes.seen(renamed, 0);
        assert_eq!([1, 4].map(|dir| changes.seen(synced(dir), 0).len()), [0, 0]);
    }
}
