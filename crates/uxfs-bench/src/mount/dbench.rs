//! The real dbench on the mount, on the pass-through server and on the kernel's XFS.

use std::path::Path;

use super::options::Options;
use super::subject::{self, KERNEL, MOUNT, THROUGH};
use super::unsynced::Unsynced;
use crate::Result;
use crate::dbench::Load;
use crate::host::Scratch;
use crate::settings::alternating;
use crate::table::Table;

/// The load that comes with dbench.
const LOAD: &str = "/usr/share/dbench/client.txt";

pub(super) fn run_all(
    options: &Options,
    unsynced: Unsynced,
    scratch: &Scratch,
    say: &mut dyn FnMut(&str),
) -> Result<Table> {
    let seconds = options.seconds;
    let notes = vec![
        "files that a flush (fsync) named are on stable storage in every row; the rest can be lost"
            .to_owned(),
        "data in memory only is lost with the process by a mount, with the machine by the kernel"
            .into(),
        "a flush of the pass-through server is an fsync of a file of the host's file system".into(),
    ];
    let title = format!(
        "dbench through a mount, {seconds} s of {LOAD}, -o {}; -l size=128m -d agcount=16",
        options.options
    );
    let (axis, unit, step, lines) = ("clients", "MB/s", "op", Vec::new());
    let mut table = Table { title, axis, unit, step, lines, base: KERNEL, notes };
    for &clients in &options.clients {
        for round in 1..=options.rounds {
            say(&format!("dbench, {clients} clients, round {round} of {}", options.rounds));
            for name in alternating(round, [MOUNT, THROUGH, KERNEL]) {
                let (run, durability) = subject::with(name, options, scratch, |subject| {
                    let load = Load { file: Path::new(LOAD), seconds, clients, dir: subject.dir() };
                    let run = load.run(|| subject.traffic(), || subject.sync())?;
                    Ok((run, subject.durability(unsynced.of_steps_with_data())))
                })?;
                table.add(clients, name, durability, run);
            }
        }
    }
    Ok(table)
}
