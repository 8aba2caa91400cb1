//! Immediate logging (`nodelaylog`): each transaction is formatted as a log transaction of its own as it
//! commits, while it still holds what it changed.
//!
//! The open checkpoint then holds no list of objects to be formatted later, but the log buffers that fill
//! with transactions ([`crate::Iclog`]). Half of the buffers fill while the other half is in flight; what is
//! written and flushed together is called a checkpoint here too.
//!
//! 1. What is logged of an object is all that changed since it was last written in place, as with delayed
//!    logging, so the tail may pass what earlier transactions logged of it. That is the cost of immediate
//!    logging.
//! 2. Transactions lie in the buffers in commit order, so a cut anywhere leaves a prefix of them. Intents of
//!    rolling transactions are logged at each roll, also where delayed logging would leave them out.
//! 3. All objects of a checkpoint are active under the position of its first record, which is not later
//!    than any of them was logged.
//! 4. A remote attribute value is written before the checkpoint, even if a later transaction in it freed
//!    the value: a prefix may still show it.

use uxfs_format::log::BufItem;

use crate::journal::Journal;
use crate::records::Records;
use crate::volume::{Volume, VolumeCil};

/// Writes one transaction into the log buffers.
pub struct ImmediateWriter<'c, V: Volume> {
    cil: &'c mut VolumeCil<V>,
    tid: u32,
    begun: bool,
}

impl<'c, V: Volume> ImmediateWriter<'c, V> {
    /// Begins to write the transaction that was just added to `cil`. Returns `None` with delayed
    /// logging.
    pub fn begin(journal: &Journal<V>, cil: &'c mut VolumeCil<V>) -> Option<Self> {
        cil.iclog.as_ref()?;
        let mut writer = Self { cil, tid: journal.tid(), begun: false };
        for chunk in core::mem::take(&mut writer.cil.chunks) {
            writer.put(|records| {
                records.region(&chunk.encode());
                Ok(())
            });
        }
        Some(writer)
    }

    fn put(&mut self, put: impl FnOnce(&mut Records) -> Result<(), V::Error>) {
        let Some(iclog) = &mut self.cil.iclog else { return };
        if !core::mem::replace(&mut self.begun, true) {
            iclog.records.begin(self.tid);
            iclog.count += 1;
        }
        if let Err(error) = put(&mut iclog.records) {
            self.cil.failed.get_or_insert(error);
        }
    }

    /// Writes a changed object.
    pub fn object(&mut self, put: impl FnOnce(&mut Records) -> Result<(), V::Error>) {
        self.put(put);
        if let Some(iclog) = &mut self.cil.iclog {
            iclog.items += 1;
        }
    }

    /// Did the superblock change in this transaction? The caller then writes it once, as an object.
    pub fn take_superblock(&mut self) -> bool {
        core::mem::take(&mut self.cil.superblock_now)
    }

    /// Ends the transaction.
    pub fn end(mut self) {
        for (id, intent) in core::mem::take(&mut self.cil.intents) {
            self.cil.logged_intents.push(id);
            self.put(|records| {
                intent.encode().iter().for_each(|region| records.region(region));
                Ok(())
            });
        }
        for done in core::mem::take(&mut self.cil.dones) {
            self.cil.logged_dones.push(done.id);
            self.put(|records| {
                records.region(&done.encode());
                Ok(())
            });
        }
        for (daddr, len) in core::mem::take(&mut self.cil.cancelled).into_keys() {
            self.put(|records| {
                records.region(&BufItem::cancel(daddr, len).encode());
                Ok(())
            });
        }
        if let Some(iclog) = self.cil.iclog.as_mut().filter(|_| self.begun) {
            iclog.records.commit();
        }
        self.cil.formatted();
    }
}
