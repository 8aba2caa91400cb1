//! The engine: a mount with its journal, on which transactions run.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use uxfs_sync::{Mutex, RwLockReadGuard};

use crate::cause::Cause;
use crate::dquot::Quota;
use crate::enospc_causes::EnospcCauses;
use crate::error::{Error, Result};
use crate::journal::reserve::Reserve;
use crate::journal::{Journal, JournalOptions, Op};
use crate::mount::Mount;
use crate::options::OpenOptions;
use crate::tx::Tx;
use crate::tx::scratch::Scratch;

/// Finishes the deferred operations of a transaction. Set from a layer above transactions.
pub(crate) type FinishDeferred = fn(&mut Tx<'_>) -> Result<()>;

/// A mount with its journal, on which transactions run.
pub struct Engine {
    mount: Mount,
    pub(crate) journal: Option<Journal>,
    /// The log space of operations; `None` without a journal.
    reserve: Option<Reserve>,
    /// ID of the next transaction.
    pub(crate) next_tx: AtomicU64,
    /// Memory of ended transactions, for reuse.
    pub(crate) scratch: Mutex<Vec<Scratch>>,
    /// Finishes the deferred operations of a transaction, at its end ([`crate::defer`]).
    pub(crate) finish_deferred: FinishDeferred,
    /// Causes that kept operations from free space.
    pub(crate) enospc_causes: EnospcCauses,
}

impl Deref for Engine {
    type Target = Mount;

    fn deref(&self) -> &Mount {
        &self.mount
    }
}

impl Engine {
    /// Creates the engine of a mount, with a journal if changes are logged.
    pub(crate) fn new(
        mount: Mount,
        journal: Option<Journal>,
        finish_deferred: FinishDeferred,
    ) -> Self {
        let reserve = journal.as_ref().map(|j| Reserve::new(&mount.geo, *j.geometry()));
        Self {
            mount,
            journal,
            reserve,
            finish_deferred,
            next_tx: AtomicU64::new(1),
            scratch: Mutex::default(),
            enospc_causes: EnospcCauses::default(),
        }
    }

    /// Sets the options of the open volume.
    pub(crate) fn set_options(&mut self, options: OpenOptions) {
        self.mount.options = options;
    }

    /// Accounts quotas from now on.
    pub(crate) fn set_quota(&mut self, quota: Quota) {
        let kinds = quota.kinds().count() as u64;
        self.reserve = self.reserve.take().map(|reserve| reserve.with_quota(kinds));
        self.mount.quota = Some(quota);
    }

    /// Stops logging changes. The log is clean.
    pub(crate) fn drop_journal(&mut self) {
        self.journal = None;
        self.mount.logged = false;
        self.mount.options.unlogged = true;
    }

    /// Most log bytes of an operation between two rolls; 0 without a journal.
    pub(crate) fn log_link(&self, op: Op) -> u64 {
        self.reserve.as_ref().map_or(0, |reserve| reserve.link(op))
    }

    /// Most log bytes of one deferred operation; 0 without a journal.
    pub(crate) fn log_step(&self) -> u64 {
        self.reserve.as_ref().map_or(0, Reserve::step)
    }

    /// Keeps epochs off until it is dropped; `None` unless the volume is in ordered mode.
    pub(crate) fn hold_off_freeze(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.ordered.then(|| self.freeze.read())
    }

    /// The options of the journal; `None` without a journal.
    pub fn journal_options(&self) -> Option<&JournalOptions> {
        self.journal.as_ref().map(|_| &self.options.journal)
    }

    /// Fails if the volume was shut down. Shuts it down if its device is no longer the one that was
    /// opened.
    pub(crate) fn check_device(&self) -> Result<()> {
        self.check_running()?;
        let Err(source) = self.dev.check_present() else { return Ok(()) };
        let cause = Cause::device("looking at the device", &source);
        Err(match &self.journal {
            Some(journal) => journal.fail(self, cause),
            None => {
                self.shut_down(cause.clone());
                Error::Shutdown(cause.to_string())
            }
        })
    }

    /// Shuts the volume down because of a problem that it cannot notice itself, such as a panic in
    /// a thread that worked on it. Nothing more is changed or written, and all waiters get an
    /// error. What was durable stays durable; the rest is lost as in a power cut.
    pub fn stop(&self, why: &str) {
        match &self.journal {
            Some(journal) => drop(journal.fail(self, why.into())),
            None => self.shut_down(why),
        }
    }
}
