//! Many threads that create files, each in its own directory, by fs_mark.

use std::path::Path;

use uxfs_fuse::awake;

use super::options::Options;
use super::served::Served;
use super::subject::MOUNT;
use super::unsynced::Unsynced;
use crate::fs_mark;
use crate::host::Scratch;
use crate::kernel::{Kind, Mounted};
use crate::settings::{KERNEL, alternating};
use crate::table::{Run, Table};
use crate::traffic::{Durability, Traffic};
use crate::{BenchError, Result};

const EMPTY: &str = "empty FUSE server";
/// With processors kept from halting, as a busy mount keeps them.
const EMPTY_AWAKE: &str = "empty FUSE server, awake";
const KERNEL_AWAKE: &str = "kernel xfs, awake";

/// Empty files in memory, against the empty server.
pub(super) fn creates(
    options: &Options,
    unsynced: Unsynced,
    scratch: &Scratch,
    say: &mut dyn FnMut(&str),
) -> Result<Table> {
    let threads = options.threads.clone().unwrap_or_else(|| vec![1, 2, 4, 8]);
    let files = options.files.unwrap_or(40_000);
    measure(options, unsynced, scratch, (&threads, files, false), say)
}

/// Durable files of 4 KiB, against the kernel's XFS.
pub(super) fn durable(
    options: &Options,
    unsynced: Unsynced,
    scratch: &Scratch,
    say: &mut dyn FnMut(&str),
) -> Result<Table> {
    let threads = options.threads.clone().unwrap_or_else(|| vec![1, 8, 16, 32, 64]);
    let files = options.files.unwrap_or(8000);
    measure(options, unsynced, scratch, (&threads, files, true), say)
}

fn measure(
    options: &Options,
    unsynced: Unsynced,
    scratch: &Scratch,
    (threads, files, durable): (&[u32], u32, bool),
    say: &mut dyn FnMut(&str),
) -> Result<Table> {
    fs_mark::check_dirs(&scratch.mnt(), threads)?;
    let pattern = if durable { "-S1 -s 4096" } else { "-S0 -s 0" };
    let title = format!(
        "fs_mark {pattern} through a mount, {files} files in all, a directory a thread; \
         -l size=128m -d agcount=16"
    );
    let awake = uxfs_fuse::Options::parse(&options.options).is_ok_and(|options| options.awake);
    // Like for like: the empty server with the same processor settings.
    let base = match (durable, awake) {
        (true, _) => KERNEL,
        (false, true) => EMPTY_AWAKE,
        (false, false) => EMPTY,
    };
    let mut notes = vec![
        "the empty server keeps only names in memory: the limit of FUSE with the same crate and \
         settings"
            .to_owned(),
        "data in memory only is lost with the process by a mount, with the machine by the kernel"
            .into(),
    ];
    if awake {
        let what =
            "idle processors do not halt while the mount is busy, nor in the rows named awake";
        notes.push(what.into());
    }
    let (axis, unit, step, lines) = ("threads", "files/s", "file", Vec::new());
    let mut table = Table { title, axis, unit, step, lines, base, notes };
    for &threads in threads {
        for round in 1..=options.rounds {
            say(&format!("{pattern}, {threads} threads, round {round} of {}", options.rounds));
            let mark = Mark { threads, files: (files / threads).max(1), durable };
            let sure = |unsynced| if durable { Durability::Each } else { unsynced };
            let rows = alternating(round, [MOUNT, EMPTY, EMPTY_AWAKE, KERNEL, KERNEL_AWAKE]);
            let is_awake = |name| name == EMPTY_AWAKE || name == KERNEL_AWAKE;
            for name in rows.into_iter().filter(|name| awake || !is_awake(*name)) {
                let held = if is_awake(name) { Some(hold()?) } else { None };
                let (run, durability) = match name {
                    MOUNT => (mark.ours(options, scratch)?, sure(unsynced.of_steps())),
                    EMPTY | EMPTY_AWAKE => (mark.empty(options, scratch)?, Durability::Nothing),
                    _ => {
                        let (run, age) = mark.kernel(options, scratch)?;
                        (run, sure(Durability::Within(age)))
                    }
                };
                drop(held);
                table.add(threads, name, durability, run);
            }
        }
    }
    Ok(table)
}

fn hold() -> Result<awake::LatencyRequest> {
    awake::LatencyRequest::new().map_err(|error| BenchError::new(awake::DEVICE, error))
}

struct Mark {
    threads: u32,
    files: u32,
    durable: bool,
}

impl Mark {
    fn ours(&self, options: &Options, scratch: &Scratch) -> Result<Run> {
        let size = options.size;
        let served = Served::volume(&options.uxfs, scratch, size, &options.options)?;
        let run = self.run(scratch, &served.dir, || served.traffic(), || served.sync());
        served.done()?;
        run
    }

    fn empty(&self, options: &Options, scratch: &Scratch) -> Result<Run> {
        let served = Served::empty(&options.uxfs, scratch)?;
        let run = self.run(scratch, &served.dir, || Ok(Traffic::default()), || Ok(()));
        served.done()?;
        run
    }

    fn kernel(&self, options: &Options, scratch: &Scratch) -> Result<(Run, u32)> {
        let mounted = Mounted::new(Kind::Xfs, scratch, options.size)?;
        let age = mounted.age();
        let run = self.run(scratch, &mounted.dir, || mounted.traffic(), || mounted.sync());
        mounted.done()?;
        Ok((run?, age))
    }

    fn run(
        &self,
        scratch: &Scratch,
        dir: &Path,
        traffic: impl Fn() -> Result<Traffic>,
        sync: impl Fn() -> Result<()>,
    ) -> Result<Run> {
        let steps = u64::from(self.threads) * u64::from(self.files);
        let mark = || fs_mark::run_fs_mark(scratch, dir, self.threads, self.files, self.durable);
        fs_mark::measured(steps, traffic, sync, mark)
    }
}
