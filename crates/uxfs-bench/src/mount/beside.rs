//! A program that computes, alone and beside threads that create files: what a file system takes
//! from others.
//!
//! 1. The program needs one processor and no file system; its rate alone is what there is to lose.
//! 2. The creating threads never pause. How much they got done stands in a table of its own, since
//!    one that does less also takes less.

use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use uxfs_testkit::Rng;

use super::options::Options;
use super::subject::{self, KERNEL, MOUNT, Subject};
use super::unsynced::Unsynced;
use crate::host::Scratch;
use crate::settings::alternating;
use crate::table::{Run, Table};
use crate::traffic::{Durability, Traffic};
use crate::{BenchError, Result};

const ALONE: &str = "alone";
/// Steps of the computation between two looks at the flag that ends it.
const STEPS: u64 = 1 << 14;
/// Files of a directory.
const FILES_PER_DIR: u64 = 1000;

pub(super) fn run_all(
    options: &Options,
    unsynced: Unsynced,
    scratch: &Scratch,
    say: &mut dyn FnMut(&str),
) -> Result<[Table; 2]> {
    let threads = options.threads.clone().unwrap_or_else(|| vec![1, 2]);
    let seconds = options.seconds;
    let table = |what: &str, unit, base| Table {
        title: format!(
            "{what}, {seconds} s, -o {}; empty files, a directory a thread",
            options.options
        ),
        axis: "threads",
        unit,
        step: "file",
        lines: Vec::new(),
        base,
        notes: vec![format!(
            "{} processors; the computing program has one thread, the others create as fast as \
             they can",
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
        )],
    };
    let what = "a program that computes, beside threads that create files";
    let mut computed = table(what, "Msteps/s", ALONE);
    let mut created = table("what these threads created meanwhile", "files/s", KERNEL);
    for &threads in &threads {
        for round in 1..=options.rounds {
            say(&format!(
                "computing, threads that create files: {threads}, round {round} of {}",
                options.rounds
            ));
            for name in alternating(round, [ALONE, MOUNT, KERNEL]) {
                if name == ALONE {
                    let (run, _) = Stage::new(seconds, 0).run(None)?;
                    computed.add(threads, name, Durability::NoSteps, run);
                    continue;
                }
                let (runs, durability) = subject::with(name, options, scratch, |subject| {
                    let runs = Stage::new(seconds, threads).run(Some(subject))?;
                    Ok((runs, subject.durability(unsynced.of_steps())))
                })?;
                computed.add(threads, name, durability, runs.0);
                created.add(threads, name, durability, runs.1);
            }
        }
    }
    Ok([computed, created])
}

/// What the threads of a run share.
struct Stage {
    length: Duration,
    threads: u32,
    ready: Barrier,
    stop: AtomicBool,
    files: AtomicU64,
    steps: AtomicU64,
}

impl Stage {
    fn new(seconds: u32, threads: u32) -> Self {
        Self {
            length: Duration::from_secs(seconds.into()),
            threads,
            // The computation, and who measures.
            ready: Barrier::new(threads as usize + 2),
            stop: AtomicBool::new(false),
            files: AtomicU64::new(0),
            steps: AtomicU64::new(0),
        }
    }

    /// Computes, and creates files in a subject. Returns the runs of both.
    fn run(&self, subject: Option<&Subject>) -> Result<(Run, Run)> {
        let traffic = || subject.map_or(Ok(Traffic::default()), Subject::traffic);
        let measured = std::thread::scope(|scope| {
            scope.spawn(|| self.compute());
            let dir = subject.map(Subject::dir);
            let creators: Vec<_> =
                (0..self.threads).filter_map(|n| Some(self.create_in(scope, dir?, n))).collect();
            self.ready.wait();
            let (before, start) = (traffic(), Instant::now());
            std::thread::sleep(self.length);
            let counts = [&self.steps, &self.files].map(|count| count.load(Ordering::Relaxed));
            let (seconds, after) = (start.elapsed().as_secs_f64(), traffic());
            self.stop.store(true, Ordering::Relaxed);
            for creator in creators {
                let ended = creator.join();
                ended.map_err(|_| BenchError::new("creating files", "a thread panicked"))??;
            }
            let before = before?;
            Ok((before, after? - before, counts, seconds))
        });
        let (before, during, [steps, files], seconds) = measured?;
        if let Some(subject) = subject {
            subject.sync()?;
        }
        let all = traffic()? - before;
        let run = |rate| Run { rate, worst_ms: None, seconds, steps: files, during, all };
        Ok((run(steps as f64 / 1e6 / seconds), run(files as f64 / seconds)))
    }

    /// The program that computes.
    fn compute(&self) {
        let mut rng = Rng::new(1);
        self.ready.wait();
        while !self.stop.load(Ordering::Relaxed) {
            for _ in 0..STEPS {
                black_box(rng.bits());
            }
            self.steps.fetch_add(STEPS, Ordering::Relaxed);
        }
    }

    /// A thread that creates files.
    fn create_in<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        root: &'scope Path,
        number: u32,
    ) -> std::thread::ScopedJoinHandle<'scope, Result<()>> {
        scope.spawn(move || {
            self.ready.wait();
            let fail = |e: std::io::Error| BenchError::new(root.display().to_string(), e);
            let mut dir = root.to_owned();
            for file in 0.. {
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
                if file % FILES_PER_DIR == 0 {
                    dir = root.join(format!("thread-{number}-{}", file / FILES_PER_DIR));
                    std::fs::create_dir(&dir).map_err(fail)?;
                }
                File::create_new(dir.join(format!("file-{file:08}"))).map_err(fail)?;
                self.files.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })
    }
}
