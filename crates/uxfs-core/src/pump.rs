//! Driving the journal for those who asked to be called.

use crate::error::Result;
use crate::fs::Fs;

impl Fs {
    /// Carries out what the journal has to do now, unless another thread is at it: writes, flushes,
    /// and calls of those who asked by [`Fs::when_durable`].
    ///
    /// # Errors
    /// As [`Fs::sync`].
    pub fn drive_journal(&self) -> Result<()> {
        match &self.journal {
            Some(journal) => self.drive_on(journal),
            None => Ok(()),
        }
    }
}
