//! Chunks of deltas that were read before: the last ones in memory, more of them in a directory.
//!
//! 1. The directory holds chunks as they are stored, sealed if they are sealed, under the hash that names
//!    their delta. A reader verifies them as if they came from the store.
//! 2. Both are bounded. A directory that cannot be written is not used.
//! 3. Several processes may share a directory: files appear whole.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use uxfs_delta::Hash;

/// Where chunks are kept.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The directory; `None` for memory only.
    pub dir: Option<PathBuf>,
    /// Most bytes in the directory.
    pub dir_bytes: u64,
    /// Most bytes in memory.
    pub memory_bytes: u64,
}

impl Default for CacheOptions {
    /// 64 MiB in memory.
    fn default() -> Self {
        Self { dir: None, dir_bytes: 1 << 30, memory_bytes: 64 << 20 }
    }
}

/// A chunk of a layer.
pub(crate) type Chunk = (usize, usize);

#[derive(Default)]
struct Memory {
    chunks: HashMap<Chunk, (u64, Arc<Vec<u8>>)>,
    by_use: BTreeMap<u64, Chunk>,
    uses: u64,
    bytes: u64,
}

pub(crate) struct Cache {
    options: CacheOptions,
    memory: Mutex<Memory>,
    /// Bytes in the directory.
    dir_bytes: AtomicU64,
}

impl Cache {
    pub(crate) fn new(options: CacheOptions) -> Self {
        let cache = Self { options, memory: Mutex::default(), dir_bytes: AtomicU64::new(0) };
        if let Some(dir) = &cache.options.dir
            && std::fs::create_dir_all(dir).is_ok()
        {
            let bytes = files(dir).unwrap_or_default().iter().map(|file| file.len).sum();
            cache.dir_bytes.store(bytes, Ordering::Relaxed);
        }
        cache
    }

    /// The content of a chunk, if it is in memory.
    pub(crate) fn get(&self, chunk: Chunk) -> Option<Arc<Vec<u8>>> {
        let mut memory = self.memory.lock();
        memory.uses += 1;
        let uses = memory.uses;
        let (used, content) = memory.chunks.get_mut(&chunk)?;
        let (before, content) = (std::mem::replace(used, uses), Arc::clone(content));
        memory.by_use.remove(&before);
        memory.by_use.insert(uses, chunk);
        Some(content)
    }

    /// Keeps the content of a chunk in memory.
    pub(crate) fn put(&self, chunk: Chunk, content: Arc<Vec<u8>>) {
        let mut memory = self.memory.lock();
        memory.uses += 1;
        let (uses, len) = (memory.uses, content.len() as u64);
        if let Some((used, old)) = memory.chunks.insert(chunk, (uses, content)) {
            memory.by_use.remove(&used);
            memory.bytes -= old.len() as u64;
        }
        memory.by_use.insert(uses, chunk);
        memory.bytes += len;
        while memory.bytes > self.options.memory_bytes
            && let Some((_, oldest)) = memory.by_use.pop_first()
        {
            let removed = memory.chunks.remove(&oldest).map_or(0, |(_, old)| old.len() as u64);
            memory.bytes -= removed;
        }
    }

    fn path(&self, delta: Hash, chunk: usize) -> Option<PathBuf> {
        let dir = self.options.dir.as_ref()?;
        Some(dir.join(format!("{delta}-{chunk}")))
    }

    /// The stored bytes of a chunk, if the directory has them.
    pub(crate) fn stored(&self, delta: Hash, chunk: usize) -> Option<Vec<u8>> {
        std::fs::read(self.path(delta, chunk)?).ok()
    }

    /// Does the directory have a chunk?
    pub(crate) fn has(&self, delta: Hash, chunk: usize) -> bool {
        self.path(delta, chunk).is_some_and(|path| path.exists())
    }

    /// Keeps the stored bytes of a chunk in the directory.
    pub(crate) fn store(&self, delta: Hash, chunk: usize, stored: &[u8]) {
        let Some(path) = self.path(delta, chunk) else { return };
        let new = path.with_extension(format!("new-{}", std::process::id()));
        let written = std::fs::write(&new, stored).and_then(|()| std::fs::rename(&new, &path));
        if written.is_err() {
            // Without the cache it is read from the store again.
            let _ = std::fs::remove_file(&new);
            return;
        }
        let len = stored.len() as u64;
        if self.dir_bytes.fetch_add(len, Ordering::AcqRel) + len > self.options.dir_bytes {
            // It is tried again with the next chunk.
            let _ = self.make_room();
        }
    }

    /// Forgets a chunk in the directory that is damaged.
    pub(crate) fn forget(&self, delta: Hash, chunk: usize) {
        if let Some(path) = self.path(delta, chunk) {
            // If it stays, it is found damaged again.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Removes the oldest files until three quarters of the room are used.
    fn make_room(&self) -> io::Result<()> {
        let Some(dir) = &self.options.dir else { return Ok(()) };
        let mut files = files(dir)?;
        files.sort_by_key(|file| file.modified);
        let mut bytes: u64 = files.iter().map(|file| file.len).sum();
        for file in files {
            if bytes <= self.options.dir_bytes / 4 * 3 {
                break;
            }
            // Another process may have removed it.
            let _ = std::fs::remove_file(&file.path);
            bytes -= file.len;
        }
        self.dir_bytes.store(bytes, Ordering::Release);
        Ok(())
    }
}

struct CacheFile {
    path: PathBuf,
    len: u64,
    modified: SystemTime,
}

fn files(dir: &Path) -> io::Result<Vec<CacheFile>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // A file that another process removed meanwhile is not counted.
        if let Ok(meta) = entry.metadata()
            && meta.is_file()
        {
            let modified = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            files.push(CacheFile { path: entry.path(), len: meta.len(), modified });
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_directory_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let options =
            CacheOptions { dir: Some(dir.path().to_owned()), dir_bytes: 1000, memory_bytes: 250 };
        let cache = Cache::new(options.clone());
        for number in 0..50 {
            cache.put((0, number), Arc::new(vec![1; 100]));
            assert!(cache.get((0, 0)).is_some(), "what is used is kept");
            cache.store(Hash::default(), number, &[1; 100]);
        }
        assert!(cache.get((0, 48)).is_none() && cache.get((0, 49)).is_some());
        let bytes: u64 = files(dir.path()).unwrap().iter().map(|file| file.len).sum();
        assert!(bytes <= 1000 && cache.stored(Hash::default(), 49).is_some());
        assert_eq!(Cache::new(options).dir_bytes.into_inner(), bytes);
        cache.forget(Hash::default(), 49);
        assert!(cache.stored(Hash::default(), 49).is_none());
    }
}
