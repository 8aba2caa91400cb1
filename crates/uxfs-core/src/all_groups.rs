//! Transactions that lock all groups at once.
//!
//! A transaction that holds a group only tries those below it. If others lock such a group again and again, the last
//! attempt of its operation locks all of them, in order, with the first one, and then needs none that others hold.
//!
//! 1. It counts for the thread: nothing else leads from the loop of attempts to the transactions that an attempt
//!    begins.
//!
//! Called by that loop ([`crate::enospc`]); transactions ask when they lock a group.

use std::cell::Cell;

thread_local! {
    static WANTED: Cell<bool> = const { Cell::new(false) };
}

/// Does a transaction of this thread lock all groups with its first one?
pub(crate) fn wanted() -> bool {
    WANTED.get()
}

/// Runs `work`, whose transactions lock all groups at once.
pub(crate) fn at_once<T>(work: impl FnOnce() -> T) -> T {
    /// Restores what was before, also after a panic.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            WANTED.set(self.0);
        }
    }
    let _before = Before(WANTED.replace(true));
    work()
}
