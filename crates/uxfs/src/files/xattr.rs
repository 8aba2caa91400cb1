//! Extended attributes by path. Names have their prefix, as in Linux: `user.`, `trusted.`,
//! `security.`, and `system.posix_acl_*`.

use std::path::Path;

use uxfs_core::XattrMode;

use super::error::Result;
use super::volume::Volume;
use crate::posix;

impl Volume {
    /// The value of an attribute. A symbolic link is followed if `follow` is set.
    ///
    /// # Errors
    /// ENODATA; the errors of [`uxfs_core::Fs::get_xattr`].
    pub fn get_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        follow: bool,
    ) -> Result<Vec<u8>> {
        self.on_path("get_xattr", path.as_ref(), |fs, bytes| {
            Ok(fs.get_xattr(self.held(fs, bytes, follow)?.ino, name.as_ref())?)
        })
    }

    /// Sets an attribute, as setxattr(2): an access list also changes the mode.
    ///
    /// # Errors
    /// The errors of [`uxfs_core::Fs::set_xattr`].
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        mode: XattrMode,
        follow: bool,
    ) -> Result<()> {
        self.on_path("set_xattr", path.as_ref(), |fs, bytes| {
            let held = self.held(fs, bytes, follow)?;
            Ok(posix::set_xattr(fs, held.ino, name.as_ref(), value.as_ref(), mode)?)
        })
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// ENODATA; the errors of [`uxfs_core::Fs::remove_xattr`].
    pub fn remove_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        follow: bool,
    ) -> Result<()> {
        self.on_path("remove_xattr", path.as_ref(), |fs, bytes| {
            Ok(fs.remove_xattr(self.held(fs, bytes, follow)?.ino, name.as_ref())?)
        })
    }

    /// The names of all attributes.
    ///
    /// # Errors
    /// The errors of [`uxfs_core::Fs::list_xattrs`].
    pub fn list_xattrs(&self, path: impl AsRef<Path>, follow: bool) -> Result<Vec<Vec<u8>>> {
        self.on_path("list_xattrs", path.as_ref(), |fs, bytes| {
            Ok(fs.list_xattrs(self.held(fs, bytes, follow)?.ino)?)
        })
    }
}
