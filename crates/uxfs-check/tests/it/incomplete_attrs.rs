//! Attributes that a kernel's crash left incomplete: marked as incomplete, with or without blocks,
//! perhaps beside another attribute of the same name. Readers ignore them and the next change
//! removes them, so the check reports a warning.

use std::os::unix::fs::FileExt;

use uxfs::{NewInode, XattrMode};
use uxfs_check::{Severity, Verdict, code};
use uxfs_disk::{BlockDev, OpenMode};
use uxfs_format::attr::{AttrFlags, leaf};
use uxfs_format::crc;
use uxfs_format::verify::BufKind;

use crate::structures::{Kind, find};
use crate::volume::{Volume, device, examine};

/// Offset of the flags in an entry.
const FLAGS: usize = 6;

/// Changes the leaf block of the only file with attributes and marks the entry of `name`
/// incomplete. `change` gets the block and the index of the entry.
fn set_incomplete_flag(volume: &Volume, name: &[u8], change: impl Fn(&mut [u8], usize)) {
    let dev = device(&volume.path, OpenMode::Read);
    let leaves = find(&dev).into_iter().filter(|s| s.kind == Kind::Buffer(BufKind::AttrLeaf));
    let leaves: Vec<_> = leaves.collect();
    assert_eq!(leaves.len(), 1, "{leaves:?}");
    let mut block = vec![0; leaves[0].len];
    dev.read_at(leaves[0].at, &mut block).unwrap();
    drop(dev);
    let index = leaf::records(&block).position(|record| record.name == name).unwrap();
    block[leaf::entry_range(index).start + FLAGS] |= AttrFlags::INCOMPLETE.bits();
    change(&mut block, index);
    crc::stamp(&mut block, leaves[0].crc().unwrap());
    let file = std::fs::OpenOptions::new().write(true).open(&volume.path).unwrap();
    file.write_all_at(&block, leaves[0].at).unwrap();
}

fn volume() -> Volume {
    let volume = Volume::small(64, "");
    let fs = volume.open();
    let file = fs.create(fs.root(), b"file", &NewInode::file(0o644)).unwrap();
    let set = |name: &[u8], value: &[u8]| fs.set_xattr(file, name, value, XattrMode::Any).unwrap();
    set(b"user.large", &[1; 20_000]);
    set(b"user.small", &[2; 40]);
    set(b"user.other", &[3; 9_000]);
    fs.close().unwrap();
    volume.clean("before");
    volume
}

#[track_caller]
fn only_a_warning(volume: &Volume) {
    let report = examine(&volume.path).unwrap();
    assert!(report.has(code::ATTR_INCOMPLETE), "{report}");
    assert_eq!(report.count(Severity::Warning), report.findings.len(), "{report}");
    assert_eq!((report.verdict(), report.exit_code()), (Verdict::Clean, 0), "{report}");
    let words = report.to_string();
    assert!(words.contains("sound, 1 warning: ") && !words.contains("damaged"), "{words}");
    // The engine ignores the attribute, and the next change removes it.
    let fs = volume.open();
    let file = fs.lookup(fs.root(), b"file").unwrap();
    assert_eq!(fs.list_xattrs(file).unwrap().len(), 2);
    fs.close().unwrap();
}

#[test]
fn an_attribute_with_an_unwritten_value_is_a_warning() {
    let volume = volume();
    set_incomplete_flag(&volume, b"large", |_, _| {});
    let dev = device(&volume.path, OpenMode::Read);
    let values = find(&dev).into_iter().filter(|s| s.kind == Kind::Buffer(BufKind::AttrRemote));
    let values: Vec<u64> = values.map(|s| s.at).collect();
    let first = |at: &&u64| {
        let mut byte = [0];
        dev.read_at(**at + 100, &mut byte).unwrap();
        byte == [1]
    };
    let old: Vec<u64> = values.iter().filter(first).copied().collect();
    drop(dev);
    assert_eq!(old.len(), 5, "{values:?}");
    let file = std::fs::OpenOptions::new().write(true).open(&volume.path).unwrap();
    old.iter().for_each(|at| file.write_all_at(&[0x5a; 4096], *at).unwrap());
    only_a_warning(&volume);
}

#[test]
fn an_attribute_with_unreferenced_blocks_is_a_warning() {
    let volume = volume();
    set_incomplete_flag(&volume, b"large", |block, index| {
        let at = leaf::Entry::decode(block, index).at;
        block[at..at + 8].fill(0);
    });
    only_a_warning(&volume);
}

#[test]
fn an_attribute_during_a_replacement_is_a_warning() {
    let volume = volume();
    set_incomplete_flag(&volume, b"other", |block, index| {
        let large = leaf::records(block).position(|record| record.name == b"large").unwrap();
        let name = leaf::Entry::decode(block, index).at + 9;
        block[name..name + 5].copy_from_slice(b"large");
        // Entries are in hash order: the duplicate comes directly behind.
        let mut entries: Vec<Vec<u8>> =
            (0..3).map(|at| block[leaf::entry_range(at)].to_vec()).collect();
        let hash = entries[large][..4].to_vec();
        entries[index][..4].copy_from_slice(&hash);
        entries.sort_by(|a, b| a[..4].cmp(&b[..4]));
        for (at, entry) in entries.iter().enumerate() {
            block[leaf::entry_range(at)].copy_from_slice(entry);
        }
    });
    only_a_warning(&volume);
}

/// Without an incomplete attribute, blocks that no entry names are damage.
#[test]
fn unreferenced_blocks_without_an_incomplete_attribute_are_damage() {
    let volume = volume();
    set_incomplete_flag(&volume, b"large", |block, index| {
        block[leaf::entry_range(index).start + FLAGS] &= !AttrFlags::INCOMPLETE.bits();
        let at = leaf::Entry::decode(block, index).at;
        // The value is shorter than its blocks.
        block[at + 4..at + 8].copy_from_slice(&4000u32.to_be_bytes());
    });
    let report = examine(&volume.path).unwrap();
    assert_eq!(report.verdict(), Verdict::Damaged, "{report}");
}
