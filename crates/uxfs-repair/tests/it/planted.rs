//! Faults planted in the repair itself: the judges of the other tests must find each.

use uxfs_disk::fault::{Fault, plant};
use uxfs_oracle::Rng;

use crate::damage::{Base, changed, judge, planned};
use crate::files::{kept, list};

/// What the judges say about a repair.
fn judged(base: &Base) -> Result<(), String> {
    let (damaged, _) = base.damaged(5, &mut Rng::new(11));
    let plan = planned(&damaged).map_err(|error| error.to_string())?;
    let dir = tempfile::tempdir().unwrap();
    judge(&damaged, &plan, dir.path())?;
    let own = kept(&base.files, &list(&changed(&damaged, &plan)));
    let other = crate::damage::kept_by_xfs_repair(base, &damaged, dir.path()).unwrap_or(0);
    if own < other { Err(format!("{own} files kept, {other} by xfs_repair")) } else { Ok(()) }
}

#[test]
fn every_planted_fault_is_found() {
    let base = Base::new("-m rmapbt=1");
    assert_eq!(judged(&base), Ok(()));
    for fault in Fault::REPAIR {
        plant(Some(fault));
        let found = judged(&base);
        plant(None);
        println!("{fault:?}: {found:?}");
        assert!(found.is_err(), "{fault:?} was not found");
    }
}
