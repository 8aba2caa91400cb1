//! A repair that is cut after any of its writes is gone on with, or undone: both end as they should.

use std::sync::Arc;

use uxfs_oracle::Rng;
use uxfs_repair::{apply, undo};
use uxfs_testkit::{RecordDev, Recording};

use crate::damage::{Base, bytes, planned, sound};
use crate::volume::setting;

#[test]
fn a_cut_repair_is_gone_on_with_or_undone() {
    let seed = setting("UXFS_SEED", 1);
    let base = Base::new("-m rmapbt=1");
    let dir = tempfile::tempdir().unwrap();
    for number in 0..setting("UXFS_ROUNDS", 4) {
        let mut rng = Rng::new(seed.wrapping_mul(7919).wrapping_add(number));
        let (damaged, what) = base.damaged(6, &mut rng);
        let Ok(plan) = planned(&damaged) else { continue };
        let file = dir.path().join("undo");
        let _ = std::fs::remove_file(&file);
        let recorder: RecordDev<_> = RecordDev::new(damaged.clone());
        apply(&plan, &recorder, &file).unwrap();
        let saved = std::fs::read(&file).unwrap_or_default();
        let run = Recording::new(damaged.clone(), recorder.take(), 512);
        let before = bytes(&damaged);
        for at in 0..=run.len() {
            let what = format!("round {number}, cut {at} of {}: {what}", run.len());
            let cut = run.cut(at, &mut rng);
            std::fs::write(&file, &saved).unwrap();
            if !saved.is_empty() {
                let undone = cut.clone();
                undo(&undone, &file).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(bytes(&undone) == before, "{what}: not undone to the byte");
                std::fs::write(&file, &saved).unwrap();
            }
            let again = planned(&cut).unwrap_or_else(|e| panic!("{what}: {e}"));
            let on = Arc::new(cut);
            apply(&again, &on, &file).unwrap_or_else(|e| panic!("{what}: {e}"));
            sound(&on).unwrap_or_else(|e| panic!("{what}: {e}"));
            if !saved.is_empty() {
                undo(&on, &file).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(bytes(&on) == before, "{what}: not undone to the byte after going on");
            }
        }
    }
}

#[test]
fn an_undo_file_of_another_state_is_refused() {
    let base = Base::new("");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("undo");
    let (damaged, _) = base.damaged(8, &mut Rng::new(3));
    let plan = planned(&damaged).unwrap();
    let last = plan.changes.last().unwrap().offset;
    let repaired = damaged.clone();
    apply(&plan, &repaired, &file).unwrap();
    let other = repaired.clone();
    uxfs_disk::BlockDev::write_at(&other, last, &[0xee; 512]).unwrap();
    let before = bytes(&other);
    assert!(undo(&other, &file).unwrap_err().to_string().contains("changed since"));
    assert!(bytes(&other) == before);
    // Neither is the plan applied twice.
    assert!(apply(&plan, &repaired, &file).is_err());
    undo(&repaired, &file).unwrap();
    assert!(bytes(&repaired) == bytes(&damaged) && !file.exists());
}
