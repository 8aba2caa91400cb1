//! Operations on names.

use uxfs::{NewInode, RenameFlags, Result};
use uxfs_format::inode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK};

use super::{Workload, join, split};
use crate::history::Tree;

impl Workload<'_> {
    pub(super) fn create(&mut self, kind: u16) -> Result<()> {
        let (parent, name) = self.new_path();
        let dir = self.ino(&parent)?;
        if kind == S_IFLNK {
            self.record_operation("symlink");
            let len = if self.rng.once_in(2) { 20 } else { 900 };
            self.fs.symlink(dir, &name, &vec![b't'; len], &NewInode::new(0o640))?;
        } else {
            self.record_operation(if kind == S_IFDIR { "mkdir" } else { "create" });
            let attr_bytes = if self.rng.once_in(4) { 100 } else { 0 };
            let new = NewInode { attr_bytes, ..NewInode::new(kind | 0o640) };
            self.fs.create(dir, &name, &new)?;
        }
        self.add(&parent, &name)
    }

    pub(super) fn make_node(&mut self) -> Result<()> {
        self.record_operation("mknod");
        let (parent, name) = self.new_path();
        let kind = [S_IFCHR, S_IFBLK, S_IFIFO, S_IFSOCK][self.rng.below(4) as usize];
        let mut new = NewInode::new(kind | 0o600);
        if kind == S_IFCHR || kind == S_IFBLK {
            new.rdev = (self.rng.below(200) as u32, self.rng.below(200) as u32);
        }
        self.fs.create(self.ino(&parent)?, &name, &new)?;
        self.add(&parent, &name)
    }

    pub(super) fn link(&mut self) -> Result<()> {
        let Some(old) = self.any(S_IFREG) else { return Ok(()) };
        self.record_operation("link");
        let (parent, name) = self.new_path();
        self.fs.link(self.ino(&old)?, self.ino(&parent)?, &name)?;
        let node = self.tree[&old].clone();
        self.tree.insert(join(&parent, &name), node);
        Ok(())
    }

    /// The new name, and whether it exists.
    fn rename_target(&mut self) -> (Vec<u8>, Vec<u8>) {
        match self.any_name().filter(|_| self.rng.once_in(3)) {
            Some(path) => {
                let (parent, name) = split(&path);
                (parent.to_vec(), name.to_vec())
            }
            None => self.new_path(),
        }
    }

    pub(super) fn rename(&mut self) -> Result<()> {
        let Some(old) = self.any_name() else { return Ok(()) };
        let (parent, name) = self.rename_target();
        let new = join(&parent, &name);
        let flags = if self.rng.once_in(4) { RenameFlags::NoReplace } else { RenameFlags::Replace };
        self.record_operation(match (flags, self.tree.contains_key(&new)) {
            (RenameFlags::NoReplace, _) => "rename-noreplace",
            (_, true) => "rename-over",
            _ => "rename",
        });
        let (up, last) = split(&old);
        self.fs.rename(self.ino(up)?, last, self.ino(&parent)?, &name, flags)?;
        let same = self.tree.get(&new).is_some_and(|node| node.id == self.tree[&old].id);
        if !same {
            self.tree.remove(&new);
            let moved = self.remove_subtree(&old);
            self.insert_subtree(&old, &new, moved);
        }
        Ok(())
    }

    pub(super) fn whiteout(&mut self) -> Result<()> {
        let Some(old) = self.any_name() else { return Ok(()) };
        let (parent, name) = self.rename_target();
        let new = join(&parent, &name);
        self.record_operation("rename-whiteout");
        let (up, last) = split(&old);
        let from = (self.ino(up)?, last);
        self.fs.rename_whiteout(from, (self.ino(&parent)?, &name), (0, 0))?;
        let same = self.tree.get(&new).is_some_and(|node| node.id == self.tree[&old].id);
        if same {
            return Ok(());
        }
        self.tree.remove(&new);
        let moved = self.remove_subtree(&old);
        self.insert_subtree(&old, &new, moved);
        let (up, last) = split(&old);
        self.add(up, last)
    }

    pub(super) fn exchange(&mut self) -> Result<()> {
        let (Some(one), Some(other)) = (self.any_name(), self.any_name()) else { return Ok(()) };
        self.record_operation("exchange");
        let ((up, name), (to, new_name)) = (split(&one), split(&other));
        let (up, to) = (self.ino(up)?, self.ino(to)?);
        self.fs.rename(up, name, to, new_name, RenameFlags::Exchange)?;
        if self.tree[&one].id != self.tree[&other].id {
            let (first, second) = (self.remove_subtree(&one), self.remove_subtree(&other));
            self.insert_subtree(&one, &other, first);
            self.insert_subtree(&other, &one, second);
        }
        Ok(())
    }

    /// Removes a name and everything below it from the tree.
    fn remove_subtree(&mut self, path: &[u8]) -> Tree {
        let below = join(path, b"");
        let taken = |p: &Vec<u8>| p == path || p.starts_with(&below);
        let (moved, rest) =
            core::mem::take(&mut self.tree).into_iter().partition(|(path, _)| taken(path));
        self.tree = rest;
        moved
    }

    /// Inserts what was removed from one name under another.
    fn insert_subtree(&mut self, old: &[u8], new: &[u8], moved: Tree) {
        for (path, node) in moved {
            self.tree.insert([new, &path[old.len()..]].concat(), node);
        }
    }

    pub(super) fn remove(&mut self) -> Result<()> {
        let Some(path) = self.any_name() else { return Ok(()) };
        let (up, last) = split(&path);
        let dir = self.ino(up)?;
        if self.kind(&path) == S_IFDIR {
            self.record_operation("rmdir");
            self.fs.rmdir(dir, last)?;
        } else {
            let held = self.rng.once_in(3);
            self.record_operation(if held { "unlink-open" } else { "unlink" });
            let ino = self.ino(&path)?;
            if held {
                self.fs.hold(ino);
                self.held.push(ino);
            }
            self.fs.unlink(dir, last)?;
        }
        self.tree.remove(&path);
        Ok(())
    }

    /// Closes a file that may be unlinked.
    pub(super) fn release(&mut self) -> Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        self.record_operation("close");
        let at = self.rng.below(self.held.len() as u64) as usize;
        let ino = self.held.swap_remove(at);
        self.fs.release(ino, 1)
    }
}
