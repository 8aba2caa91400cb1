//! Open references: files that outlive their last name, as open files do.
//!
//! 1. A file that loses its last name is freed at once if it has no open reference, else by the last
//!    [`Fs::release`]. Until then it is on its group's list of unlinked inodes, so that recovery frees it
//!    if the process ends before.
//! 2. The count of a file and the mark that its last name is gone change under one lock: either
//!    [`Fs::drop_last_name`] or the last [`Fs::release`] frees the file, never both.
//! 3. Closing the volume frees what still has references.
//! 4. A file that cannot be freed, for lack of space or because the device fails, stays in the table
//!    without a reference. Closing the volume tries again; if that fails, the log stays dirty and
//!    recovery frees the file. A damaged file stays on its list until a repair, because recovery
//!    cannot free it either.
//!
//! Called by a mount, whose files stay open, and by the operations that remove names.

use rustc_hash::FxHashMap;
use uxfs_format::Ino;
use uxfs_sync::Mutex;

use crate::error::{Error, Result};
use crate::fs::Fs;

const SHARDS: usize = 64;

/// The references of an open file.
#[derive(Default)]
struct OpenRef {
    /// Number of references. A saturated count never decreases, so the file stays until the volume
    /// is closed.
    count: u32,
    /// The file has no name left.
    unlinked: bool,
}

/// The open references of all files.
pub(crate) struct OpenRefs([Mutex<FxHashMap<u64, OpenRef>>; SHARDS]);

impl Default for OpenRefs {
    fn default() -> Self {
        Self(core::array::from_fn(|_| Mutex::default()))
    }
}

impl OpenRefs {
    fn shard(&self, ino: Ino) -> &Mutex<FxHashMap<u64, OpenRef>> {
        &self.0[(ino.0 % SHARDS as u64) as usize]
    }
}

impl Fs {
    /// Takes a reference to a file. The file then stays after its last name is removed.
    /// [`Fs::release`] releases the reference.
    ///
    /// The file may be freed between a lookup and this call: [`Fs::hold_found`] looks it up again.
    pub fn hold(&self, ino: Ino) {
        let mut shard = self.open_refs.shard(ino).lock();
        let held = shard.entry(ino.0).or_default();
        held.count = held.count.saturating_add(1);
    }

    /// Takes a reference to the file that `find` finds, and returns it. `find` is called again once the
    /// reference is there, and the whole again if it then finds another file: its number may have been
    /// freed meanwhile, and may be that of another file.
    ///
    /// # Errors
    /// Those of `find`; no reference is left then.
    pub fn hold_found<E>(
        &self,
        find: impl Fn() -> core::result::Result<Ino, E>,
    ) -> core::result::Result<Ino, E> {
        loop {
            let ino = find()?;
            self.hold(ino);
            let again = find();
            if again.as_ref().is_ok_and(|now| *now == ino) {
                return Ok(ino);
            }
            // Freeing what another thread replaced is not this one's failure: recovery frees it.
            let _ = self.release(ino, 1);
            again?;
        }
    }

    /// As [`Fs::hold`], `count` times.
    pub fn hold_times(&self, ino: Ino, count: u32) {
        let mut shard = self.open_refs.shard(ino).lock();
        let held = shard.entry(ino.0).or_default();
        held.count = held.count.saturating_add(count);
    }

    /// Returns the files with open references and their counts, to be restored with
    /// [`Fs::hold_times`] after the volume is opened again.
    pub fn held(&self) -> Vec<(Ino, u32)> {
        let of = |shard: &Mutex<FxHashMap<u64, OpenRef>>| {
            let shard = shard.lock();
            shard.iter().map(|(ino, held)| (Ino(*ino), held.count)).collect::<Vec<_>>()
        };
        let mut held: Vec<_> = self.open_refs.0.iter().flat_map(of).collect();
        held.retain(|(_, count)| *count > 0);
        held
    }

    /// Releases `count` references to a file. Releasing the last one frees a file that has no name.
    ///
    /// # Errors
    /// A damaged structure on the way of freeing the file, or [`Error::Shutdown`]. The references are
    /// released all the same, also if the file can only be freed later.
    pub fn release(&self, ino: Ino, count: u64) -> Result<()> {
        let mut shard = self.open_refs.shard(ino).lock();
        let Some(held) = shard.get_mut(&ino.0) else { return Ok(()) };
        if held.count == u32::MAX {
            return Ok(());
        }
        held.count = held.count.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        if held.count > 0 {
            return Ok(());
        }
        let unlinked = shard.remove(&ino.0).is_some_and(|held| held.unlinked);
        drop(shard);
        if !unlinked {
            return Ok(());
        }
        let _inside = self.changes();
        self.free_or_keep(ino)?;
        self.balance()
    }

    /// Has the file an open reference?
    pub fn is_held(&self, ino: Ino) -> bool {
        self.open_refs.shard(ino).lock().get(&ino.0).is_some_and(|held| held.count > 0)
    }

    /// Number of files without a name that exist because of open references.
    pub fn unlinked(&self) -> usize {
        let unlinked = |shard: &Mutex<FxHashMap<_, OpenRef>>| {
            shard.lock().values().filter(|h| h.unlinked).count()
        };
        self.open_refs.0.iter().map(unlinked).sum()
    }

    /// Frees a file without a name, at once or when its last reference is released.
    pub(crate) fn drop_last_name(&self, ino: Ino) -> Result<()> {
        if let Some(held) = self.open_refs.shard(ino).lock().get_mut(&ino.0) {
            held.unlinked = true;
            return Ok(());
        }
        self.free_or_keep(ino)
    }

    /// Frees a file that has neither a name nor a reference, or notes that it has to be freed later. The
    /// operation that took its last name is done in both cases.
    ///
    /// # Errors
    /// A damaged structure on the way; [`Error::Shutdown`].
    fn free_or_keep(&self, ino: Ino) -> Result<()> {
        match self.inactivate(ino) {
            Err(error @ (Error::Corrupt(_) | Error::Shutdown(_))) => Err(error),
            Err(_) => {
                self.open_refs.shard(ino).lock().entry(ino.0).or_default().unlinked = true;
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Notes that a file with an open reference has a name again.
    pub(crate) fn got_name(&self, ino: Ino) {
        if let Some(held) = self.open_refs.shard(ino).lock().get_mut(&ino.0) {
            held.unlinked = false;
        }
    }

    /// Releases all references to all files. This frees the files without a name.
    ///
    /// # Errors
    /// As [`Fs::release`], of the first file that could not be freed.
    pub fn release_all(&self) -> Result<()> {
        for shard in &self.open_refs.0 {
            let held = core::mem::take(&mut *shard.lock());
            for (ino, _) in held.into_iter().filter(|(_, held)| held.unlinked) {
                self.inactivate(Ino(ino))?;
            }
        }
        Ok(())
    }
}
