//! Runs all operations on an image that may be damaged in any way: open, list, read, export,
//! change, check.
//!
//! Errors are expected. Panics, endless loops and unbounded memory use are not. An undamaged image
//! must still be undamaged afterwards.

use std::collections::HashSet;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uxfs::clock::Clock;
use uxfs::copy::{Copier, CopyFrom, CopyOptions, CopyTo, ImageSource, ImageTarget, Preserve};
use uxfs::posix::Creator;
use uxfs::{Error, Fs, NewInode, OpenOptions, RenameFlags, SetAttr, XattrMode, export};
use uxfs_check::{CheckOptions, check};
use uxfs_disk::BlockDev;
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use uxfs_format::timestamp::Timestamp;

/// Maximum bytes of file data that are read or exported: damage may map the same blocks any number
/// of times, like shared extents.
const DATA_MAX: u64 = 32 << 20;
/// Maximum number of files visited: damage may give the same inode any number of names.
const FILES_MAX: usize = 20_000;

/// Time used by each operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) check: Duration,
    pub(crate) list: Duration,
    pub(crate) export: Duration,
    pub(crate) edit: Duration,
    pub(crate) remove: Duration,
}

impl Times {
    /// The longest time, with the operation's name.
    pub(crate) fn longest(&self) -> (&'static str, Duration) {
        let all = [
            ("check", self.check),
            ("list", self.list),
            ("export", self.export),
            ("edit", self.edit),
            ("remove", self.remove),
        ];
        all.into_iter().max_by_key(|(_, time)| *time).unwrap()
    }
}

/// Result of the operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Findings of the check before the first change; `None` if there are none.
    pub(crate) found: Option<String>,
    pub(crate) times: Times,
}

/// Runs all operations. `threads` is the number of threads of the check.
///
/// # Panics
/// If the image was undamaged before and is damaged afterwards.
pub(crate) fn exercise(dev: &Arc<dyn BlockDev>, threads: usize) -> Outcome {
    let mut times = Times::default();
    let found = timed(&mut times.check, || examine(&**dev, threads));
    if let Ok(fs) = open(dev, true) {
        timed(&mut times.list, || list(&fs));
        timed(&mut times.export, || {
            let _ = export::export(&fs, fs.root(), Sink(DATA_MAX));
        });
    }
    for part in [Part::Edit, Part::Remove] {
        let Ok(fs) = open(dev, false) else { continue };
        let time = if part == Part::Edit { &mut times.edit } else { &mut times.remove };
        let result = timed(time, || {
            match part {
                Part::Edit => edit(&fs),
                Part::Remove => remove_all(&fs),
            }
            fs.close()
        });
        if found.is_none() {
            result.unwrap_or_else(|e| panic!("{part:?} of an undamaged volume: {e}"));
            let after = examine(&**dev, threads);
            assert!(after.is_none(), "damaged by {part:?}: {}", after.unwrap());
        }
    }
    if found.is_some() {
        let mut again = Duration::ZERO;
        timed(&mut again, || examine(&**dev, threads));
        times.check = times.check.max(again);
    }
    Outcome { found, times }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Edit,
    Remove,
}

/// Time of `f` on an idle machine: elapsed time or the processor time of this process, whichever is
/// less.
pub(crate) fn timed<R>(time: &mut Duration, f: impl FnOnce() -> R) -> R {
    let (began, worked) = (Instant::now(), worked());
    let result = f();
    *time = began.elapsed().min(self::worked().saturating_sub(worked));
    result
}

/// Processor time of this process, from /proc, in units of 10 ms.
fn worked() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The 12th and 13th number behind the name, which may contain any character.
    let numbers = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = numbers.skip(11).take(2).filter_map(|number| number.parse::<u64>().ok());
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// Runs the check.
pub(crate) fn examine(dev: &dyn BlockDev, threads: usize) -> Option<String> {
    let mut options = CheckOptions::default();
    (options.threads, options.memory_limit, options.max_findings) = (threads, 256 << 20, 200);
    match check(dev, &options, &|_| {}) {
        Ok(report) => {
            let _ = report.to_json();
            (!report.is_clean() || report.incomplete).then(|| report.to_string())
        }
        Err(e) => Some(e.to_string()),
    }
}

/// Opens the image; with `read_only` and a dirty log, without replaying the log.
fn open(dev: &Arc<dyn BlockDev>, read_only: bool) -> Result<Fs, Error> {
    let mut options = OpenOptions::default();
    options.read_only = read_only;
    options.clock = Clock::Fixed(Timestamp { sec: 1_700_000_000, nsec: 5 });
    options.seed = Some(7);
    options.cache_bytes = 4 << 20;
    match Fs::open(Arc::clone(dev), options.clone()) {
        Err(Error::DirtyLog(_)) if read_only => {
            options.norecovery = true;
            Fs::open(Arc::clone(dev), options)
        }
        other => other,
    }
}

/// Accepts this number of bytes, then fails.
struct Sink(u64);

impl Write for Sink {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(data.len() as u64).ok_or(io::ErrorKind::StorageFull)?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A name, and the inode number in its entry.
type Named = (Vec<u8>, Ino);

fn names(fs: &Fs, dir: Ino) -> Vec<Named> {
    let mut names = Vec::new();
    let _ = fs.read_dir(dir, 0, &mut |entry| {
        if !entry.is_dot() {
            names.push((entry.name.to_vec(), entry.ino));
        }
        if names.len() < FILES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    names
}

/// All directories with their entries, parents first.
fn directories(fs: &Fs) -> Vec<(Ino, Vec<Named>)> {
    let (mut seen, mut all, mut files) = (HashSet::new(), Vec::new(), 0);
    let mut todo = vec![fs.root()];
    while let Some(dir) = todo.pop() {
        if !seen.insert(dir) || files > FILES_MAX {
            continue;
        }
        let names = names(fs, dir);
        files += names.len();
        for (_, ino) in &names {
            if fs.stat(*ino).is_ok_and(|stat| stat.mode & S_IFMT == S_IFDIR) {
                todo.push(*ino);
            }
        }
        all.push((dir, names));
    }
    all
}

fn list(fs: &Fs) {
    let _ = fs.statfs();
    let mut budget = DATA_MAX;
    for (dir, names) in directories(fs) {
        let _ = fs.lookup(dir, b"..");
        let _ = fs.lookup(dir, b"no such name");
        for (name, ino) in names {
            let _ = fs.lookup(dir, &name);
            show(fs, ino, &mut budget);
        }
    }
    let _ = fs.resolve(b"/files/deep/../far", true);
    show(fs, fs.root(), &mut budget);
}

fn show(fs: &Fs, ino: Ino, budget: &mut u64) {
    for name in fs.list_xattrs(ino).unwrap_or_default() {
        let _ = fs.get_xattr(ino, &name);
    }
    let Ok(stat) = fs.stat(ino) else { return };
    if stat.mode & S_IFMT == S_IFLNK {
        let _ = fs.readlink(ino);
    }
    if stat.mode & S_IFMT != S_IFREG {
        return;
    }
    let mut buf = vec![0; 16 << 10];
    for offset in [0, stat.size.saturating_sub(100), u64::MAX - 5] {
        let _ = fs.read_at(ino, offset, &mut buf);
    }
    for segment in fs.segments(ino).unwrap_or_default() {
        let len = segment.len.min(buf.len() as u64);
        if segment.device.is_some() && *budget > len {
            *budget -= len;
            let _ = fs.read_at(ino, segment.offset, &mut buf[..len as usize]);
        }
    }
}

/// An access control list with every type of entry except a named group, in Linux' encoding.
fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, !0), (2, 7, 5), (4, 4, !0), (0x10, 7, !0), (0x20, 0, !0)];
    let mut raw = vec![2, 0, 0, 0];
    for (tag, permissions, id) in entries {
        raw.extend(tag.to_le_bytes());
        raw.extend(permissions.to_le_bytes());
        raw.extend(id.to_le_bytes());
    }
    raw
}

/// Makes changes of every kind in every directory and to files in each.
fn edit(fs: &Fs) {
    let all = directories(fs);
    let acl = acl();
    for (dir, names) in all.iter().take(40) {
        change_dir(fs, *dir);
        let step = names.len() / 8 + 1;
        for (name, ino) in names.iter().step_by(step) {
            change_file(fs, *ino, &acl);
            let _ = fs.rename(*dir, name, *dir, b"renamed", RenameFlags::NoReplace);
            let _ = fs.rename(*dir, b"renamed", fs.root(), name, RenameFlags::Replace);
            let _ = fs.rename(fs.root(), name, *dir, name, RenameFlags::Exchange);
            let _ = fs.link(*ino, *dir, b"linked");
            let _ = fs.unlink(*dir, b"linked");
        }
    }
    copy_tree(fs);
    let _ = fs.set_label(b"label");
    let _ = fs.sync();
}

fn change_dir(fs: &Fs, dir: Ino) {
    let long = [b'y'; 200];
    for name in [&b"new"[..], &long] {
        if let Ok(ino) = fs.create(dir, name, &NewInode::file(0o600)) {
            let _ = fs.write_at(ino, 5000, b"some data that is new");
            let _ = fs.link(ino, dir, b"new link");
        }
    }
    let _ = fs.create(dir, b"new dir", &NewInode::dir(0o755));
    let _ = fs.symlink(dir, b"new symlink", &[b'/'; 300], &NewInode::new(0o777));
    for name in [&b"new"[..], b"new symlink"] {
        let _ = fs.unlink(dir, name);
    }
    let _ = fs.rmdir(dir, b"new dir");
}

fn change_file(fs: &Fs, ino: Ino, acl: &[u8]) {
    let _ = fs.set_xattr(ino, b"user.new", &[1; 40], XattrMode::Any);
    let _ = fs.set_xattr(ino, b"trusted.large", &[2; 5000], XattrMode::Any);
    let _ = fs.set_xattr(ino, b"system.posix_acl_access", acl, XattrMode::Any);
    for name in fs.list_xattrs(ino).unwrap_or_default().iter().take(6) {
        let _ = fs.remove_xattr(ino, name);
    }
    let _ = fs.set_attr(ino, &SetAttr { permissions: Some(0o640), ..SetAttr::default() });
    let Ok(stat) = fs.stat(ino) else { return };
    if stat.mode & S_IFMT == S_IFREG {
        let _ = fs.write_at(ino, stat.size.saturating_sub(9), &[3; 3000]);
        let _ = fs.write_at(ino, 20_000, &[4; 10]);
        let _ = fs.truncate(ino, stat.size / 2);
        let _ = fs.truncate(ino, stat.size.saturating_add(9000));
    }
}

/// `cp -a` of everything except the target directory.
fn copy_tree(fs: &Fs) {
    let root = fs.root();
    let Ok(dir) = fs.create(root, b"copied", &NewInode::dir(0o755)) else { return };
    let source = ImageSource::new(fs, 1);
    let creator = Creator { uid: 0, gid: 0, umask: 0o022 };
    let target = ImageTarget::new(fs, 1, creator);
    let mut options = CopyOptions::default();
    (options.recursive, options.preserve) = (true, Preserve::all());
    let mut copier = Copier::new(options);
    for (name, ino) in names(fs, root).into_iter().take(30) {
        let small = fs.stat(ino).is_ok_and(|stat| stat.size < 1 << 20);
        if ino == dir || !small {
            continue;
        }
        if let Ok((node, info)) = source.open(|| Ok(ino)) {
            let from = CopyFrom { tree: &source, node, info, display_path: name.clone() };
            let to = CopyTo {
                tree: &target,
                dir: target.dir(dir).into(),
                name: name.clone(),
                display_path: name,
                path: Vec::new(),
            };
            copier.copy(from, to, &mut |_| {});
        }
    }
}

/// `rm -r` of everything.
fn remove_all(fs: &Fs) {
    for (dir, names) in directories(fs).into_iter().rev() {
        for (name, _) in names {
            if fs.unlink(dir, &name).is_err() {
                let _ = fs.rmdir(dir, &name);
            }
        }
    }
}
