//! Reads the extended attributes of files of the host.
//!
//! 1. The attributes that Linux keeps for users and for security are read (`user`, `trusted`,
//!    `security`, POSIX ACLs); those of the host's file system are left out, with a warning.
//!
//! Used by the sources that read files of the host.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::entry::{Xattrs, normal_xattrs};
use crate::error::Warnings;

/// Linux' limit in bytes for an attribute's value and for the list of names.
const XATTR_MAX: usize = 64 << 10;

/// Prefixes of the names that are read.
const KEPT: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system.posix_acl_"];

/// A file whose attributes are read: by descriptor, or by name if it must not be opened.
pub(crate) enum Target<'a> {
    Open(BorrowedFd<'a>),
    In(BorrowedFd<'a>, &'a CStr),
}

impl Target<'_> {
    /// No system call takes a directory and a name, but a path in `/proc` works.
    fn proc_path(dir: BorrowedFd<'_>, name: &CStr) -> PathBuf {
        let dir = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
        dir.join(OsStr::from_bytes(name.to_bytes()))
    }

    fn list(&self, into: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::flistxattr(fd, into),
            Self::In(dir, name) => rustix::fs::llistxattr(Self::proc_path(*dir, name), into),
        }
    }

    fn get(&self, name: &[u8], into: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fgetxattr(fd, name, into),
            Self::In(dir, file) => rustix::fs::lgetxattr(Self::proc_path(*dir, file), name, into),
        }
    }
}

/// What failed: the words for it, to which the caller adds the file, and the error.
pub(crate) type Failed = (String, Errno);

/// Reads attributes, with buffers that serve for all files.
pub(crate) struct HostXattrs {
    list: Vec<u8>,
    value: Vec<u8>,
}

impl Default for HostXattrs {
    fn default() -> Self {
        Self { list: vec![0; XATTR_MAX], value: vec![0; XATTR_MAX] }
    }
}

impl HostXattrs {
    /// The attributes of an open file.
    ///
    /// # Errors
    /// Those of [`HostXattrs::read`].
    pub(crate) fn of_file(
        &mut self,
        file: &File,
        warnings: &mut Warnings,
    ) -> Result<Xattrs, Failed> {
        self.read(&Target::Open(file.as_fd()), warnings)
    }

    /// The attributes of a file.
    ///
    /// # Errors
    /// The host's error, with what failed.
    pub(crate) fn read(
        &mut self,
        target: &Target<'_>,
        warnings: &mut Warnings,
    ) -> Result<Xattrs, Failed> {
        let count = match target.list(&mut self.list) {
            // This file system has no attributes.
            Err(Errno::OPNOTSUPP) => 0,
            other => other.map_err(|errno| ("listing the attributes of".to_owned(), errno))?,
        };
        let mut xattrs = Vec::new();
        let names = self.list[..count].split(|byte| *byte == 0);
        for name in names.filter(|name| !name.is_empty()) {
            if !KEPT.iter().any(|prefix| name.starts_with(prefix)) {
                let name = name.escape_ascii();
                warnings.push_once(format!("attribute {name} is specific to the host: left out"));
                continue;
            }
            match target.get(name, &mut self.value) {
                Ok(count) => xattrs.push((name.to_vec(), self.value[..count].to_vec())),
                // The attribute was removed after it was listed.
                Err(Errno::NODATA) => {}
                Err(errno) => {
                    return Err((format!("reading attribute {} of", name.escape_ascii()), errno));
                }
            }
        }
        normal_xattrs(&mut xattrs);
        Ok(xattrs)
    }
}
