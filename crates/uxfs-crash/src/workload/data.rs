//! Operations on the content of files.

use std::collections::HashMap;

use uxfs::{AtomicRange, DefragOptions, Fallocate, Result};
use uxfs_format::inode::S_IFREG;

use super::Workload;
use crate::content::{Change, File};

/// Longest file.
const FILE_MAX: usize = 120_000;

impl Workload<'_> {
    /// Number of uses of each block.
    fn uses(&self) -> HashMap<u64, u32> {
        let mut files: HashMap<u64, &File> = HashMap::new();
        for node in self.tree.values() {
            files.insert(node.id, &node.file);
        }
        let mut uses = HashMap::new();
        for block in files.values().flat_map(|file| file.blocks.iter().flatten()) {
            *uses.entry(block.id).or_default() += 1;
        }
        uses
    }

    /// Records a change of a file's content that the volume made.
    fn change(&mut self, path: &[u8], step: usize, change: impl FnOnce(&mut Change<'_>)) {
        let node = &self.tree[path];
        let (id, mut file) = (node.id, File::clone(&node.file));
        let uses = self.uses();
        let history = &mut self.history;
        change(&mut Change {
            file: &mut file,
            writes: &mut history.in_place_writes,
            block: history.block,
            step,
            uses,
            wide: self.style.hints,
        });
        self.put_file(id, file);
    }

    pub(super) fn write(&mut self, step: usize) -> Result<()> {
        let Some(path) = self.any(S_IFREG) else { return Ok(()) };
        let size = self.tree[&path].file.size;
        let from = match self.rng.below(3) {
            0 => size,
            1 => self.rng.below(size as u64 + 1) as usize,
            _ => self.rng.below(FILE_MAX as u64 / 2) as usize,
        };
        self.record_operation(if from == size { "append" } else { "write" });
        let most = if self.rng.once_in(3) { 40_000 } else { 3000 };
        let len = 1 + self.rng.below(most) as usize;
        let to = (from + len).min(FILE_MAX);
        if from >= to {
            return Ok(());
        }
        let byte = (step % 255 + 1) as u8;
        self.fs.write_at(self.ino(&path)?, from as u64, &vec![byte; to - from])?;
        self.change(&path, step, |file| file.write(from, to, byte));
        Ok(())
    }

    /// Writes ranges of several files, wholly or not at all.
    pub(super) fn write_atomic(&mut self, step: usize) -> Result<()> {
        let byte = (step % 255 + 1) as u8;
        let mut parts: Vec<(Vec<u8>, usize, usize)> = Vec::new();
        for _ in 0..1 + self.rng.below(4) {
            let Some(path) = self.any(S_IFREG) else { return Ok(()) };
            let size = self.tree[&path].file.size;
            let from = self.rng.below(size as u64 + 5000) as usize;
            let to = (from + 1 + self.rng.below(9000) as usize).min(FILE_MAX);
            let id = self.tree[&path].id;
            let apart = |(other, start, end): &(Vec<u8>, usize, usize)| {
                self.tree[other].id != id || *end <= from || to <= *start
            };
            if from < to && parts.iter().all(apart) {
                parts.push((path, from, to));
            }
        }
        self.record_operation("atomic-write");
        let data = vec![byte; FILE_MAX];
        let mut ranges = Vec::with_capacity(parts.len());
        for (path, from, to) in &parts {
            let (ino, data) = (self.ino(path)?, &data[..to - from]);
            ranges.push(AtomicRange { ino, offset: *from as u64, data });
        }
        self.fs.write_atomic(&ranges)?;
        for (path, from, to) in parts {
            self.change(&path, step, |file| file.replace(from, to, byte));
        }
        // No state in between may show.
        self.changed = None;
        Ok(())
    }

    /// Writes a file's data back, without durability.
    pub(super) fn write_back(&mut self) -> Result<()> {
        let Some(path) = self.any(S_IFREG) else { return Ok(()) };
        self.record_operation("write-back");
        self.fs.write_back_file(self.ino(&path)?)
    }

    pub(super) fn truncate(&mut self, step: usize) -> Result<()> {
        let Some(path) = self.any(S_IFREG) else { return Ok(()) };
        self.record_operation("truncate");
        let size = self.tree[&path].file.size as u64;
        let new = match self.rng.below(4) {
            0 => 0,
            1 => size * 5 / 4,
            _ => self.rng.below(size + 1),
        };
        let new = new.min(FILE_MAX as u64) as usize;
        self.fs.truncate(self.ino(&path)?, new as u64)?;
        self.change(&path, step, |file| file.resize(new));
        Ok(())
    }

    /// A random range that begins in the file, of whole blocks if requested.
    fn range(&mut self, size: usize, whole: bool) -> (usize, usize) {
        let block = self.history.block;
        let from = self.rng.below(size as u64 + 1) as usize;
        let most = if self.rng.once_in(2) { 3 * block } else { 30_000 };
        let to = from + 1 + self.rng.below(most as u64) as usize;
        if !whole {
            return (from, to);
        }
        let from = from / block * block;
        (from, to.next_multiple_of(block).max(from + block))
    }

    pub(super) fn fallocate(&mut self, step: usize) -> Result<()> {
        let Some(path) = self.any(S_IFREG) else { return Ok(()) };
        let kind = self.rng.below(7);
        let size = self.tree[&path].file.size;
        let (from, to) = self.range(size, kind == 4 || kind == 5);
        let keep_size = self.rng.once_in(2);
        let (name, mode) = match kind {
            0 if keep_size => ("fallocate-keep-size", Fallocate::Allocate { keep_size }),
            0 => ("fallocate", Fallocate::Allocate { keep_size }),
            1 | 2 => ("punch", Fallocate::PunchHole),
            3 => ("zero", Fallocate::ZeroRange { keep_size }),
            4 => ("collapse", Fallocate::CollapseRange),
            5 => ("insert", Fallocate::InsertRange),
            _ => ("unshare", Fallocate::Unshare { keep_size }),
        };
        if to > FILE_MAX || (kind == 5 && size + (to - from) > FILE_MAX) {
            return Ok(());
        }
        self.record_operation(name);
        let ino = self.ino(&path)?;
        self.fs.fallocate(ino, mode, from as u64, (to - from) as u64)?;
        self.change(&path, step, |file| {
            match mode {
                Fallocate::PunchHole | Fallocate::ZeroRange { .. } => file.punch(from, to),
                Fallocate::CollapseRange => file.collapse(from, to),
                Fallocate::InsertRange => file.insert(from, to),
                Fallocate::Unshare { .. } => file.unshare(from, to),
                Fallocate::Allocate { .. } => {}
            }
            let grows = matches!(
                mode,
                Fallocate::Allocate { keep_size: false }
                    | Fallocate::ZeroRange { keep_size: false }
                    | Fallocate::Unshare { keep_size: false }
            );
            if grows && to > file.file.size {
                file.resize(to);
            }
        });
        Ok(())
    }

    pub(super) fn share(&mut self, step: usize) -> Result<()> {
        if !self.fs.geo.has_reflink() {
            return Ok(());
        }
        let (Some(from), Some(to)) = (self.any(S_IFREG), self.any(S_IFREG)) else { return Ok(()) };
        let source = File::clone(&self.tree[&from].file);
        let block = self.history.block;
        let blocks = source.size / block;
        let clone = blocks == 0 || self.rng.once_in(2);
        let (from_at, len, to_at) = if clone {
            (0, source.size, 0)
        } else {
            let first = self.rng.below(blocks as u64) as usize;
            let count = 1 + self.rng.below((blocks - first) as u64) as usize;
            (first * block, count * block, self.rng.below(10) as usize * block)
        };
        if len == 0 || to_at + len > FILE_MAX {
            return Ok(());
        }
        self.record_operation(if clone { "clone" } else { "share" });
        let (one, other) = (self.ino(&from)?, self.ino(&to)?);
        self.fs.share(one, from_at as u64, other, to_at as u64, len as u64)?;
        self.change(&to, step, |file| file.share(&source, from_at, len, to_at));
        Ok(())
    }

    /// Moves a file to fewer extents. Its content stays.
    pub(super) fn defrag(&mut self, step: usize) -> Result<()> {
        let Some(path) = self.any(S_IFREG) else { return Ok(()) };
        let shared = self.rng.once_in(3);
        self.record_operation(if shared { "defrag-shared" } else { "defrag" });
        self.fs.defrag(self.ino(&path)?, DefragOptions { shared })?;
        if shared {
            // Some of its blocks may still be shared: writes to these show later than is allowed for.
            let size = self.tree[&path].file.size;
            self.change(&path, step, |file| file.unshare(0, size));
        }
        Ok(())
    }
}
