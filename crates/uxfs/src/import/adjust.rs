//! Changes entries during an import: owners, times, and ACLs in XFS' own form.

use uxfs_archive::{Entry, Meta, Time};
use uxfs_format::acl::{self, Acl, AclEntry, Tag};

use super::labelling::Labelling;

/// The names of the two ACL attributes: XFS' and Linux'.
const ACL_NAMES: [(&[u8], &[u8]); 2] =
    [(acl::FILE, b"system.posix_acl_access"), (acl::DEFAULT, b"system.posix_acl_default")];

/// A map of IDs: `count` IDs from `from` become the IDs from `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMap {
    from: u32,
    to: u32,
    count: u32,
}

impl IdMap {
    /// A map; `None` if it is empty or leaves the range of Linux' IDs (below 2^32 - 1).
    pub fn new(from: u32, to: u32, count: u32) -> Option<Self> {
        let fits = |start: u32| start.checked_add(count).is_some();
        (count > 0 && fits(from) && fits(to)).then_some(Self { from, to, count })
    }

    fn apply(&self, id: u32) -> Option<u32> {
        let at = id.checked_sub(self.from).filter(|at| *at < self.count)?;
        Some(self.to + at)
    }
}

impl std::str::FromStr for IdMap {
    type Err = &'static str;

    /// Parses `FROM:TO` or `FROM:TO:COUNT`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers: Option<Vec<u32>> = text.split(':').map(|part| part.parse().ok()).collect();
        let map = match numbers.as_deref() {
            Some([from, to]) => Self::new(*from, *to, 1),
            Some([from, to, count]) => Self::new(*from, *to, *count),
            _ => return Err("not of the form FROM:TO or FROM:TO:COUNT"),
        };
        map.ok_or("empty, or beyond the last number")
    }
}

/// The owners of imported files.
///
/// Maps apply first, also to the users and groups in ACLs. The first map that contains an ID
/// decides; an ID in no map stays. `uid` and `gid` then replace the result for all files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owners {
    /// The owner of all files.
    pub uid: Option<u32>,
    /// The group of all files.
    pub gid: Option<u32>,
    /// Maps of user IDs.
    pub uid_maps: Vec<IdMap>,
    /// Maps of group IDs.
    pub gid_maps: Vec<IdMap>,
}

fn mapped(maps: &[IdMap], id: u32) -> u32 {
    maps.iter().find_map(|map| map.apply(id)).unwrap_or(id)
}

impl Owners {
    /// The user and group that files of root get.
    pub(super) fn of_root(&self) -> (u32, u32) {
        self.of(0, 0)
    }

    fn of(&self, uid: u32, gid: u32) -> (u32, u32) {
        let uid = self.uid.unwrap_or_else(|| mapped(&self.uid_maps, uid));
        (uid, self.gid.unwrap_or_else(|| mapped(&self.gid_maps, gid)))
    }

    fn apply(&self, meta: &mut Meta) {
        (meta.uid, meta.gid) = self.of(meta.uid, meta.gid);
        if self.uid_maps.is_empty() && self.gid_maps.is_empty() {
            return;
        }
        for (name, value) in &mut meta.xattrs {
            if ACL_NAMES.iter().any(|(_, linux)| name == linux)
                // An invalid ACL is refused when it is stored.
                && let Ok(Some(acl)) = Acl::from_linux(value)
                && let Some(acl) = self.acl(&acl)
            {
                *value = acl.to_linux();
            }
        }
    }

    fn acl(&self, acl: &Acl) -> Option<Acl> {
        let entry = |entry: &AclEntry| AclEntry {
            id: match entry.tag {
                Tag::User => mapped(&self.uid_maps, entry.id),
                Tag::Group => mapped(&self.gid_maps, entry.id),
                _ => entry.id,
            },
            ..*entry
        };
        let mut entries: Vec<AclEntry> = acl.entries().iter().map(entry).collect();
        entries.sort_by_key(|entry| (entry.tag, entry.id));
        Acl::new(entries).ok()
    }
}

/// The times of imported files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Times {
    /// Those of the source.
    #[default]
    Source,
    /// Modification times up to this one, in seconds; the other times become the modification time.
    UpTo(i64),
    /// The modification times of the source, and the access times if `atime` is set; otherwise `now`.
    Made { now: Time, atime: bool },
}

/// All changes to entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Adjust {
    pub(super) owners: Owners,
    pub(super) times: Times,
    pub(super) labelling: Labelling,
}

impl Adjust {
    /// Changes an entry. Returns a warning about what could not be kept.
    pub(super) fn apply(&self, entry: &mut Entry) -> Option<String> {
        let warning = convert_xfs_acls(entry);
        self.owners.apply(&mut entry.meta);
        let meta = &mut entry.meta;
        match self.times {
            Times::Source => {}
            Times::UpTo(epoch) => {
                meta.mtime = meta.mtime.min(Time { sec: epoch, nsec: 0 });
                // The other times are those of the copy that is read, not of the tree.
                (meta.atime, meta.ctime, meta.crtime) = (None, None, None);
            }
            Times::Made { now, atime } => {
                meta.atime = meta.atime.filter(|_| atime).or(Some(now));
                (meta.ctime, meta.crtime) = (Some(now), Some(now));
            }
        }
        warning
    }
}

/// XFS shows root its own form of ACLs (`trusted.SGI_ACL_FILE`) beside Linux'. An ACL in that form
/// is removed if Linux' says the same; if it stands alone, it becomes Linux'.
fn convert_xfs_acls(entry: &mut Entry) -> Option<String> {
    let mut warning = None;
    for (xfs, linux) in ACL_NAMES {
        let is_xfs = |name: &[u8]| name.strip_prefix(b"trusted.") == Some(xfs);
        let xattrs = &mut entry.meta.xattrs;
        let Some(at) = xattrs.iter().position(|(name, _)| is_xfs(name)) else { continue };
        let (name, value) = xattrs.remove(at);
        let linux_acl = xattrs.iter().find(|(name, _)| name == linux);
        let linux_acl = linux_acl.map(|(_, value)| Acl::from_linux(value).ok().flatten());
        match (Acl::from_xfs(&value), linux_acl) {
            (Ok(acl), None) => {
                xattrs.push((linux.to_vec(), acl.to_linux()));
                xattrs.sort();
            }
            (Ok(acl), Some(Some(linux_acl))) if acl == linux_acl => {}
            _ => {
                warning = Some(format!(
                    "{}: attribute {} is not an ACL, or differs from the file's ACL: it is left out",
                    entry.path.escape_ascii(),
                    name.escape_ascii()
                ));
            }
        }
    }
    warning
}

#[cfg(test)]
mod tests {
    use uxfs_archive::Kind;

    use super::*;

    fn acl(user: u32) -> Acl {
        let entry = |tag, id, perm| AclEntry { tag, id, perm };
        let none = acl::NO_ID;
        Acl::new(vec![
            entry(Tag::UserObj, none, 7),
            entry(Tag::User, user, 6),
            entry(Tag::GroupObj, none, 5),
            entry(Tag::Mask, none, 7),
            entry(Tag::Other, none, 0),
        ])
        .unwrap()
    }

    fn entry(xattrs: Vec<(&[u8], Vec<u8>)>) -> Entry {
        let xattrs = xattrs.into_iter().map(|(name, value)| (name.to_vec(), value)).collect();
        let meta = Meta { uid: 1000, gid: 1000, xattrs, ..Meta::default() };
        Entry { path: b"f".to_vec(), kind: Kind::Fifo, meta }
    }

    #[test]
    fn id_maps_have_bounds() {
        assert_eq!(IdMap::new(0, 0, 0), None);
        assert_eq!(IdMap::new(u32::MAX, 0, 1), None);
        assert_eq!(IdMap::new(0, u32::MAX - 1, 2), None);
        let map = IdMap::new(0, 100_000, 65_536).unwrap();
        assert_eq!(map.apply(0), Some(100_000));
        assert_eq!(map.apply(65_535), Some(165_535));
        assert_eq!(map.apply(65_536), None);
        assert!(IdMap::new(u32::MAX - 1, 0, 1).is_some());
    }

    #[test]
    fn xfs_acls_become_linux_acls() {
        let (ours, theirs) = (acl(7).to_linux(), acl(7).to_xfs());
        let both =
            || vec![(ACL_NAMES[0].1, ours.clone()), (&b"trusted.SGI_ACL_FILE"[..], theirs.clone())];
        let mut same = entry(both());
        assert_eq!(convert_xfs_acls(&mut same), None);
        let mut alone = entry(both().split_off(1));
        assert_eq!(convert_xfs_acls(&mut alone), None);
        for entry in [&same, &alone] {
            assert_eq!(entry.meta.xattrs, [(ACL_NAMES[0].1.to_vec(), ours.clone())]);
        }
        let mut other = entry(vec![(ACL_NAMES[0].1, acl(8).to_linux()), both().remove(1)]);
        assert!(convert_xfs_acls(&mut other).is_some());
        assert_eq!(other.meta.xattrs, [(ACL_NAMES[0].1.to_vec(), acl(8).to_linux())]);
        let mut garbage = entry(vec![(&b"trusted.SGI_ACL_DEFAULT"[..], vec![1, 2])]);
        assert!(convert_xfs_acls(&mut garbage).is_some());
        assert!(garbage.meta.xattrs.is_empty());
    }

    #[test]
    fn owners_and_times_are_adjusted() {
        let mut adjust = Adjust { times: Times::UpTo(50), ..Adjust::default() };
        adjust.owners.uid_maps = vec![IdMap::new(1000, 0, 10).unwrap()];
        let mut one = entry(vec![(ACL_NAMES[0].1, acl(1007).to_linux())]);
        one.meta.mtime = Time { sec: 50, nsec: 1 };
        one.meta.ctime = Some(Time { sec: 7, nsec: 7 });
        adjust.apply(&mut one);
        assert_eq!((one.meta.uid, one.meta.gid), (0, 1000));
        assert_eq!(one.meta.xattrs[0].1, acl(7).to_linux());
        assert_eq!((one.meta.mtime, one.meta.ctime), (Time { sec: 50, nsec: 0 }, None));
        adjust.owners.gid = Some(5);
        adjust.owners.uid = Some(6);
        one.meta.mtime = Time { sec: -3, nsec: 9 };
        adjust.apply(&mut one);
        assert_eq!((one.meta.uid, one.meta.gid), (6, 5));
        assert_eq!(one.meta.mtime, Time { sec: -3, nsec: 9 });
    }

    #[test]
    fn a_population_has_its_own_times() {
        let at = |sec| Time { sec, nsec: 3 };
        let mut one = entry(Vec::new());
        one.meta.mtime = at(100);
        (one.meta.atime, one.meta.ctime) = (Some(at(7)), Some(at(8)));
        for (atime, wanted) in [(true, at(7)), (false, at(50))] {
            let times = Times::Made { now: at(50), atime };
            Adjust { times, ..Adjust::default() }.apply(&mut one);
            let meta = &one.meta;
            assert_eq!((meta.mtime, meta.atime), (at(100), Some(wanted)));
            assert_eq!((meta.ctime, meta.crtime), (Some(at(50)), Some(at(50))));
        }
    }
}
