//! The state of a mount's scrubs: the one that runs, and the result of the last.
//!
//! Held by [`crate::volume`], used by [`crate::scrub`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use uxfs::check::{Progress, Report, Verdict};
use uxfs::scrub::{Scrub, ScrubError};

/// Exit code of an operational error.
const OPERATIONAL: u8 = 8;

/// The scrubs of a mount.
#[derive(Default)]
pub(crate) struct Scrubs {
    /// Held while one begins or is ended.
    pub(crate) turn: Mutex<Turn>,
    pub(crate) state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub(crate) struct Turn {
    pub(crate) closed: bool,
    pub(crate) thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
pub(crate) struct State {
    /// Number of scrubs that began.
    pub(crate) number: u64,
    pub(crate) running: Option<Arc<Scrub>>,
    pub(crate) progress: Option<Progress>,
    /// Of the last one.
    pub(crate) result: Option<Outcome>,
}

/// The result of a scrub.
pub(crate) enum Outcome {
    Checked { code: u8, text: String, json: String },
    Ended(String),
}

impl Outcome {
    fn of(result: Result<Report, ScrubError>) -> Self {
        let report = match result {
            Ok(report) => report,
            Err(error) => return Self::Ended(error.to_string()),
        };
        let found = u8::from(report.verdict() == Verdict::Damaged);
        let code = found | if report.incomplete { OPERATIONAL } else { 0 };
        let json = serde_json::Value::Object(report.to_json()).to_string();
        Self::Checked { code, text: report.to_string(), json }
    }
}

/// Checks, and holds the result.
pub(crate) fn run(scrub: Arc<Scrub>, state: &Mutex<State>) {
    let progress = |now| state.lock().progress = Some(now);
    let done = catch_unwind(AssertUnwindSafe(|| scrub.run(&progress)));
    let outcome = match done {
        Ok(done) => Outcome::of(done),
        Err(_) => Outcome::Ended("the check panicked".into()),
    };
    let running = {
        let mut state = state.lock();
        state.result = Some(outcome);
        state.running.take()
    };
    // The old content is dropped here.
    drop((running, scrub));
}
