//! Changes the options of a mount in use.
//!
//! 1. Options that requests read change at once. Options that take effect at open (`ro`, `rw`,
//!    `commit=`, those of the log and of write-back) change by closing the volume and opening it
//!    again while requests wait. Nothing is lost, and the kernel keeps its knowledge of files.
//! 2. A refused change has no effect: everything is written before the volume is closed. Unlinked
//!    open files prevent the change, because closing would free them.
//! 3. If the volume can be opened neither with the new options nor with the old ones, it stays
//!    closed and consistent, and reports so.
//!
//! Called by `server`.

use std::sync::Arc;

use uxfs::Fs;

use crate::options::Options;
use crate::syslog::Severity;
use crate::volume::{Volume, not_closed};

impl Volume {
    /// Changes options: `words` as after `-o`.
    ///
    /// # Errors
    /// The option that cannot change, and why.
    pub(crate) fn remount(self: &Arc<Self>, words: String) -> Result<(), String> {
        let _turn = self.freeze.turn.lock();
        if self.freeze.is_frozen() {
            return Err("the volume is frozen: thaw it first".into());
        }
        let current = self.current_options();
        let old = current.all();
        let new = old.remount(&words)?;
        if old.needs_reopen(&new) {
            self.reopen(&old, &new)?;
        }
        current.set(new.clone());
        self.discard(new.discard && !new.read_only).map_err(|error| error.to_string())
    }

    fn reopen(self: &Arc<Self>, old: &Options, new: &Options) -> Result<(), String> {
        let opener = self.opener.get().ok_or("this server cannot open its volume anew")?;
        // Most data is written while requests continue.
        if let Some(fs) = &*self.fs.read() {
            fs.sync().map_err(|error| format!("not everything could be written: {error}"))?;
        }
        self.end_scrub("the mount's options were changed", false);
        // Their jobs use the volume, so they end before requests are held back.
        self.discard(false).map_err(|error| error.to_string())?;
        self.end_write_back();
        let mut guard = self.fs.write();
        let fs = guard.as_ref().ok_or("the volume is closed")?;
        let ready = match (fs.stopped_by(), fs.unlinked()) {
            (Some(why), _) => Err(format!("the volume is stopped: {why}")),
            (None, 1..) => Err("busy: files are open whose last name was removed".to_owned()),
            (None, 0) => fs.sync().map_err(|e| format!("not everything could be written: {e}")),
        };
        drop(self.log_worker.lock().take());
        if let Err(why) = ready {
            let fs = Arc::clone(fs);
            drop(guard);
            self.restart_threads(&fs)?;
            return Err(why);
        }
        let held = fs.held();
        let Some(fs) = guard.take().and_then(|fs| Arc::try_unwrap(fs).ok()) else {
            return Err(self.lost("it was still in use when it was to be opened anew".into()));
        };
        let unwritten = fs.unwritten();
        if let Err(error) = fs.close() {
            let why = not_closed(&error, None, &unwritten);
            *self.closed.lock() = Some(Err(why.clone()));
            return Err(self.lost(why));
        }
        let (fs, result) = match opener(new) {
            Ok(fs) => (fs, Ok(())),
            Err(why) => match opener(old) {
                Ok(fs) => (fs, Err(why)),
                Err(again) => return Err(self.lost(format!("{why}; and then: {again}"))),
            },
        };
        for (ino, count) in held {
            fs.hold_times(ino, count);
        }
        let fs = Arc::new(fs);
        *guard = Some(Arc::clone(&fs));
        drop(guard);
        self.restart_threads(&fs)?;
        result
    }

    fn restart_threads(self: &Arc<Self>, fs: &Arc<Fs>) -> Result<(), String> {
        match fs.journal_options() {
            Some(_) => self.start_write_threads(fs).map_err(|error| self.lost(error.to_string())),
            None => Ok(()),
        }
    }

    /// Reports that the volume is no longer open.
    fn lost(&self, why: String) -> String {
        let text = format!("remounting ended the volume: {why}; unmount it");
        self.say(Severity::Error, &text);
        text
    }
}
