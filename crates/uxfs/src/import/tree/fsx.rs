//! Flags, allocation hints and projects of imported files.
//!
//! 1. A directory gets them when everything is in it, so that nothing inherits them.
//! 2. A flag that forbids changes is the last thing that a file gets. Its change time is then that of the
//!    import.
//!
//! Used by the tree that an import fills.

use uxfs_archive::{Entry, Kind, Meta};
use uxfs_core::{Error, Fsx, Xflags};
use uxfs_format::Ino;

use super::super::error::ImportError;
use super::{Added, Tree, new_inode, times_of};

/// Flags that forbid changes of a file.
const FIXED: Xflags = Xflags::IMMUTABLE.union(Xflags::APPEND);

impl Tree<'_> {
    /// Gives a file its flags and project; a directory gets them in the end, and any file those that forbid
    /// changes.
    pub(super) fn add_fsx(&mut self, entry: &Entry, added: &mut Added) -> Result<(), ImportError> {
        let fsx = entry.meta.fsx;
        if fsx == uxfs_archive::Fsx::default() || matches!(entry.kind, Kind::Hardlink { .. }) {
            return Ok(());
        }
        let ino = self.fs.resolve(&entry.path, false)?;
        let fixed = fsx.flags & FIXED.bits() != 0;
        let done = matches!(entry.kind, Kind::File { .. }) && fsx.extsize != 0;
        if entry.kind != Kind::Dir && !done {
            self.set_fsx(ino, entry, added)?;
            self.fs.set_attr(ino, &times_of(&new_inode(&entry.meta)))?;
        }
        if entry.kind == Kind::Dir || fixed {
            self.final_fsx.insert(ino, fsx_of(&entry.meta));
        }
        Ok(())
    }

    /// Sets flags, hint and project of a file, without the flags that forbid changes. A hint that does not
    /// fit the volume becomes a warning.
    pub(super) fn set_fsx(
        &self,
        ino: Ino,
        entry: &Entry,
        added: &mut Added,
    ) -> Result<(), ImportError> {
        let fsx = fsx_of(&entry.meta);
        if let Some(why) = self.set_changeable(ino, fsx)? {
            added.warnings.push(format!(
                "{}: its allocation hint of {} bytes is left out: {why}",
                entry.path.escape_ascii(),
                fsx.extsize
            ));
        }
        Ok(())
    }

    /// Sets all but the flags that forbid changes. Returns why the hint does not fit the volume, if it does
    /// not; it is left out then.
    fn set_changeable(&self, ino: Ino, mut fsx: Fsx) -> Result<Option<&'static str>, ImportError> {
        fsx.xflags.remove(FIXED);
        match self.fs.set_fsx(ino, &fsx) {
            Err(Error::Invalid(why)) if fsx.extsize != 0 => {
                fsx.extsize = 0;
                self.fs.set_fsx(ino, &fsx)?;
                Ok(Some(why))
            }
            other => Ok(other.map(|()| None)?),
        }
    }

    /// Sets what waited until everything is there, but for flags that forbid changes.
    pub(super) fn finish_fsx(&self) -> Result<(), ImportError> {
        for (ino, fsx) in &self.final_fsx {
            // Of a directory a hint that does not fit is left out without a word.
            self.set_changeable(*ino, *fsx)?;
        }
        Ok(())
    }

    /// Sets the flags that forbid changes.
    pub(super) fn forbid_changes(&self) -> Result<(), ImportError> {
        for (ino, fsx) in self.final_fsx.iter().filter(|(_, fsx)| fsx.xflags.intersects(FIXED)) {
            let now = self.fs.get_fsx(*ino)?;
            self.fs.set_fsx(*ino, &Fsx { xflags: now.xflags | fsx.xflags, ..now })?;
        }
        Ok(())
    }
}

fn fsx_of(meta: &Meta) -> Fsx {
    let fsx = meta.fsx;
    Fsx {
        xflags: Xflags::from_bits_truncate(fsx.flags),
        extsize: u64::from(fsx.extsize),
        projid: fsx.project,
        ..Fsx::default()
    }
}
