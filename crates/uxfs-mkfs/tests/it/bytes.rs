//! Compares two images, in the ranges where either has data.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use uxfs_format::Geometry;
use uxfs_format::superblock::Superblock;

use crate::pair::{MIB, Pair};

/// Comparison step in bytes; blocks are never smaller, so every block starts a step.
const STEP: u64 = 1024;

/// Ranges of a sparse file that hold data.
fn data(file: &File, len: u64) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < len {
        let Ok(start) = seek(file, SeekFrom::Data(at)) else { break };
        at = seek(file, SeekFrom::Hole(start)).unwrap();
        ranges.push((start, at));
    }
    ranges
}

/// Differences between two volumes of the same options that are allowed.
struct Free {
    /// Byte offset of the root inode.
    root: u64,
    inode: u64,
    /// The reference was made by mkfs.xfs 7, which sets access times, generations and change counts
    /// differently from 6.1.
    newer: bool,
}

impl Free {
    fn new(image: &File, newer: bool) -> Self {
        let mut sector = vec![0; 32768];
        image.read_exact_at(&mut sector, 0).unwrap();
        let sb = Superblock::verify(&sector).unwrap();
        let geo = Geometry::new(sb);
        let block = geo.agino_block(geo.ino_agino(geo.root_ino));
        let root = geo.ag_daddr(geo.ino_ag(geo.root_ino), block).bytes();
        Self { root, inode: geo.inode_size.into(), newer }
    }

    /// Blanks the timestamps of the first three inodes with their checksums, and the bytes behind
    /// the records of the free-space btrees, where mkfs.xfs leaves removed records.
    fn blank(&self, at: u64, step: &mut [u8]) {
        for n in 0..3 {
            let inode = self.root + n * self.inode;
            if inode >= at && inode < at + step.len() as u64 {
                let core = (inode - at) as usize;
                for field in [40..56, 100..104, 144..152] {
                    step[core + field.start..core + field.end].fill(0);
                }
            }
        }
        for inode in (0..64).map(|n| self.root + n * self.inode).filter(|_| self.newer) {
            if inode >= at && inode < at + step.len() as u64 {
                let core = (inode - at) as usize;
                step[core + 32..core + 40].fill(0);
                step[core + 92..core + 96].fill(0);
                step[core + 100..core + 112].fill(0);
            }
        }
        if matches!(&step[..4], b"AB3B" | b"AB3C") {
            let records = usize::from(u16::from_be_bytes([step[6], step[7]]));
            step[52..56].fill(0);
            let end = (56 + 8 * (records + 8)).min(step.len());
            step[56 + 8 * records..end].fill(0);
        }
    }
}

/// The first difference that is not allowed.
pub(crate) fn difference(theirs: &Path, ours: &Path) -> Option<String> {
    first(theirs, ours, false)
}

/// The same for a volume that mkfs.xfs 7 made.
pub(crate) fn difference_to_newer(theirs: &Path, ours: &Path) -> Option<String> {
    first(theirs, ours, true)
}

fn first(theirs: &Path, ours: &Path, newer: bool) -> Option<String> {
    let (theirs, ours) = (File::open(theirs).unwrap(), File::open(ours).unwrap());
    let len = theirs.metadata().unwrap().len();
    assert_eq!(len, ours.metadata().unwrap().len());
    let free = Free::new(&theirs, newer);
    let mut ranges = data(&theirs, len);
    ranges.extend(data(&ours, len));
    ranges.sort_unstable();
    let mut done = 0;
    for (start, end) in ranges {
        let mut at = start.max(done) / STEP * STEP;
        while at < end {
            let step = STEP.min(len - at) as usize;
            let (mut a, mut b) = (vec![0; step], vec![0; step]);
            theirs.read_exact_at(&mut a, at).unwrap();
            ours.read_exact_at(&mut b, at).unwrap();
            if a != b {
                free.blank(at, &mut a);
                free.blank(at, &mut b);
            }
            if let Some(i) = (0..step).find(|i| a[*i] != b[*i]) {
                let (at, a, b) = (at + i as u64, a[i], b[i]);
                return Some(format!("byte {at:#x} is {b:#04x}, mkfs.xfs writes {a:#04x}"));
            }
            at += STEP;
        }
        done = done.max(end);
    }
    None
}

#[test]
fn one_changed_byte_is_found_by_both_checkers() {
    let pair = Pair::new(300 * MIB);
    pair.make("", false, false).unwrap();
    assert_eq!(difference(&pair.theirs, &pair.ours), None);
    pair.repair().unwrap();
    // In the header of AG 1, in its free-space btree, in the first free inode, in the log.
    let ag = 75 * MIB;
    for at in [ag + 52 + 512, ag + 4096 + 60, 16 * 4096 + 3 * 512 + 4, 2 * ag + 6 * 4096 + 16] {
        let file = File::options().read(true).write(true).open(&pair.ours).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        let found = difference(&pair.theirs, &pair.ours).unwrap();
        assert!(found.contains(&format!("{at:#x}")), "{found}");
        if at < 2 * ag {
            assert!(pair.repair().is_err(), "byte {at:#x}");
        }
        file.write_all_at(&byte, at).unwrap();
    }
    assert_eq!(difference(&pair.theirs, &pair.ours), None);
}
