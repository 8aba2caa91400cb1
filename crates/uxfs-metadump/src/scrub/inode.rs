//! Inodes: what their forks hold themselves, and what is left in them of earlier times.

use std::ops::Range;

use uxfs_format::attr::sf as attr_sf;
use uxfs_format::btree::ROOT_NUMRECS;
use uxfs_format::dir::sf as dir_sf;
use uxfs_format::extent::RECORD_LEN;
use uxfs_format::inode::{CORE_LEN, Fork, ForkFormat, InodeCore};
use uxfs_format::{Corrupt, Ino, Place, inode};

use super::attr::kind_of;
use super::rules::{Outcome, Scrub, sealed_inode};
use super::tree;
use super::used::Used;
use crate::names::Kind;

/// Length of a device number in a fork.
const DEV_LEN: usize = 4;

/// The core of an inode, if its forks can be followed. A wrong checksum alone does not matter.
pub(crate) fn core(raw: &[u8], ino: Ino) -> Result<InodeCore, Corrupt> {
    if !inode::has_magic(raw) {
        let check = uxfs_format::Check::Magic;
        return Err(Corrupt::new("inode", Place::Inode(ino), check, "the magic number is not IN"));
    }
    InodeCore::decode_unchecked(raw, ino)
}

/// The bytes of a fork.
pub(crate) fn fork_range(core: &InodeCore, fork: Fork, inode_len: usize) -> Range<usize> {
    let range = core.fork_range(fork, inode_len - CORE_LEN);
    CORE_LEN + range.start..CORE_LEN + range.end
}

impl Scrub<'_> {
    /// Changes an inode, whose number it should have.
    pub(crate) fn inode(&self, raw: &mut [u8], ino: Ino) -> Outcome {
        if self.changes_nothing() {
            return Outcome::Fine;
        }
        let core = match core(raw, ino) {
            Ok(core) => core,
            Err(problem) => return Outcome::Damaged(problem, self.withhold(raw, CORE_LEN)),
        };
        let mut outcome = Outcome::Fine;
        sealed_inode(raw, |raw| {
            if core.mode == 0 {
                // A free inode: what is behind the core is of the file that it was.
                if !self.whole {
                    raw[CORE_LEN..].fill(0);
                } else {
                    self.withhold(raw, CORE_LEN);
                }
                return;
            }
            for fork in [Fork::Data, Fork::Attr] {
                let range = fork_range(&core, fork, raw.len());
                if let Err(problem) = self.fork(&mut raw[range.clone()], &core, fork) {
                    let withheld = self.withhold(&mut raw[range], 0);
                    let problem = problem.of("inode fork", Place::Inode(ino));
                    outcome = Outcome::Damaged(problem, withheld);
                }
            }
        });
        outcome
    }

    fn fork(
        &self,
        bytes: &mut [u8],
        core: &InodeCore,
        fork: Fork,
    ) -> Result<(), uxfs_format::Problem> {
        let used = match (core.fork_format(fork), fork) {
            (ForkFormat::Dev, _) => Used::up_to(DEV_LEN),
            (ForkFormat::Extents, _) => {
                let count = usize::try_from(core.fork_extents(fork)).unwrap_or(usize::MAX);
                Used::up_to(count.saturating_mul(RECORD_LEN))
            }
            (ForkFormat::Btree, _) => tree::used_root(bytes.len(), ROOT_NUMRECS.get(bytes).into()),
            (ForkFormat::Local, Fork::Attr) => self.attrs(bytes)?,
            // `core` holds the size of a local fork to the fork's length.
            (ForkFormat::Local, Fork::Data) => {
                let size = core.size as usize;
                if core.is_dir() {
                    self.dir(&mut bytes[..size])?;
                } else {
                    self.target(&mut bytes[..size]);
                }
                Used::up_to(size)
            }
        };
        self.clear(bytes, used);
        Ok(())
    }

    /// Changes a directory in short form.
    fn dir(&self, bytes: &mut [u8]) -> Result<(), uxfs_format::Problem> {
        let sf = dir_sf::Shortform::parse_in(bytes, self.geo.dir)?;
        // Length and offset precede the name.
        let name = |entry: dir_sf::SfEntry<'_>| entry.at + 3..entry.at + 3 + entry.name.len();
        let names: Vec<_> = sf.entries().map(name).collect();
        names.into_iter().for_each(|name| self.rename(&mut bytes[name], Kind::File));
        Ok(())
    }

    /// Changes attributes in short form, and returns what is in use.
    fn attrs(&self, bytes: &mut [u8]) -> Result<Used, uxfs_format::Problem> {
        attr_sf::verify(bytes)?;
        let mut changes = Vec::new();
        for entry in attr_sf::entries(bytes) {
            let name = entry.at + attr_sf::ENTRY_OVERHEAD;
            let value = name + entry.name.len();
            changes.push(match kind_of(entry.flags) {
                Kind::File => (Kind::File, name..value, 0..0),
                Kind::Attr => (Kind::Attr, name..value, value..value + entry.value.len()),
            });
        }
        if self.names.is_some() {
            for (kind, name, value) in changes {
                self.rename(&mut bytes[name], kind);
                bytes[value].fill(0);
            }
        }
        Ok(Used::up_to(attr_sf::total(bytes)))
    }
}
