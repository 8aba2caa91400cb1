//! Exports a directory tree of a volume as a PAX tar archive.
//!
//! One thread walks the tree and reads metadata; the caller's thread copies data into the archive.
//! A bounded channel passes batches of entries between them. For each batch the walker asks the
//! host to read the data ahead, with one request per run of neighbouring blocks, so that the
//! copying thread finds it in memory.
//!
//! 1. Entries come depth first, in the order in which each directory stores them. The same volume
//!    gives the same archive, and files that were written one after another are read in that order.
//! 2. No name leaves the tree: a name that is empty, `.` or `..`, or that holds a slash or a NUL,
//!    is an error.
//! 3. A directory is entered once, so a damaged volume cannot make the walk endless.
//! 4. Memory is bounded by [`BATCHES`] batches, whatever the size of the tree.
//!
//! Used by `uxfs export`.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use uxfs_archive::{ArchiveError, Entry, Kind, Meta, SparseMap, TarWriter, Time, Xattrs};
use uxfs_core::{Error, Fs, Segment, Stat};
use uxfs_format::inode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};
use uxfs_format::timestamp::Timestamp;
use uxfs_format::{Check, Ino, Place};

use crate::posix;

/// Batches that may wait for the copying thread.
const BATCHES: usize = 4;
/// A batch is complete with this many entries,
const BATCH_ENTRIES: usize = 256;
/// or with this many bytes of data and paths.
const BATCH_BYTES: u64 = 4 << 20;
/// Bytes of one file that are read ahead at a time.
const AHEAD: u64 = 4 << 20;
/// Runs of blocks with at most this gap (bytes) between them are read ahead in one request.
const GAP: u64 = 64 << 10;

/// The totals of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportSummary {
    /// Number of entries of all types.
    pub entries: u64,
    /// Bytes of file data without holes.
    pub data_bytes: u64,
}

/// Why an export failed. The archive is then incomplete.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A file of the volume could not be read.
    #[error("/{}: {source}", path.escape_ascii())]
    Read {
        /// Path of the file, relative to the exported directory.
        path: Vec<u8>,
        /// The error of the volume.
        source: Error,
    },
    /// The archive could not be written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

/// An entry and the location of its data: segments of the device without holes.
struct Item {
    entry: Entry,
    data: Vec<Segment>,
}

type Batch = Result<Vec<Item>, ExportError>;

/// Writes the tree below directory `root` to `out` as a PAX tar, and returns `out`, flushed. Paths
/// in the archive are relative to `root`, which is the first entry, `./`.
///
/// The volume must not change during the export. `out` should be unbuffered.
///
/// # Errors
/// [`ExportError`]; the archive is then incomplete.
pub fn export<W: Write>(fs: &Fs, root: Ino, out: W) -> Result<(W, ExportSummary), ExportError> {
    let mut writer = TarWriter::new(out);
    let mut summary = ExportSummary::default();
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(BATCHES);
        scope.spawn(move || {
            let mut walk = Walk::new(fs, sender);
            if let Err(error) = walk.tree(root) {
                walk.send_result(Err(error));
            }
        });
        write_all(fs, receiver, &mut writer, &mut summary)
    })?;
    Ok((writer.finish()?, summary))
}

fn write_all<W: Write>(
    fs: &Fs,
    batches: Receiver<Batch>,
    writer: &mut TarWriter<W>,
    summary: &mut ExportSummary,
) -> Result<(), ExportError> {
    for batch in batches {
        for item in batch? {
            let mut data = Data { fs, segments: &item.data, done: 0 };
            writer.entry(&item.entry, &mut data)?;
            summary.entries += 1;
            summary.data_bytes += item.data.iter().map(|s| s.len).sum::<u64>();
        }
    }
    Ok(())
}

/// Reads the data of a file directly from the device.
struct Data<'a> {
    fs: &'a Fs,
    segments: &'a [Segment],
    /// Bytes consumed of the first segment.
    done: u64,
}

impl Read for Data<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(segment) = self.segments.first() else { return Ok(0) };
        let left = segment.len - self.done;
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let at = segment.device.unwrap_or(0) + self.done;
        // The walker requested read-ahead only for the start of long segments.
        if self.done % AHEAD + len as u64 >= AHEAD && left > len as u64 {
            let next = self.done.next_multiple_of(AHEAD);
            let more = segment.len.saturating_sub(next).min(AHEAD);
            read_ahead(self.fs, segment, at - self.done + next, more);
        }
        self.fs.device_of(segment).read_at(at, &mut buf[..len])?;
        self.done += len as u64;
        if self.done == segment.len {
            self.segments = &self.segments[1..];
            self.done = 0;
        }
        Ok(len)
    }
}

fn read_ahead(fs: &Fs, segment: &Segment, offset: u64, len: u64) {
    let device = fs.device_of(segment);
    if let (Some(file), Some(len)) = (device.as_file(), std::num::NonZeroU64::new(len)) {
        advise(file, offset, len);
    }
}

/// Requests read-ahead of a range of the data device.
fn read_run(fs: &Fs, offset: u64, len: u64) {
    if let (Some(file), Some(len)) = (fs.device().as_file(), std::num::NonZeroU64::new(len)) {
        advise(file, offset, len);
    }
}

fn advise(file: &File, offset: u64, len: std::num::NonZeroU64) {
    uxfs_host::will_need(file, offset, len);
}

/// Requests read-ahead of ranges of the device; joins neighbouring ranges.
fn read_ahead_all(fs: &Fs, mut ranges: Vec<(u64, u64)>) {
    ranges.sort_unstable();
    let mut run: Option<(u64, u64)> = None;
    for (start, len) in ranges {
        match &mut run {
            Some((first, end)) if start <= *end + GAP && start - *first < 2 * AHEAD => {
                *end = (*end).max(start + len);
            }
            _ => {
                if let Some((first, end)) = run.replace((start, start + len)) {
                    read_run(fs, first, end - first);
                }
            }
        }
    }
    if let Some((first, end)) = run {
        read_run(fs, first, end - first);
    }
}

/// An open directory of the walk: the names that are not visited yet.
struct Level {
    names: std::vec::IntoIter<(Vec<u8>, Ino)>,
    path_len: usize,
}

struct Walk<'a> {
    fs: &'a Fs,
    sender: SyncSender<Batch>,
    batch: Vec<Item>,
    bytes: u64,
    /// The copying thread has ended.
    receiver_gone: bool,
    path: Vec<u8>,
    levels: Vec<Level>,
    entered: HashSet<Ino>,
    /// First paths of files with several names, and the number of names still to come.
    links: HashMap<Ino, (Vec<u8>, u32)>,
}

impl<'a> Walk<'a> {
    fn new(fs: &'a Fs, sender: SyncSender<Batch>) -> Self {
        Self {
            fs,
            sender,
            batch: Vec::new(),
            bytes: 0,
            receiver_gone: false,
            path: Vec::new(),
            levels: Vec::new(),
            entered: HashSet::new(),
            links: HashMap::new(),
        }
    }

    fn failed(&self, source: Error) -> ExportError {
        ExportError::Read { path: self.path.clone(), source }
    }

    fn send_result(&mut self, batch: Batch) {
        self.receiver_gone |= self.sender.send(batch).is_err();
    }

    fn tree(&mut self, root: Ino) -> Result<(), ExportError> {
        self.visit(root)?;
        while let Some(level) = self.levels.last_mut() {
            self.path.truncate(level.path_len);
            let Some((name, ino)) = level.names.next() else {
                self.levels.pop();
                continue;
            };
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&name);
            self.visit(ino)?;
            if self.receiver_gone {
                return Ok(());
            }
        }
        self.send();
        Ok(())
    }

    fn visit(&mut self, ino: Ino) -> Result<(), ExportError> {
        let stat = self.fs.stat(ino).map_err(|e| self.failed(e))?;
        let mut data = Vec::new();
        let linked = stat.mode & S_IFMT != S_IFDIR && stat.nlink > 1;
        let kind = match linked.then(|| self.earlier_name(&stat)).flatten() {
            Some(target) => Kind::Hardlink { target },
            None => self.kind(&stat, &mut data).map_err(|e| self.failed(e))?,
        };
        let first = !matches!(kind, Kind::Hardlink { .. });
        let xattrs = match first {
            true => xattrs(self.fs, ino).map_err(|e| self.failed(e))?,
            false => Xattrs::new(),
        };
        let meta = meta(&stat, xattrs);
        let is_dir = kind == Kind::Dir;
        let entry = Entry { path: self.path.clone(), kind, meta };
        self.bytes += data.iter().map(|s| s.len).sum::<u64>() + entry.path.len() as u64;
        self.batch.push(Item { entry, data });
        if self.batch.len() >= BATCH_ENTRIES || self.bytes >= BATCH_BYTES {
            self.send();
        }
        if is_dir { self.enter(ino) } else { Ok(()) }
    }

    /// Sends the batch and requests read-ahead of its data.
    fn send(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        let ranges = batch
            .iter()
            .flat_map(|item| &item.data)
            .filter(|s| !s.realtime)
            .filter_map(|s| Some((s.device?, s.len.min(AHEAD))))
            .collect();
        read_ahead_all(self.fs, ranges);
        self.send_result(Ok(batch));
    }

    /// Returns the path under which a hard-linked file was visited before; records this path if
    /// there is none.
    fn earlier_name(&mut self, stat: &Stat) -> Option<Vec<u8>> {
        let Some((first, left)) = self.links.get_mut(&stat.ino) else {
            self.links.insert(stat.ino, (self.path.clone(), stat.nlink - 1));
            return None;
        };
        *left = left.saturating_sub(1);
        let (first, left) = (first.clone(), *left);
        if left == 0 {
            self.links.remove(&stat.ino);
        }
        Some(first)
    }

    fn kind(&self, stat: &Stat, data: &mut Vec<Segment>) -> Result<Kind, Error> {
        let (major, minor) = stat.rdev;
        Ok(match stat.mode & S_IFMT {
            S_IFDIR => Kind::Dir,
            S_IFREG => {
                *data = self.fs.segments(stat.ino)?;
                data.retain(|s| s.device.is_some());
                let ranges = data.iter().map(|s| (s.offset, s.len));
                let map = SparseMap::from_segments(stat.size, ranges).map_err(|problem| {
                    Error::corrupt("extent map", Place::Inode(stat.ino), Check::Range, problem)
                })?;
                Kind::File { size: stat.size, map }
            }
            S_IFLNK => Kind::Symlink { target: self.fs.readlink(stat.ino)? },
            S_IFCHR => Kind::Char { major, minor },
            S_IFBLK => Kind::Block { major, minor },
            S_IFIFO => Kind::Fifo,
            S_IFSOCK => Kind::Socket,
            other => {
                let problem = format!("mode {other:#o} of no file type");
                return Err(Error::corrupt("inode", Place::Inode(stat.ino), Check::Mode, problem));
            }
        })
    }

    fn enter(&mut self, dir: Ino) -> Result<(), ExportError> {
        let damaged = |check: Check, detail: String| {
            Error::corrupt("directory", Place::Inode(dir), check, detail)
        };
        if !self.entered.insert(dir) {
            return Err(self.failed(damaged(Check::Loop, "is reached by two paths".into())));
        }
        let mut names = Vec::new();
        let mut bad = None;
        let listed = self.fs.read_dir(dir, 0, &mut |entry| {
            if entry.is_dot() {
                return ControlFlow::Continue(());
            }
            if !posix::is_plain_name(entry.name) {
                bad = Some(format!("entry '{}'", entry.name.escape_ascii()));
                return ControlFlow::Break(());
            }
            names.push((entry.name.to_vec(), entry.ino));
            ControlFlow::Continue(())
        });
        listed.map_err(|e| self.failed(e))?;
        if let Some(problem) = bad {
            return Err(self.failed(damaged(Check::Name, problem)));
        }
        self.read_inodes_ahead(&names);
        let level = Level { names: names.into_iter(), path_len: self.path.len() };
        self.levels.push(level);
        Ok(())
    }

    fn read_inodes_ahead(&self, names: &[(Vec<u8>, Ino)]) {
        let geo = &self.fs.geo;
        let len = u64::from(geo.cluster_blocks()) << geo.block_log;
        let mut clusters: Vec<(u64, u64)> = names
            .iter()
            .filter(|(_, ino)| geo.ino_valid(*ino))
            .map(|(_, ino)| {
                let (block, _) = geo.cluster_of(geo.ino_agino(*ino));
                (geo.ag_daddr(geo.ino_ag(*ino), block).bytes(), len)
            })
            .collect();
        clusters.sort_unstable();
        clusters.dedup();
        read_ahead_all(self.fs, clusters);
    }
}

fn xattrs(fs: &Fs, ino: Ino) -> Result<Xattrs, Error> {
    let mut all = Xattrs::new();
    for name in fs.list_xattrs(ino)? {
        let value = fs.get_xattr(ino, &name)?;
        all.push((name, value));
    }
    all.sort_unstable();
    Ok(all)
}

fn meta(stat: &Stat, xattrs: Xattrs) -> Meta {
    let time = |t: Timestamp| Time { sec: t.sec, nsec: t.nsec };
    Meta {
        mode: u32::from(stat.mode & 0o7777),
        uid: stat.uid,
        gid: stat.gid,
        mtime: time(stat.mtime),
        atime: Some(time(stat.atime)),
        ctime: Some(time(stat.ctime)),
        crtime: Some(time(stat.crtime)),
        xattrs,
        ..Meta::default()
    }
}
