//! The caller of a request, and whether its set-ID bits survive, which the kernel leaves to the
//! server.
//!
//! FUSE sends user, group and thread. Further groups and capabilities are read from `/proc` where
//! they matter, which is rare; the calling thread waits meanwhile. What cannot be read there counts
//! as absent. A virtual machine's threads are none of this machine's: its root has all capabilities,
//! and its other users have no further group.

use uxfs::format::acl::{Acl, AclEntry, Tag};
use uxfs::format::inode::{S_IFMT, S_IFREG};
use uxfs::posix::{ACL_ACCESS, S_ISGID, S_ISUID};
use uxfs::{Error, Fs, Stat};
use uxfs_transport::Request;

const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_FOWNER: u32 = 3;
const CAP_FSETID: u32 = 4;
const CAP_LINUX_IMMUTABLE: u32 = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    uid: u32,
    gid: u32,
    /// Thread id; 0 if it has none in this namespace.
    pid: u32,
    is_of_guest: bool,
    /// The kernel's decision whether set-ID bits survive, if it sent one.
    keeps: Option<bool>,
}

impl Credentials {
    pub(super) fn of(req: &Request) -> Self {
        Self {
            uid: req.uid(),
            gid: req.gid(),
            pid: req.pid(),
            is_of_guest: req.is_of_guest(),
            keeps: None,
        }
    }

    /// May the caller pass the limits of a new owner's quota? Root may.
    pub(super) fn is_privileged(self) -> bool {
        self.is_root()
    }

    pub(super) fn is_root(self) -> bool {
        self.uid == 0
    }

    /// Is it the user who mounted the volume? No user of a guest is.
    pub(super) fn owns_mount(self) -> bool {
        !self.is_of_guest && self.uid == rustix::process::geteuid().as_raw()
    }

    /// May the caller change the flags of a file? `protection` says that it changes those that protect the
    /// file.
    pub(super) fn may_set_flags(self, stat: &Stat, protection: bool) -> bool {
        let owns = self.uid == stat.uid;
        // The capabilities of a thread that is not visible here are unknown; root has them.
        if owns && !protection || self.is_root() && self.pid == 0 {
            return true;
        }
        let status = self.status();
        (owns || status.has(CAP_FOWNER)) && (!protection || status.has(CAP_LINUX_IMMUTABLE))
    }

    /// A caller for which the kernel decided about set-ID bits.
    pub(super) fn for_write(self, kill: bool) -> Self {
        Self { keeps: Some(!kill), ..self }
    }

    /// The set-ID bits that a file in this state loses when its content changes.
    pub(super) fn set_id_bits_lost_by_write(self, stat: &Stat) -> u16 {
        let bits = stat.mode & (S_ISUID | S_ISGID);
        if bits == 0 || stat.mode & S_IFMT != S_IFREG {
            return 0;
        }
        match self.keeps {
            Some(true) => 0,
            Some(false) => self.lost(stat, false),
            None if self.status().has(CAP_FSETID) => 0,
            None => self.lost(stat, false),
        }
    }

    /// The set-ID bits that a file other than a directory loses when its owner changes. The kernel
    /// sends the same request, `no_owner`, before a write.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if there are such bits and the caller may not remove them.
    pub(super) fn set_id_bits_lost_by_chown(
        self,
        fs: &Fs,
        stat: &Stat,
        no_owner: bool,
    ) -> uxfs::Result<u16> {
        if stat.mode & (S_ISUID | S_ISGID) == 0 {
            return Ok(0);
        }
        let status = self.status();
        let lost = self.lost(stat, status.has(CAP_FSETID));
        let owns = self.uid == stat.uid || status.has(CAP_FOWNER);
        if lost == 0 || owns || no_owner && self.may_write(fs, stat, &status)? {
            return Ok(lost);
        }
        Err(Error::NotPermitted)
    }

    /// May this caller, which is not the owner, write according to mode and access list?
    fn may_write(self, fs: &Fs, stat: &Stat, status: &Status) -> uxfs::Result<bool> {
        const WRITE: u8 = 2;
        if status.has(CAP_DAC_OVERRIDE) {
            return Ok(true);
        }
        let is_in = |gid| self.gid == gid || status.groups.contains(&gid);
        let list = match fs.get_xattr(stat.ino, ACL_ACCESS) {
            Ok(raw) => Acl::from_linux(&raw).ok().flatten(),
            Err(Error::NoAttr) => None,
            Err(other) => return Err(other),
        };
        let Some(list) = list else {
            let class = if is_in(stat.gid) { 0o020 } else { 0o002 };
            return Ok(stat.mode & class != 0);
        };
        let entries = list.entries();
        let mask = entries.iter().find(|e| e.tag == Tag::Mask).map_or(7, |e| e.perm);
        let writes = |entry: &AclEntry| entry.perm & mask & WRITE != 0;
        if let Some(user) = entries.iter().find(|e| e.tag == Tag::User && e.id == self.uid) {
            return Ok(writes(user));
        }
        let of_groups = |entry: &&AclEntry| match entry.tag {
            Tag::GroupObj => is_in(stat.gid),
            Tag::Group => is_in(entry.id),
            _ => false,
        };
        let mut groups = entries.iter().filter(of_groups).peekable();
        if groups.peek().is_some() {
            return Ok(groups.any(writes));
        }
        Ok(entries.iter().any(|e| e.tag == Tag::Other && e.perm & WRITE != 0))
    }

    /// Does the set-group-ID bit go when this caller sets an access list?
    pub(super) fn loses_setgid_by_acl(self, stat: &Stat) -> bool {
        stat.mode & S_ISGID != 0 && !self.is_in(stat.gid) && !self.status().has(CAP_FSETID)
    }

    /// Without executable bits, set-group-ID once meant mandatory locks. Members of the group may
    /// keep that.
    fn lost(self, stat: &Stat, keeps: bool) -> u16 {
        let group = stat.mode & 0o010 != 0 || !keeps && !self.is_in(stat.gid);
        stat.mode & (S_ISUID | if group { S_ISGID } else { 0 })
    }

    fn is_in(self, gid: u32) -> bool {
        self.gid == gid || self.status().groups.contains(&gid)
    }

    fn status(self) -> Status {
        if self.is_of_guest {
            let capabilities = if self.uid == 0 { u64::MAX } else { 0 };
            return Status { capabilities, ..Status::default() };
        }
        if self.pid == 0 {
            return Status::default();
        }
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid));
        let mut status = text.map(|text| Status::parse(&text)).unwrap_or_default();
        // Capabilities in another user namespace do not apply to this volume.
        let space = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/user")).ok();
        if status.capabilities != 0 && space(&self.pid.to_string()) != space("self") {
            status.capabilities = 0;
        }
        status
    }
}

/// The state of a thread from `/proc`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status {
    groups: Vec<u32>,
    capabilities: u64,
}

impl Status {
    fn parse(text: &str) -> Self {
        let field = |name| text.lines().find_map(|line: &str| line.strip_prefix(name));
        let groups = field("Groups:").unwrap_or_default();
        let capabilities = field("CapEff:").unwrap_or_default().trim();
        Self {
            groups: groups.split_whitespace().filter_map(|group| group.parse().ok()).collect(),
            capabilities: u64::from_str_radix(capabilities, 16).unwrap_or(0),
        }
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_capabilities_are_read_from_proc() {
        let text = "Name:\tx\nGroups:\t0 10 2000 \nCapEff:\t0000000000000010\n";
        let status = Status::parse(text);
        assert_eq!(status, Status { groups: vec![0, 10, 2000], capabilities: 16 });
        assert!(status.has(CAP_FSETID) && !status.has(CAP_FOWNER));
        assert_eq!(Status::parse(""), Status::default());
    }
}
