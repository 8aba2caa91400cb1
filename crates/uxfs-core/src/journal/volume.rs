//! The mount as the volume of its journal.
//!
//! Called by [`uxfs_journal::Journal`].

use std::time::Duration;

use uxfs_format::verify::{self, BufKind};
use uxfs_format::{Daddr, Lsn};
use uxfs_journal::{Counter, JournalOptions, LogPos, Volume, WrittenItem};
use uxfs_sync::RwLockWriteGuard;

use super::item::{Cil, Handle};
use super::{Journal, in_place};
use crate::buf::Run;
use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::full::Stuck;
use crate::mount::Mount;

impl Volume for Mount {
    type Item = Handle;
    type Error = Error;
    type Cause = Cause;
    type Exclusion<'a> = RwLockWriteGuard<'a, ()>;

    fn count(&self, counter: Counter, times: u64) {
        let counts = &self.counts;
        let count = match counter {
            Counter::LogForce => &counts.log_force,
            Counter::LogForceSleep => &counts.log_force_sleep,
            Counter::CommitsDeferred => &counts.commits_deferred,
            Counter::Checkpoints => &counts.checkpoints,
            Counter::Items => &counts.items,
            Counter::ItemsRelogged => &counts.items_relogged,
            Counter::BytesRelogged => &counts.bytes_relogged,
            Counter::TailPushes => &counts.tail_pushes,
            Counter::PushAil => &counts.push_ail,
            Counter::PushAilSuccess => &counts.push_ail_success,
            Counter::TryLogspace => &counts.try_logspace,
            Counter::SleepLogspace => &counts.sleep_logspace,
            Counter::LogNoiclogs => &counts.log_noiclogs,
        };
        count.add(times);
    }

    fn count_force(&self, slept: Duration) {
        self.counts.force_wait.add(slept);
    }

    fn stopped(reason: &str) -> Error {
        Error::Shutdown(reason.to_owned())
    }

    fn cause(what: &str, error: &Error) -> Cause {
        Cause::of(what, error)
    }

    fn shut_down(&self, cause: Cause) {
        Self::shut_down(self, cause);
    }

    fn is_temporary(error: &Error) -> bool {
        error.is_host_full()
    }

    fn check_running(&self) -> Result<()> {
        Self::check_running(self)
    }

    fn write_log(&self, daddr: Daddr, bytes: &[u8], fua: bool) -> Result<()> {
        let written = match fua {
            true => self.log_dev.write_fua_at(daddr.bytes(), bytes),
            false => self.log_dev.write_at(daddr.bytes(), bytes),
        };
        written.map_err(|source| Error::Io { what: "writing the log", daddr, source })
    }

    fn flush(&self) -> core::result::Result<(), Cause> {
        self.dev.flush().map_err(|error| Cause::device("flushing the device", &error))
    }

    fn retry_write(
        &self,
        options: &JournalOptions,
        write: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        self.retry_while_host_full(options.host_full_timeout, write)
    }

    /// Writes remote attribute values in place.
    fn write_values(&self, cil: &Cil, dead_too: bool) -> Result<()> {
        let mut run = Run::default();
        let values = || {
            cil.values.iter().filter_map(|value| match value {
                Handle::Buf(buf) => Some(buf),
                _ => None,
            })
        };
        for buf in values() {
            let mut content = buf.content.write();
            // This checkpoint still refers to a value that a later checkpoint freed.
            let shown = content.log.died == 0 || content.log.died > cil.seq.0;
            if content.kind == BufKind::AttrRemote && (dead_too || shown) {
                let kind = content.kind;
                verify::check(&content.bytes, kind, buf.daddr(), &self.geo)?;
                verify::stamp_checksum(&mut content.bytes, kind);
                let mut at = 0;
                for piece in buf.pieces() {
                    let end = at + piece.len as usize;
                    run.add(&*self.dev, piece.daddr, &content.bytes[at..end])?;
                    at = end;
                }
            }
        }
        run.put(&*self.dev)?;
        values().for_each(|buf| self.bufs.clean(buf));
        Ok(())
    }

    fn await_data(&self) -> Result<bool> {
        self.await_bulk_data()
    }

    fn check_room(&self, journal: &Journal) -> Result<()> {
        self.refuse_if_stuck(journal)
    }

    fn write_in_place(
        &self,
        journal: &Journal,
        items: Vec<(LogPos, Handle)>,
        durable: u64,
    ) -> Result<Vec<WrittenItem<Handle>>> {
        self.tried(Stuck::Metadata, in_place::write(self, journal.geometry(), items, durable))
    }

    fn write_completed(&self, written: &WrittenItem<Handle>) -> bool {
        in_place::write_completed(self, written)
    }

    fn clean(&self, item: &Handle) {
        if let Handle::Buf(buf) = item {
            self.bufs.clean(buf);
        }
    }

    fn shrink(&self) {
        self.bufs.shrink();
        self.inodes.shrink();
    }

    fn nothing_to_push(&self) {
        // What found no room may be no more.
        self.unstick(Stuck::Metadata);
    }

    fn exclude_transactions(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write()
    }

    fn write_superblock(&self, last: Option<Lsn>) -> Result<()> {
        if let Some(last) = last {
            // Readers find the end of the log by it.
            self.edit_superblock(|sb| sb.lsn.set(last.0));
        }
        self.write_superblock_in_place()?;
        self.flush_device()
    }

    fn flush_at_end(&self, options: &JournalOptions) -> Result<()> {
        self.flush_device()?;
        if options.barrier {
            return Ok(());
        }
        // Without barriers this is the only flush.
        self.bare_dev.flush().map_err(|source| Error::Io {
            what: "flushing",
            daddr: Daddr(0),
            source,
        })
    }
}
