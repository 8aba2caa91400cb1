//! A child's changes written into its base.
//!
//! 1. From the first change of the base to the last the child's file keeps everything, and says that it is
//!    being committed. Cut at any moment, a commit goes on from its beginning when it is run again.
//! 2. Meanwhile the base is marked by the caller ([`Mark`]) as one that is not whole; the mark is removed
//!    last.
//! 3. The base is locked exclusively, so no other child is in use.
//! 4. A commit goes on only with a base that is as it was before it, or bears the mark. Without the
//!    mark the base has everything, which is compared, or was written to since: then it is left as
//!    it is.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use uxfs_disk::{BlockDev, FileDev};

use crate::base::Base;
use crate::chunks::Chunks;
use crate::deltas::{Content, Tail};
use crate::dev::{Opened, open_file};
use crate::head::State;
use crate::{BLOCK, damaged};

/// Bytes that are written at once.
const PIECE: usize = 1 << 20;

/// Changes the first block of a base so that nothing takes it for whole, or back if the argument is false.
pub type Mark<'a> = &'a dyn Fn(&mut [u8], bool);

/// What a commit wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Bytes written into the base.
    pub bytes: u64,
}

/// Commits the child in `file`, which was opened for writing at `path`, to its base, which `open_base` opens
/// for writing. Afterwards the child is as its base, and can be used on.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] if the base is in use; [`io::ErrorKind::InvalidData`] if the file is
/// damaged, or the base is not what it was, also since the commit was interrupted; those of the host.
pub fn commit(
    file: &FileDev,
    path: &Path,
    open_base: &dyn Fn(&Path) -> io::Result<Arc<dyn BlockDev>>,
    mark: Mark<'_>,
) -> io::Result<Committed> {
    let file = file.as_file().ok_or_else(|| damaged("it is not in a file"))?;
    let Opened { base_path, content, mut tail } = open_file(file, path)?;
    let base = open_base(&base_path).map_err(|error| {
        io::Error::new(error.kind(), format!("its base {}: {error}", base_path.display()))
    })?;
    let mut first = vec![0; base.len().min(BLOCK as u64) as usize];
    base.read_at(0, &mut first)?;
    let is_same = tail.head.base.check(&base_path, &*base);
    if tail.head.state == State::InUse {
        is_same?;
        if content.map.blocks() == 0 {
            return Ok(Committed { bytes: 0 });
        }
        tail.head.state = State::Committing;
        tail.head.write(file)?;
    } else if base.len() != tail.head.base.len {
        return Err(damaged("the base of an interrupted commit has another length"));
    } else if is_same.is_err() && !is_marked(&first, mark) {
        // The mark is removed last: the base has everything, or is another one, or was changed since.
        if !has_all(&*base, file, &content)? {
            let text = format!(
                "the base {} was changed since the commit of this fork was interrupted: nothing is written into \
                 it; if it has what is wanted, remove the fork",
                base_path.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        finish(file, path, (&base_path, base), &mut tail)?;
        return Ok(Committed { bytes: content.map.blocks() * BLOCK as u64 });
    }
    mark(&mut first, true);
    base.write_at(0, &first)?;
    base.flush()?;
    mark(&mut first, false);
    let chunks = Chunks::default();
    let mut bytes = 0;
    for (from, count, _) in content.map.runs() {
        let mut block = from;
        while block < from + count {
            let at = block * BLOCK as u64;
            let blocks = (from + count - block).min((PIECE / BLOCK) as u64);
            let len = (blocks * BLOCK as u64).min(base.len() - at) as usize;
            let mut piece = vec![0; len];
            for (number, part) in piece.chunks_mut(BLOCK).enumerate() {
                let source = content.map.get(block + number as u64);
                let source = source.ok_or_else(|| damaged("a run has a gap"))?;
                content.read(file, &chunks, source, 0, part)?;
            }
            if block == 0 {
                let take = first.len();
                first.copy_from_slice(&piece[..take]);
                base.write_at(take as u64, &piece[take..])?;
            } else {
                base.write_at(at, &piece)?;
            }
            bytes += len as u64;
            block += blocks;
        }
    }
    base.flush()?;
    base.write_at(0, &first)?;
    base.flush()?;
    finish(file, path, (&base_path, base), &mut tail)?;
    Ok(Committed { bytes })
}

/// Does the first block of a base bear the mark?
fn is_marked(first: &[u8], mark: Mark<'_>) -> bool {
    let mut marked = first.to_vec();
    mark(&mut marked, true);
    marked == first
}

/// Does the base hold the child's changes?
fn has_all(base: &dyn BlockDev, file: &File, content: &Content) -> io::Result<bool> {
    let chunks = Chunks::default();
    let (mut ours, mut theirs) = ([0; BLOCK], [0; BLOCK]);
    for (from, count, _) in content.map.runs() {
        for block in from..from + count {
            let at = block * BLOCK as u64;
            let len = base.len().saturating_sub(at).min(BLOCK as u64) as usize;
            let source = content.map.get(block).ok_or_else(|| damaged("a run has a gap"))?;
            content.read(file, &chunks, source, 0, &mut ours[..len])?;
            base.read_at(at, &mut theirs[..len])?;
            if ours[..len] != theirs[..len] {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Takes the base as it is now for that of the child, which has no changes any more.
fn finish(
    file: &File,
    path: &Path,
    (base_path, base): (&Path, Arc<dyn BlockDev>),
    tail: &mut Tail,
) -> io::Result<()> {
    tail.head.base = Base::of(base_path, uxfs_host::dir_of(path), &*base)?;
    // An image of another format may be written to when it is closed.
    drop(base);
    tail.head.base.note_time(base_path);
    tail.head.state = State::InUse;
    tail.empty(file)?;
    tail.close(file)
}
