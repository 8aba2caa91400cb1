//! The words of a protofile, each with its line.
//!
//! 1. Words are divided by blanks and ends of lines.
//! 2. A word that begins with a colon begins a comment, which ends with its line.
//! 3. A word has at most [`WORD_MAX`] bytes, whatever the input.
//!
//! Used by the parser.

use std::io::{self, BufRead};

/// Maximum length of a word in bytes; Linux' paths are shorter.
pub(super) const WORD_MAX: usize = 16 << 10;

/// A word and the number of its line, starting at 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: Vec<u8>,
    pub(super) line: u64,
}

/// Why there is no word.
#[derive(Debug)]
pub(super) enum NoWord {
    /// The input failed.
    Io(io::Error),
    /// The word is too long, or has a NUL byte.
    Bad(&'static str),
}

/// Divides an input into words.
pub(super) struct Words<R> {
    input: R,
    /// The line of the next byte.
    line: u64,
    /// Bytes read so far.
    taken: u64,
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n')
}

impl<R: BufRead> Words<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, line: 1, taken: 0 }
    }

    /// The line that the next byte is in.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Bytes read so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// The next word; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Word>, NoWord> {
        loop {
            let Some(first) = self.skip_while(is_blank)? else { return Ok(None) };
            if first != b':' {
                break;
            }
            self.skip_while(|byte| byte != b'\n')?;
        }
        let line = self.line;
        let mut text = Vec::new();
        self.take_while(
            |byte| !is_blank(byte),
            |bytes| {
                text.extend_from_slice(bytes);
                text.len() <= WORD_MAX
            },
        )?;
        if text.len() > WORD_MAX {
            return Err(NoWord::Bad("a word of more than 16 KiB"));
        }
        if text.contains(&0) {
            return Err(NoWord::Bad("a NUL byte"));
        }
        Ok(Some(Word { text, line }))
    }

    fn skip_while(&mut self, skip: impl Fn(u8) -> bool) -> Result<Option<u8>, NoWord> {
        self.take_while(skip, |_| true)
    }

    /// Hands on all bytes up to the first that is not `wanted`, which is returned but not taken.
    /// Ends early if `hand_on` returns false.
    fn take_while(
        &mut self,
        wanted: impl Fn(u8) -> bool,
        mut hand_on: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<u8>, NoWord> {
        loop {
            let bytes = match self.input.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(NoWord::Io(error)),
            };
            if bytes.is_empty() {
                return Ok(None);
            }
            let end = bytes.iter().position(|byte| !wanted(*byte));
            let count = end.unwrap_or(bytes.len());
            let next = end.map(|end| bytes[end]);
            let taken = &bytes[..count];
            self.line += taken.iter().filter(|byte| **byte == b'\n').count() as u64;
            self.taken += count as u64;
            let more = hand_on(taken);
            self.input.consume(count);
            if next.is_some() || !more {
                return Ok(next);
            }
        }
    }
}
