//! The engine: a mount with its journal, on which transactions run.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use crate::cause::Cause;
use crate::enospc_causes::EnospcCauses;
use crate::error::{Error, Result};
use crate::journal::{Journal, JournalOptions};
use crate::mount::Mount;
use crate::options::OpenOptions;
use crate::sync::Mutex;
use crate::tx::Tx;
use crate::tx::scratch::Scratch;

/// What does the deferred steps of a transaction. It stands above the transactions that call it.
pub(crate) type FinishDeferred = fn(&mut Tx<'_>) -> Result<()>;

/// A mount with its journal, on which transactions run.
pub struct Engine {
    mount: Mount,
    pub(crate) journal: Option<Journal>,
    /// Number of the next transaction.
    pub(crate) next_tx: AtomicU64,
    /// Memory of transactions that ended, for later ones.
    pub(crate) scratch: Mutex<Vec<Scratch>>,
    /// Does the deferred steps of a transaction, at its end ([`crate::defer`]).
    pub(crate) finish_deferred: FinishDeferred,
    /// What stood between operations and free space.
    pub(crate) enospc_causes: EnospcCauses,
}

impl Deref for Engine {
    type Target = Mount;

    fn deref(&self) -> &Mount {
        &self.mount
    }
}

impl Engine {
    /// The engine of a mount, with a journal if changes are logged.
    pub(crate) fn new(
        mount: Mount,
        journal: Option<Journal>,
        finish_deferred: FinishDeferred,
    ) -> Self {
        Self {
            mount,
            journal,
            finish_deferred,
            next_tx: AtomicU64::new(1),
            scratch: Mutex::default(),
            enospc_causes: EnospcCauses::default(),
        }
    }

    /// The volume is open with these options from now on.
    pub(crate) fn set_options(&mut self, options: OpenOptions) {
        self.mount.options = options;
    }

    /// Changes are not logged any more. The log is clean.
    pub(crate) fn drop_journal(&mut self) {
        self.journal = None;
        self.mount.logged = false;
        self.mount.options.journal = None;
    }

    /// How changes are logged; `None` without a journal.
    pub fn journal_options(&self) -> Option<&JournalOptions> {
        self.options.journal.as_ref().filter(|_| self.journal.is_some())
    }

    /// Fails if the volume is stopped, or if its device is no longer the one that was opened; that
    /// stops it.
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

    /// Stops the volume for good, for those who find that something is wrong of which it cannot know
    /// itself, such as a panic in a thread that worked on it: nothing more is changed or written, and
    /// all who wait are told. What was durable stays so; what was not is as after a power cut.
    pub fn stop(&self, why: &str) {
        match &self.journal {
            Some(journal) => drop(journal.fail(self, why)),
            None => self.shut_down(why),
        }
    }
}
