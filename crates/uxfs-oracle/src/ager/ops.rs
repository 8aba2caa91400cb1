//! The operations, with how often each is chosen.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, RenameFlags, Timespec, Timestamps, XattrFlags,
};

use super::Ager;

pub(super) struct Op {
    pub(super) name: &'static str,
    /// In how many of all the weights' sum it is chosen.
    pub(super) weight: u64,
    pub(super) run: fn(&mut Ager) -> io::Result<()>,
}

const fn op(name: &'static str, weight: u64, run: fn(&mut Ager) -> io::Result<()>) -> Op {
    Op { name, weight, run }
}

pub(super) const TABLE: [Op; 30] = [
    op("create", 20, Ager::create),
    op("write", 24, Ager::write),
    op("big-write", 3, Ager::write_big),
    op("truncate", 8, Ager::truncate),
    op("unlink", 14, Ager::unlink),
    op("mkdir", 8, Ager::mkdir),
    op("deep-mkdir", 1, Ager::mkdir_deep),
    op("remove-tree", 1, Ager::remove_tree),
    op("rename", 12, Ager::rename),
    op("exchange", 4, Ager::exchange),
    op("whiteout", 1, Ager::whiteout),
    op("link", 8, Ager::link),
    op("symlink", 8, Ager::symlink),
    op("mknod", 4, Ager::mknod),
    op("set-xattr", 14, Ager::set_xattr),
    op("many-xattrs", 1, Ager::set_many_xattrs),
    op("remove-xattr", 8, Ager::remove_xattr),
    op("set-acl", 3, Ager::set_acl),
    op("chmod", 4, Ager::chmod),
    op("chown", 4, Ager::chown),
    op("utimes", 4, Ager::utimes),
    op("punch", 6, Ager::punch),
    op("zero-range", 2, Ager::zero_range),
    op("preallocate", 4, Ager::preallocate),
    op("collapse", 2, Ager::collapse),
    op("insert", 2, Ager::insert),
    op("clone", 4, Ager::clone_file),
    op("fragment", 1, Ager::fragment),
    op("crowd", 1, Ager::fill_directory),
    op("cull", 2, Ager::remove_every_other),
];

/// Units that most offsets and lengths are multiples of, in bytes.
const UNIT: u64 = 4096;

impl Ager {
    fn create(&mut self) -> io::Result<()> {
        let path = self.fresh();
        let mode = 0o400 | u32::try_from(self.rng.below(0o400)).unwrap_or(0);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
        self.files.push(path);
        let len = match self.rng.below(10) {
            0 => 0,
            1..=6 => self.rng.index(3000),
            7 | 8 => self.rng.index(50_000),
            _ => self.rng.index(300_000),
        };
        file.write_all_at(&self.rng.bytes(len), 0)
    }

    fn open(&mut self) -> io::Result<(File, u64)> {
        let path = self.file()?;
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let size = file.metadata()?.len();
        Ok((file, size))
    }

    fn write(&mut self) -> io::Result<()> {
        let (file, size) = self.open()?;
        let offset = match self.rng.below(12) {
            0 => self.rng.below(1 << 30),
            1 if self.rng.once_in(8) => self.rng.below(1 << 40),
            1..=4 => size,
            _ => self.rng.below(size + 1),
        };
        let len = if self.rng.once_in(6) { 100_000 } else { 9000 };
        let len = 1 + self.rng.index(len);
        file.write_all_at(&self.rng.bytes(len), offset)?;
        if self.rng.once_in(10) {
            file.sync_all()?;
        }
        Ok(())
    }

    fn write_big(&mut self) -> io::Result<()> {
        let (file, size) = self.open()?;
        let chunk = self.rng.bytes(1 << 16);
        for each in 0..4 + self.rng.below(60) {
            file.write_all_at(&chunk, size + each * chunk.len() as u64)?;
        }
        Ok(())
    }

    fn truncate(&mut self) -> io::Result<()> {
        let (file, size) = self.open()?;
        let grown = if self.rng.once_in(3) { 2 * size + 10_000 } else { size };
        file.set_len(self.rng.below(grown + 1))
    }

    fn unlink(&mut self) -> io::Result<()> {
        if self.rng.once_in(3) && !self.others.is_empty() {
            let at = self.rng.index(self.others.len());
            fs::remove_file(self.others.swap_remove(at))?;
        } else {
            self.remove_random_file();
        }
        Ok(())
    }

    fn mkdir(&mut self) -> io::Result<()> {
        let path = self.fresh();
        fs::create_dir(&path)?;
        self.dirs.push(path);
        Ok(())
    }

    fn mkdir_deep(&mut self) -> io::Result<()> {
        let mut path = self.fresh();
        for level in 0..10 + self.rng.below(60) {
            if path.as_os_str().len() > super::PATH_LEN_MAX {
                break;
            }
            fs::create_dir(&path)?;
            self.dirs.push(path.clone());
            path.push(format!("level{level}"));
        }
        Ok(())
    }

    fn remove_tree(&mut self) -> io::Result<()> {
        // The deepest of a few, since a tree near the root is most of the volume.
        let some: Vec<PathBuf> = (0..4).map(|_| self.dir()).collect();
        let deepest = some.into_iter().max_by_key(|path| path.components().count());
        let Some(path) = deepest.filter(|path| *path != self.root) else { return Ok(()) };
        fs::remove_dir_all(&path)?;
        self.moved(&path, None);
        Ok(())
    }

    fn rename(&mut self) -> io::Result<()> {
        let from = self.any()?;
        // At times over something that is there.
        let to = if self.rng.once_in(4) { self.any()? } else { self.fresh() };
        if from == to || from.starts_with(&to) || to.starts_with(&from) {
            return Ok(());
        }
        fs::rename(&from, &to)?;
        self.moved(&to, None);
        self.moved(&from, Some(&to));
        self.drop_long_paths();
        Ok(())
    }

    fn exchange(&mut self) -> io::Result<()> {
        let (a, b) = (self.any()?, self.any()?);
        if a == b || a.starts_with(&b) || b.starts_with(&a) {
            return Ok(());
        }
        rustix::fs::renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE)?;
        let between = self.root.join("uxfs-ager: between");
        self.moved(&a, Some(&between));
        self.moved(&b, Some(&a));
        self.moved(&between, Some(&b));
        self.drop_long_paths();
        // Kinds may have changed places.
        self.reclassify();
        Ok(())
    }

    /// A rename that leaves a device 0:0 in the old place, as overlay file systems do.
    fn whiteout(&mut self) -> io::Result<()> {
        let (from, to) = (self.file()?, self.fresh());
        rustix::fs::renameat_with(CWD, &from, CWD, &to, RenameFlags::WHITEOUT)?;
        self.moved(&from, Some(&to));
        self.others.push(from);
        Ok(())
    }

    /// Drops what renames of directories made too long to be named from the root.
    fn drop_long_paths(&mut self) {
        for list in [&mut self.dirs, &mut self.files, &mut self.others] {
            list.retain(|path| path.as_os_str().len() <= super::PATH_LEN_MAX);
        }
    }

    /// Puts every path into the list of its kind.
    fn reclassify(&mut self) {
        let all: Vec<PathBuf> = [&mut self.dirs, &mut self.files, &mut self.others]
            .into_iter()
            .flat_map(std::mem::take)
            .collect();
        for path in all {
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            let list = match (meta.is_dir(), meta.is_file()) {
                (true, _) => &mut self.dirs,
                (_, true) => &mut self.files,
                _ => &mut self.others,
            };
            list.push(path);
        }
    }

    fn link(&mut self) -> io::Result<()> {
        let (from, to) = (self.any()?, self.fresh());
        if self.dirs.contains(&from) {
            return Ok(());
        }
        fs::hard_link(&from, &to)?;
        if self.files.contains(&from) {
            self.files.push(to)
        } else {
            self.others.push(to)
        }
        Ok(())
    }

    fn symlink(&mut self) -> io::Result<()> {
        let path = self.fresh();
        let len = if self.rng.once_in(3) { 1023 } else { 80 };
        let len = 1 + self.rng.index(len);
        let mut target = self.rng.bytes(len);
        target.iter_mut().for_each(|byte| *byte = (*byte).max(1));
        symlink(std::ffi::OsStr::from_bytes(&target), &path)?;
        self.others.push(path);
        Ok(())
    }

    fn mknod(&mut self) -> io::Result<()> {
        let path = self.fresh();
        let kind = match self.rng.below(4) {
            0 => FileType::CharacterDevice,
            1 => FileType::BlockDevice,
            2 => FileType::Fifo,
            _ => FileType::Socket,
        };
        let (major, minor) = (self.rng.below(1 << 9), self.rng.below(1 << 18));
        let device = rustix::fs::makedev(
            u32::try_from(major).unwrap_or(0),
            u32::try_from(minor).unwrap_or(0),
        );
        rustix::fs::mknodat(CWD, &path, kind, Mode::from_raw_mode(0o640), device)?;
        self.others.push(path);
        Ok(())
    }

    fn xattr_name(&mut self, path: &Path) -> String {
        let user = self.files.iter().chain(&self.dirs).any(|known| known == path);
        let space = match self.rng.below(4) {
            0 => "trusted",
            1 => "security",
            // Only files and directories have these.
            _ if user => "user",
            _ => "trusted",
        };
        let long =
            if self.rng.once_in(6) { "x".repeat(self.rng.index(200)) } else { String::new() };
        format!("{space}.uxfs{}{long}", self.rng.below(12))
    }

    fn xattr_value(&mut self) -> Vec<u8> {
        let len = match self.rng.below(12) {
            0 => self.rng.index(1 << 16),
            1..=3 => self.rng.index(5000),
            _ => self.rng.index(100),
        };
        self.rng.bytes(len)
    }

    fn set_xattr(&mut self) -> io::Result<()> {
        let path = self.any()?;
        let name = self.xattr_name(&path);
        let value = self.xattr_value();
        Ok(rustix::fs::lsetxattr(&path, name, &value, XattrFlags::empty())?)
    }

    fn set_many_xattrs(&mut self) -> io::Result<()> {
        let path = self.any()?;
        for each in 0..20 + self.rng.below(300) {
            let len = self.rng.index(200);
            let value = self.rng.bytes(len);
            let name = format!("trusted.many{each}");
            rustix::fs::lsetxattr(&path, name, &value, XattrFlags::empty())?;
        }
        Ok(())
    }

    fn remove_xattr(&mut self) -> io::Result<()> {
        let path = self.any()?;
        let mut names = vec![0; 1 << 16];
        let len = rustix::fs::llistxattr(&path, &mut names)?;
        let mut names: Vec<&[u8]> =
            names[..len].split(|&b| b == 0).filter(|name| !name.is_empty()).collect();
        // Their order is up to the file system.
        names.sort_unstable();
        for _ in 0..if self.rng.once_in(5) { names.len() } else { 1 } {
            if let Some(name) = names.get(self.rng.index(names.len())) {
                rustix::fs::lremovexattr(&path, *name)?;
            }
        }
        Ok(())
    }

    /// A POSIX ACL with one named user, in the form that setxattr takes.
    fn set_acl(&mut self) -> io::Result<()> {
        const NO_ID: u32 = u32::MAX;
        let default = self.rng.once_in(2);
        let path = if default { self.dir() } else { self.file()? };
        let user = u32::try_from(self.rng.below(70_000)).unwrap_or(0);
        // Tag, permissions, id: owner, a named user, owning group, mask, others.
        let entries = [
            (0x01, 7, NO_ID),
            (0x02, 5, user),
            (0x04, 5, NO_ID),
            (0x10, 7, NO_ID),
            (0x20, 0, NO_ID),
        ];
        let mut value = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            value.extend(u16::to_le_bytes(tag));
            value.extend(u16::to_le_bytes(permissions));
            value.extend(u32::to_le_bytes(id));
        }
        let name = if default { "system.posix_acl_default" } else { "system.posix_acl_access" };
        Ok(rustix::fs::lsetxattr(&path, name, &value, XattrFlags::empty())?)
    }

    fn chmod(&mut self) -> io::Result<()> {
        let path = self.file()?;
        let mode = u32::try_from(self.rng.below(0o10000)).unwrap_or(0);
        fs::set_permissions(path, PermissionsExt::from_mode(mode))
    }

    fn chown(&mut self) -> io::Result<()> {
        let path = self.any()?;
        let id = |id: u64| u32::try_from(id).ok();
        let (uid, gid) = (id(self.rng.below(70_000)), id(self.rng.below(u64::from(u32::MAX) - 1)));
        std::os::unix::fs::lchown(path, uid, gid)
    }

    fn utimes(&mut self) -> io::Result<()> {
        let path = self.any()?;
        let mut time = || {
            // From 1901 to 2200.
            let seconds = self.rng.below(9_400_000_000);
            let tv_nsec = i64::try_from(self.rng.below(1_000_000_000)).unwrap_or(0);
            Timespec { tv_sec: i64::try_from(seconds).unwrap_or(0) - 2_100_000_000, tv_nsec }
        };
        let times = Timestamps { last_access: time(), last_modification: time() };
        Ok(rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// A file with an offset and a length within it, most often whole blocks.
    fn range(&mut self) -> io::Result<(File, u64, u64)> {
        let (file, size) = self.open()?;
        let (mut offset, mut len) = (self.rng.below(size + 1), 1 + self.rng.below(size / 2 + UNIT));
        if !self.rng.once_in(4) {
            offset -= offset % UNIT;
            len = len.next_multiple_of(UNIT);
        }
        Ok((file, offset, len))
    }

    fn allocate(&mut self, flags: FallocateFlags) -> io::Result<()> {
        let (file, offset, len) = self.range()?;
        // Sparse files may be far bigger than the volume.
        let len = if flags.contains(FallocateFlags::PUNCH_HOLE) { len } else { len.min(1 << 21) };
        Ok(rustix::fs::fallocate(&file, flags, offset, len)?)
    }

    fn punch(&mut self) -> io::Result<()> {
        self.allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
    }

    fn zero_range(&mut self) -> io::Result<()> {
        self.allocate(FallocateFlags::ZERO_RANGE)
    }

    fn preallocate(&mut self) -> io::Result<()> {
        let keep = self.rng.once_in(2);
        self.allocate(if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() })
    }

    fn collapse(&mut self) -> io::Result<()> {
        self.allocate(FallocateFlags::COLLAPSE_RANGE)
    }

    fn insert(&mut self) -> io::Result<()> {
        self.allocate(FallocateFlags::INSERT_RANGE)
    }

    /// A copy that shares its blocks; refused where the volume has no reflink.
    fn clone_file(&mut self) -> io::Result<()> {
        let (from, to) = (self.file()?, self.fresh());
        let from = File::open(from)?;
        let target = OpenOptions::new().write(true).create_new(true).open(&to)?;
        self.files.push(to);
        Ok(rustix::fs::ioctl_ficlone(&target, &from)?)
    }

    /// A file with every other block a hole: a long extent list.
    fn fragment(&mut self) -> io::Result<()> {
        let path = self.fresh();
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        self.files.push(path);
        let block = self.rng.bytes(4096);
        for each in 0..50 + self.rng.below(400) {
            file.write_all_at(&block, each * 2 * UNIT)?;
        }
        Ok(())
    }

    /// Many names in one directory.
    fn fill_directory(&mut self) -> io::Result<()> {
        let dir = self.dir();
        for _ in 0..100 + self.rng.below(900) {
            let path = dir.join(std::ffi::OsStr::from_bytes(&self.name()));
            if path.as_os_str().len() > super::PATH_LEN_MAX {
                continue;
            }
            match File::create_new(&path) {
                Ok(_) => self.files.push(path),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Removes every other file of one directory.
    fn remove_every_other(&mut self) -> io::Result<()> {
        let file = self.file()?;
        let Some(dir) = file.parent() else { return Ok(()) };
        let mut gone = Vec::new();
        self.files.retain(|path| {
            let chosen = path.parent() == Some(dir) && self.rng.once_in(2);
            if chosen {
                gone.push(path.clone());
            }
            !chosen
        });
        gone.iter().try_for_each(fs::remove_file)
    }
}
