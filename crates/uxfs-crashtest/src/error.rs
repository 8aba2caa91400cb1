//! Why a test could not run. A state that fails is a result, not an error.

use std::fmt;

/// What could not be done, and what to do about it, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// An error of the host, about what was being done.
    pub fn host(doing: &str, error: impl fmt::Display) -> Self {
        Self(format!("{doing}: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

pub type Result<T> = std::result::Result<T, Error>;
