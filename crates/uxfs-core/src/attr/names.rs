//! Attribute names as Linux shows them and as XFS stores them.
//!
//! `user.`, `trusted.` and `security.` are namespaces. Linux calls the access control lists
//! `system.posix_acl_access` and `system.posix_acl_default`. XFS stores them as two attributes of the
//! `trusted` namespace in an encoding of its own. Callers see and use only the Linux names.

use std::borrow::Cow;

use uxfs_format::acl::{self, Acl};

use super::Namespace;
use crate::error::{Error, Result};

/// Linux name of the access ACL.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// Linux name of a directory's default ACL.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

const PREFIXES: [(&[u8], Namespace); 3] = [
    (b"user.", Namespace::User),
    (b"trusted.", Namespace::Trusted),
    (b"security.", Namespace::Secure),
];

/// How XFS stores the value that Linux sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Unchanged.
    Plain,
    /// As an access control list.
    Acl,
}

/// An attribute as XFS stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored<'a> {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its name within the namespace.
    pub name: &'a [u8],
    /// How its value is stored.
    pub coding: Coding,
}

fn is_acl(namespace: Namespace, name: &[u8]) -> bool {
    namespace == Namespace::Trusted && (name == acl::FILE || name == acl::DEFAULT)
}

/// Translates the Linux name `full` to the stored attribute.
///
/// # Errors
/// [`Error::Unsupported`] for names that XFS cannot store; [`Error::Invalid`] for a prefix without
/// a name, and for a NUL, which other programs would take as the end of the name.
pub fn stored(full: &[u8]) -> Result<Stored<'_>> {
    let list = |name| Stored { namespace: Namespace::Trusted, name, coding: Coding::Acl };
    match full {
        ACL_ACCESS => return Ok(list(acl::FILE)),
        ACL_DEFAULT => return Ok(list(acl::DEFAULT)),
        _ => {}
    }
    for (prefix, namespace) in PREFIXES {
        let Some(name) = full.strip_prefix(prefix) else { continue };
        if name.is_empty() {
            return Err(Error::Invalid("an attribute's name is empty"));
        }
        if name.contains(&0) {
            return Err(Error::Invalid("an attribute's name holds a NUL"));
        }
        if is_acl(namespace, name) {
            break;
        }
        return Ok(Stored { namespace, name, coding: Coding::Plain });
    }
    let shown = full.escape_ascii();
    Err(Error::Unsupported(format!("the extended attribute name {shown} is not supported")))
}

/// The Linux name of a stored attribute, and how its value is stored. `None` for attributes that
/// Linux does not show.
pub fn shown(namespace: Namespace, name: &[u8]) -> Option<(Cow<'static, [u8]>, Coding)> {
    if is_acl(namespace, name) {
        let full = if name == acl::FILE { ACL_ACCESS } else { ACL_DEFAULT };
        return Some((Cow::Borrowed(full), Coding::Acl));
    }
    let (prefix, _) = PREFIXES.iter().find(|(_, n)| *n == namespace)?;
    Some((Cow::Owned([prefix, name].concat()), Coding::Plain))
}

impl Coding {
    /// Encodes a Linux value for storage. `None` if the attribute is to be removed instead (an
    /// empty ACL).
    ///
    /// # Errors
    /// [`Error::Invalid`] if the value is not an access control list.
    pub fn encode(self, value: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        match self {
            Self::Plain => Ok(Some(Cow::Borrowed(value))),
            Self::Acl => match Acl::from_linux(value) {
                Ok(list) => Ok(list.map(|list| Cow::Owned(list.to_xfs()))),
                Err(_) => Err(Error::Invalid("the value is not a valid access control list")),
            },
        }
    }

    /// Decodes a stored value to the value that Linux sees.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the value is not an access control list.
    pub fn decode(self, value: Vec<u8>) -> Result<Vec<u8>> {
        match self {
            Self::Plain => Ok(value),
            Self::Acl => match Acl::from_xfs(&value) {
                Ok(list) => Ok(list.to_linux()),
                Err(_) => Err(Error::Invalid("the stored access control list is damaged")),
            },
        }
    }

    /// Length of the Linux value for a stored value of `len` bytes.
    pub fn decoded_len(self, len: usize) -> usize {
        match self {
            Self::Plain => len,
            Self::Acl => acl::linux_len(len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for (full, namespace, name) in [
            (&b"user.k"[..], Namespace::User, &b"k"[..]),
            (b"trusted.overlay.opaque", Namespace::Trusted, b"overlay.opaque"),
            (b"security.capability", Namespace::Secure, b"capability"),
            (ACL_ACCESS, Namespace::Trusted, b"SGI_ACL_FILE"),
            (ACL_DEFAULT, Namespace::Trusted, b"SGI_ACL_DEFAULT"),
        ] {
            let found = stored(full).unwrap();
            assert_eq!((found.namespace, found.name), (namespace, name));
            assert_eq!(shown(namespace, name).unwrap(), (Cow::Borrowed(full), found.coding));
        }
        assert_eq!(shown(Namespace::Parent, b"x"), None);
        for bad in [
            &b"user."[..],
            b"user.nul\0inside",
            b"system.nfs4_acl",
            b"trusted.SGI_ACL_FILE",
            b"nothing",
            b"",
        ] {
            assert!(stored(bad).is_err(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn access_control_lists_are_converted() {
        let linux = [
            2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 32, 0, 4,
            0, 255, 255, 255, 255,
        ];
        let xfs = Coding::Acl.encode(&linux).unwrap().unwrap().into_owned();
        assert_eq!(Coding::Acl.decoded_len(xfs.len()), linux.len());
        assert_eq!(Coding::Acl.decode(xfs).unwrap(), linux);
        assert!(Coding::Acl.encode(&[2, 0, 0, 0]).unwrap().is_none());
        assert!(Coding::Acl.encode(b"rubbish!").is_err());
    }
}
