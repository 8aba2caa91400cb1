//! Files that write-back has split: what the background pass works through.
//!
//! 1. A file is noted when its blocks move, and taken when it is badly split by then ([`is_bad`]). Once it is
//!    done it waits until it has twice as many extents as it was left with, so that a file that is
//!    overwritten all the time is not moved all the time.
//! 2. It is bounded ([`FILES`]); a file that found no room is noted again later.
//!
//! Called by write-back, and by [`crate::Fs::defrag_pass`].

use std::collections::BTreeMap;

use uxfs_format::Ino;
use uxfs_sync::Mutex;

/// Files that are remembered.
const FILES: usize = 4096;
/// Extents of a file that is not worth the work.
const FEW: u64 = 16;
/// Bytes of an extent, on average, above which a file is not badly split.
const LONG: u64 = 1 << 20;

#[derive(Clone, Copy)]
enum State {
    /// To be done from this byte on.
    Split(u64),
    /// Done, with this many extents left.
    Left(u64),
}

/// The files.
#[derive(Default)]
pub(crate) struct SplitFiles(Mutex<BTreeMap<u64, State>>);

/// Is a file of so many extents and bytes badly split?
fn is_bad(extents: u64, bytes: u64) -> bool {
    extents > FEW && bytes / extents < LONG
}

impl SplitFiles {
    /// Notes that blocks of a file moved.
    pub(crate) fn note(&self, ino: Ino) {
        let mut files = self.0.lock();
        if files.len() >= FILES {
            files.retain(|_, state| matches!(state, State::Split(_)));
        }
        if files.len() < FILES {
            files.entry(ino.0).or_insert(State::Split(0));
        }
    }

    /// The next file to be done, and from which byte on. `measure` tells the extents and bytes of a file, or
    /// `None` if it is gone.
    pub(crate) fn next(
        &self,
        mut measure: impl FnMut(Ino) -> Option<(u64, u64)>,
    ) -> Option<(Ino, u64)> {
        let known: Vec<(u64, State)> =
            self.0.lock().iter().map(|(ino, state)| (*ino, *state)).collect();
        for (ino, state) in known {
            let measured = measure(Ino(ino));
            match (measured, state) {
                (Some((extents, bytes)), State::Split(from)) if is_bad(extents, bytes) => {
                    return Some((Ino(ino), from));
                }
                (Some((extents, bytes)), State::Left(left))
                    if is_bad(extents, bytes) && extents > 2 * left =>
                {
                    return Some((Ino(ino), 0));
                }
                (Some(_), State::Left(_)) => {}
                _ => drop(self.0.lock().remove(&ino)),
            }
        }
        None
    }

    /// Goes on with a file at this byte later; `None` if it is done, with so many extents left.
    pub(crate) fn done(&self, ino: Ino, next: Option<u64>, left: u64) {
        let state = next.map_or(State::Left(left), State::Split);
        self.0.lock().insert(ino.0, state);
    }

    /// Forgets a file until its blocks move again.
    pub(crate) fn forget(&self, ino: Ino) {
        self.0.lock().remove(&ino.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_file_is_done_again_when_it_is_split_again() {
        let files = SplitFiles::default();
        let (good, bad) = (Ino(1), Ino(2));
        files.note(good);
        files.note(bad);
        let with = |extents| move |ino| Some((if ino == good { 1 } else { extents }, 64 * MIB));
        assert_eq!(files.next(with(1000)), Some((bad, 0)));
        files.done(bad, Some(MIB), 500);
        files.note(bad);
        assert_eq!(files.next(with(1000)), Some((bad, MIB)));
        files.done(bad, None, 100);
        files.note(bad);
        assert_eq!(files.next(with(200)), None);
        assert_eq!(files.next(with(201)), Some((bad, 0)));
        assert_eq!(files.next(|_| None), None);
        assert_eq!(files.next(with(1000)), None);
    }
}
