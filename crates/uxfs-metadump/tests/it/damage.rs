//! Damaged volumes: what a dump is for. It ends, shows no names, and the damage is still there.

use uxfs_disk::{BlockDev, MemDev, OpenMode};
use uxfs_metadump::{Copier, DumpError, DumpOptions, Names, Target, Version, dump};
use uxfs_oracle::Rng;
use uxfs_oracle::Xfsprogs::Current;
use uxfs_testkit::{FaultDev, Op, Rule};

use crate::fixture::{beside, dumped, filled, holds, restored};
use crate::volume::{FEATURES, device, setting};

/// Bytes changed here and there, and blocks that change places.
fn damage(dev: &MemDev, rng: &mut Rng) {
    let mut block = vec![0; 1024];
    let mut places = Vec::new();
    while places.len() < 40 {
        let at = rng.below(dev.len() / 1024) * 1024;
        dev.read_at(at, &mut block).unwrap();
        if at > 0 && block.iter().any(|byte| *byte != 0) {
            places.push(at);
        }
    }
    for at in &places {
        dev.read_at(*at, &mut block).unwrap();
        for _ in 0..4 {
            let byte = rng.index(block.len());
            block[byte] = rng.bits() as u8;
        }
        let to = if rng.once_in(8) { places[rng.index(places.len())] } else { *at };
        dev.write_at(to, &block).unwrap();
    }
}

#[test]
fn damaged_volumes_are_dumped() {
    let seed = setting("UXFS_SEED", 1);
    let mut rng = Rng::new(seed);
    for line in FEATURES {
        let volume = filled(line);
        let mut warned = 0;
        for round in 0..setting("UXFS_ROUNDS", 6) {
            let dev = volume.load();
            for _ in 0..=round {
                damage(&dev, &mut rng);
            }
            for names in [None, Some(Names::new(b"key"))] {
                let options =
                    DumpOptions { version: Version::Two, names, ..DumpOptions::default() };
                let mut out = Vec::new();
                let done = dump(&dev, &options, &mut out, &mut |_| {});
                let summary = done.unwrap_or_else(|e| panic!("seed {seed}, round {round}: {e}"));
                // Each sector is in it at most once.
                assert!(summary.bytes <= dev.len(), "seed {seed}, round {round}");
                warned += summary.warnings;
            }
        }
        assert!(warned > 0, "{line}: no damage was met");
    }
}

/// xfs_repair sees in the restored volume what it sees in the volume.
#[test]
fn damage_is_still_there() {
    let volume = filled("");
    for (line, damage) in [
        ("a counter", &["agf 1", "write -c freeblks 7"][..]),
        ("a checksum", &["agi 1", "write -c newino 7"]),
        ("an inode", &["sb 0", "addr rootino", "write -c core.nlinkv2 9"]),
        ("a directory", &["sb 0", "addr rootino", "write -c core.size 7"]),
        ("a magic number", &["agf 0", "addr bnoroot", "write -c magic 7"]),
    ] {
        let image = beside(&volume, "damaged");
        std::fs::copy(&volume.path, &image).unwrap();
        Current.db_write(&image, damage);
        let there = Current.repair(&image).unwrap_err();
        for names in [None, Some(Names::new(b"key"))] {
            let options = DumpOptions { names, ..DumpOptions::default() };
            let to = beside(&volume, "restored");
            restored(&dumped(&image, &options).0, &to);
            let seen = Current.repair(&to);
            assert!(seen.is_err(), "{line} is gone; before: {there}");
        }
    }
}

/// A damaged directory block is left out of a dump with other names, and kept in one without.
#[test]
fn what_is_damaged_shows_no_names() {
    let volume = filled("");
    // The entry count of a directory in block form.
    Current.db_write(&volume.path, &["path /one", "dblock 0", "write -d btail.count 99999"]);
    let to = beside(&volume, "restored");
    let name = b"11-nnnnnnnnn";
    let mut options = DumpOptions { names: Some(Names::new(b"key")), ..DumpOptions::default() };
    let (bytes, summary, warnings) = dumped(&volume.path, &options);
    assert!(summary.withheld > 4000, "{summary:?}");
    assert!(warnings.iter().any(|what| what.contains("directory block")), "{warnings:?}");
    restored(&bytes, &to);
    assert!(!holds(&to, name));
    options.names = None;
    let (bytes, summary, _) = dumped(&volume.path, &options);
    assert_eq!(summary.withheld, 0);
    restored(&bytes, &to);
    assert!(holds(&to, name));
}

const EIO: i32 = 5;

/// What cannot be read is left out, with a warning, or ends the dump if that is wanted.
#[test]
fn read_errors_are_warnings_or_the_end() {
    let volume = filled("");
    let dev = FaultDev::new(device(&volume.path, OpenMode::Read));
    // Somewhere in the second group, behind its headers.
    let group = (64 << 20) / 4;
    dev.add(Rule::on(&[Op::Read]).within(group + 4096..group + 8192).fail(EIO));
    let mut options = DumpOptions::default();
    let (mut out, mut warnings) = (Vec::new(), 0);
    let summary = dump(&dev, &options, &mut out, &mut |event| {
        warnings += u64::from(matches!(event, uxfs_metadump::Event::Warning(_)));
    });
    assert!(warnings > 0 && summary.unwrap().warnings == warnings);
    options.stop_at_read_error = true;
    let error = dump(&dev, &options, &mut Vec::new(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, DumpError::Read { .. }), "{error}");
}

/// A copy that cannot be written to its end carries a mark, and nothing opens it.
#[test]
fn a_copy_that_fails_is_marked() {
    let volume = filled("");
    let source = device(&volume.path, OpenMode::Read);
    let copier = Copier::new(&source, false).unwrap();
    let mut finished = 0;
    // Until all changes of a copy are let through.
    for cuts in 0.. {
        let dev = FaultDev::new(MemDev::new(copier.volume_len()));
        dev.add(Rule::on(Op::CHANGES).after(cuts).fail(EIO));
        let uuid = uxfs_format::Uuid([9; 16]);
        let targets = [Target { dev: &dev, blank: true, uuid }];
        let summary = copier.run(&targets, &mut |_, _| {}).unwrap();
        if summary.targets[0].is_ok() {
            assert!(cuts > 20, "only {cuts} changes");
            break;
        }
        let mut sector = [0; 512];
        dev.read_at(0, &mut sector).unwrap();
        let sb = uxfs_format::superblock::Superblock::view(&sector).unwrap();
        finished += u32::from(cuts > 0 && sb.inprogress == 0);
    }
    // Only the flush behind the finished superblock is left then.
    assert_eq!(finished, 1);
}
