//! What a traced program writes to its pipes: acknowledgements and output.
//!
//! 1. [`Ears::take`] returns all that was written before it was called.
//! 2. A thread empties the pipes meanwhile, so the program never waits for a reader.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// How often the thread looks whether it is to end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Bytes of acknowledgements, and of output.
type Words = [Vec<u8>; 2];

pub(crate) struct Ears {
    pipes: [OwnedFd; 2],
    words: Mutex<Words>,
    ended: AtomicBool,
}

impl Ears {
    pub(crate) fn new(acks: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        for pipe in [&acks, &output] {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(Self { pipes: [acks, output], words: Mutex::default(), ended: AtomicBool::new(false) })
    }

    /// What was written since the last call: acknowledgements and output.
    pub(crate) fn take(&self) -> Words {
        let mut words = self.words.lock();
        for (pipe, words) in self.pipes.iter().zip(&mut *words) {
            read(pipe, words);
        }
        std::mem::take(&mut *words)
    }

    /// Empties the pipes until [`Ears::end`] is called, or all writers are gone.
    pub(crate) fn listen(&self) {
        let mut open = [true; 2];
        while open.contains(&true) && !self.ended.load(Ordering::Relaxed) {
            let heard = self.pipes.iter().zip(open).filter(|(_, open)| *open);
            let mut polled: Vec<_> =
                heard.map(|(pipe, _)| PollFd::new(pipe, PollFlags::IN)).collect();
            if poll(&mut polled, Some(&LOOK)).is_err() {
                continue;
            }
            let mut words = self.words.lock();
            for ((pipe, words), open) in self.pipes.iter().zip(&mut *words).zip(&mut open) {
                *open &= read(pipe, words);
            }
        }
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Reads what is there. Returns false if all writers are gone.
fn read(pipe: &OwnedFd, words: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match rustix::io::read(pipe, &mut buffer) {
            Ok(0) => return false,
            Ok(got) => words.extend_from_slice(&buffer[..got]),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return true,
            Err(_) => return false,
        }
    }
}
