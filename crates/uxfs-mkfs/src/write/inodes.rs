//! Writes the first inode chunk: root directory, realtime bitmap and summary, and 61 free inodes.

use std::time::{SystemTime, UNIX_EPOCH};

use uxfs_format::attr::{AttrFlags, sf};
use uxfs_format::features::Incompat;
use uxfs_format::inode::{Flags, Flags2, ForkFormat, InodeCore, S_IFDIR, S_IFREG};
use uxfs_format::timestamp::Timestamp;
use uxfs_format::{AgIno, Ino};

use super::Writer;
use crate::error::MkfsError;

/// Length in bytes of an empty short-form directory: two counts and the parent.
const EMPTY_DIR_LEN: usize = 6;

/// Length in bytes of the root directory's attribute fork, if it has one.
const ATTR_FORK_LEN: usize = 40;
/// Name of the attribute with the permissions of online checking.
const AUTOFSCK: &[u8] = b"xfs:autofsck";

impl Writer<'_> {
    /// Writes the chunk of the root inode.
    pub(super) fn first_inodes(&self) -> Result<(), MkfsError> {
        let layout = self.layout;
        let (root, uuid) = (layout.root_ino(), layout.uuid);
        let size = layout.units.inode as usize;
        let mut chunk = vec![0; size * layout.units.new_inodes() as usize];
        let now = self.how.now.unwrap_or_else(now);
        for (raw, ino) in chunk.chunks_exact_mut(size).zip(root.0..).map(|(r, n)| (r, Ino(n))) {
            match ino.0 - root.0 {
                0 => self.root_dir(raw, ino, now),
                1 => self.file(Flags::NEWRTBM, now).encode(raw, ino, &uuid),
                2 => self.file(Flags::empty(), now).encode(raw, ino, &uuid),
                _ => InodeCore::encode_free(raw, ino, &uuid, 0),
            }
            InodeCore::decode(raw, ino, &uuid)?;
        }
        let offset = self.geo.ag_daddr(uxfs_format::AgNo(0), layout.root_block()).bytes();
        self.put("first inodes", offset, &chunk)
    }

    /// The fields that all first inodes have in common.
    fn core(&self, now: Timestamp) -> InodeCore {
        let incompat = self.layout.units.incompat;
        let mut flags2 = Flags2::empty();
        flags2.set(Flags2::BIGTIME, incompat.contains(Incompat::BIGTIME));
        flags2.set(Flags2::NREXT64, incompat.contains(Incompat::NREXT64));
        InodeCore {
            nlink: 1,
            mtime: now,
            ctime: now,
            crtime: now,
            aformat: ForkFormat::Extents,
            next_unlinked: AgIno::NULL,
            // Counted once at creation and once at the first write.
            changecount: 2,
            flags2,
            ..InodeCore::default()
        }
    }

    fn root_dir(&self, raw: &mut [u8], ino: Ino, now: Timestamp) {
        let hints = self.layout.hints;
        let mut core = self.core(now);
        core.mode = S_IFDIR | 0o755;
        (core.uid, core.gid) = self.how.owner;
        core.nlink = 2;
        core.size = EMPTY_DIR_LEN as u64;
        core.format = ForkFormat::Local;
        core.projid = hints.projid;
        core.extsize = hints.extsize;
        core.cowextsize = hints.cowextsize;
        core.flags.set(Flags::RTINHERIT, hints.rtinherit);
        core.flags.set(Flags::PROJINHERIT, hints.projid != 0);
        core.flags.set(Flags::EXTSZINHERIT, hints.extsize != 0);
        core.flags2.set(Flags2::COWEXTSIZE, hints.cowextsize != 0);
        core.flags2.set(Flags2::DAX, hints.daxinherit);
        let fork = uxfs_format::inode::CORE_LEN;
        // The chunk is in the first AG, so the number takes the short form's four bytes.
        let empty = uxfs_format::dir::sf::build(ino, core::iter::empty());
        raw[fork..fork + EMPTY_DIR_LEN].copy_from_slice(&empty);
        if let Some(autofsck) = hints.autofsck {
            let fork = raw.len() - ATTR_FORK_LEN;
            core.forkoff = ((fork - uxfs_format::inode::CORE_LEN) / 8) as u8;
            core.aformat = ForkFormat::Local;
            let value = autofsck.name().as_bytes();
            sf::clear(&mut raw[fork..]);
            sf::push(&mut raw[fork..], AttrFlags::ROOT, AUTOFSCK, value);
        }
        core.encode(raw, ino, &self.layout.uuid);
    }

    /// An empty regular file.
    fn file(&self, flags: Flags, now: Timestamp) -> InodeCore {
        let mut core = self.core(now);
        core.mode = S_IFREG;
        core.format = ForkFormat::Extents;
        core.flags = flags;
        core
    }
}

fn now() -> Timestamp {
    // A clock before 1970 was never set; use 1970.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let sec = i64::try_from(since.as_secs()).unwrap_or(0);
    Timestamp { sec, nsec: since.subsec_nanos() }
}
