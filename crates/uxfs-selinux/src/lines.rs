//! The lines of the files: fields between white space. Empty lines and lines that begin with `#` are
//! skipped.

use std::path::Path;

use crate::error::ContextsError;

/// A line with its place.
pub(crate) struct Line<'a> {
    /// The file.
    pub(crate) file: &'a Path,
    /// Number of the line, from 1.
    pub(crate) number: usize,
    /// Its fields, at least one.
    pub(crate) fields: Vec<&'a str>,
}

impl Line<'_> {
    pub(crate) fn error(&self, what: impl Into<String>) -> ContextsError {
        ContextsError::Line { file: self.file.to_owned(), line: self.number, what: what.into() }
    }
}

/// The lines of a file that have fields. Rules are ASCII: other bytes need an escape such as `\xe4`.
pub(crate) fn lines<'a>(
    file: &'a Path,
    text: &'a [u8],
) -> impl Iterator<Item = Result<Line<'a>, ContextsError>> {
    text.split(|byte| *byte == b'\n').enumerate().filter_map(move |(at, line)| {
        let mut parsed = Line { file, number: at + 1, fields: Vec::new() };
        let line = line.trim_ascii();
        if line.first().is_none_or(|byte| *byte == b'#') {
            return None;
        }
        let ascii = line.iter().all(|byte| (b' '..=b'~').contains(byte) || *byte == b'\t');
        match std::str::from_utf8(line) {
            Ok(line) if ascii => parsed.fields = line.split_ascii_whitespace().collect(),
            _ => return Some(Err(parsed.error("has a character that is not printable ASCII"))),
        }
        Some(Ok(parsed))
    })
}
