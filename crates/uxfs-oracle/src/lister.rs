//! Lists the tree below a directory, with everything that a user of it can see.
//!
//! 1. It follows nothing out of the directory, and opens regular files only.
//! 2. It reads access times before anything that could change them.
//! 3. It maps a file before it reads any of it, and maps it once, regardless of the number of its
//!    names: once the pages of a file are cached, Linux reports unwritten blocks as data.
//! 4. Paths may be longer than `PATH_MAX`: each name is looked up in its directory.
//!
//! Called by tests on the host, and by `uxfs-lister` in the virtual machine.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, Mode, OFlags, SeekFrom, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use crate::listing::{ContentSum, Entry, Kind, Listing, Space, Time, Value};

/// Most bytes of an attribute's value, and of all names of a file's attributes.
const XATTR_MAX: usize = 1 << 16;
/// Offsets and lengths in bytes.
type Ranges = Vec<(u64, u64)>;

const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Lists the tree below `dir`.
///
/// # Errors
/// The first thing that cannot be read, with its path.
pub fn list(dir: &Path) -> io::Result<Listing> {
    let root = open_dir(fs::CWD, &CString::new(dir.as_os_str().as_bytes())?)?;
    let mut lister = Lister {
        entries: Vec::new(),
        linked: HashMap::new(),
        content: vec![0; 64 * ContentSum::BLOCK],
        names: vec![0; XATTR_MAX],
        value: vec![0; XATTR_MAX],
    };
    let stat = stat(root.as_fd(), c"")?;
    lister.entry(root.as_fd(), c".", b"/".to_vec(), &stat)?;
    lister.walk(root.as_fd(), b"")?;
    let mut listing = Listing { space: Some(space(root.as_fd())?), entries: lister.entries };
    listing.finish();
    Ok(listing)
}

/// What has been listed, and buffers, whose clearing for each file would cost more than the rest.
struct Lister {
    entries: Vec<Entry>,
    /// Where files of several names have data, and the sum of it, by inode number.
    linked: HashMap<u64, (Ranges, u64)>,
    content: Vec<u8>,
    names: Vec<u8>,
    value: Vec<u8>,
}

impl Lister {
    /// Adds everything below the open directory `dir`, whose path is `path` (the root's is empty).
    fn walk(&mut self, dir: BorrowedFd<'_>, path: &[u8]) -> io::Result<()> {
        for item in fs::Dir::read_from(dir)? {
            let item = item?;
            let name = item.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let below = [path, b"/", name.to_bytes()].concat();
            let at = |e: io::Error| {
                let shown = String::from_utf8_lossy(&below).into_owned();
                io::Error::new(e.kind(), format!("{shown}: {e}"))
            };
            let stat = stat(dir, name).map_err(at)?;
            if self.entry(dir, name, below.clone(), &stat).map_err(at)? == Kind::Dir {
                let sub = open_dir(dir, name).map_err(at)?;
                self.walk(sub.as_fd(), &below)?;
            }
        }
        Ok(())
    }

    /// Adds one entry, `name` in the directory `at`; says what kind it is.
    fn entry(
        &mut self,
        at: BorrowedFd<'_>,
        name: &CStr,
        path: Vec<u8>,
        stat: &Statx,
    ) -> io::Result<Kind> {
        let kind = kind(stat)?;
        let mut entry = Entry::new(path, kind);
        entry.mode = u32::from(stat.stx_mode) & 0o7777;
        entry.uid = stat.stx_uid;
        entry.gid = stat.stx_gid;
        entry.nlink = stat.stx_nlink;
        entry.size = stat.stx_size;
        entry.ino = stat.stx_ino;
        entry.blocks = stat.stx_blocks;
        entry.mtime = time(stat.stx_mtime);
        entry.atime = time(stat.stx_atime);
        entry.ctime = time(stat.stx_ctime);
        entry.btime = time(stat.stx_btime);
        match kind {
            Kind::Char | Kind::Block => {
                entry.rdev = Some((stat.stx_rdev_major, stat.stx_rdev_minor))
            }
            Kind::Symlink => {
                entry.target = Some(fs::readlinkat(at, name, Vec::new())?.into_bytes())
            }
            Kind::File => {
                let (data, sum) = self.file(at, name, &entry)?;
                entry.data = data;
                entry.content = Some(sum);
            }
            Kind::Dir | Kind::Fifo | Kind::Socket => {}
        }
        self.xattrs(at, name, &mut entry)?;
        self.entries.push(entry);
        Ok(kind)
    }

    /// Where a regular file has data, and the sum of its content.
    fn file(
        &mut self,
        at: BorrowedFd<'_>,
        name: &CStr,
        entry: &Entry,
    ) -> io::Result<(Ranges, u64)> {
        if let Some(known) = self.linked.get(&entry.ino) {
            return Ok(known.clone());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(open_quietly(at, name, flags)?);
        let data = data(&file, entry.size)?;
        let sum = self.content(&file, &data, entry.size)?;
        if entry.nlink > 1 {
            self.linked.insert(entry.ino, (data.clone(), sum));
        }
        Ok((data, sum))
    }

    /// Sums up a file, of which only what lies in `data` is not zeros.
    fn content(&mut self, file: &File, data: &[(u64, u64)], size: u64) -> io::Result<u64> {
        const BLOCK: u64 = ContentSum::BLOCK as u64;
        let mut sum = ContentSum::default();
        let buf = &mut self.content;
        let mut at = 0;
        for (start, len) in data {
            // Where data begins or ends inside a block, the whole block counts.
            at = at.max(start - start % BLOCK);
            let end = (start + len).next_multiple_of(BLOCK).min(size);
            while at < end {
                let want = buf.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
                file.read_exact_at(&mut buf[..want], at)?;
                sum.add(at, &buf[..want]);
                at += want as u64;
            }
        }
        Ok(sum.finish())
    }

    fn xattrs(&mut self, at: BorrowedFd<'_>, name: &CStr, entry: &mut Entry) -> io::Result<()> {
        // There is no listxattrat; a path through the descriptor looks the name up in its directory.
        let mut path = format!("/proc/self/fd/{}/", at.as_raw_fd()).into_bytes();
        path.extend_from_slice(name.to_bytes());
        let len = match fs::llistxattr(&path, &mut self.names[..]) {
            Ok(len) => len,
            Err(Errno::OPNOTSUPP) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        for name in self.names[..len].split(|&b| b == 0).filter(|name| !name.is_empty()) {
            let len = fs::lgetxattr(&path, name, &mut self.value[..])?;
            entry.xattrs.insert(name.to_vec(), Value::of(&self.value[..len]));
        }
        Ok(())
    }
}

fn open_dir(at: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    Ok(open_quietly(at, name, OPEN_DIR)?)
}

/// Opens without changing the access time, where that is allowed.
fn open_quietly(at: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    match fs::openat(at, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => fs::openat(at, name, flags, Mode::empty()),
        other => other,
    }
}

fn stat(at: BorrowedFd<'_>, name: &CStr) -> io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    Ok(fs::statx(at, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?)
}

fn kind(stat: &Statx) -> io::Result<Kind> {
    use rustix::fs::FileType as T;
    Ok(match T::from_raw_mode(stat.stx_mode.into()) {
        T::RegularFile => Kind::File,
        T::Directory => Kind::Dir,
        T::Symlink => Kind::Symlink,
        T::CharacterDevice => Kind::Char,
        T::BlockDevice => Kind::Block,
        T::Fifo => Kind::Fifo,
        T::Socket => Kind::Socket,
        T::Unknown => return Err(io::Error::other(format!("unknown mode {:o}", stat.stx_mode))),
    })
}

fn time(stamp: StatxTimestamp) -> Time {
    Time { seconds: stamp.tv_sec, nanos: stamp.tv_nsec }
}

fn space(root: BorrowedFd<'_>) -> io::Result<Space> {
    let s = fs::fstatvfs(root)?;
    Ok(Space {
        block: s.f_frsize,
        blocks: s.f_blocks,
        free: s.f_bfree,
        inodes: s.f_files,
        inodes_free: s.f_ffree,
    })
}

/// Where the file has data, as offset and length.
fn data(file: &File, size: u64) -> io::Result<Ranges> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let end = fs::seek(file, SeekFrom::Hole(start))?;
        out.push((start, end - start));
        at = end;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_directory_of_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("sub")).unwrap();
        std::fs::write(at("sub/file"), b"abc").unwrap();
        std::fs::set_permissions(at("sub/file"), PermissionsExt::from_mode(0o640)).unwrap();
        std::fs::hard_link(at("sub/file"), at("also")).unwrap();
        symlink("no/where", at("link")).unwrap();
        File::create(at("hole")).unwrap().set_len(1 << 20).unwrap();
        let listing = list(dir.path()).unwrap();
        let paths: Vec<_> = listing.entries.iter().map(|e| e.path.as_slice()).collect();
        assert_eq!(paths, [&b"/"[..], b"/also", b"/hole", b"/link", b"/sub", b"/sub/file"]);
        let file = listing.get(b"/sub/file").unwrap();
        assert_eq!((file.mode, file.nlink, file.size), (0o640, 2, 3));
        assert_eq!(file.content, Some(ContentSum::of(b"abc")));
        assert_eq!(file.link.as_deref(), Some(&b"/also"[..]));
        assert_eq!(listing.get(b"/link").unwrap().target.as_deref(), Some(&b"no/where"[..]));
        let hole = listing.get(b"/hole").unwrap();
        assert!(hole.data.is_empty());
        assert_eq!(hole.content, Some(ContentSum::of(&[])));
        assert_eq!(listing.to_string().parse::<Listing>().unwrap(), listing);
    }

    /// Where the host's file system knows unwritten blocks, reading one name's content fills pages
    /// that would show as data under the other.
    #[test]
    fn names_of_one_file_have_one_map() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("a");
        let file = File::create(&path).unwrap();
        let flags = fs::FallocateFlags::empty();
        fs::fallocate(&file, flags, 0, 8 << 20).unwrap();
        file.write_all_at(&[1; 516 << 10], 1 << 20).unwrap();
        file.write_all_at(&[2; 517 << 12], 4 << 20).unwrap();
        file.sync_all().unwrap();
        fs::fadvise(&file, 0, None, fs::Advice::DontNeed).unwrap();
        std::fs::hard_link(&path, dir.path().join("b")).unwrap();
        let listing = list(dir.path()).unwrap();
        let [a, b] = [b"/a", b"/b"].map(|path| listing.get(path).unwrap());
        assert_eq!(a.data, b.data);
        assert_eq!(a.content, b.content);
    }

    #[test]
    fn a_tree_deeper_than_path_max() {
        let dir = tempfile::tempdir().unwrap();
        let name = CString::new(vec![b'd'; 200]).unwrap();
        let mut at = open_dir(fs::CWD, &CString::new(dir.path().as_os_str().as_bytes()).unwrap());
        for _ in 0..40 {
            let parent = at.unwrap();
            fs::mkdirat(&parent, name.as_c_str(), Mode::from_raw_mode(0o755)).unwrap();
            at = open_dir(parent.as_fd(), &name);
        }
        let listing = list(dir.path()).unwrap();
        assert_eq!(listing.entries.len(), 41);
        assert_eq!(listing.entries[40].path.len(), 40 * 201);
    }
}
