//! Rust code under power cuts, without a mount: the example of docs/CRASH-TEST.md.

use uxfs::Volume;
use uxfs_crashtest::{InProcess, Outcome};

const TRIES: InProcess = InProcess { count: 200, seed: 1 };

/// A store that keeps a number in a file, which it replaces by a rename.
fn store(volume: &Volume, number: u32, synced: bool) -> uxfs::files::Result<()> {
    let file = volume.create_file("/new")?;
    file.write_all_at(number.to_string().as_bytes(), 0)?;
    if synced {
        file.sync_all()?;
    }
    volume.rename("/new", "/number")?;
    volume.sync_all()
}

fn tested(synced: bool, early: bool) -> Outcome {
    let work = |volume: &Volume, acknowledge: &dyn Fn(&str)| {
        for number in 0..10 {
            if early {
                acknowledge(&number.to_string());
            }
            store(volume, number, synced).map_err(|error| error.to_string())?;
            acknowledge(&number.to_string());
        }
        Ok(())
    };
    let check = |volume: &Volume, acks: &[String]| {
        let Some(last) = acks.last() else { return Ok(()) };
        let found = volume.read_to_string("/number").map_err(|error| error.to_string())?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| format!("'{text}'"));
        match number(&found)? >= number(last)? {
            true => Ok(()),
            false => Err(format!("{last} was acknowledged, {found} is there")),
        }
    };
    TRIES.run(work, check).unwrap()
}

#[test]
fn code_that_keeps_its_promise_passes() {
    let outcome = tested(true, false);
    assert!(outcome.failure.is_none() && outcome.states > 20, "{outcome}");
    // States are not compared here.
    assert!(outcome.distinct.is_none() && !outcome.to_string().contains("different"), "{outcome}");
}

#[test]
fn code_that_acknowledges_too_early_fails() {
    let failure = tested(true, true).failure.unwrap();
    assert_eq!(failure.acks, ["0"], "{failure}");
}
