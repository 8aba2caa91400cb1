//! Undo files that were cut off, and undos that were cut off.

use uxfs_disk::{BlockDev, MemDev};
use uxfs_format::features::Incompat;
use uxfs_format::superblock::Superblock;
use uxfs_oracle::Rng;
use uxfs_repair::{Plan, apply, undo};
use uxfs_testkit::{RecordDev, Recording};

use crate::damage::{Base, planned};

/// Bytes of the header of an undo file, and of a record of a sector.
const HEADER: usize = 32;
const RECORD: usize = 12 + 2 * 32 + 512;

/// The first damage of a seed whose repair changes the volume, and its plan.
fn damage(base: &Base) -> (MemDev, Plan) {
    for seed in 3.. {
        let (damaged, _) = base.damaged(1, &mut Rng::new(seed));
        match planned(&damaged) {
            Ok(plan) if plan.changes.len() > 2 && !is_marked(&damaged) => return (damaged, plan),
            _ => {}
        }
    }
    unreachable!()
}

fn is_marked(dev: &MemDev) -> bool {
    let mut sector = vec![0; 512];
    dev.read_at(0, &mut sector).unwrap();
    Superblock::view(&sector).unwrap().incompat().contains(Incompat::NEEDSREPAIR)
}

/// Are all sectors of a plan as before it, or as after it?
fn is(dev: &MemDev, plan: &Plan, after: bool) -> bool {
    plan.changes.iter().all(|change| {
        let mut bytes = vec![0; change.before.len()];
        dev.read_at(change.offset, &mut bytes).unwrap();
        bytes == if after { &change.after[..] } else { &change.before }
    })
}

#[test]
fn an_undo_file_that_was_cut_off_is_gone_on_with() {
    let (damaged, plan) = damage(&Base::new(""));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("undo");
    let dev = damaged.clone();
    apply(&plan, &dev, &file).unwrap();
    let saved = std::fs::read(&file).unwrap();
    undo(&dev, &file).unwrap();
    let twice = [&saved[..], &saved[HEADER..]].concat();
    let lengths = (0..=HEADER)
        .chain(saved.len() - 2 * RECORD..=saved.len())
        .chain((saved.len()..=twice.len()).step_by(97));
    for len in lengths {
        // Nothing was written to the volume yet.
        std::fs::write(&file, &twice[..len]).unwrap();
        if len < HEADER {
            assert!(undo(&dev, &file).is_err(), "{len}");
        }
        apply(&plan, &dev, &file).unwrap_or_else(|e| panic!("{len}: {e}"));
        assert!(is(&dev, &plan, true) && !is_marked(&dev), "{len}");
        undo(&dev, &file).unwrap_or_else(|e| panic!("{len}: {e}"));
        assert!(is(&dev, &plan, false) && !is_marked(&dev), "{len}");
    }
    // The beginning of another file is not overwritten.
    for other in [&b"UXFSUNDx"[..], b"x"] {
        std::fs::write(&file, other).unwrap();
        assert!(apply(&plan, &dev, &file).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), other);
    }
}

#[test]
fn a_volume_is_marked_while_it_is_undone() {
    let (damaged, plan) = damage(&Base::new("-m rmapbt=1"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("undo");
    let repaired = damaged.clone();
    apply(&plan, &repaired, &file).unwrap();
    let saved = std::fs::read(&file).unwrap();
    let recorder: RecordDev<_> = RecordDev::new(repaired.clone());
    undo(&recorder, &file).unwrap();
    let run = Recording::new(repaired, recorder.take(), 512);
    let mut rng = Rng::new(1);
    let mut between = 0;
    for at in 0..=run.len() {
        for round in 0..4 {
            let cut = run.cut(at, &mut rng);
            if !is(&cut, &plan, true) && !is(&cut, &plan, false) {
                assert!(is_marked(&cut), "cut {at} of {}, round {round}", run.len());
                between += 1;
            }
            std::fs::write(&file, &saved).unwrap();
            undo(&cut, &file).unwrap_or_else(|e| panic!("cut {at}: {e}"));
            assert!(is(&cut, &plan, false) && !is_marked(&cut), "cut {at}");
        }
    }
    assert!(between > 0);
}
