//! Renaming files.

use uxfs_format::dir::FileType;
use uxfs_format::inode::{DEV, Fork, S_IFCHR, encode_dev};
use uxfs_format::{Check, Ino};

use super::create::{NewInode, ONE_INODE};
use super::names::{check_dir, check_name};
use super::remove::drop_link;
use super::{guard, parent};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::journal::Op;
use crate::tx::{InodeSlot, Tx};
use crate::{dir, ialloc, quota};

/// What a rename does if the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RenameFlags {
    /// Replace the existing file.
    #[default]
    Replace,
    /// Fail with [`Error::Exists`].
    NoReplace,
    /// Exchange the two files.
    Exchange,
}

/// The outcome of an attempt to rename.
enum Outcome {
    Done,
    /// Done, and this inode has no name left.
    Gone(Ino),
    /// A name changed between lookup and locking.
    Again,
}

impl Fs {
    /// Renames the file `name` in directory `from` to `new_name` in directory `to`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`], [`Error::NotEmpty`], [`Error::IsDir`],
    /// [`Error::NotDir`], [`Error::NotPermitted`] if flags forbid it, [`Error::OtherProject`],
    /// [`Error::Invalid`] if a directory would become its own descendant, [`Error::NoSpace`], or a
    /// damaged structure on the way.
    pub fn rename(
        &self,
        from: Ino,
        name: &[u8],
        to: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let _inside = self.changes();
        self.rename_leaving((from, name), (to, new_name), flags, None)
    }

    /// As [`Fs::rename`], and leaves a whiteout under the old name: a device of number 0 without
    /// permissions, with which an overlay hides a file of a lower layer. `owner` is its user and
    /// group.
    ///
    /// # Errors
    /// As [`Fs::rename`].
    pub fn rename_whiteout(
        &self,
        (from, name): (Ino, &[u8]),
        (to, new_name): (Ino, &[u8]),
        (uid, gid): (u32, u32),
    ) -> Result<()> {
        let _inside = self.changes();
        let whiteout = NewInode { uid, gid, ..NewInode::new(S_IFCHR) };
        self.rename_leaving((from, name), (to, new_name), RenameFlags::Replace, Some(&whiteout))
    }

    fn rename_leaving(
        &self,
        (from, name): (Ino, &[u8]),
        (to, new_name): (Ino, &[u8]),
        flags: RenameFlags,
        whiteout: Option<&NewInode>,
    ) -> Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        // Renames between directories run one at a time, so that no two can create a cycle.
        let _one = (from != to).then(|| self.moves.lock());
        loop {
            let moved = self
                .retry_enospc(|| self.try_rename((from, name), (to, new_name), flags, whiteout));
            match moved? {
                Outcome::Again => continue,
                Outcome::Done => {}
                Outcome::Gone(ino) => self.drop_last_name(ino)?,
            }
            return self.balance();
        }
    }

    fn try_rename(
        &self,
        (from, name): (Ino, &[u8]),
        (to, new_name): (Ino, &[u8]),
        flags: RenameFlags,
        whiteout: Option<&NewInode>,
    ) -> Result<Outcome> {
        let ino = self.lookup(from, name)?;
        let target = match self.lookup(to, new_name) {
            Ok(target) => Some(target),
            Err(Error::NotFound) => None,
            Err(other) => return Err(other),
        };
        if target == Some(ino) {
            // Both names are links to one file, or one entry in two spellings: POSIX requires that
            // nothing happens, and a kernel changes no spelling either.
            return match flags {
                RenameFlags::NoReplace => Err(Error::Exists),
                _ => Ok(Outcome::Done),
            };
        }
        match (flags, target) {
            (RenameFlags::NoReplace, Some(_)) => return Err(Error::Exists),
            (RenameFlags::Exchange, None) => return Err(Error::NotFound),
            _ => {}
        }
        if from != to {
            self.refuse_circle(ino, to)?;
            if let (RenameFlags::Exchange, Some(target)) = (flags, target) {
                self.refuse_circle(target, from)?;
            }
        }
        match (flags, target) {
            (RenameFlags::Exchange, Some(target)) => {
                self.exchange((from, name, ino), (to, new_name, target))
            }
            _ => self.move_entry((from, name, ino), (to, new_name, target), whiteout),
        }
    }

    /// Fails if `ino` is `dir` or one of its ancestors.
    fn refuse_circle(&self, ino: Ino, dir: Ino) -> Result<()> {
        let mut at = dir;
        // A chain of parents longer than the number of inodes is corrupt.
        for _ in 0..=self.inode_counts().0 {
            if at == ino {
                return Err(Error::Invalid("a directory cannot be moved into itself"));
            }
            let up = self.lookup(at, b"..")?;
            if up == at || at == self.root() {
                return Ok(());
            }
            at = up;
        }
        let place = uxfs_format::Place::Inode(dir);
        Err(Error::corrupt("directory", place, Check::Loop, "its parents form a cycle"))
    }

    fn move_entry(
        &self,
        (from, name, ino): (Ino, &[u8], Ino),
        (to, new_name, target): (Ino, &[u8], Option<Ino>),
        whiteout: Option<&NewInode>,
    ) -> Result<Outcome> {
        let blocks = dir::insert_blocks(&self.geo)
            + dir::remove_blocks(&self.geo)
            + if whiteout.is_some() { ialloc::blocks(self) } else { 0 }
            + 4 * self.parent_blocks();
        let op = if whiteout.is_some() { Op::Whiteout(blocks) } else { Op::Rename(blocks) };
        let mut tx = self.begin_tx_for(op, blocks)?;
        let [dp, tp, ip, vp] = tx.lock_inodes([from, to, ino, target.unwrap_or(ino)])?;
        check_dir(tx.inode(dp))?;
        check_dir(tx.inode(tp))?;
        if !self.still(&tx, dp, name, Some(ino))? || !self.still(&tx, tp, new_name, target)? {
            return Ok(Outcome::Again);
        }
        let name = &*dir::stored_name(self, tx.inode(dp), name)?;
        // A file that is replaced leaves its entry, in its spelling.
        let new_name = &*dir::stored_name(self, tx.inode(tp), new_name)?;
        if tx.inode(tp).core.nlink == 0 {
            return Err(Error::NotFound);
        }
        if let Some(new) = whiteout {
            let core = self.new_core(&tx.inode(dp).core, new)?;
            if self.lacks_dquots(&core)? {
                drop(tx);
                quota::provide(self, &core)?;
                return Ok(Outcome::Again);
            }
        }
        guard::may_remove(&tx.inode(dp).core, &tx.inode(ip).core)?;
        match target {
            Some(_) => guard::may_remove(&tx.inode(tp).core, &tx.inode(vp).core)?,
            None => guard::may_add(&tx.inode(tp).core)?,
        }
        let is_dir = tx.inode(ip).core.is_dir();
        let ftype = FileType::from_mode(tx.inode(ip).core.mode);
        if is_dir && target.is_none() && tx.inode(tp).core.nlink >= i32::MAX as u32 {
            return Err(Error::TooManyLinks);
        }
        let mut outcome = Outcome::Done;
        if let Some(victim) = target {
            let victim_is_dir = tx.inode(vp).core.is_dir();
            match (is_dir, victim_is_dir) {
                (true, false) => return Err(Error::NotDir),
                (false, true) => return Err(Error::IsDir),
                _ => guard::same_project(&tx.inode(tp).core, &tx.inode(ip).core)?,
            }
            match (is_dir, victim_is_dir) {
                (true, true) if !dir::is_empty(self, tx.inode(vp))? => {
                    return Err(Error::NotEmpty);
                }
                _ => {}
            }
            if drop_link(&mut tx, vp)? {
                outcome = Outcome::Gone(victim);
            }
            dir::replace(&mut tx, tp, new_name, ino, ftype)?;
            parent::remove(&mut tx, vp, tp, new_name)?;
            if victim_is_dir {
                let core = tx.core_mut(tp);
                core.nlink = core.nlink.saturating_sub(1);
            }
        } else {
            guard::same_project(&tx.inode(tp).core, &tx.inode(ip).core)?;
            dir::insert(&mut tx, tp, new_name, ino, ftype)?;
        }
        match whiteout {
            Some(new) => self.leave(&mut tx, dp, name, new)?,
            None => {
                dir::remove(&mut tx, dp, name)?;
            }
        }
        parent::remove(&mut tx, ip, dp, name)?;
        parent::add(&mut tx, ip, tp, new_name)?;
        if is_dir && from != to {
            dir::replace(&mut tx, ip, b"..", to, FileType::Directory)?;
            let core = tx.core_mut(dp);
            core.nlink = core.nlink.saturating_sub(1);
            tx.core_mut(tp).nlink += 1;
        }
        self.stamp(&mut tx, &[dp, tp], &[ip]);
        tx.commit()?;
        Ok(outcome)
    }

    /// Replaces the old name by a new device of number 0.
    fn leave(&self, tx: &mut Tx<'_>, dp: InodeSlot, name: &[u8], new: &NewInode) -> Result<()> {
        let up = tx.inode(dp);
        let (dir, core) = (up.ino, self.new_core(&up.core, new)?);
        tx.hold(&core, ONE_INODE)?;
        let slot = ialloc::alloc(tx, dir, core)?;
        DEV.set(tx.fork_mut(slot, Fork::Data), encode_dev(0, 0));
        let ino = tx.inode(slot).ino;
        dir::replace(tx, dp, name, ino, FileType::from_mode(new.mode))?;
        parent::add(tx, slot, dp, name)
    }

    fn exchange(
        &self,
        (from, name, ino): (Ino, &[u8], Ino),
        (to, new_name, other): (Ino, &[u8], Ino),
    ) -> Result<Outcome> {
        let blocks = dir::insert_blocks(&self.geo)
            + dir::remove_blocks(&self.geo)
            + 3 * self.parent_blocks();
        let mut tx = self.begin_tx_for(Op::Rename(blocks), blocks)?;
        let [dp, tp, ip, op] = tx.lock_inodes([from, to, ino, other])?;
        check_dir(tx.inode(dp))?;
        check_dir(tx.inode(tp))?;
        if !self.still(&tx, dp, name, Some(ino))? || !self.still(&tx, tp, new_name, Some(other))? {
            return Ok(Outcome::Again);
        }
        let name = &*dir::stored_name(self, tx.inode(dp), name)?;
        let new_name = &*dir::stored_name(self, tx.inode(tp), new_name)?;
        guard::may_remove(&tx.inode(dp).core, &tx.inode(ip).core)?;
        guard::may_remove(&tx.inode(tp).core, &tx.inode(op).core)?;
        guard::same_project(&tx.inode(tp).core, &tx.inode(ip).core)?;
        let kinds = [ip, op].map(|slot| tx.inode(slot).core.mode).map(FileType::from_mode);
        dir::replace(&mut tx, dp, name, other, kinds[1])?;
        dir::replace(&mut tx, tp, new_name, ino, kinds[0])?;
        parent::remove(&mut tx, ip, dp, name)?;
        parent::remove(&mut tx, op, tp, new_name)?;
        parent::add(&mut tx, ip, tp, new_name)?;
        parent::add(&mut tx, op, dp, name)?;
        if from != to {
            for (slot, old, new, up) in [(ip, dp, tp, to), (op, tp, dp, from)] {
                if tx.inode(slot).core.is_dir() {
                    dir::replace(&mut tx, slot, b"..", up, FileType::Directory)?;
                    let core = tx.core_mut(old);
                    core.nlink = core.nlink.saturating_sub(1);
                    tx.core_mut(new).nlink += 1;
                }
            }
        }
        self.stamp(&mut tx, &[dp, tp], &[ip, op]);
        tx.commit()?;
        Ok(Outcome::Done)
    }

    /// Does `name` still lead to the same inode, now that all inodes are locked?
    fn still(&self, tx: &Tx<'_>, dir: InodeSlot, name: &[u8], meant: Option<Ino>) -> Result<bool> {
        Ok(dir::lookup(self, tx.inode(dir), name)?.map(|(ino, _)| ino) == meant)
    }

    fn stamp(&self, tx: &mut Tx<'_>, dirs: &[InodeSlot], moved: &[InodeSlot]) {
        let now = self.now();
        for dir in dirs {
            let core = tx.core_mut(*dir);
            (core.mtime, core.ctime) = (now, now);
        }
        for slot in moved {
            tx.core_mut(*slot).ctime = now;
        }
    }
}
