//! Extended attributes by their Linux names (`user.x`, `security.capability`,
//! `system.posix_acl_access`).

use core::ops::ControlFlow;

use uxfs_format::Ino;

use super::guard;
use crate::attr::{self, names};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::journal::Op;

/// Maximum length of a value in bytes.
pub(crate) const VALUE_MAX: usize = 65536;

/// Whether [`Fs::set_xattr`] may create an attribute or replace one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum XattrMode {
    /// Create or replace.
    #[default]
    Any,
    /// Create only: an existing attribute is an error ([`Error::Exists`]).
    Create,
    /// Replace only: a missing attribute is an error ([`Error::NoAttr`]).
    Replace,
}

impl Fs {
    /// Returns the value of an attribute.
    ///
    /// # Errors
    /// [`Error::NoAttr`], [`Error::Unsupported`] for a name that XFS cannot store, or a damaged
    /// structure on the way.
    pub fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let stored = names::stored(name)?;
        let value =
            self.with_inode(ino, |inode| attr::get(self, inode, stored.namespace, stored.name))?;
        stored.coding.decode(value.ok_or(Error::NoAttr)?)
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// [`Error::AttrTooBig`], [`Error::Exists`] and [`Error::NoAttr`] according to `mode`,
    /// [`Error::NotPermitted`] if flags forbid it, [`Error::NoSpace`], [`Error::Unsupported`], or a
    /// damaged structure on the way.
    pub fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let _inside = self.changes();
        let stored = names::stored(name)?;
        if value.len() > VALUE_MAX {
            return Err(Error::AttrTooBig);
        }
        if stored.name.len() > super::NAME_MAX {
            return Err(Error::NameTooLong);
        }
        let Some(value) = stored.coding.encode(value)? else {
            return self.remove_xattr(ino, name);
        };
        self.retry_enospc(|| self.try_set(ino, &stored, &value, mode))?;
        self.balance()
    }

    fn try_set(
        &self,
        ino: Ino,
        stored: &names::Stored<'_>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let blocks = attr::set_blocks(&self.geo, value.len());
        let mut tx = self.begin_tx_for(Op::Attr(blocks), blocks)?;
        let slot = tx.lock_inode(ino)?;
        guard::may_change(&tx.inode(slot).core)?;
        if mode != XattrMode::Any {
            let old = attr::get(self, tx.inode(slot), stored.namespace, stored.name)?;
            match (mode, old) {
                (XattrMode::Create, Some(_)) => return Err(Error::Exists),
                (XattrMode::Replace, None) => return Err(Error::NoAttr),
                _ => {}
            }
        }
        attr::set(&mut tx, slot, stored.namespace, stored.name, value)?;
        tx.core_mut(slot).ctime = self.now();
        tx.commit()
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// [`Error::NoAttr`], [`Error::NotPermitted`] if flags forbid it, [`Error::Unsupported`], or a
    /// damaged structure on the way.
    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let _inside = self.changes();
        let stored = names::stored(name)?;
        self.retry_enospc(|| self.try_remove_xattr(ino, &stored))?;
        self.balance()
    }

    fn try_remove_xattr(&self, ino: Ino, stored: &names::Stored<'_>) -> Result<()> {
        let blocks = attr::set_blocks(&self.geo, 0);
        let mut tx = self.begin_freeing_tx_for(Op::Attr(blocks), blocks)?;
        let slot = tx.lock_inode(ino)?;
        guard::may_change(&tx.inode(slot).core)?;
        if !attr::remove(&mut tx, slot, stored.namespace, stored.name)? {
            return Err(Error::NoAttr);
        }
        tx.core_mut(slot).ctime = self.now();
        tx.commit()
    }

    /// Returns the names of all attributes.
    ///
    /// # Errors
    /// A damaged structure on the way.
    pub fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        self.with_inode(ino, |inode| {
            attr::list(self, inode, &mut |namespace, name, _| {
                found.extend(names::shown(namespace, name).map(|(full, _)| full.into_owned()));
                ControlFlow::Continue(())
            })
        })?;
        Ok(found)
    }
}
