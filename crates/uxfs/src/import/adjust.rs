//! What is changed of entries on the way in: owners, times, and access lists in XFS' own form.

use uxfs_archive::{Entry, Meta, Time};
use uxfs_format::acl::{self, Acl, AclEntry, Tag};

/// Linux' names of the two access lists, beside XFS'.
const LISTS: [(&[u8], &[u8]); 2] =
    [(acl::FILE, b"system.posix_acl_access"), (acl::DEFAULT, b"system.posix_acl_default")];

/// Numbers that become others: `count` of them from `from` on become those from `to` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMap {
    from: u32,
    to: u32,
    count: u32,
}

impl IdMap {
    /// A map; `None` if it is empty or leaves the numbers that Linux has (those below 2^32 - 1).
    pub fn new(from: u32, to: u32, count: u32) -> Option<Self> {
        let fits = |start: u32| start.checked_add(count).is_some();
        (count > 0 && fits(from) && fits(to)).then_some(Self { from, to, count })
    }

    fn apply(&self, id: u32) -> Option<u32> {
        let at = id.checked_sub(self.from).filter(|at| *at < self.count)?;
        Some(self.to + at)
    }
}

/// Who owns what is imported.
///
/// Maps apply first, also to the users and groups that access lists name; the first that has a
/// number decides, and numbers that none has stay. An owner for all then takes the place of that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owners {
    /// The owner of everything.
    pub uid: Option<u32>,
    /// The group of everything.
    pub gid: Option<u32>,
    /// Owners that become others.
    pub uid_maps: Vec<IdMap>,
    /// Groups that become others.
    pub gid_maps: Vec<IdMap>,
}

fn mapped(maps: &[IdMap], id: u32) -> u32 {
    maps.iter().find_map(|map| map.apply(id)).unwrap_or(id)
}

impl Owners {
    fn apply(&self, meta: &mut Meta) {
        meta.uid = self.uid.unwrap_or_else(|| mapped(&self.uid_maps, meta.uid));
        meta.gid = self.gid.unwrap_or_else(|| mapped(&self.gid_maps, meta.gid));
        if self.uid_maps.is_empty() && self.gid_maps.is_empty() {
            return;
        }
        for (name, value) in &mut meta.xattrs {
            if LISTS.iter().any(|(_, linux)| name == linux)
                // What is no list is refused where it is stored.
                && let Ok(Some(list)) = Acl::from_linux(value)
                && let Some(list) = self.list(&list)
            {
                *value = list.to_linux();
            }
        }
    }

    fn list(&self, list: &Acl) -> Option<Acl> {
        let entry = |entry: &AclEntry| AclEntry {
            id: match entry.tag {
                Tag::User => mapped(&self.uid_maps, entry.id),
                Tag::Group => mapped(&self.gid_maps, entry.id),
                _ => entry.id,
            },
            ..*entry
        };
        let mut entries: Vec<AclEntry> = list.entries().iter().map(entry).collect();
        entries.sort_by_key(|entry| (entry.tag, entry.id));
        Acl::new(entries).ok()
    }
}

/// All that is changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Adjust {
    pub(super) owners: Owners,
    /// Nothing is younger than this, and there is one time only: that of the content.
    pub(super) epoch: Option<i64>,
}

impl Adjust {
    /// Changes an entry; what could not be kept is given as a warning.
    pub(super) fn apply(&self, entry: &mut Entry) -> Option<String> {
        let warning = plain_lists(entry);
        self.owners.apply(&mut entry.meta);
        if let Some(epoch) = self.epoch {
            let latest = Time { sec: epoch, nsec: 0 };
            let meta = &mut entry.meta;
            meta.mtime = meta.mtime.min(latest);
            // The others are those of the copy that was read, not of the tree.
            (meta.atime, meta.ctime, meta.crtime) = (None, None, None);
        }
        warning
    }
}

/// XFS shows root its own form of access lists (`trusted.SGI_ACL_FILE`) beside Linux'. One that
/// says the same goes; one that stands alone is given Linux' name.
fn plain_lists(entry: &mut Entry) -> Option<String> {
    let mut warning = None;
    for (xfs, linux) in LISTS {
        let is_xfs = |name: &[u8]| name.strip_prefix(b"trusted.") == Some(xfs);
        let xattrs = &mut entry.meta.xattrs;
        let Some(at) = xattrs.iter().position(|(name, _)| is_xfs(name)) else { continue };
        let (name, value) = xattrs.remove(at);
        let twin = xattrs.iter().find(|(name, _)| name == linux);
        let twin = twin.map(|(_, value)| Acl::from_linux(value).ok().flatten());
        match (Acl::from_xfs(&value), twin) {
            (Ok(list), None) => {
                xattrs.push((linux.to_vec(), list.to_linux()));
                xattrs.sort();
            }
            (Ok(list), Some(Some(twin))) if list == twin => {}
            _ => {
                warning = Some(format!(
                    "{}: attribute {} is no access list, or not that of the file, and is left out",
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

    fn list(user: u32) -> Acl {
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
    fn maps_have_bounds() {
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
    fn lists_of_xfs_are_lists() {
        let (ours, theirs) = (list(7).to_linux(), list(7).to_xfs());
        let both =
            || vec![(LISTS[0].1, ours.clone()), (&b"trusted.SGI_ACL_FILE"[..], theirs.clone())];
        let mut same = entry(both());
        assert_eq!(plain_lists(&mut same), None);
        let mut alone = entry(both().split_off(1));
        assert_eq!(plain_lists(&mut alone), None);
        for entry in [&same, &alone] {
            assert_eq!(entry.meta.xattrs, [(LISTS[0].1.to_vec(), ours.clone())]);
        }
        let mut other = entry(vec![(LISTS[0].1, list(8).to_linux()), both().remove(1)]);
        assert!(plain_lists(&mut other).is_some());
        assert_eq!(other.meta.xattrs, [(LISTS[0].1.to_vec(), list(8).to_linux())]);
        let mut garbage = entry(vec![(&b"trusted.SGI_ACL_DEFAULT"[..], vec![1, 2])]);
        assert!(plain_lists(&mut garbage).is_some());
        assert!(garbage.meta.xattrs.is_empty());
    }

    #[test]
    fn owners_and_times() {
        let mut adjust = Adjust { epoch: Some(50), ..Adjust::default() };
        adjust.owners.uid_maps = vec![IdMap::new(1000, 0, 10).unwrap()];
        let mut one = entry(vec![(LISTS[0].1, list(1007).to_linux())]);
        one.meta.mtime = Time { sec: 50, nsec: 1 };
        one.meta.ctime = Some(Time { sec: 7, nsec: 7 });
        adjust.apply(&mut one);
        assert_eq!((one.meta.uid, one.meta.gid), (0, 1000));
        assert_eq!(one.meta.xattrs[0].1, list(7).to_linux());
        assert_eq!((one.meta.mtime, one.meta.ctime), (Time { sec: 50, nsec: 0 }, None));
        adjust.owners.gid = Some(5);
        adjust.owners.uid = Some(6);
        one.meta.mtime = Time { sec: -3, nsec: 9 };
        adjust.apply(&mut one);
        assert_eq!((one.meta.uid, one.meta.gid), (6, 5));
        assert_eq!(one.meta.mtime, Time { sec: -3, nsec: 9 });
    }
}
