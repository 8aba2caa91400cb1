//! Damage that `xfs_repair -n` does not report, and the format of reports.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use uxfs::{Fs, NewInode};
use uxfs_check::{Code, Report, Severity, Verdict, code};
use uxfs_disk::{BlockDev, OpenMode};
use uxfs_format::{attr, crc, inode};
use uxfs_oracle::{db_value, db_write, repair};

use crate::bases::accounted;
use crate::structures::{Kind, Structure, find};
use crate::volume::{MIB, Volume, device, examine, fill};

fn found(volume: &Volume, wanted: Code) -> Report {
    let report = examine(&volume.path).unwrap();
    assert!(report.has(wanted), "no {}: {report}", wanted.name);
    assert_eq!(report.exit_code(), 4);
    report
}

/// All counts agree, but a block is neither used nor free.
#[test]
fn a_leaked_block_is_reported() {
    let volume = Volume::empty();
    uxfs_oracle::mkfs(&volume.path, 512 * MIB, &[]);
    let number = |commands: &[&str], field: &str| -> u64 {
        db_value(&volume.path, commands, field).parse().unwrap()
    };
    let free = number(&["agf 1"], "freeblks");
    let longest = number(&["agf 1"], "longest");
    let total = number(&["sb 0"], "fdblocks");
    for root in ["bnoroot", "cntroot"] {
        let at = ["agf 1", &format!("addr {root}")];
        let last = number(&at, "numrecs");
        let write = format!("write recs[{last}].blockcount {}", longest - 1);
        db_write(&volume.path, &[at[0], at[1], &write]);
    }
    db_write(&volume.path, &["agf 1", &format!("write longest {}", longest - 1)]);
    db_write(&volume.path, &["agf 1", &format!("write freeblks {}", free - 1)]);
    db_write(&volume.path, &["sb 0", &format!("write fdblocks {}", total - 1)]);
    repair(&volume.path).unwrap_or_else(|f| panic!("xfs_repair now reports it: {f}"));
    let report = found(&volume, code::BLOCK_LEAK);
    assert_eq!(report.findings.len(), 1, "{report}");
}

#[test]
fn a_block_twice_in_the_free_list_is_reported() {
    let volume = Volume::small(64, "-m rmapbt=0");
    let block = db_value(&volume.path, &["agfl 1"], "bno[1]");
    db_write(&volume.path, &["agfl 1", &format!("write bno[2] {block}")]);
    repair(&volume.path).unwrap_or_else(|f| panic!("xfs_repair now reports it: {f}"));
    let report = found(&volume, code::AGFL_DOUBLE);
    assert!(report.has(code::BLOCK_LEAK), "{report}");
}

fn fill_with_parents(line: &str) -> Volume {
    let volume = Volume::small(96, line);
    let fs: Fs = volume.open();
    fill(&fs);
    fs.close().unwrap();
    volume
}

/// Changes one byte of one inode; `pick` returns the offset in the inode.
fn change(volume: &Volume, pick: &dyn Fn(&[u8]) -> Option<usize>) {
    let dev = device(&volume.path, OpenMode::Read);
    let inodes = find(&dev).into_iter().filter(|s| s.kind == Kind::Inode);
    let mut chosen: Option<(Structure, Vec<u8>, usize)> = None;
    for structure in inodes {
        let mut raw = vec![0; structure.len];
        dev.read_at(structure.at, &mut raw).unwrap();
        if let Some(at) = pick(&raw) {
            chosen = Some((structure, raw, at));
        }
    }
    drop(dev);
    let (structure, mut raw, at) = chosen.unwrap();
    raw[at] ^= 1;
    crc::stamp(&mut raw, inode::CRC_OFFSET);
    let file = OpenOptions::new().write(true).open(&volume.path).unwrap();
    file.write_all_at(&raw, structure.at).unwrap();
}

/// Offset in the inode of the value of a short-form parent pointer of a file in use.
fn parent_value(raw: &[u8]) -> Option<usize> {
    let fork = 176 + 8 * usize::from(raw[82]);
    if raw[2] >> 4 != 8 || raw[83] != 1 || raw[82] == 0 {
        return None;
    }
    let bytes = &raw[fork..];
    let entry = attr::sf::entries(bytes).find(|e| e.flags.contains(attr::AttrFlags::PARENT))?;
    Some(fork + entry.at + 3 + entry.name.len())
}

/// Parent pointers: correct ones, and ones with a wrong name, generation or directory.
#[test]
fn wrong_parent_pointers_are_reported() {
    for line in ["-n parent=1", "-n parent=1 -b size=1024 -m rmapbt=1 -i nrext64=1,exchange=1"] {
        fill_with_parents(line).clean(line);
    }
    for (offset, what) in [(-1, "name"), (7, "directory"), (11, "generation")] {
        let volume = fill_with_parents("-n parent=1");
        change(&volume, &|raw| parent_value(raw)?.checked_add_signed(offset));
        let report = examine(&volume.path).unwrap();
        assert!(report.has(code::PARENT), "another {what}: {report}");
        assert_eq!(report.count(Severity::Error), 1, "{report}");
    }
}

/// A finding has a path, and the report has a text and a JSON form.
#[test]
fn a_finding_has_its_path() {
    let volume = Volume::small(64, "");
    let fs = volume.open();
    let dir = fs.create(fs.root(), b"some", &NewInode::dir(0o755)).unwrap();
    let ino = fs.create(dir, b"where", &NewInode::file(0o644)).unwrap();
    fs.close().unwrap();
    let own = ino.0.to_be_bytes();
    change(&volume, &|raw| (raw[152..160] == own).then_some(19));
    let report = found(&volume, code::INODE_UNLINKED);
    let finding = &report.findings[0];
    assert_eq!(finding.place.path.as_deref(), Some(&b"/some/where"[..]), "{report}");
    assert!(finding.to_string().contains("(/some/where)"), "{finding}");
    let json = report.to_json();
    assert_eq!(json["clean"], false);
    assert_eq!(json["findings"][0]["place"]["path"], "/some/where");
    assert_eq!(json["findings"][0]["place"]["inode"], ino.0);
}

/// Found by damaging every field: a free inode with an old link count, and the summary of a
/// realtime device that does not exist.
#[test]
fn fields_without_readers_are_checked() {
    let volume = Volume::small(64, "");
    let summary = volume.open().root().0 + 2;
    change(&volume, &|raw| (raw[152..160] == summary.to_be_bytes()).then_some(63));
    found(&volume, code::INODE_FIELD);
    let volume = Volume::small(64, "");
    change(&volume, &|raw| {
        (raw[2..4] == [0, 0] && raw[152..160] > summary.to_be_bytes()[..]).then_some(7)
    });
    found(&volume, code::INODE_FREE);
}

/// Changes bytes of the first structure that `fits`, and updates its checksum.
fn change_one(volume: &Volume, fits: &dyn Fn(&Structure, &[u8]) -> bool, put: (usize, &[u8])) {
    let dev = device(&volume.path, OpenMode::Write);
    let read = |structure: &Structure| {
        let mut raw = vec![0; structure.len];
        dev.read_at(structure.at, &mut raw).unwrap();
        raw
    };
    let structure = find(&dev).into_iter().find(|s| fits(s, &read(s))).unwrap();
    let mut raw = read(&structure);
    raw[put.0..put.0 + put.1.len()].copy_from_slice(put.1);
    crc::stamp(&mut raw, structure.crc().unwrap());
    dev.write_at(structure.at, &raw).unwrap();
}

/// The kernel's quota records pass; one with wrong usage is reported.
#[test]
fn quota_records_with_wrong_usage_are_reported() {
    let volume = accounted("");
    volume.clean("accounted by the kernel");
    let of_a_user = |s: &Structure, raw: &[u8]| {
        s.kind == Kind::Quota && raw[3] & 7 == 1 && raw[4..8] == 1003u32.to_be_bytes()
    };
    change_one(&volume, &of_a_user, (55, &[9]));
    let report = found(&volume, code::QUOTA_USAGE);
    assert!(report.to_string().contains("user 1003"), "{report}");
    // A file gets another owner, which has a quota record.
    let volume = accounted("");
    let of_a_file = |_: &Structure, raw: &[u8]| {
        raw[..4] == [b'I', b'N', 0x81, 0xa4] && raw[8..12] == 1003u32.to_be_bytes()
    };
    change_one(&volume, &of_a_file, (8, &1004u32.to_be_bytes()));
    found(&volume, code::QUOTA_USAGE);
}

/// What is not compared is named, and no damage.
#[test]
fn quota_records_that_are_not_compared_are_noted() {
    let volume = accounted("");
    let primary = |s: &Structure, raw: &[u8]| raw[..4] == *b"XFSB" && s.at == 0;
    let named = |report: &Report| {
        let notes = report.findings.iter().filter(|f| f.code == code::QUOTA_SKIPPED.name);
        notes.map(|note| note.message.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(named(&examine(&volume.path).unwrap()).is_empty());
    // Only group quotas stay on.
    change_one(&volume, &primary, (176, &0x1c0u16.to_be_bytes()));
    let report = examine(&volume.path).unwrap();
    assert_eq!(named(&report), ["project", "user"], "{report}");
    assert!(report.is_clean(), "{report}");
}

/// xfs_repair warns that quotas would be disabled; the volume is sound.
#[test]
fn quotas_without_a_quota_inode_are_a_warning() {
    let volume = Volume::small(64, "");
    let primary = |s: &Structure, raw: &[u8]| raw[..4] == *b"XFSB" && s.at == 0;
    change_one(&volume, &primary, (101, &[0xf5]));
    let report = examine(&volume.path).unwrap();
    assert!(report.has(code::QUOTA_NONE), "{report}");
    assert_eq!((report.verdict(), report.exit_code()), (Verdict::Clean, 0), "{report}");
}

/// Secondary superblocks with another root directory, or an invalid `inprogress`.
#[test]
fn copies_that_differ_in_fields_unknown_to_repair_are_reported() {
    for put in [(56, &77u64.to_be_bytes()[..]), (126, &[9])] {
        let volume = Volume::small(64, "");
        let copy = |s: &Structure, raw: &[u8]| raw[..4] == *b"XFSB" && s.at > 0;
        change_one(&volume, &copy, put);
        repair(&volume.path).unwrap_or_else(|f| panic!("xfs_repair now reports it: {f}"));
        found(&volume, code::SB_COPY);
    }
}

/// A dirty log is reported as such.
#[test]
fn a_dirty_log_is_reported() {
    let volume = Volume::small(64, "");
    let dev = device(&volume.path, OpenMode::Read);
    let record = find(&dev).into_iter().find(|s| s.kind == Kind::LogRecord).unwrap();
    drop(dev);
    let file = OpenOptions::new().write(true).open(&volume.path).unwrap();
    file.write_all_at(&7u32.to_be_bytes(), record.at + 40).unwrap();
    let report = examine(&volume.path).unwrap();
    assert!(report.has(code::LOG_DIRTY), "{report}");
    assert_eq!(report.count(Severity::Warning), report.findings.len(), "{report}");
    // The only problem is that the log was not replayed.
    assert_eq!((report.verdict(), report.exit_code()), (Verdict::LogNotReplayed, 2), "{report}");
}
