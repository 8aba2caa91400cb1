//! Setting many extended attributes in as few transactions as their reservations allow.
//!
//! 1. Each attribute is set whole, in one transaction. This module decides which attributes share a
//!    transaction.
//! 2. A transaction reserves blocks for the worst case of at least one attribute. It takes another
//!    attribute while the remaining blocks cover that attribute's worst case.
//!
//! Called by the operations that create files together with their attributes.

use uxfs_format::{Geometry, Ino};

use crate::attr;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::journal::Op;
use crate::tx::{InodeSlot, Tx};

/// Most blocks that one transaction reserves for attributes, unless a single one needs more.
const BLOCKS: u64 = 512;
/// A transaction with this many deferred operations takes no further attribute.
const STEPS: usize = 32;

/// Sets the attribute with this index.
type SetOne<'a> = dyn Fn(&mut Tx<'_>, InodeSlot, usize) -> Result<()> + 'a;

/// Attributes to be set.
pub(super) struct Batches<'a> {
    /// The length of each value.
    pub(super) lens: Vec<usize>,
    pub(super) set: &'a SetOne<'a>,
}

impl Batches<'_> {
    /// Most blocks that setting all attributes may take.
    pub(super) fn blocks(&self, geo: &Geometry) -> u64 {
        self.lens.iter().map(|len| attr::set_blocks(geo, *len)).sum()
    }

    /// Most blocks that setting the attributes from `first` on may take, limited to [`BLOCKS`].
    fn some_blocks(&self, geo: &Geometry, first: usize) -> u64 {
        let mut blocks = 0;
        for len in &self.lens[first..] {
            blocks += attr::set_blocks(geo, *len);
            if blocks >= BLOCKS {
                return BLOCKS;
            }
        }
        blocks
    }

    /// Can one transaction reserve space for all attributes?
    pub(super) fn are_few(&self, geo: &Geometry) -> bool {
        self.lens.len() <= 1 || self.some_blocks(geo, 0) < BLOCKS
    }

    /// Sets all attributes in this transaction.
    pub(super) fn set_all(&self, tx: &mut Tx<'_>, slot: InodeSlot) -> Result<()> {
        (0..self.lens.len()).try_for_each(|at| (self.set)(tx, slot, at))
    }

    /// Sets all attributes in new transactions.
    ///
    /// # Errors
    /// Errors of beginning a transaction or of setting an attribute. The attributes before it stay
    /// set.
    pub(super) fn set_apart(&self, fs: &Fs, ino: Ino) -> Result<()> {
        let mut next = 0;
        while next < self.lens.len() {
            next = fs.retry_enospc(|| self.set_some(fs, ino, next))?;
            fs.balance()?;
        }
        Ok(())
    }

    /// Sets at least one attribute, starting with `first`. Returns the index of the next one.
    fn set_some(&self, fs: &Fs, ino: Ino, first: usize) -> Result<usize> {
        let need = |at: usize| attr::set_blocks(&fs.geo, self.lens[at]);
        let begin = |blocks| fs.begin_tx_for(Op::Attr(blocks), blocks);
        let wanted = self.some_blocks(&fs.geo, first).max(need(first));
        let mut tx = match begin(wanted) {
            Err(Error::NoSpace) if wanted > need(first) => begin(need(first))?,
            other => other?,
        };
        let slot = tx.lock_inode(ino)?;
        let mut next = first;
        loop {
            (self.set)(&mut tx, slot, next)?;
            next += 1;
            let goes_on = next < self.lens.len()
                && need(next) <= tx.blocks_left()
                && tx.deferred.len() < STEPS
                && tx.has_room();
            if !goes_on {
                break;
            }
        }
        tx.commit()?;
        Ok(next)
    }
}
