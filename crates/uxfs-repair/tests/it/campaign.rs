//! Fields of structures changed at random, one or several: the repair comes out clean, keeps at least what
//! xfs_repair keeps, and is undone to the byte; or it is an error, and the volume is untouched.

use uxfs_oracle::Rng;

use crate::damage::{Base, changed, judge, kept_by_xfs_repair, planned, sound};
use crate::files::{kept, list};
use crate::volume::setting;

/// Feature sets of the volumes, as mkfs options.
const FEATURES: [&str; 4] = [
    "",
    "-b size=1024 -m rmapbt=1",
    "-m rmapbt=1 -i nrext64=1",
    "-m finobt=0,reflink=0,bigtime=0,inobtcount=0 -i sparse=0",
];
/// One in this many images is judged by xfs_repair too, and repaired by it.
const JUDGED: u64 = 8;

#[test]
fn damaged_volumes_come_out_clean_with_their_files() {
    let count = setting("UXFS_REPAIRS", 160);
    let seed = setting("UXFS_SEED", 1);
    let bases = FEATURES.map(Base::new);
    let dir = tempfile::tempdir().unwrap();
    let (mut repaired, mut sound_already, mut refused, mut judged) = (0, 0, Vec::new(), 0);
    let (mut ours, mut theirs, mut all) = (0, 0, 0);
    let mut wrong = Vec::new();
    for number in 0..count {
        let mut rng = Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let base = &bases[rng.index(bases.len())];
        let most = 1 << rng.below(5);
        let fields = 1 + rng.below(most);
        let (damaged, what) = base.damaged(fields, &mut rng);
        let what = format!("{number}: {} {what}", base.name);
        let plan = match planned(&damaged) {
            Ok(plan) => plan,
            Err(error) => {
                eprintln!("refused: {what}: {error}");
                refused.push(what);
                continue;
            }
        };
        if plan.is_empty() {
            sound_already += 1;
        } else {
            repaired += 1;
        }
        let after = changed(&damaged, &plan);
        if let Err(problem) = sound(&after) {
            wrong.push(format!("{what}: {problem}"));
        }
        if number % JUDGED == 0 {
            judged += 1;
            if let Err(problem) = judge(&damaged, &plan, dir.path()) {
                wrong.push(format!("{what}: {problem}"));
            }
            let _ = std::fs::remove_file(dir.path().join("ours.undo"));
            let own = kept(&base.files, &list(&after));
            if let Some(other) = kept_by_xfs_repair(base, &damaged, dir.path()) {
                (ours, theirs, all) = (ours + own, theirs + other, all + base.files.len());
                if own < other {
                    wrong.push(format!("{what}: {own} files kept, {other} by xfs_repair"));
                }
            }
        }
    }
    println!(
        "{count} images from seed {seed}: {repaired} repaired, {sound_already} sound as they were, {} refused; \
         {judged} judged by xfs_repair; of {all} files {ours} kept, {theirs} by xfs_repair",
        refused.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(repaired as u64 > count / 4);
    // What is refused has a reason that a user reads; it must stay rare.
    assert!(refused.len() as u64 <= 1 + count / 20, "{} refused", refused.len());
}
