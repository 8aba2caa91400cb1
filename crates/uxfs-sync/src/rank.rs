//! The order of locks: a thread that holds a lock waits only for locks of a higher rank.
//!
//! 1. In debug builds, waiting for a lock asserts that its rank is above the rank of every lock that
//!    the thread holds. A thread may hold several locks of one rank only where
//!    [`Rank::allows_several`] says it; the module that owns the locks gives their order.
//! 2. `try_lock` asserts nothing, because it cannot deadlock.
//! 3. In release builds ranks take no space and no time.
//! 4. ARCHITECTURE.md shows this order as a table; `uxfs/tests/it/layers.rs` compares the two.
//!
//! Used by the locks of this crate.

/// The ranks, in the order in which a thread takes the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Rank {
    /// Serializes renames of directories between parents.
    Moves,
    /// Data of a file; several in the order of their shards.
    IoLock,
    /// Serializes inactivation of unlinked inodes.
    Inactivation,
    /// Write-back of a file; several in the order of inode numbers.
    Writeback,
    /// Cuts an epoch, or writes data back in ordered mode.
    Epoch,
    /// Held for reading by transactions and writers of data in ordered mode; held for writing to cut an
    /// epoch.
    Freeze,
    /// Serializes AIL pushes.
    Push,
    /// Drives the checkpoint pipeline.
    Driver,
    /// Held for reading by each open transaction; held for writing to exclude them.
    Gate,
    /// An inode; several in the order of inode numbers.
    Inode,
    /// An allocation group; several in the order of their numbers.
    Ag,
    /// The `needsrepair` mark in the superblock.
    Marked,
    Cil,
    /// A shard of the buffer cache's index.
    BufIndex,
    /// Content of a metadata buffer; several of one group or file, whose lock excludes other writers.
    Buffer,
    /// A shard of the table of files with dirty data.
    DirtyFiles,
    /// Dirty pages of a file.
    Pages,
    Ail,
    /// State of the journal: pipeline, log space, grant queue.
    Journal,
    /// A thread that holds a lock of this rank waits for no other lock.
    #[default]
    Leaf,
}

impl Rank {
    /// Returns true if a thread may hold several locks of this rank.
    #[cfg(debug_assertions)]
    fn allows_several(self) -> bool {
        matches!(self, Self::IoLock | Self::Writeback | Self::Inode | Self::Ag | Self::Buffer)
    }
}

#[cfg(debug_assertions)]
mod checked {
    use core::cell::RefCell;

    use super::Rank;

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// The rank of a lock.
    #[derive(Clone, Copy, Debug, Default)]
    pub(crate) struct Of(Rank);

    /// Marks a lock as held by this thread, until it is dropped.
    #[derive(Debug)]
    pub(crate) struct Held(Rank);

    impl Of {
        /// The rank as a lock stores it.
        pub(crate) const fn new(rank: Rank) -> Self {
            Self(rank)
        }

        /// Checks the order before the thread waits for the lock.
        #[track_caller]
        pub(crate) fn wait(self) -> Held {
            check(self.0);
            self.hold()
        }

        /// Records that the thread holds the lock.
        pub(crate) fn hold(self) -> Held {
            // A thread that exits may still drop guards, after its list.
            let _ended = HELD.try_with(|held| held.borrow_mut().push(self.0));
            Held(self.0)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let _ended = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                // A guard may come from another thread, or be dropped out of order.
                if let Some(at) = held.iter().rposition(|rank| *rank == self.0) {
                    held.remove(at);
                }
            });
        }
    }

    /// Asserts that the thread may wait for a lock of this rank.
    #[track_caller]
    pub(crate) fn check(rank: Rank) {
        let highest = HELD.try_with(|held| held.borrow().iter().copied().max()).ok().flatten();
        let allowed =
            highest.is_none_or(|high| high < rank || high == rank && rank.allows_several());
        assert!(
            allowed || std::thread::panicking(),
            "lock order: {rank:?} requested while {:?} is held",
            highest.unwrap_or_default()
        );
    }
}

#[cfg(not(debug_assertions))]
mod unchecked {
    use super::Rank;

    /// The rank of a lock; empty in release builds.
    #[derive(Clone, Copy, Debug, Default)]
    pub(crate) struct Of;

    /// A held lock; empty in release builds.
    #[derive(Debug)]
    pub(crate) struct Held;

    impl Of {
        /// The rank as a lock stores it.
        pub(crate) const fn new(_: Rank) -> Self {
            Self
        }

        /// Checks the order before the thread waits for the lock.
        pub(crate) fn wait(self) -> Held {
            Held
        }

        /// Records that the thread holds the lock.
        pub(crate) fn hold(self) -> Held {
            Held
        }
    }

    /// Does nothing in release builds.
    pub(crate) fn check(_: Rank) {}
}

#[cfg(debug_assertions)]
pub(crate) use checked::{Held, Of, check};
#[cfg(not(debug_assertions))]
pub(crate) use unchecked::{Held, Of, check};

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use crate::{Mutex, RwLock};

    #[test]
    fn locks_are_taken_in_the_order_of_their_ranks() {
        let (gate, ag) = (RwLock::ranked(Rank::Gate, ()), Mutex::ranked(Rank::Ag, ()));
        let (other_ag, leaf) = (Mutex::ranked(Rank::Ag, ()), Mutex::new(()));
        let _gate = gate.read();
        let _ag = ag.lock();
        let _both = other_ag.lock();
        drop(leaf.lock());
        // A lock may be tried out of order.
        let outside = Mutex::ranked(Rank::Moves, ());
        drop(outside.try_lock().unwrap());
    }

    #[test]
    #[should_panic(expected = "lock order: Gate requested while Leaf is held")]
    fn a_lock_out_of_order_panics() {
        let (gate, leaf) = (RwLock::ranked(Rank::Gate, ()), Mutex::new(()));
        let _leaf = leaf.lock();
        let _gate = gate.read();
    }

    #[test]
    #[should_panic(expected = "lock order: Cil requested while Cil is held")]
    fn a_second_lock_of_a_single_rank_panics() {
        let (one, two) = (Mutex::ranked(Rank::Cil, ()), Mutex::ranked(Rank::Cil, ()));
        let _one = one.lock();
        let _two = two.lock();
    }

    #[test]
    fn a_dropped_guard_releases_its_rank() {
        let (gate, leaf) = (RwLock::ranked(Rank::Gate, ()), Mutex::new(()));
        drop(leaf.lock());
        drop(gate.write());
        drop(leaf.lock());
    }
}
