//! A damaged primary superblock: the check uses a secondary one for the rest of the volume. Version
//! 4 is refused.

use uxfs_check::{CheckError, code};
use uxfs_disk::{BlockDev, OpenMode};

use crate::volume::{Volume, device, examine, fill};

/// Overwrites bytes of the primary superblock without updating the checksum.
fn hurt(volume: &Volume, at: u64, bytes: &[u8]) {
    device(&volume.path, OpenMode::Write).write_at(at, bytes).unwrap();
}

#[test]
fn the_rest_is_checked_with_a_secondary_superblock() {
    for line in ["", "-b size=1024 -m rmapbt=1", "-d agcount=3 -s size=4096"] {
        let volume = Volume::small(64, line);
        let fs = volume.open();
        fill(&fs);
        fs.close().unwrap();
        let sound = examine(&volume.path).unwrap();
        assert!(sound.is_clean(), "{line}: {sound}");
        // The whole sector; the geometry; the version.
        for (at, bytes) in [(0, &[0; 512][..]), (84, &[0, 0, 0x77, 0x77]), (100, &[0xb4, 0xa9])] {
            hurt(&volume, at, bytes);
            let report = examine(&volume.path).unwrap();
            assert_eq!(report.exit_code(), 4, "{line}: {report}");
            let codes: Vec<_> = report.findings.iter().map(|f| f.code).collect();
            assert_eq!(codes, [code::SB.name], "{line}: {report}");
            assert!(report.findings[0].message.contains("the copy in AG 1"), "{report}");
            assert!(!report.incomplete, "{line}: {report}");
            assert_eq!(report.totals.inodes, sound.totals.inodes, "{line}");
        }
        // Without any superblock, the check fails.
        let dev = device(&volume.path, OpenMode::Write);
        for at in (0..dev.len()).step_by(512) {
            let mut magic = [0; 4];
            dev.read_at(at, &mut magic).unwrap();
            if &magic == b"XFSB" {
                dev.write_at(at, &[0; 4]).unwrap();
            }
        }
        drop(dev);
        assert!(matches!(examine(&volume.path), Err(CheckError::NotXfs(0))), "{line}");
    }
}

#[test]
fn damage_elsewhere_is_still_found() {
    let volume = Volume::small(64, "");
    hurt(&volume, 0, &[0; 512]);
    // The high byte of the AGF's count of free blocks.
    hurt(&volume, 512 + 52, &[0xff]);
    let report = examine(&volume.path).unwrap();
    assert!(report.has(code::SB) && report.has(code::AGF), "{report}");
}

#[test]
fn version_4_is_refused_by_name() {
    let volume = Volume::empty();
    uxfs_oracle::mkfs(&volume.path, 300 << 20, &["-m", "crc=0"]);
    let refused = examine(&volume.path).unwrap_err();
    assert_eq!(refused.exit_code(), 8);
    assert!(refused.to_string().contains("XFS version 4 (v4"), "{refused}");
    // Also if only a secondary superblock holds the version.
    hurt(&volume, 0, &[0; 512]);
    assert!(examine(&volume.path).unwrap_err().to_string().contains("v4"));
}

#[test]
fn unknown_features_are_refused_by_name() {
    let volume = Volume::small(64, "");
    let dev = device(&volume.path, OpenMode::Write);
    let mut sound = vec![0; 512];
    dev.read_at(0, &mut sound).unwrap();
    for (word, bit, name) in [
        (216, 0x100u32, "metadir"),
        (216, 0x300, "metadir, zoned"),
        (216, 0x800, "0x800"),
        (212, 0x10, "0x10"),
    ] {
        let mut sector = sound.clone();
        for (byte, more) in sector[word..word + 4].iter_mut().zip(bit.to_be_bytes()) {
            *byte |= more;
        }
        uxfs_format::crc::stamp(&mut sector, 224);
        dev.write_at(0, &sector).unwrap();
        let refused = uxfs_check::check(&dev, &uxfs_check::CheckOptions::default(), &|_| {});
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(name), "{name}: {refused}");
    }
}
