//! The listing of a volume through the library, comparable with a kernel's listing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use uxfs::{Fs, Result, Stat};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};
use uxfs_format::timestamp::Timestamp;
use uxfs_oracle::{ContentSum, Entry, Kernel, Kind, Listing, Time, Value, vm};

/// A kernel's listings of these images.
pub(crate) fn of_kernel(kernel: Kernel, images: &[&Path]) -> Vec<Listing> {
    let listings = vm::list(kernel, images).unwrap_or_else(|f| panic!("{f}"));
    listings.into_iter().map(without_raw_lists).collect()
}

/// Linux lists access lists twice for root, once as XFS stores them.
pub(crate) fn without_raw_lists(mut listing: Listing) -> Listing {
    for entry in &mut listing.entries {
        entry.xattrs.retain(|name, _| !name.starts_with(b"trusted.SGI_ACL_"));
    }
    listing
}

/// Lists the whole volume.
pub(crate) fn list(fs: &Fs) -> Listing {
    try_list(fs).unwrap_or_else(|e| panic!("listing: {e}"))
}

/// Lists the whole volume, if it can be read.
pub(crate) fn try_list(fs: &Fs) -> Result<Listing> {
    let mut listing = Listing::default();
    let mut todo = vec![(fs.root(), Vec::new())];
    while let Some((dir, path)) = todo.pop() {
        let shown = if path.is_empty() { b"/".to_vec() } else { path.clone() };
        listing.entries.push(entry(fs, dir, shown)?);
        for (name, ino) in names(fs, dir)? {
            let below = [&path[..], b"/", &name].concat();
            if fs.stat(ino)?.mode & S_IFMT == S_IFDIR {
                todo.push((ino, below));
            } else {
                listing.entries.push(entry(fs, ino, below)?);
            }
        }
        if listing.entries.len() > 2_000_000 {
            panic!("a volume of this size cannot hold that many names: the walk runs in a circle");
        }
    }
    listing.finish();
    Ok(listing)
}

/// The names in a directory, without `.` and `..`.
pub(crate) fn names(fs: &Fs, dir: Ino) -> Result<Vec<(Vec<u8>, Ino)>> {
    let mut names = Vec::new();
    fs.read_dir(dir, 0, &mut |entry| {
        if !entry.is_dot() {
            names.push((entry.name.to_vec(), entry.ino));
        }
        ControlFlow::Continue(())
    })?;
    Ok(names)
}

fn kind(stat: &Stat) -> Kind {
    match stat.mode & S_IFMT {
        S_IFREG => Kind::File,
        S_IFDIR => Kind::Dir,
        S_IFLNK => Kind::Symlink,
        S_IFCHR => Kind::Char,
        S_IFBLK => Kind::Block,
        S_IFIFO => Kind::Fifo,
        S_IFSOCK => Kind::Socket,
        other => panic!("inode {:?} of type {other:#o}", stat.ino),
    }
}

fn time(t: Timestamp) -> Time {
    Time { seconds: t.sec, nanos: t.nsec }
}

fn entry(fs: &Fs, ino: Ino, path: Vec<u8>) -> Result<Entry> {
    let stat = fs.stat(ino)?;
    let kind = kind(&stat);
    let mut entry = Entry {
        path,
        kind,
        mode: u32::from(stat.mode & 0o7777),
        uid: stat.uid,
        gid: stat.gid,
        nlink: stat.nlink,
        size: stat.size,
        ino: stat.ino.0,
        blocks: stat.blocks << (fs.geo.block_log - 9),
        mtime: time(stat.mtime),
        atime: time(stat.atime),
        ctime: time(stat.ctime),
        btime: time(stat.crtime),
        rdev: matches!(kind, Kind::Char | Kind::Block).then_some(stat.rdev),
        target: None,
        content: None,
        data: Vec::new(),
        link: None,
        xattrs: BTreeMap::new(),
    };
    match kind {
        Kind::Symlink => entry.target = Some(fs.readlink(ino)?),
        Kind::File => (entry.content, entry.data) = content(fs, ino, stat.size)?,
        _ => {}
    }
    for name in fs.list_xattrs(ino)? {
        entry.xattrs.insert(name.clone(), Value::of(&fs.get_xattr(ino, &name)?));
    }
    Ok(entry)
}

type Content = (Option<u64>, Vec<(u64, u64)>);

/// The checksum of a file's content, and its data ranges.
fn content(fs: &Fs, ino: Ino, size: u64) -> Result<Content> {
    const BLOCK: u64 = ContentSum::BLOCK as u64;
    let mut data: Vec<(u64, u64)> = Vec::new();
    for segment in fs.segments(ino)?.iter().filter(|s| s.device.is_some()) {
        match data.last_mut() {
            Some((start, len)) if *start + *len == segment.offset => *len += segment.len,
            _ => data.push((segment.offset, segment.len)),
        }
    }
    let mut sum = ContentSum::default();
    let mut buf = vec![0; 64 * ContentSum::BLOCK];
    let mut at = 0;
    for (start, len) in &data {
        at = at.max(start - start % BLOCK);
        let end = (start + len).next_multiple_of(BLOCK).min(size);
        while at < end {
            let want = (end - at).min(buf.len() as u64) as usize;
            assert_eq!(fs.read_at(ino, at, &mut buf[..want])?, want);
            sum.add(at, &buf[..want]);
            at += want as u64;
        }
    }
    Ok((Some(sum.finish()), data))
}
