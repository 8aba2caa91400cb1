//! Immediate logging (`nodelaylog`): each transaction is formatted as a log transaction of its own as it
//! commits, while it still holds what it changed.
//!
//! The open checkpoint then holds no list of objects to be formatted later, but the log buffers that fill
//! with transactions ([`uxfs_journal::Iclog`]). Half of the buffers fill while the other half is in flight; what is
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
use uxfs_format::verify::BufKind;
use uxfs_journal::Records;

use super::item::Cil;
use super::state::Journal;
use super::{buf_item, inode_item, superblock_item};
use crate::buf::BufRef;
use crate::error::Result;
use crate::inode::InodeState;
use crate::mount::Mount;

/// Writes one transaction into the log buffers.
pub(crate) struct ImmediateWriter<'c> {
    fs: &'c Mount,
    cil: &'c mut Cil,
    tid: u32,
    begun: bool,
}

impl<'c> ImmediateWriter<'c> {
    /// Begins to write the transaction that was just added to `cil`. Returns `None` with delayed
    /// logging.
    pub(crate) fn begin(fs: &'c Mount, journal: &Journal, cil: &'c mut Cil) -> Option<Self> {
        cil.iclog.as_ref()?;
        let mut single = Self { fs, cil, tid: journal.tid(), begun: false };
        for chunk in core::mem::take(&mut single.cil.chunks) {
            single.put(|_, records| {
                records.region(&chunk.encode());
                Ok(())
            });
        }
        Some(single)
    }

    fn put(&mut self, put: impl FnOnce(&Mount, &mut Records) -> Result<()>) {
        let Some(iclog) = &mut self.cil.iclog else { return };
        if !core::mem::replace(&mut self.begun, true) {
            iclog.records.begin(self.tid);
            iclog.count += 1;
        }
        if let Err(error) = put(self.fs, &mut iclog.records) {
            self.cil.failed.get_or_insert(error);
        }
    }

    fn object(&mut self, put: impl FnOnce(&Mount, &mut Records) -> Result<()>) {
        self.put(put);
        if let Some(iclog) = &mut self.cil.iclog {
            iclog.items += 1;
        }
    }

    /// Writes a changed buffer.
    pub(crate) fn buffer(&mut self, buf: &BufRef) {
        let kind = buf.kind();
        if kind != BufKind::AttrRemote && kind != BufKind::InodeCluster {
            self.object(|_, records| {
                buf_item::write(buf, records);
                Ok(())
            });
        }
    }

    /// Writes a changed inode.
    pub(crate) fn inode(&mut self, state: &InodeState) {
        self.object(|fs, records| inode_item::write(fs, state, records));
    }

    /// Ends the transaction.
    pub(crate) fn end(mut self) {
        if core::mem::take(&mut self.cil.superblock_now) {
            self.object(|fs, records| {
                superblock_item::write(fs, records);
                Ok(())
            });
        }
        for (id, intent) in core::mem::take(&mut self.cil.intents) {
            self.cil.told.0.push(id);
            self.put(|_, records| {
                intent.encode().iter().for_each(|region| records.region(region));
                Ok(())
            });
        }
        for done in core::mem::take(&mut self.cil.dones) {
            self.cil.told.1.push(done.id);
            self.put(|_, records| {
                records.region(&done.encode());
                Ok(())
            });
        }
        for (daddr, len) in core::mem::take(&mut self.cil.cancelled).into_keys() {
            self.put(|_, records| {
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
