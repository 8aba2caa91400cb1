//! The operations: each chooses its arguments, predicts the outcome, and runs on both.

use uxfs::{Error, NewInode, RenameFlags, SetAttr, XattrMode};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK};
use uxfs_format::timestamp::Timestamp;

use super::Run;
use super::content::Content;
use super::flags::inherited;
use super::tree::Body;
use crate::names;

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const ENOTEMPTY: i32 = 39;
const ENODATA: i32 = 61;

type Op = (u64, fn(&mut Run));

const TABLE: [Op; 22] = [
    (20, Run::create),
    (8, Run::mkdir),
    (8, Run::symlink),
    (5, Run::mknod),
    (8, Run::link),
    (16, Run::unlink),
    (5, Run::rmdir),
    (14, Run::rename),
    (24, Run::write),
    (3, Run::write_big),
    (10, Run::truncate),
    (8, Run::set_attr),
    (18, Run::set_xattr),
    (10, Run::remove_xattr),
    (4, Run::set_acl),
    (2, Run::burst),
    (6, Run::read),
    (22, Run::share),
    (30, Run::fallocate),
    (6, Run::set_hints),
    (8, Run::defrag),
    (4, Run::freeze),
];

impl Run {
    pub(super) fn step(&mut self) {
        let total: u64 = TABLE.iter().map(|op| op.0).sum();
        let mut at = self.rng.below(total);
        for (weight, op) in TABLE {
            if at < weight {
                return op(self);
            }
            at -= weight;
        }
    }

    /// Did it end as predicted? `false` if it failed as predicted, or with ENOSPC.
    pub(super) fn same<T>(
        &mut self,
        what: &str,
        got: Result<T, Error>,
        want: Option<i32>,
    ) -> Option<T> {
        match (got, want) {
            (Ok(value), None) => Some(value),
            (Err(Error::NoSpace), _) => {
                self.full += 1;
                if self.full % 16 == 1 {
                    self.make_room();
                }
                None
            }
            (Err(e), Some(errno)) if e.errno() == errno => None,
            (Err(e), want) => panic!("{}: {what}: {e}, wanted {want:?}", self.at()),
            (Ok(_), want) => panic!("{}: {what}: done, wanted {want:?}", self.at()),
        }
    }

    pub(super) fn fs(&self) -> &uxfs::Fs {
        self.fs.as_ref().unwrap()
    }

    /// Removes a fifth of all files.
    fn make_room(&mut self) {
        for dir in self.sorted(|run, ino| run.tree.is_dir(ino)) {
            let names: Vec<Vec<u8>> = self.tree.entries(dir).keys().cloned().collect();
            for name in names {
                if !self.tree.is_dir(self.tree.entries(dir)[&name]) && self.rng.once_in(5) {
                    self.unlink_name(dir, &name);
                }
            }
        }
    }

    fn sorted(&self, wanted: impl Fn(&Self, Ino) -> bool) -> Vec<Ino> {
        let mut all: Vec<Ino> =
            self.tree.nodes.keys().copied().filter(|i| wanted(self, *i)).collect();
        all.sort_unstable();
        all
    }

    pub(super) fn dir(&mut self) -> Ino {
        let all = self.sorted(|run, ino| run.tree.is_dir(ino));
        // A few directories get most names, so that they grow through all forms.
        let among = if self.rng.once_in(3) { all.len() } else { all.len().min(4) };
        all[self.rng.index(among)]
    }

    pub(super) fn any(&mut self) -> Ino {
        let all = self.sorted(|_, _| true);
        all[self.rng.index(all.len())]
    }

    pub(super) fn file(&mut self) -> Option<Ino> {
        let all = self.sorted(|run, ino| matches!(run.tree.get(ino).body, Body::File(_)));
        if all.is_empty() { None } else { Some(all[self.rng.index(all.len())]) }
    }

    /// A name in a directory: mostly an existing one, or mostly a new one.
    pub(super) fn name_in(&mut self, dir: Ino, there: bool) -> Vec<u8> {
        let count = self.tree.entries(dir).len();
        if count > 0 && there != self.rng.once_in(12) {
            let at = self.rng.index(count);
            return self.tree.entries(dir).keys().nth(at).unwrap().clone();
        }
        names::name(&mut self.rng)
    }

    fn new_inode(&mut self, kind: u16) -> NewInode {
        let mut new = NewInode::new(kind | self.rng.below(0o10000) as u16);
        new.uid = self.rng.bits() as u32 >> self.rng.below(32);
        new.gid = self.rng.bits() as u32 >> self.rng.below(32);
        if self.rng.once_in(4) {
            new.attr_bytes = self.rng.index(400);
        }
        new
    }

    /// Notes a file that was made.
    fn made(&mut self, parent: Ino, name: &[u8], ino: Ino, body: Body, new: &NewInode) {
        let mut node = self.tree.node(body, new.mode);
        (node.uid, node.gid, node.rdev) = (new.uid, new.gid, new.rdev);
        node.fsx = inherited(&self.tree.get(parent).fsx, new.mode);
        if self.tree.nodes.insert(ino, node).is_some() {
            panic!("{}: {ino:?} is given out twice", self.at());
        }
        self.tree.entries_mut(parent).insert(name.to_vec(), ino);
        self.tree.touch(parent);
        if self.tree.is_dir(ino) {
            self.tree.get_mut(parent).nlink += 1;
        }
    }

    fn make(&mut self, kind: u16, rdev: (u32, u32)) -> Option<Ino> {
        let dir = self.dir();
        let name = self.name_in(dir, false);
        self.make_in(dir, &name, kind, rdev)
    }

    fn make_in(&mut self, dir: Ino, name: &[u8], kind: u16, rdev: (u32, u32)) -> Option<Ino> {
        let mut new = self.new_inode(kind);
        new.rdev = rdev;
        let want = self.tree.entries(dir).contains_key(name).then_some(EEXIST);
        let got = self.fs().create(dir, name, &new);
        let ino = self.same("create", got, want)?;
        let body = match kind {
            S_IFREG => Body::File(Content::default()),
            S_IFDIR => Body::Dir { entries: Default::default(), parent: dir },
            _ => Body::Other,
        };
        self.made(dir, name, ino, body, &new);
        Some(ino)
    }

    fn create(&mut self) {
        if let Some(ino) = self.make(S_IFREG, (0, 0)) {
            let len = self.rng.index(9000);
            self.write_to(ino, 0, len);
        }
    }

    fn mkdir(&mut self) {
        self.make(S_IFDIR, (0, 0));
    }

    fn mknod(&mut self) {
        let kind = [S_IFCHR, S_IFBLK, S_IFIFO, S_IFSOCK][self.rng.index(4)];
        let device = matches!(kind, S_IFCHR | S_IFBLK);
        // Linux reads back nine bits of the major number.
        let number = (self.rng.below(0x200) as u32, self.rng.below(0x3_ffff) as u32);
        self.make(kind, if device { number } else { (0, 0) });
    }

    fn symlink(&mut self) {
        let dir = self.dir();
        let name = self.name_in(dir, false);
        let len = 1 + if self.rng.once_in(2) { self.rng.index(1023) } else { self.rng.index(80) };
        let mut target = self.rng.bytes(len);
        target.iter_mut().for_each(|b| *b = (*b).max(1));
        let mut new = self.new_inode(S_IFLNK);
        new.mode = S_IFLNK | 0o777;
        let want = self.tree.entries(dir).contains_key(&name).then_some(EEXIST);
        let got = self.fs().symlink(dir, &name, &target, &new);
        if let Some(ino) = self.same("symlink", got, want) {
            self.made(dir, &name, ino, Body::Link(target), &new);
        }
    }

    fn link(&mut self) {
        let ino = self.any();
        let dir = self.dir();
        let name = self.name_in(dir, false);
        let want = match () {
            () if self.tree.is_dir(ino) => Some(1),
            () => self.tree.entries(dir).contains_key(&name).then_some(EEXIST),
        };
        let got = self.fs().link(ino, dir, &name);
        if self.same("link", got, want).is_some() {
            self.tree.entries_mut(dir).insert(name, ino);
            self.tree.get_mut(ino).nlink += 1;
            self.tree.change(ino);
            self.tree.touch(dir);
        }
    }

    fn unlink(&mut self) {
        let dir = self.dir();
        let name = self.name_in(dir, true);
        self.unlink_name(dir, &name);
    }

    fn unlink_name(&mut self, dir: Ino, name: &[u8]) {
        let ino = self.tree.entries(dir).get(name).copied();
        let want = match ino {
            None => Some(ENOENT),
            Some(ino) => self.tree.is_dir(ino).then_some(EISDIR),
        };
        let got = self.fs().unlink(dir, name);
        if let (Some(()), Some(ino)) = (self.same("unlink", got, want), ino) {
            self.tree.entries_mut(dir).remove(name);
            self.tree.drop_link(ino);
            self.tree.touch(dir);
        }
    }

    fn rmdir(&mut self) {
        let dir = self.dir();
        let name = self.name_in(dir, true);
        let ino = self.tree.entries(dir).get(&name).copied();
        let want = match ino {
            None => Some(ENOENT),
            Some(ino) if !self.tree.is_dir(ino) => Some(ENOTDIR),
            Some(ino) => (!self.tree.entries(ino).is_empty()).then_some(ENOTEMPTY),
        };
        let got = self.fs().rmdir(dir, &name);
        if let (Some(()), Some(ino)) = (self.same("rmdir", got, want), ino) {
            self.tree.entries_mut(dir).remove(&name);
            self.tree.drop_link(ino);
            self.tree.touch(dir);
            self.tree.get_mut(dir).nlink -= 1;
        }
    }

    fn rename(&mut self) {
        let (from, to) = (self.dir(), self.dir());
        let name = self.name_in(from, true);
        let over = self.rng.once_in(3);
        let new_name = self.name_in(to, over);
        let flags = [RenameFlags::Replace, RenameFlags::NoReplace, RenameFlags::Exchange];
        let flags = flags[self.rng.index(3)];
        let ino = self.tree.entries(from).get(&name).copied();
        let target = self.tree.entries(to).get(&new_name).copied();
        let want = self.rename_outcome((from, ino), (to, target), flags);
        let got = self.fs().rename(from, &name, to, &new_name, flags);
        let done = self.same("rename", got, want);
        let (Some(()), Some(ino)) = (done, ino) else { return };
        if target == Some(ino) {
            return;
        }
        let exchange = (flags == RenameFlags::Exchange).then_some(target).flatten();
        self.tree.entries_mut(from).remove(&name);
        self.tree.entries_mut(to).insert(new_name, ino);
        self.moved(ino, from, to);
        if let Some(other) = exchange {
            self.tree.entries_mut(from).insert(name, other);
            self.moved(other, to, from);
        } else if let Some(gone) = target {
            if self.tree.is_dir(gone) {
                self.tree.get_mut(to).nlink -= 1;
            }
            self.tree.drop_link(gone);
        }
        self.tree.touch(from);
        self.tree.touch(to);
    }

    fn moved(&mut self, ino: Ino, from: Ino, to: Ino) {
        self.tree.change(ino);
        if self.tree.is_dir(ino) {
            self.tree.set_parent(ino, to);
            self.tree.get_mut(from).nlink -= 1;
            self.tree.get_mut(to).nlink += 1;
        }
    }

    fn rename_outcome(
        &self,
        (from, ino): (Ino, Option<Ino>),
        (to, target): (Ino, Option<Ino>),
        flags: RenameFlags,
    ) -> Option<i32> {
        let tree = &self.tree;
        let Some(ino) = ino else { return Some(ENOENT) };
        match (flags, target) {
            (RenameFlags::NoReplace, Some(_)) => return Some(EEXIST),
            (_, Some(target)) if target == ino => return None,
            (RenameFlags::Exchange, None) => return Some(ENOENT),
            _ => {}
        }
        if from != to && tree.above(ino, to) {
            return Some(EINVAL);
        }
        let target = target?;
        if flags == RenameFlags::Exchange {
            return (from != to && tree.above(target, from)).then_some(EINVAL);
        }
        match (tree.is_dir(ino), tree.is_dir(target)) {
            (true, false) => Some(ENOTDIR),
            (false, true) => Some(EISDIR),
            (true, true) => (!tree.entries(target).is_empty()).then_some(ENOTEMPTY),
            (false, false) => None,
        }
    }

    fn write(&mut self) {
        let Some(ino) = self.file() else { return };
        let size = self.size(ino);
        let offset = match self.rng.below(14) {
            0 => self.rng.below(1 << 30),
            1 if self.rng.once_in(4) => self.rng.below(1 << 42),
            1..=4 => size,
            _ => self.rng.below(size.min(1 << 20) + 1),
        };
        let len = if self.rng.once_in(6) { 100_000 } else { 9000 };
        let len = self.rng.index(len);
        self.write_to(ino, offset, len);
    }

    pub(super) fn size(&self, ino: Ino) -> u64 {
        match &self.tree.get(ino).body {
            Body::File(content) => content.size,
            _ => 0,
        }
    }

    fn write_big(&mut self) {
        let Some(ino) = self.file() else { return };
        let len = self.rng.index(2 << 20);
        self.write_to(ino, self.size(ino), len);
    }

    fn write_to(&mut self, ino: Ino, offset: u64, len: usize) {
        let data = self.rng.bytes(len);
        let got = self.fs().write_at(ino, offset, &data);
        match self.same("write", got, None) {
            Some(()) if data.is_empty() => {}
            Some(()) => self.wrote(ino, offset, &data),
            None => self.wrote_some(ino, offset, &data),
        }
    }

    pub(super) fn add_ballast(&mut self, data: &[u8]) {
        let root = self.tree.root;
        if let Some(ino) = self.make_in(root, b"ballast", S_IFREG, (0, 0)) {
            let got = self.fs().write_at(ino, 0, data);
            if self.same("ballast", got, None).is_some() {
                self.wrote(ino, 0, data);
            }
        }
    }

    fn wrote(&mut self, ino: Ino, offset: u64, data: &[u8]) {
        let now = self.tree.stamp();
        let node = self.tree.get_mut(ino);
        (node.mtime, node.ctime) = (now, now);
        if let Body::File(content) = &mut node.body {
            content.write(offset, data);
        }
    }

    /// A write that failed with ENOSPC: its first part may be written.
    fn wrote_some(&mut self, ino: Ino, offset: u64, data: &[u8]) {
        let Some(old) = self.tree.nodes.get(&ino) else { return };
        let Body::File(content) = &old.body else { return };
        let (old_size, mut before) = (content.size, vec![0; data.len()]);
        content.read(offset, &mut before);
        let mut now = vec![0; data.len()];
        let size = self.fs().stat(ino).unwrap().size;
        let got = self.fs().read_at(ino, offset, &mut now).unwrap();
        let same = data.iter().zip(&now[..got]).take_while(|(a, b)| a == b).count();
        if size > old_size {
            assert_eq!(size, offset + same as u64, "{}: a part of a write", self.at());
        }
        if same > 0 && self.fs().stat(ino).unwrap().ctime == self.tree.stamp() {
            // Equal bytes at the boundary do no harm.
            self.wrote(ino, offset, &data[..same]);
        }
    }

    fn read(&mut self) {
        let Some(ino) = self.file() else { return };
        let offset = self.rng.below(self.size(ino) + 1000);
        let len = self.rng.index(70_000);
        let (mut found, mut wanted) = (vec![1; len], vec![1; len]);
        let got = self.fs().read_at(ino, offset, &mut found);
        let got = got.unwrap_or_else(|e| panic!("{}: read: {e}", self.at()));
        if let Body::File(content) = &self.tree.get(ino).body {
            assert_eq!(got, content.read(offset, &mut wanted), "{}: read", self.at());
            assert!(found[..got] == wanted[..got], "{}: read {ino:?} at {offset}", self.at());
        }
    }

    fn truncate(&mut self) {
        let ino = self.any();
        let size = self.size(ino);
        let grown = if self.rng.once_in(3) { 2 * size.min(1 << 40) + 10_000 } else { size };
        let size = self.rng.below(grown + 1);
        let want = match &self.tree.get(ino).body {
            Body::File(_) => None,
            Body::Dir { .. } => Some(EISDIR),
            _ => Some(EINVAL),
        };
        let got = self.fs().truncate(ino, size);
        if self.same("truncate", got, want).is_none() {
            return;
        }
        let now = self.tree.stamp();
        let node = self.tree.get_mut(ino);
        (node.mtime, node.ctime) = (now, now);
        if let Body::File(content) = &mut node.body {
            content.truncate(size);
        }
    }

    fn moment(&mut self) -> Timestamp {
        let far = if self.tree.bigtime { 16_000_000_000 } else { i64::from(i32::MAX) };
        let sec = self.rng.below((far + (1 << 31)) as u64) as i64 - (1 << 31);
        Timestamp { sec, nsec: self.rng.below(1_000_000_000) as u32 }
    }

    fn set_attr(&mut self) {
        let ino = self.any();
        let mut change = SetAttr::default();
        let link = matches!(self.tree.get(ino).body, Body::Link(_));
        if self.rng.once_in(2) && !link {
            change.permissions = Some(self.rng.below(0o10000) as u16);
        }
        if self.rng.once_in(2) {
            (change.uid, change.gid) =
                (Some(self.rng.bits() as u32 >> 8), Some(self.rng.bits() as u32));
        }
        for which in 0..4 {
            if self.rng.once_in(3) {
                let moment = Some(self.moment());
                match which {
                    0 => change.atime = moment,
                    1 => change.mtime = moment,
                    2 => change.ctime = moment,
                    _ => change.crtime = moment,
                }
            }
        }
        if self.rng.once_in(5) {
            change.projid = Some(self.rng.bits() as u32 >> 1);
        }
        let got = self.fs().set_attr(ino, &change);
        if self.same("set_attr", got, None).is_none() {
            return;
        }
        let now = self.tree.stamp();
        let node = self.tree.get_mut(ino);
        if let Some(permissions) = change.permissions {
            node.mode = node.mode & 0o170000 | permissions;
        }
        node.uid = change.uid.unwrap_or(node.uid);
        node.gid = change.gid.unwrap_or(node.gid);
        node.projid = change.projid.unwrap_or(node.projid);
        node.atime = change.atime.unwrap_or(node.atime);
        node.mtime = change.mtime.unwrap_or(node.mtime);
        node.ctime = change.ctime.unwrap_or(now);
        node.crtime = change.crtime.unwrap_or(node.crtime);
    }

    /// A file for attributes: a few files get most of them.
    fn attr_file(&mut self) -> Ino {
        let all = self.sorted(|_, _| true);
        let among = if self.rng.once_in(2) { all.len() } else { all.len().min(5) };
        all[self.rng.index(among)]
    }

    fn set_xattr(&mut self) {
        let ino = self.attr_file();
        let name = names::xattr_name(&mut self.rng);
        let value = names::xattr_value(&mut self.rng);
        self.put_xattr(ino, name, value);
    }

    fn put_xattr(&mut self, ino: Ino, name: Vec<u8>, value: Vec<u8>) {
        // Linux allows user attributes on files and directories only.
        let plain = matches!(self.tree.get(ino).body, Body::File(_) | Body::Dir { .. });
        if !plain && name.starts_with(b"user.") {
            return;
        }
        let mode = [XattrMode::Any, XattrMode::Any, XattrMode::Create, XattrMode::Replace];
        let mode = mode[self.rng.index(4)];
        let there = self.tree.get(ino).xattrs.contains_key(&name);
        let want = match mode {
            XattrMode::Create if there => Some(EEXIST),
            XattrMode::Replace if !there => Some(ENODATA),
            _ => None,
        };
        let got = self.fs().set_xattr(ino, &name, &value, mode);
        if self.same("set_xattr", got, want).is_some() {
            self.tree.get_mut(ino).xattrs.insert(name, value);
            self.tree.change(ino);
        }
    }

    fn set_acl(&mut self) {
        let ino = self.any();
        let users = if self.rng.once_in(4) { 300 } else { 6 };
        let acl = names::acl(&mut self.rng, users);
        let (dir, link) = (self.tree.is_dir(ino), matches!(self.tree.get(ino).body, Body::Link(_)));
        match (link, dir && self.rng.once_in(2)) {
            (true, _) => {}
            (_, true) => self.put_xattr(ino, b"system.posix_acl_default".to_vec(), acl),
            (_, false) => self.put_xattr(ino, b"system.posix_acl_access".to_vec(), acl),
        }
    }

    fn remove_xattr(&mut self) {
        let ino = self.attr_file();
        let all: Vec<Vec<u8>> = self.tree.get(ino).xattrs.keys().cloned().collect();
        let name = match all.is_empty() || self.rng.once_in(8) {
            true => names::xattr_name(&mut self.rng),
            false => all[self.rng.index(all.len())].clone(),
        };
        let want = (!all.contains(&name)).then_some(ENODATA);
        let got = self.fs().remove_xattr(ino, &name);
        if self.same("remove_xattr", got, want).is_some() {
            self.tree.get_mut(ino).xattrs.remove(&name);
            self.tree.change(ino);
        }
    }

    /// Many operations of one kind on one file, so that forms grow and shrink.
    fn burst(&mut self) {
        let count = 20 + self.rng.below(200);
        match self.rng.below(6) {
            0 | 1 => {
                let dir = self.dir();
                for _ in 0..count {
                    let name = self.name_in(dir, false);
                    self.make_in(dir, &name, S_IFREG, (0, 0));
                }
            }
            2 => {
                let dir = self.dir();
                for _ in 0..count.min(self.tree.entries(dir).len() as u64) {
                    let name = self.name_in(dir, true);
                    if self.tree.entries(dir).get(&name).is_some_and(|i| !self.tree.is_dir(*i)) {
                        self.unlink_name(dir, &name);
                    }
                }
            }
            3 => {
                let ino = self.attr_file();
                for number in 0..count / 2 {
                    // The file may have gone to make room.
                    if !self.tree.nodes.contains_key(&ino) {
                        return;
                    }
                    let name = format!("trusted.many{}{number}", self.rng.below(3)).into_bytes();
                    let value = names::xattr_value(&mut self.rng);
                    self.put_xattr(ino, name, value);
                }
            }
            4 => {
                let ino = self.attr_file();
                for _ in 0..self.tree.get(ino).xattrs.len() / 2 {
                    let Some(node) = self.tree.nodes.get(&ino) else { return };
                    let names: Vec<_> = node.xattrs.keys().cloned().collect();
                    let name = names[self.rng.index(names.len())].clone();
                    let got = self.fs().remove_xattr(ino, &name);
                    if self.same("remove_xattr", got, None).is_some() {
                        self.tree.get_mut(ino).xattrs.remove(&name);
                        self.tree.change(ino);
                    }
                }
            }
            _ => {
                let Some(ino) = self.file() else { return };
                let block = u64::from(self.tree.block_size);
                let from = self.rng.below(50) * block;
                for each in 0..count {
                    let len = 1 + self.rng.index(block as usize);
                    // The file may have gone to make room.
                    if !self.tree.nodes.contains_key(&ino) {
                        return;
                    }
                    self.write_to(ino, from + 2 * each * block, len);
                }
            }
        }
    }
}
