//! Prefixes of paths that stand for others: `.subs` and `.subs_dist`.

use std::borrow::Cow;
use std::path::Path;

use crate::error::ContextsError;
use crate::lines::lines;

/// The aliases of one file.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    /// Pairs of a prefix and what replaces it; the last pair that fits is taken.
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Aliases {
    /// Adds the lines of a file: the prefix, and the path that it stands for.
    pub(crate) fn parse(&mut self, file: &Path, text: &[u8]) -> Result<(), ContextsError> {
        for line in lines(file, text) {
            let line = line?;
            let [from, to, ..] = line.fields.as_slice() else {
                return Err(line.error("needs two paths: the alias, and the path it stands for"));
            };
            self.pairs.push((from.as_bytes().to_vec(), to.as_bytes().to_vec()));
        }
        Ok(())
    }

    /// The path that `path` stands for.
    pub(crate) fn replace<'a>(&self, path: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
        for (from, to) in self.pairs.iter().rev() {
            let Some(rest) = path.strip_prefix(from.as_slice()) else { continue };
            if rest.first().is_none_or(|byte| *byte == b'/') {
                let to: &[u8] = if to == b"/" && !rest.is_empty() { b"" } else { to };
                return Cow::Owned([to, rest].concat());
            }
        }
        path
    }

    /// Is the path itself, rather than a prefix of it, an alias?
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        self.pairs.iter().any(|(from, _)| from == path)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The aliases.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &[u8]> {
        self.pairs.iter().map(|(from, _)| from.as_slice())
    }
}
