//! The files of a volume, by path and content.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use twox_hash::XxHash64;
use uxfs::{Fs, OpenOptions};
use uxfs_disk::{BlockDev, MemDev};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

/// Type and hash of the content, by path.
pub(crate) type Files = BTreeMap<Vec<u8>, (u16, u64)>;

/// Bytes of a file that count.
const CONTENT: usize = 4 << 20;

/// All files of a volume. What cannot be read is left out.
pub(crate) fn list(dev: &MemDev) -> Files {
    let dev: Arc<dyn BlockDev> = Arc::new(dev.clone());
    let mut files = Files::new();
    let Ok(fs) = Fs::open(dev, OpenOptions::read_only()) else { return files };
    let mut left = vec![(fs.root(), Vec::new())];
    while let Some((dir, path)) = left.pop() {
        if path.len() > 4000 {
            continue;
        }
        for (name, ino) in entries(&fs, dir) {
            let path = [&path[..], b"/", &name].concat();
            let Ok(stat) = fs.stat(ino) else { continue };
            let kind = stat.mode & S_IFMT;
            if kind == S_IFDIR {
                left.push((ino, path.clone()));
            }
            if let Some(content) = content(&fs, ino, kind, stat.size) {
                files.insert(path, (kind, content));
            }
        }
    }
    files
}

fn entries(fs: &Fs, dir: Ino) -> Vec<(Vec<u8>, Ino)> {
    let mut found = Vec::new();
    let _ = fs.read_dir(dir, 0, &mut |entry| {
        if !entry.is_dot() {
            found.push((entry.name.to_vec(), entry.ino));
        }
        ControlFlow::Continue(())
    });
    found
}

fn content(fs: &Fs, ino: Ino, kind: u16, size: u64) -> Option<u64> {
    let bytes = match kind {
        S_IFREG => {
            let mut bytes = vec![0; CONTENT.min(usize::try_from(size).unwrap())];
            let read = fs.read_at(ino, 0, &mut bytes).ok()?;
            bytes.truncate(read);
            bytes.extend_from_slice(&size.to_be_bytes());
            bytes
        }
        S_IFLNK => fs.readlink(ino).ok()?,
        _ => Vec::new(),
    };
    Some(XxHash64::oneshot(0, &bytes))
}

/// How many files of `before` are in `after`, with path and content.
pub(crate) fn kept(before: &Files, after: &Files) -> usize {
    before.iter().filter(|(path, file)| after.get(*path) == Some(file)).count()
}
