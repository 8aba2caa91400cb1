//! Beginning a transaction for a file operation.
//!
//! Delayed allocation reserves more space than the data will take. An operation that finds no space
//! therefore writes data back and tries once more.

use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::journal::Op;
use crate::tx::Tx;

impl Fs {
    /// As [`Tx::begin`], after writing data back if space is short.
    ///
    /// # Errors
    /// As [`Tx::begin`], and errors of writing back.
    pub(crate) fn begin_tx(&self, blocks: u64) -> Result<Tx<'_>> {
        self.begin_tx_for(Op::Extents, blocks)
    }

    /// As [`Tx::begin_for`], after writing data back if space is short.
    ///
    /// # Errors
    /// As [`Fs::begin_tx`].
    pub(crate) fn begin_tx_for(&self, op: Op, blocks: u64) -> Result<Tx<'_>> {
        match Tx::begin_for(self, op, blocks) {
            Err(Error::NoSpace) if self.relieve(blocks, false)? => Tx::begin_for(self, op, blocks),
            other => other,
        }
    }

    /// As [`Tx::begin_freeing`], after writing data back if space is short.
    ///
    /// # Errors
    /// As [`Tx::begin_freeing`], and errors of writing back.
    pub(crate) fn begin_freeing_tx(&self, blocks: u64) -> Result<Tx<'_>> {
        self.begin_freeing_tx_for(Op::Extents, blocks)
    }

    /// As [`Tx::begin_freeing_for`], after writing data back if space is short.
    ///
    /// # Errors
    /// As [`Fs::begin_freeing_tx`].
    pub(crate) fn begin_freeing_tx_for(&self, op: Op, blocks: u64) -> Result<Tx<'_>> {
        match self.begin_tx_for(op, blocks) {
            Err(Error::NoSpace) => self.begin_tx_for(op, 0),
            other => other,
        }
        .map(Tx::without_limits)
    }
}
