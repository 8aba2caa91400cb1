//! What a child writes to a pipe, read without waiting and cut into lines.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

/// Most bytes of a line; a longer one is cut there.
const LINE_MAX: usize = 64 << 10;
/// Bytes of output that are kept for a report: the last ones.
const TAIL: usize = 16 << 10;

/// The reading end of a pipe.
pub(crate) struct Lines {
    pipe: OwnedFd,
    unfinished: Vec<u8>,
    tail: Vec<u8>,
    ended: bool,
}

impl Lines {
    /// # Errors
    /// The pipe cannot be read without waiting.
    pub(crate) fn new(pipe: OwnedFd) -> std::io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self { pipe, unfinished: Vec::new(), tail: Vec::new(), ended: false })
    }

    /// Has every writer closed it?
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Calls `take` for each line that is there now, without its end.
    pub(crate) fn read(&mut self, mut take: impl FnMut(&[u8])) {
        let mut buffer = [0; 4096];
        while !self.ended {
            match rustix::io::read(&self.pipe, &mut buffer) {
                Ok(0) => self.ended = true,
                Ok(got) => self.split(&buffer[..got], &mut take),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.ended = true,
            }
        }
        if !self.unfinished.is_empty() {
            take(&std::mem::take(&mut self.unfinished));
        }
    }

    fn split(&mut self, bytes: &[u8], take: &mut impl FnMut(&[u8])) {
        self.tail.extend_from_slice(bytes);
        let excess = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..excess);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.unfinished.extend_from_slice(piece);
            if let Some(line) = self.unfinished.strip_suffix(b"\n") {
                take(line);
            } else if self.unfinished.len() >= LINE_MAX {
                take(&self.unfinished);
            } else {
                continue;
            }
            self.unfinished.clear();
        }
    }

    /// The last output, as text.
    pub(crate) fn tail(&self) -> String {
        String::from_utf8_lossy(&self.tail).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &mut Lines) -> Vec<String> {
        let mut found = Vec::new();
        lines.read(|line| found.push(String::from_utf8_lossy(line).into_owned()));
        found
    }

    #[test]
    fn lines_come_when_they_are_whole_and_the_last_at_the_end() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut pipe = Lines::new(read).unwrap();
        let send = |text: &str| rustix::io::write(&write, text.as_bytes()).unwrap();
        assert!(lines(&mut pipe).is_empty() && !pipe.ended());
        send("one\ntw");
        assert_eq!(lines(&mut pipe), ["one"]);
        send("o\n\nthree");
        assert_eq!(lines(&mut pipe), ["two", ""]);
        drop(write);
        assert_eq!(lines(&mut pipe), ["three"]);
        assert!(pipe.ended());
        assert_eq!(pipe.tail(), "one\ntwo\n\nthree");
    }
}
