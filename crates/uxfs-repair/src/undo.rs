//! The undo file: the bytes of every sector before a repair changed it.
//!
//! 1. A record is written, and is on stable storage, before its sector changes.
//! 2. A repair that was interrupted goes on with the same file: it appends behind the last whole record. The
//!    oldest record of a sector is what an undo gives back.
//! 3. An undo writes the primary superblock last. Until then it is marked as in need of repair, as during the
//!    repair.
//! 4. An undo checks first that every sector holds what a record says, before or after; a sector that was
//!    changed since is an error, and nothing is written.
//!
//! The file begins with a magic number, the volume's UUID and the length of the device. A record is an
//! offset, a length, the SHA-256 of the bytes before and after, and the bytes before; all numbers are
//! little-endian.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use rustc_hash::FxHashSet;
use sha2::{Digest, Sha256};
use uxfs_disk::BlockDev;
use uxfs_disk::fault::{Fault, planted};
use uxfs_format::Uuid;
use uxfs_format::features::Incompat;
use uxfs_format::superblock::Superblock;

use crate::error::{RepairError, Result};
use crate::plan::{Change, SECTOR};

/// The first bytes of an undo file.
const MAGIC: &[u8; 8] = b"UXFSUNDO";
const HASH: usize = 32;
/// Length of the header.
const HEADER: usize = 32;

type Hash = [u8; HASH];

/// One sector of an undo file.
struct Record {
    hashes: [Hash; 2],
    before: Vec<u8>,
}

/// An undo file as it was read.
#[derive(Default)]
pub(crate) struct Undo {
    uuid: Uuid,
    len: u64,
    /// Bytes up to the end of the last whole record; 0 if not even the header is whole.
    good: u64,
    /// All records of each sector, the oldest first.
    sectors: BTreeMap<u64, Vec<Record>>,
}

fn hash(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

fn failed(path: &Path) -> impl Fn(io::Error) -> RepairError + '_ {
    move |source| RepairError::File { path: path.display().to_string(), source }
}

/// Writes records for `changes` to the file at `path` behind its first `good` bytes, and drops what follows
/// these. The file is made if it is not there. The records are on stable storage afterwards.
pub(crate) fn append(
    path: &Path,
    good: u64,
    uuid: &Uuid,
    len: u64,
    changes: &[Change],
) -> Result<()> {
    let fresh = good == 0;
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).open(path).map_err(failed(path))?;
    file.set_len(good).map_err(failed(path))?;
    (&file).seek(SeekFrom::Start(good)).map_err(failed(path))?;
    let mut out = BufWriter::new(&file);
    let write = |out: &mut BufWriter<&File>| -> io::Result<()> {
        if fresh {
            out.write_all(MAGIC)?;
            out.write_all(&uuid.0)?;
            out.write_all(&len.to_le_bytes())?;
        }
        let last = changes.iter().map(|change| change.offset).max();
        let missing = last.filter(|_| planted(Fault::UndoMissesSector));
        for change in changes.iter().filter(|change| Some(change.offset) != missing) {
            out.write_all(&change.offset.to_le_bytes())?;
            out.write_all(&(change.before.len() as u32).to_le_bytes())?;
            out.write_all(&hash(&change.before))?;
            out.write_all(&hash(&change.after))?;
            out.write_all(&change.before)?;
        }
        out.flush()
    };
    write(&mut out).map_err(failed(path))?;
    drop(out);
    file.sync_all().map_err(failed(path))?;
    if let Some(parent) = path.parent().filter(|_| fresh) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        // Not every host opens directories; there the file's own sync has to do.
        if let Ok(dir) = File::open(parent) {
            dir.sync_all().map_err(failed(parent))?;
        }
    }
    Ok(())
}

impl Undo {
    /// Reads an undo file. A header or record that was cut off at the end counts as not written: its
    /// sector did not change.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(failed(path))?;
        let mut input = BufReader::new(file);
        let mut head = Vec::with_capacity(HEADER);
        input.by_ref().take(HEADER as u64).read_to_end(&mut head).map_err(failed(path))?;
        let magic = head.len().min(MAGIC.len());
        if head[..magic] != MAGIC[..magic] {
            let problem = format!("{}: not an undo file of uxfs repair", path.display());
            return Err(RepairError::Mismatch(problem));
        }
        if head.len() < HEADER {
            return Ok(Self::default());
        }
        let mut undo = Self { len: number(&head[24..]), good: HEADER as u64, ..Self::default() };
        undo.uuid.0.copy_from_slice(&head[8..24]);
        let mut fixed = [0; 12 + 2 * HASH];
        while fill(&mut input, &mut fixed).map_err(failed(path))? {
            let (offset, len) = (number(&fixed[..8]), number(&fixed[8..12]) as usize);
            let mut record = Record { hashes: [[0; HASH]; 2], before: vec![0; len.min(SECTOR)] };
            let whole = (fixed.len() + record.before.len()) as u64;
            for (hash, raw) in record.hashes.iter_mut().zip(fixed[12..].chunks_exact(HASH)) {
                hash.copy_from_slice(raw);
            }
            if !fill(&mut input, &mut record.before).map_err(failed(path))? {
                break;
            }
            if len > SECTOR || hash(&record.before) != record.hashes[0] {
                let problem = format!("{}: a record is damaged", path.display());
                return Err(RepairError::Mismatch(problem));
            }
            undo.good += whole;
            undo.sectors.entry(offset).or_default().push(record);
        }
        Ok(undo)
    }

    /// Bytes up to the end of the last whole record; 0 if no sector can have changed.
    pub(crate) const fn good(&self) -> u64 {
        self.good
    }

    /// Fails unless the device is the one of this file, and every sector holds what a record says.
    pub(crate) fn check(&self, dev: &dyn BlockDev, uuid: Option<Uuid>) -> Result<()> {
        if self.len != dev.len() || uuid.is_some_and(|uuid| uuid != self.uuid) {
            return Err(RepairError::Mismatch(format!(
                "the undo file is of volume {} on a device of {} bytes, not of this one",
                self.uuid, self.len
            )));
        }
        for (offset, records) in &self.sectors {
            let seen = hash(&sector(dev, *offset, records[0].before.len())?);
            let known: FxHashSet<&Hash> = records.iter().flat_map(|r| &r.hashes).collect();
            if !known.contains(&seen) {
                return Err(RepairError::Mismatch(format!(
                    "the volume was changed since its repair, at byte {offset}: the undo file does not fit it any more"
                )));
            }
        }
        Ok(())
    }

    /// Gives every byte back: the sector of the primary superblock last, which is marked as in need of
    /// repair meanwhile.
    pub(crate) fn apply(&self, dev: &dyn BlockDev) -> Result<u64> {
        let put = |offset: u64, bytes: &[u8]| {
            dev.write_at(offset, bytes).map_err(|source| RepairError::Stopped { offset, source })
        };
        let flush = || dev.flush().map_err(|source| RepairError::Stopped { offset: 0, source });
        if let Some(marked) = self.marked() {
            put(0, marked)?;
            flush()?;
        }
        let mut bytes = 0;
        for (offset, records) in self.sectors.iter().rev() {
            if *offset == 0 {
                flush()?;
            }
            let before = &records[0].before;
            put(*offset, before)?;
            bytes += before.len() as u64;
        }
        flush()?;
        Ok(bytes)
    }

    /// The superblock's sector with the mark that it had during the repair.
    fn marked(&self) -> Option<&[u8]> {
        let mut contents = self.sectors.get(&0)?.iter().map(|record| &record.before[..]);
        contents.find(|bytes| {
            Superblock::verify(bytes).is_ok_and(|sb| sb.incompat().contains(Incompat::NEEDSREPAIR))
        })
    }
}

fn sector(dev: &dyn BlockDev, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let failed = |source| RepairError::Io { what: "reading", offset, source };
    dev.read_at(offset, &mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// A little-endian number of up to eight bytes.
fn number(raw: &[u8]) -> u64 {
    raw.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Fills `bytes`; false if the input ends before.
fn fill(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
