//! Making a volume again in another size, file by file.
//!
//! 1. Kept: UUID, label, block, sector, inode and directory block sizes, features, stripe units; and
//!    of every file what [`uxfs_core::Fs::replicate`] keeps, hard links among it.
//! 2. Not kept: inode numbers and generations, so NFS handles and open-by-handle go stale; blocks
//!    that files share (each gets its own); files that were open without a name.
//! 3. Groups stay about as long as they were if two of them fit, so that a later growth adds groups
//!    of a sensible size; else the volume gets two. The log stays as long as it was if that leaves room.
//! 4. The old volume is read only. The new file takes its place when it is whole and on stable
//!    storage; until then it is unfinished, and the old one is what it was.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use uxfs_core::{Error, Fs};
use uxfs_disk::{BlockDev, FileDev, OpenMode};
use uxfs_format::inode::{S_IFDIR, S_IFMT};
use uxfs_format::{Ino, Place};
use uxfs_mkfs::{self as mkfs, Layout, Size};

use super::replace::Beside;
use super::{ResizeError, ResizeOptions, Whole};
use crate::import::data::{DataWriters, with_movers};

/// Makes the volume again, at most `bytes` long, and puts it in the old one's place. Gives its
/// length.
pub(super) fn replace(
    old: &Fs,
    whole: &Whole,
    options: &ResizeOptions,
    bytes: u64,
) -> Result<u64, ResizeError> {
    // With the log it has, if there is room for that; else with a smaller one.
    let mut error = None;
    for log in [Log::Kept, Log::Usual] {
        let layout = layout_like(old, bytes, log)?;
        let beside = Beside::new(&whole.path).map_err(ResizeError::host(&whole.path))?;
        match make(old, &layout, beside.path(), options, true) {
            Ok(_) => {
                beside.replace().map_err(ResizeError::host(&whole.path))?;
                return Ok(layout.size_bytes());
            }
            Err(failed) if failed.is_no_space() => {
                let problem = format!("the files do not fit into {bytes} bytes");
                error = Some(ResizeError::Usage(problem));
            }
            Err(failed) => return Err(failed),
        }
    }
    Err(error.unwrap_or(ResizeError::Volume(Error::NoSpace)))
}

/// Most bytes at the end of a volume that its groups may leave out.
const LOSS_MAX: u64 = 1 << 20;

/// Which log a new volume gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Log {
    /// One as long as the old volume has, if groups stay as long too.
    Kept,
    /// What mkfs gives a volume of this size.
    Usual,
}

/// The layout of a volume like `old`, at most `bytes` long.
pub(super) fn layout_like(old: &Fs, bytes: u64, log: Log) -> Result<Layout, ResizeError> {
    let mut like = mkfs::options_like(&old.superblock());
    like.unsupported = true;
    let group = u64::from(old.geo.ag_blocks) << old.geo.block_log;
    let too_small = |error| ResizeError::Usage(format!("{bytes} bytes: {error}"));
    if bytes >= 2 * group {
        let mut same = like.clone();
        same.data.agsize = Some(Size::Bytes(group));
        if log == Log::Kept {
            same.log.size = Some(Size::Blocks(old.geo.log_blocks.into()));
        }
        match Layout::new(&same, bytes) {
            // A last group that would be too short is left out: rather somewhat longer groups.
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

/// Makes the volume in a new file at `path`; without its files' data, if that is only to be tried.
/// Gives the blocks that are left free beyond what the kernel wants to find free, fewer than none
/// if it would not find them.
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
    let mut how = mkfs::WriteOptions::default();
    (how.in_progress, how.zero_log) = (true, true);
    how.now = Some(options.open.clock.now());
    mkfs::write(layout, &*dev, &how)?;
    let mut open = options.open.clone();
    open.unfinished = true;
    let new = Fs::open(Arc::clone(&dev), open)?;
    if with_data {
        with_movers(&dev, old.device().as_file(), None, |movers| {
            Ok(copy_tree(old, &new, Some(movers)).map(|()| movers.finish()))
        })???;
    } else {
        copy_tree(old, &new, None)?;
    }
    let label = old.superblock();
    if new.superblock().label() != label.label() {
        new.set_label(label.label())?;
    }
    // Counts of blocks are far below the largest number.
    let free = new.free_blocks().cast_signed() - new.kernel_reserve()?.cast_signed();
    if with_data {
        new.close()?;
    }
    Ok(free)
}

/// A directory whose entries are still to be made again.
struct Pending {
    old: Ino,
    new: Ino,
    path: Vec<u8>,
}

/// Makes every file of `old` again on `new`.
fn copy_tree(old: &Fs, new: &Fs, mut movers: Option<&mut DataWriters>) -> Result<(), ResizeError> {
    let block = 1usize << old.geo.block_log;
    new.replicate_traits(old, old.root(), new.root(), true)?;
    let mut pending = vec![Pending { old: old.root(), new: new.root(), path: Vec::new() }];
    let mut entered = HashSet::from([old.root()]);
    // Files with several names, by their old numbers.
    let mut linked: HashMap<Ino, Ino> = HashMap::new();
    // Directories, which change while they are filled.
    let mut later = vec![(old.root(), new.root())];
    while let Some(dir) = pending.pop() {
        for (name, ino) in entries(old, dir.old).map_err(|e| dir.failed(b"", e))? {
            let fail = |error| dir.failed(&name, error);
            if let Some(again) = linked.get(&ino) {
                new.link(*again, dir.new, &name).map_err(fail)?;
                continue;
            }
            let stat = old.stat(ino).map_err(fail)?;
            let (made, moves) = new.replicate(old, ino, dir.new, &name).map_err(fail)?;
            if let Some(movers) = &mut movers {
                for piece in moves {
                    movers.copy(piece.from, piece.to, piece.len, block);
                }
            }
            if stat.mode & S_IFMT == S_IFDIR {
                if !entered.insert(ino) {
                    let problem = "is reached by two paths";
                    return Err(fail(Error::corrupt("directory", Place::Inode(ino), problem)));
                }
                later.push((ino, made));
                let path = dir.below(&name);
                pending.push(Pending { old: ino, new: made, path });
            } else if stat.nlink > 1 {
                linked.insert(ino, made);
            }
        }
    }
    // Each further name changed the times of a file.
    for (old_ino, new_ino) in linked.into_iter().chain(later) {
        new.replicate_traits(old, old_ino, new_ino, false)?;
    }
    Ok(())
}

impl Pending {
    fn below(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }

    fn failed(&self, name: &[u8], source: Error) -> ResizeError {
        ResizeError::Entry { path: self.below(name), source }
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
