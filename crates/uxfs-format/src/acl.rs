//! POSIX access control lists (ACLs) in two encodings: XFS' own, stored in the attributes
//! `SGI_ACL_FILE` and `SGI_ACL_DEFAULT` of namespace `trusted`, and the encoding of Linux'
//! attributes `system.posix_acl_access` and `system.posix_acl_default`.

use crate::bytes::{be16, be32};

/// Name of the attribute that stores the access ACL, in namespace `trusted`.
pub const FILE: &[u8] = b"SGI_ACL_FILE";
/// Name of the attribute that stores a directory's default ACL, in namespace `trusted`.
pub const DEFAULT: &[u8] = b"SGI_ACL_DEFAULT";

const XFS_HEADER: usize = 4;
const XFS_ENTRY: usize = 12;
const LINUX_HEADER: usize = 4;
const LINUX_ENTRY: usize = 8;
const LINUX_VERSION: u32 = 2;
/// Maximum number of entries in an ACL, as the attribute's value is limited.
pub const MAX_ENTRIES: usize = (super::attr::MAX_VALUE - XFS_HEADER) / XFS_ENTRY;
/// Id of an entry that names no user or group.
pub const NO_ID: u32 = u32::MAX;

/// The subject of an ACL entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Tag {
    /// The owner.
    UserObj = 0x01,
    /// The user with this id.
    User = 0x02,
    /// The owning group.
    GroupObj = 0x04,
    /// The group with this id.
    Group = 0x08,
    /// Upper limit for the permissions of named users, named groups and the owning group.
    Mask = 0x10,
    /// All other users.
    Other = 0x20,
}

impl Tag {
    fn from_raw(raw: u32) -> Option<Self> {
        [Self::UserObj, Self::User, Self::GroupObj, Self::Group, Self::Mask, Self::Other]
            .into_iter()
            .find(|tag| *tag as u32 == raw)
    }

    const fn has_id(self) -> bool {
        matches!(self, Self::User | Self::Group)
    }
}

/// One ACL entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// The subject of the entry.
    pub tag: Tag,
    /// User or group id; [`NO_ID`] where the tag needs none.
    pub id: u32,
    /// Permission bits: 4 read, 2 write, 1 execute.
    pub perm: u8,
}

/// A valid ACL. Its entries are ordered: owner, named users, owning group, named groups, mask,
/// others. Owner, owning group and others occur exactly once; the mask is present if any user or
/// group is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

/// Reason why bytes or entries are not a valid ACL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an access control list: {0}")]
pub struct AclError(String);

fn entry(tag: u32, perm: u16, id: u32) -> Result<AclEntry, AclError> {
    let Some(tag) = Tag::from_raw(tag) else {
        return Err(AclError(format!("tag {tag:#x}")));
    };
    if perm > 7 {
        return Err(AclError(format!("permissions {perm:#o}")));
    }
    let id = if tag.has_id() { id } else { NO_ID };
    Ok(AclEntry { tag, id, perm: perm as u8 })
}

impl Acl {
    /// Makes an ACL of these entries.
    ///
    /// # Errors
    /// If the entries break a rule of [`Acl`].
    pub fn new(entries: Vec<AclEntry>) -> Result<Self, AclError> {
        let bad = |why: &str| Err(AclError(why.into()));
        if entries.len() > MAX_ENTRIES {
            return Err(AclError(format!("{} entries", entries.len())));
        }
        if !entries.is_sorted_by_key(|e| e.tag) {
            return bad("entries out of order");
        }
        let count = |tag| entries.iter().filter(|e| e.tag == tag).count();
        for tag in [Tag::UserObj, Tag::GroupObj, Tag::Other] {
            if count(tag) != 1 {
                return Err(AclError(format!("{} entries {tag:?}", count(tag))));
            }
        }
        let named = count(Tag::User) + count(Tag::Group);
        match count(Tag::Mask) {
            0 if named > 0 => return bad("users or groups without a mask"),
            0 | 1 => {}
            _ => return bad("more than one mask"),
        }
        if entries.iter().any(|e| e.tag.has_id() && e.id == NO_ID) {
            return bad("an entry without a user or group id");
        }
        Ok(Self { entries })
    }

    /// The entries.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Decodes the value of XFS' attribute.
    ///
    /// # Errors
    /// If the value is malformed or breaks a rule of [`Acl`].
    pub fn from_xfs(raw: &[u8]) -> Result<Self, AclError> {
        if raw.len() < XFS_HEADER {
            return Err(AclError(format!("{} bytes", raw.len())));
        }
        let count = be32(raw, 0) as usize;
        let body = &raw[XFS_HEADER..];
        if count > MAX_ENTRIES || body.len() < count * XFS_ENTRY {
            return Err(AclError(format!("{count} entries in {} bytes", raw.len())));
        }
        let entries = body[..count * XFS_ENTRY]
            .chunks_exact(XFS_ENTRY)
            .map(|e| entry(be32(e, 0), be16(e, 8), be32(e, 4)))
            .collect::<Result<_, _>>()?;
        Self::new(entries)
    }

    /// Encodes the value of XFS' attribute.
    pub fn to_xfs(&self) -> Vec<u8> {
        let mut raw = Vec::with_capacity(XFS_HEADER + self.entries.len() * XFS_ENTRY);
        raw.extend_from_slice(&(self.entries.len() as u32).to_be_bytes());
        for e in &self.entries {
            raw.extend_from_slice(&(e.tag as u32).to_be_bytes());
            raw.extend_from_slice(&e.id.to_be_bytes());
            raw.extend_from_slice(&u16::from(e.perm).to_be_bytes());
            raw.extend_from_slice(&[0; 2]);
        }
        raw
    }

    /// Decodes the value of Linux' attribute. `None` is the empty value, which removes the ACL.
    ///
    /// # Errors
    /// If the value is malformed or breaks a rule of [`Acl`].
    pub fn from_linux(raw: &[u8]) -> Result<Option<Self>, AclError> {
        let le32 = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        if raw.len() < LINUX_HEADER || !(raw.len() - LINUX_HEADER).is_multiple_of(LINUX_ENTRY) {
            return Err(AclError(format!("{} bytes", raw.len())));
        }
        if le32(raw) != LINUX_VERSION {
            return Err(AclError(format!("version {}", le32(raw))));
        }
        let body = &raw[LINUX_HEADER..];
        if body.is_empty() {
            return Ok(None);
        }
        let entries = body
            .chunks_exact(LINUX_ENTRY)
            .map(|e| {
                let (tag, perm) = (u16::from_le_bytes([e[0], e[1]]), [e[2], e[3]]);
                entry(tag.into(), u16::from_le_bytes(perm), le32(&e[4..]))
            })
            .collect::<Result<_, _>>()?;
        Self::new(entries).map(Some)
    }

    /// Encodes the value of Linux' attribute.
    pub fn to_linux(&self) -> Vec<u8> {
        let mut raw = Vec::with_capacity(LINUX_HEADER + self.entries.len() * LINUX_ENTRY);
        raw.extend_from_slice(&LINUX_VERSION.to_le_bytes());
        for e in &self.entries {
            raw.extend_from_slice(&(e.tag as u16).to_le_bytes());
            raw.extend_from_slice(&u16::from(e.perm).to_le_bytes());
            raw.extend_from_slice(&e.id.to_le_bytes());
        }
        raw
    }

    fn perm(&self, tag: Tag) -> Option<u16> {
        self.entries.iter().find(|e| e.tag == tag).map(|e| e.perm.into())
    }

    /// The nine permission bits of the mode of a file with this access ACL. The mask, if present,
    /// supplies the group bits.
    pub fn permissions(&self) -> u16 {
        let get = |tag| self.perm(tag).unwrap_or(0);
        let group = self.perm(Tag::Mask).unwrap_or_else(|| get(Tag::GroupObj));
        get(Tag::UserObj) << 6 | group << 3 | get(Tag::Other)
    }

    /// Does the ACL hold nothing beyond the mode's permission bits? XFS does not store a minimal
    /// access ACL.
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// Updates the ACL after the file's mode was changed to `mode`.
    pub fn set_permissions(&mut self, mode: u16) {
        let masked = self.perm(Tag::Mask).is_some();
        for e in &mut self.entries {
            let shift = match e.tag {
                Tag::UserObj => 6,
                Tag::Mask => 3,
                Tag::GroupObj if !masked => 3,
                Tag::Other => 0,
                _ => continue,
            };
            e.perm = (mode >> shift & 7) as u8;
        }
    }
}

/// Length of Linux' attribute value for an XFS attribute value of `len` bytes.
pub const fn linux_len(len: usize) -> usize {
    LINUX_HEADER + len.saturating_sub(XFS_HEADER) / XFS_ENTRY * LINUX_ENTRY
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Acl {
        let e = |tag, id, perm| AclEntry { tag, id, perm };
        Acl::new(vec![
            e(Tag::UserObj, NO_ID, 6),
            e(Tag::User, 1000, 7),
            e(Tag::GroupObj, NO_ID, 4),
            e(Tag::Mask, NO_ID, 7),
            e(Tag::Other, NO_ID, 0),
        ])
        .unwrap()
    }

    #[test]
    fn both_encodings_round_trip() {
        let acl = sample();
        let (xfs, linux) = (acl.to_xfs(), acl.to_linux());
        assert_eq!((xfs.len(), linux.len(), linux_len(xfs.len())), (64, 44, 44));
        assert_eq!(xfs[16..28], [0, 0, 0, 2, 0, 0, 3, 0xe8, 0, 7, 0, 0]);
        assert_eq!(linux[12..20], [2, 0, 7, 0, 0xe8, 3, 0, 0]);
        assert_eq!(Acl::from_xfs(&xfs).unwrap(), acl);
        assert_eq!(Acl::from_linux(&linux).unwrap(), Some(acl));
        assert_eq!(Acl::from_linux(&[2, 0, 0, 0]).unwrap(), None);
    }

    #[test]
    fn mode_and_list_agree() {
        let mut acl = sample();
        assert_eq!(acl.permissions(), 0o670);
        acl.set_permissions(0o751);
        assert_eq!(acl.permissions(), 0o751);
        assert_eq!(acl.perm(Tag::GroupObj), Some(4));
        let base = |tag, perm| AclEntry { tag, id: NO_ID, perm };
        let mut minimal =
            Acl::new(vec![base(Tag::UserObj, 6), base(Tag::GroupObj, 4), base(Tag::Other, 4)])
                .unwrap();
        assert!(minimal.is_minimal() && !acl.is_minimal());
        assert_eq!(minimal.permissions(), 0o644);
        minimal.set_permissions(0o600);
        assert_eq!(minimal.permissions(), 0o600);
    }

    #[test]
    fn broken_lists_are_refused() {
        let good = sample().to_linux();
        for at in 0..good.len() {
            for value in [0, 1, 9, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = Acl::from_linux(&bad);
                let _ = Acl::from_linux(&bad[..at]);
            }
        }
        let good = sample().to_xfs();
        for at in 0..good.len() {
            for value in [0, 1, 9, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = Acl::from_xfs(&bad);
                assert!(Acl::from_xfs(&bad[..at]).is_err());
            }
        }
        let no_mask: Vec<_> =
            sample().entries().iter().copied().filter(|e| e.tag != Tag::Mask).collect();
        assert!(Acl::new(no_mask).is_err());
    }
}
