//! Archives: read, written again, imported.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::fs::{MemfdFlags, memfd_create};
use tempfile::TempDir;
use uxfs::import;
use uxfs_archive::{DataReader, Entry, Kind, Source, SparseMap, TarWriter, open as open_archive};

use crate::base::{fresh, open};
use crate::exercise::examine;
use uxfs_disk::Overlay;

/// Most bytes read of one archive, because compressed data can be long.
const DATA_MAX: usize = 4 << 20;

/// A directory for this run's named files.
pub(crate) fn directory() -> &'static Path {
    static DIR: OnceLock<TempDir> = OnceLock::new();
    DIR.get_or_init(|| tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"))).path()
}

/// Calls `f` with a file in memory that holds the bytes.
pub(crate) fn held<R>(data: &[u8], f: impl FnOnce(&Path) -> R) -> R {
    static FILE: OnceLock<Mutex<File>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let fd = memfd_create("fuzz", MemfdFlags::CLOEXEC).unwrap_or_else(|e| panic!("{e}"));
        Mutex::new(File::from(fd))
    });
    let mut file = file.lock().unwrap_or_else(|e| panic!("{e}"));
    let written = file
        .set_len(0)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .and_then(|_| file.write_all(data));
    written.unwrap_or_else(|e| panic!("{e}"));
    f(&PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
}

/// Opens the bytes as an archive, as a file.
fn source(data: &[u8]) -> Option<Box<dyn Source>> {
    held(data, |path| open_archive(path).ok())
}

/// Reads all of an archive, and writes it again.
fn read(data: &[u8]) {
    if let Some(source) = source(data) {
        walk(source);
    }
}

/// Reads all of a source, and writes it as a tar; that has as many entries, without a word.
pub(crate) fn walk(mut source: Box<dyn Source>) {
    let (mut writer, mut entries, mut left) = (TarWriter::new(Vec::new()), Vec::new(), DATA_MAX);
    let mut whole = false;
    loop {
        match source.next() {
            Ok(Some(entry)) => {
                let len = match &entry.kind {
                    Kind::File { map, .. } => map.data_len(),
                    _ => 0,
                };
                left = match usize::try_from(len).ok().and_then(|len| left.checked_sub(len)) {
                    Some(left) => left,
                    None => break,
                };
                if writer.entry(&entry, &mut DataReader(source.as_mut())).is_err() {
                    break;
                }
                entries.push(entry);
            }
            Ok(None) => {
                whole = true;
                break;
            }
            Err(_) => break,
        }
    }
    let _ = (source.warnings(), source.progress());
    drop(source);
    if let (true, Ok(tar)) = (whole && !entries.is_empty(), writer.finish()) {
        again(&tar, &entries);
    }
}

fn again(tar: &[u8], entries: &[Entry]) {
    let Some(mut source) = source(tar) else { panic!("what was written is no archive") };
    for entry in entries {
        let back = source.next().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(back.map(in_blocks), Some(in_blocks(entry.clone())));
    }
    assert!(source.next().is_ok_and(|entry| entry.is_none()));
}

/// The entry with its data in whole blocks of 512 bytes, as sparse files are written, and without the space
/// that a tar cannot set aside.
fn in_blocks(mut entry: Entry) -> Entry {
    entry.meta.reserve = 0;
    if let Kind::File { size, map } = &mut entry.kind {
        let mut whole: Vec<(u64, u64)> = Vec::new();
        for (start, len) in map.segments() {
            let (start, end) = (start / 512 * 512, (start + len).next_multiple_of(512).min(*size));
            match whole.last_mut() {
                Some((first, len)) if start <= *first + *len => *len = end - *first,
                _ => whole.push((start, end - start)),
            }
        }
        let blocks = SparseMap::from_segments(*size, whole);
        *map = blocks.unwrap_or_else(|e| panic!("{e}"));
    }
    entry
}

/// A tar.
pub fn tar(data: &[u8]) {
    // Compressed archives have another target.
    if data.first().is_none_or(|byte| !matches!(byte, 0x1f | 0xfd | 0x28 | 0x50..=0x5f)) {
        read(data);
    }
}

/// A tar that is compressed.
pub fn compressed(data: &[u8]) {
    if data.first().is_some_and(|byte| matches!(byte, 0x1f | 0xfd | 0x28 | 0x50..=0x5f)) {
        read(data);
    }
}

/// A dump of xfsdump. The sum of its first header is made right; headers need no sums.
pub fn xfsdump(data: &[u8]) {
    // A global header; 0xf44 has the bits of the sums.
    const GLOBAL: usize = 4096;
    const SUMS: u32 = 1 << 8 | 1 << 9 | 1 << 10 | 1 << 13;
    if data.len() < GLOBAL {
        return;
    }
    let mut bytes = data.to_vec();
    bytes[..8].copy_from_slice(b"xFSdump0");
    let word = |bytes: &[u8], at: usize| u32::from_be_bytes(std::array::from_fn(|n| bytes[at + n]));
    let has = word(&bytes, 0xf44) & !SUMS;
    bytes[0xf44..0xf48].copy_from_slice(&has.to_be_bytes());
    bytes[12..16].fill(0);
    let sum = (0..GLOBAL).step_by(4).fold(0, |sum: u32, at| sum.wrapping_sub(word(&bytes, at)));
    bytes[12..16].copy_from_slice(&sum.to_be_bytes());
    let Some(mut source) = source(&bytes) else { return };
    let mut left = DATA_MAX;
    while let Ok(Some(_)) = source.next() {
        while let Ok(count @ 1..) = source.chunk().map(<[u8]>::len) {
            source.consume(count);
            left = left.saturating_sub(count);
            if left == 0 {
                return;
            }
        }
    }
}

/// A tar into a volume, which is sound afterwards.
pub fn import(data: &[u8]) {
    if let Some(source) = source(data) {
        let _ = fill(source, data.len());
    }
}

/// Imports a source into a new volume, one of several, and checks that.
pub(crate) fn fill(source: Box<dyn Source>, number: usize) -> Result<(), import::ImportError> {
    let bases = fresh();
    let base = &bases[number % bases.len()];
    let dev = Arc::new(Overlay::new(Arc::clone(&base.memory) as _, usize::MAX));
    let fs = open(dev.clone());
    import::fill(&fs, source, &mut |_| {})?;
    fs.close().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(examine(&*dev, 1), None);
    Ok(())
}
