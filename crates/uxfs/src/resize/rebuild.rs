//! Rebuilds a volume in another size, file by file.
//!
//! 1. Kept: UUID, label, sizes of blocks, sectors, inodes and directory blocks, features, stripe
//!    units; of each file everything that [`uxfs_core::Fs::replicate`] keeps, including hard links.
//! 2. Not kept: inode numbers and generations, so NFS handles and handles of open_by_handle_at(2)
//!    go stale; shared blocks (each file gets its own); unlinked files that were still open.
//! 3. Allocation groups keep about their length if two of them fit, so that a later growth adds
//!    groups of a sensible size; otherwise the volume gets two groups. The log keeps its length if
//!    there is room for it.
//! 4. The old volume is only read. The new file is marked unfinished until it is complete and on
//!    stable storage; only then does it replace the old one.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use uxfs_core::{BulkWriter, Error, Fs};
use uxfs_disk::{BlockDev, FileDev, OpenMode};
use uxfs_format::dquot::QuotaType;
use uxfs_format::inode::{S_IFDIR, S_IFMT};
use uxfs_format::{Check, Ino, Place};
use uxfs_mkfs::{self as mkfs, Layout, Size};

use super::replace::ReplacementFile;
use super::{ReplaceableFile, ResizeError, ResizeOptions};

/// Rebuilds the volume with at most `bytes` bytes and replaces the old file. Returns the new length
/// in bytes.
pub(super) fn replace(
    old: &Fs,
    target: &ReplaceableFile,
    options: &ResizeOptions,
    bytes: u64,
) -> Result<u64, ResizeError> {
    if QuotaType::ALL.into_iter().any(|kind| kind.inode_of(&old.superblock()).is_some()) {
        let problem = "the volume keeps quotas, whose limits would be lost: give a size that only cuts its \
                       unused end";
        return Err(ResizeError::Usage(problem.to_owned()));
    }
    // With a log of the same length if the files then fit, else with a smaller one.
    let mut error = None;
    for log in [LogSize::Same, LogSize::Default] {
        let layout = layout_like(old, bytes, log)?;
        let replacement =
            ReplacementFile::new(&target.path).map_err(ResizeError::host(&target.path))?;
        match make(old, &layout, replacement.path(), options, true) {
            Ok(_) => {
                replacement.replace().map_err(ResizeError::host(&target.path))?;
                return Ok(layout.size_bytes());
            }
            Err(failed) if failed.is_no_space() => {
                let problem =
                    format!("the files do not fit into {bytes} bytes: give a larger size");
                error = Some(ResizeError::Usage(problem));
            }
            Err(failed) => return Err(failed),
        }
    }
    Err(error.unwrap_or(ResizeError::Volume(Error::NoSpace)))
}

/// Bytes at the end of a volume that may stay outside its groups.
const LOSS_MAX: u64 = 1 << 20;

/// Length of the new volume's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogSize {
    /// As in the old volume, if the groups also keep their length.
    Same,
    /// The default of mkfs for a volume of this size.
    Default,
}

/// The layout of a volume like `old` with at most `bytes` bytes.
pub(super) fn layout_like(old: &Fs, bytes: u64, log: LogSize) -> Result<Layout, ResizeError> {
    let mut like = mkfs::options_like(&old.superblock());
    like.unsupported = true;
    let group = u64::from(old.geo.ag_blocks) << old.geo.block_log;
    let too_small = |error| ResizeError::Usage(format!("{bytes} bytes: {error}"));
    if bytes >= 2 * group {
        let mut same = like.clone();
        same.data.agsize = Some(Size::Bytes(group));
        if log == LogSize::Same {
            same.log.size = Some(Size::Blocks(old.geo.log_blocks.into()));
        }
        match Layout::new(&same, bytes) {
            // If a last group would be too short, it is left out. Groups that are somewhat longer
            // then waste less.
            Ok(layout) if bytes - layout.size_bytes() < LOSS_MAX => return Ok(layout),
            _ => like.data.agcount = u32::try_from(bytes / group).ok(),
        }
        if let Ok(layout) = Layout::new(&like, bytes) {
            return Ok(layout);
        }
    }
    like.data.agcount = Some(2);
    Layout::new(&like, bytes).map_err(too_small)
}

/// Creates the volume in a new file at `path`; without file data for a trial run. Returns the free
/// blocks beyond the kernel's reserve; negative if blocks are missing for that reserve.
pub(super) fn make(
    old: &Fs,
    layout: &Layout,
    path: &Path,
    options: &ResizeOptions,
    with_data: bool,
) -> Result<i64, ResizeError> {
    let mode = OpenMode::Create(layout.size_bytes());
    let dev: Arc<dyn BlockDev> =
        Arc::new(FileDev::open(path, mode).map_err(ResizeError::host(path))?);
    let mut write_options = mkfs::WriteOptions::default();
    (write_options.in_progress, write_options.zero_log) = (true, true);
    write_options.now = Some(options.open.clock.now());
    mkfs::write(layout, &*dev, &write_options)?;
    let mut open = options.open.clone();
    open.unfinished = true;
    let new = Fs::open(Arc::clone(&dev), open)?;
    if with_data {
        let writer = BulkWriter::start(&new, old.device().as_file())?;
        copy_tree(old, &new, Some(&writer))?;
        writer.finish()?;
    } else {
        copy_tree(old, &new, None)?;
    }
    let label = old.superblock();
    if new.superblock().label() != label.label() {
        new.set_label(label.label())?;
    }
    // Block counts are far below i64::MAX.
    let free = new.free_blocks().cast_signed() - new.kernel_reserve()?.cast_signed();
    if with_data {
        new.close()?;
    }
    Ok(free)
}

/// A directory whose entries are still to be recreated.
struct Pending {
    old: Ino,
    new: Ino,
    path: Vec<u8>,
}

/// Recreates every file of `old` on `new`.
fn copy_tree(old: &Fs, new: &Fs, writer: Option<&BulkWriter<'_>>) -> Result<(), ResizeError> {
    new.replicate_traits(old, old.root(), new.root(), true)?;
    let mut pending = vec![Pending { old: old.root(), new: new.root(), path: Vec::new() }];
    let mut entered = HashSet::from([old.root()]);
    // Files with several names: old inode number to new inode number.
    let mut linked: HashMap<Ino, Ino> = HashMap::new();
    // Directories: their times change while they are filled, and are set at the end.
    let mut dirs = vec![(old.root(), new.root())];
    while let Some(dir) = pending.pop() {
        for (name, ino) in entries(old, dir.old).map_err(|e| dir.failed(b"", e))? {
            let fail = |error| dir.failed(&name, error);
            if let Some(new_ino) = linked.get(&ino) {
                new.link(*new_ino, dir.new, &name).map_err(fail)?;
                continue;
            }
            let stat = old.stat(ino).map_err(fail)?;
            let (new_ino, moves) = new.replicate(old, ino, dir.new, &name).map_err(fail)?;
            if let Some(writer) = writer {
                for piece in moves {
                    writer.copy(piece.from, piece.to, piece.len);
                }
            }
            if stat.mode & S_IFMT == S_IFDIR {
                if !entered.insert(ino) {
                    let problem = "is reached by two paths";
                    return Err(fail(Error::corrupt(
                        "directory",
                        Place::Inode(ino),
                        Check::Loop,
                        problem,
                    )));
                }
                dirs.push((ino, new_ino));
                let path = dir.child_path(&name);
                pending.push(Pending { old: ino, new: new_ino, path });
            } else if stat.nlink > 1 {
                linked.insert(ino, new_ino);
            }
        }
    }
    // Each further name changed the file's ctime.
    for (old_ino, new_ino) in linked.into_iter().chain(dirs) {
        new.replicate_traits(old, old_ino, new_ino, false)?;
    }
    Ok(())
}

impl Pending {
    fn child_path(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }

    fn failed(&self, name: &[u8], source: Error) -> ResizeError {
        ResizeError::Entry { path: self.child_path(name), source }
    }
}

fn entries(fs: &Fs, dir: Ino) -> uxfs_core::Result<Vec<(Vec<u8>, Ino)>> {
    let mut names = Vec::new();
    fs.read_dir(dir, 0, &mut |entry| {
        if !entry.is_dot() {
            names.push((entry.name.to_vec(), entry.ino));
        }
        ControlFlow::Continue(())
    })?;
    Ok(names)
}
