//! The host as source and target, with what every system has.
//!
//! 1. Files are reached by path. No symbolic link below a root is followed, unless the options of the
//!    source ask for it; but who changes the trees meanwhile can redirect a copy. This is weaker than
//!    on Linux.
//! 2. A name is used only if it is one file's name on this system: [`plain_name`].
//! 3. Extended attributes and holes are neither read nor written. Owners, modes and symbolic links are
//!    written where the system is a Unix; elsewhere a mode that nobody may write makes a file
//!    read-only. Devices, FIFOs and sockets are refused.

use std::fs::{File, FileTimes, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uxfs_format::inode::{S_IFBLK, S_IFCHR, S_IFIFO, S_IFSOCK};
use uxfs_format::timestamp::Timestamp;
use uxfs_host::{FileExt, OsStrExt, Stat, Type, id_of, os_str, plain_name};

use crate::copy::sides::{
    Attributes, FileId, FileInfo, FileKind, Result, SourceTree, TargetTree, Xattrs, refused,
};

/// The host as a source.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostSource;

/// A file of the host.
pub struct HostNode {
    path: PathBuf,
    /// The open file, if it is regular.
    file: Option<File>,
    /// True if a symbolic link was followed.
    followed: bool,
}

/// A directory of the host.
pub struct HostDir {
    path: PathBuf,
}

/// The host as a target.
pub struct HostTarget;

/// A regular file that is open for writing.
pub struct HostFile {
    file: File,
    path: PathBuf,
    created: bool,
}

fn info(path: &Path, meta: &std::fs::Metadata) -> FileInfo {
    let stat = Stat::of(meta);
    let kind = match stat.kind {
        Type::File => FileKind::File,
        Type::Dir => FileKind::Dir,
        Type::Symlink => FileKind::Symlink,
        Type::Char => FileKind::Special(S_IFCHR),
        Type::Block => FileKind::Special(S_IFBLK),
        Type::Fifo => FileKind::Special(S_IFIFO),
        Type::Socket => FileKind::Special(S_IFSOCK),
        Type::Other => FileKind::Special(0),
    };
    let time = |(sec, nsec)| Timestamp { sec, nsec };
    FileInfo {
        kind,
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        size: stat.size,
        rdev: stat.rdev,
        nlink: stat.links,
        atime: time(stat.atime),
        mtime: time(stat.mtime),
        id: id_of(path, meta),
    }
}

impl HostSource {
    /// Opens the file at `path`; with `follow`, the target of a symbolic link.
    ///
    /// # Errors
    /// The file cannot be examined or opened.
    pub fn open(&self, path: &Path, follow: bool) -> Result<(HostNode, FileInfo)> {
        let meta = match follow {
            true => std::fs::metadata(path)?,
            false => std::fs::symlink_metadata(path)?,
        };
        let info = info(path, &meta);
        let mut node = HostNode { path: path.to_owned(), file: None, followed: follow };
        if info.kind == FileKind::File {
            let file = File::open(path)?;
            if !file.metadata()?.is_file() {
                return refused("was replaced while it was being opened");
            }
            node.file = Some(file);
        }
        Ok((node, info))
    }
}

impl SourceTree for HostSource {
    type Node = HostNode;

    fn child(&self, dir: &HostNode, name: &[u8], follow: bool) -> Result<(HostNode, FileInfo)> {
        self.open(&dir.path.join(os_str(name)), follow)
    }

    fn names(&self, dir: &HostNode) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for item in std::fs::read_dir(&dir.path)? {
            names.push(item?.file_name().as_bytes().to_vec());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn link_target(&self, node: &HostNode) -> Result<Vec<u8>> {
        let mut target = std::fs::read_link(&node.path)?.as_os_str().as_bytes().to_vec();
        if cfg!(windows) {
            target.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
        }
        Ok(target)
    }

    fn xattrs(&self, _: &HostNode) -> Result<Xattrs> {
        Ok(Xattrs::new())
    }

    fn data(&self, _: &HostNode, size: u64) -> Result<Vec<(u64, u64)>> {
        Ok(if size == 0 { Vec::new() } else { vec![(0, size)] })
    }

    fn read(&self, node: &HostNode, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(file) = &node.file else { return refused("not a regular file") };
        let mut done = 0;
        while done < buf.len() {
            match file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    fn stream(&self, node: &HostNode) -> Result<Box<dyn Read + '_>> {
        if !node.followed && std::fs::symlink_metadata(&node.path)?.is_symlink() {
            return refused("is a symbolic link");
        }
        Ok(Box::new(File::open(&node.path)?))
    }
}

impl HostTarget {
    /// Opens the directory `path` as a target.
    ///
    /// # Errors
    /// The path is not a directory or cannot be examined.
    pub fn open(path: &Path) -> Result<(Self, Rc<HostDir>)> {
        match std::fs::metadata(path)?.is_dir() {
            true => Ok((Self, Rc::new(HostDir { path: path.to_owned() }))),
            false => Err(io::Error::from(io::ErrorKind::NotADirectory).into()),
        }
    }

    /// Sets owner, times and permissions, in an order in which no step undoes an earlier one.
    fn apply(&self, path: &Path, dir: bool, want: &Attributes, created: bool) -> Result<()> {
        if want.require_xattr && !want.xattrs.is_empty() {
            return refused("extended attributes are not written on this system");
        }
        #[cfg_attr(not(unix), expect(unused_mut))]
        let mut mode = want.mode;
        #[cfg(unix)]
        if let Some((uid, gid)) = want.owner {
            match std::os::unix::fs::chown(path, Some(uid), Some(gid)) {
                Ok(()) => {}
                Err(error)
                    if error.kind() == io::ErrorKind::PermissionDenied
                        && !uxfs_host::User::current().is_root() =>
                {
                    // With another owner, set-ID bits would grant the rights of the user that
                    // copies.
                    mode &= !0o6000;
                    let _ = std::os::unix::fs::chown(path, None, Some(gid));
                }
                Err(error) => return Err(error.into()),
            }
        }
        set_times(path, dir, want)?;
        if want.exact {
            set_mode(path, dir, mode)?;
        } else if created {
            // The file was created writable for its owner.
            let has = Stat::of(&std::fs::metadata(path)?).mode;
            set_mode(path, dir, has & 0o7000 | mode & has & 0o777)?;
        }
        Ok(())
    }
}

/// The time, if this system has it.
fn time(at: Timestamp) -> Option<SystemTime> {
    let whole = Duration::from_secs(at.sec.unsigned_abs());
    let whole = match at.sec {
        0.. => UNIX_EPOCH.checked_add(whole),
        _ => UNIX_EPOCH.checked_sub(whole),
    };
    whole?.checked_add(Duration::from_nanos(at.nsec.into()))
}

fn set_times(path: &Path, dir: bool, want: &Attributes) -> Result<()> {
    let Some((atime, mtime)) = want.times else { return Ok(()) };
    let (Some(atime), Some(mtime)) = (time(atime), time(mtime)) else {
        return refused("has a time that this system does not know");
    };
    let mut options = OpenOptions::new();
    #[cfg(windows)]
    {
        use std::os::windows::fs::OpenOptionsExt;
        const FILE_WRITE_ATTRIBUTES: u32 = 0x100;
        const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;
        let flags = if dir { FILE_FLAG_BACKUP_SEMANTICS } else { 0 };
        options.access_mode(FILE_WRITE_ATTRIBUTES).custom_flags(flags);
    }
    #[cfg(not(windows))]
    let _ = dir;
    #[cfg(not(windows))]
    options.read(true);
    let file = options.open(path)?;
    Ok(file.set_times(FileTimes::new().set_accessed(atime).set_modified(mtime))?)
}

#[cfg(unix)]
fn set_mode(path: &Path, _dir: bool, mode: u16) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode.into()))?)
}

/// A read-only directory would mean something else on this system than on a volume.
#[cfg(not(unix))]
fn set_mode(path: &Path, dir: bool, mode: u16) -> Result<()> {
    if !dir && mode & 0o222 == 0 {
        let mut permissions = std::fs::metadata(path)?.permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(path, permissions)?;
    }
    Ok(())
}

impl HostDir {
    fn entry(&self, name: &[u8]) -> Result<PathBuf> {
        match plain_name(name) {
            Ok(name) => Ok(self.path.join(name)),
            Err(why) => refused(format!("the name {} {why}", name.escape_ascii())),
        }
    }
}

impl TargetTree for HostTarget {
    type Dir = Rc<HostDir>;
    type File = HostFile;
    type LinkHandle = PathBuf;

    fn find(&self, dir: &Rc<HostDir>, name: &[u8]) -> Result<Option<FileInfo>> {
        let path = dir.entry(name)?;
        match std::fs::symlink_metadata(&path) {
            Ok(meta) => Ok(Some(info(&path, &meta))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn id(&self, dir: &Rc<HostDir>) -> Result<FileId> {
        Ok(id_of(&dir.path, &std::fs::metadata(&dir.path)?))
    }

    fn enter(&self, dir: &Rc<HostDir>, name: &[u8]) -> Result<Rc<HostDir>> {
        let path = dir.entry(name)?;
        match std::fs::symlink_metadata(&path)?.is_dir() {
            true => Ok(Rc::new(HostDir { path })),
            false => Err(io::Error::from(io::ErrorKind::NotADirectory).into()),
        }
    }

    fn make_dir(&self, dir: &Rc<HostDir>, name: &[u8], want: &Attributes) -> Result<Rc<HostDir>> {
        let path = dir.entry(name)?;
        let builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        let builder = {
            use std::os::unix::fs::DirBuilderExt;
            let mut builder = builder;
            let keep = if want.exact { 0o700 } else { want.mode | 0o700 };
            builder.mode(u32::from(keep & 0o777));
            builder
        };
        #[cfg(not(unix))]
        let _ = want;
        builder.create(&path)?;
        Ok(Rc::new(HostDir { path }))
    }

    fn finish_dir(&self, dir: &Rc<HostDir>, want: &Attributes) -> Result<()> {
        self.apply(&dir.path, true, want, want.mode & 0o700 != 0o700)
    }

    fn open_file(
        &self,
        dir: &Rc<HostDir>,
        name: &[u8],
        want: &Attributes,
        exists: bool,
    ) -> Result<HostFile> {
        let path = dir.entry(name)?;
        let mut options = OpenOptions::new();
        options.write(true);
        if exists {
            if !std::fs::symlink_metadata(&path)?.is_file() {
                return refused("is no regular file");
            }
            options.truncate(true);
        } else {
            options.create_new(true);
            // Others must not read a file that gets another owner before it is finished.
            #[cfg(unix)]
            {
                let mode = want.mode & if want.owner.is_some() { 0o700 } else { 0o777 };
                let mode = u32::from(mode | 0o200);
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
            }
        }
        #[cfg(not(unix))]
        let _ = want;
        let file = options.open(&path)?;
        Ok(HostFile { file, path, created: !exists })
    }

    fn write(&self, file: &HostFile, offset: u64, data: &[u8]) -> Result<()> {
        Ok(file.file.write_all_at(data, offset)?)
    }

    fn finish_file(&self, file: HostFile, size: u64, want: &Attributes) -> Result<()> {
        if file.file.metadata()?.len() != size {
            file.file.set_len(size)?;
        }
        let HostFile { file, path, created } = file;
        drop(file);
        self.apply(&path, false, want, created && want.mode & 0o200 == 0)
    }

    #[cfg(unix)]
    fn make_symlink(
        &self,
        dir: &Rc<HostDir>,
        name: &[u8],
        target: &[u8],
        want: &Attributes,
    ) -> Result<()> {
        let path = dir.entry(name)?;
        std::os::unix::fs::symlink(os_str(target), &path)?;
        if let Some((uid, gid)) = want.owner {
            // Only root may; the link's owner matters to no one else.
            let _ = std::os::unix::fs::lchown(&path, Some(uid), Some(gid));
        }
        Ok(())
    }

    #[cfg(not(unix))]
    fn make_symlink(&self, _: &Rc<HostDir>, _: &[u8], _: &[u8], _: &Attributes) -> Result<()> {
        refused("symbolic links are not made on this system")
    }

    fn make_special(&self, _: &Rc<HostDir>, _: &[u8], _: &FileInfo, _: &Attributes) -> Result<()> {
        refused("device files, FIFOs and sockets are not made on this system")
    }

    fn link_handle(&self, dir: &Rc<HostDir>, name: &[u8]) -> Result<PathBuf> {
        dir.entry(name)
    }

    fn link(&self, link_handle: &PathBuf, dir: &Rc<HostDir>, name: &[u8]) -> Result<()> {
        Ok(std::fs::hard_link(link_handle, dir.entry(name)?)?)
    }

    fn remove(&self, dir: &Rc<HostDir>, name: &[u8]) -> Result<()> {
        Ok(std::fs::remove_file(dir.entry(name)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_made_read_and_found() {
        let temp = tempfile::tempdir().unwrap();
        let (target, root) = HostTarget::open(temp.path()).unwrap();
        let times = Some((Timestamp { sec: 5, nsec: 100 }, Timestamp { sec: 1 << 30, nsec: 200 }));
        let want = Attributes { mode: 0o444, exact: true, times, ..Attributes::default() };
        let dir = target.make_dir(&root, b"dir", &want).unwrap();
        let file = target.open_file(&dir, b"file", &want, false).unwrap();
        target.write(&file, 3, b"data").unwrap();
        target.finish_file(file, 10, &want).unwrap();
        target.link(&target.link_handle(&dir, b"file").unwrap(), &root, b"other").unwrap();
        let dir_want = Attributes { mode: 0o755, ..want.clone() };
        target.finish_dir(&dir, &dir_want).unwrap();

        let source = HostSource;
        let (node, info) = source.open(temp.path(), false).unwrap();
        assert_eq!(info.kind, FileKind::Dir);
        assert_eq!(source.names(&node).unwrap(), [b"dir".to_vec(), b"other".to_vec()]);
        let (dir, _) = source.child(&node, b"dir", false).unwrap();
        let (file, info) = source.child(&dir, b"file", false).unwrap();
        assert_eq!((info.kind, info.size, info.mode & 0o222), (FileKind::File, 10, 0));
        // Windows keeps times in steps of 100 ns.
        assert_eq!(info.mtime, Timestamp { sec: 1 << 30, nsec: 200 });
        let mut data = [9; 20];
        assert_eq!(source.read(&file, 0, &mut data).unwrap(), 10);
        assert_eq!(&data[..10], b"\0\0\0data\0\0\0");
        assert!(target.find(&root, b"none").unwrap().is_none());
        // Windows removes no read-only files of its own accord; the test's directory must go.
        #[cfg(windows)]
        for path in [temp.path().join("dir/file"), temp.path().join("other")] {
            let mut permissions = std::fs::metadata(&path).unwrap().permissions();
            permissions.set_readonly(false);
            std::fs::set_permissions(&path, permissions).unwrap();
        }
    }

    #[test]
    fn nothing_leads_outside() {
        let temp = tempfile::tempdir().unwrap();
        let (target, root) = HostTarget::open(temp.path()).unwrap();
        let want = Attributes::default();
        for name in [&b".."[..], b"a/b", b"/tmp/x"] {
            assert!(target.make_dir(&root, name, &want).is_err());
            assert!(target.open_file(&root, name, &want, false).is_err());
        }
        #[cfg(windows)]
        for name in [&b"..\\x"[..], b"c:x", b"f:s", b"nul"] {
            assert!(target.make_dir(&root, name, &want).is_err());
            assert!(target.open_file(&root, name, &want, false).is_err());
        }
        #[cfg(unix)]
        {
            target.make_symlink(&root, b"link", b"/", &want).unwrap();
            assert!(target.enter(&root, b"link").is_err());
            assert!(target.open_file(&root, b"link", &want, true).is_err());
        }
        let info = FileInfo { kind: FileKind::Special(S_IFIFO), ..info_of_root(&temp) };
        assert!(target.make_special(&root, b"fifo", &info, &want).is_err());
    }

    fn info_of_root(temp: &tempfile::TempDir) -> FileInfo {
        info(temp.path(), &std::fs::metadata(temp.path()).unwrap())
    }
}
