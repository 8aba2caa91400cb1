//! The result of a test, and its text.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use uxfs_disk::MemDev;
use uxfs_testkit::Event;

use crate::explain::{Explanation, Missing};
use crate::recorder::{Mark, Run};
use crate::state::State;
use crate::stretch::Stretch;
use crate::timeline::{Moment, Timeline};

/// Most parts of a run's timeline that are drawn if it did not fail.
const DRAWN_OF_RUN: usize = 60;

/// A run of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    pub pace: String,
    pub writes: usize,
    pub flushes: usize,
    pub acks: usize,
    /// The run, short enough to be drawn.
    pub stretches: Vec<Stretch>,
}

pub struct Outcome {
    pub leg: String,
    pub seed: u64,
    pub runs: Vec<RunSummary>,
    pub states: usize,
    /// States that differ in files or acknowledgements, if all could be compared.
    pub distinct: Option<usize>,
    pub failure: Option<Failure>,
    pub interrupted: bool,
    /// Time that the states took, on so many threads.
    pub elapsed: Duration,
    pub jobs: usize,
}

/// A state that failed.
pub struct Failure {
    /// The state, made as small as it can be.
    pub state: State,
    /// The state that failed first.
    pub first: State,
    /// What the check said.
    pub problem: String,
    /// What limits the result: a failure that was seen once, a loss that may be smaller.
    pub notes: Vec<String>,
    pub acks: Vec<String>,
    pub explanation: Explanation,
    pub timeline: Timeline,
    /// The disk before recovery.
    pub disk: MemDev,
    /// The run whose power was cut.
    pub run: Arc<Run>,
}

impl Outcome {
    pub(crate) fn new(leg: &str, seed: u64) -> Self {
        Self {
            leg: leg.into(),
            seed,
            runs: Vec::new(),
            states: 0,
            distinct: Some(0),
            failure: None,
            interrupted: false,
            elapsed: Duration::ZERO,
            jobs: 1,
        }
    }

    /// Adds the number of states of a run that differ, if it is known.
    pub(crate) fn add_distinct(&mut self, more: Option<usize>) {
        self.distinct = self.distinct.zip(more).map(|(sum, more)| sum + more);
    }

    pub(crate) fn add_run(&mut self, pace: &str, run: &Run) {
        let events = run.recording.events();
        let count = |wanted: fn(&Event<Mark>) -> bool| events.iter().filter(|e| wanted(e)).count();
        self.runs.push(RunSummary {
            pace: pace.into(),
            writes: count(|event| matches!(event, Event::Write { .. })),
            flushes: count(|event| matches!(event, Event::Flush)),
            acks: run.acks.len(),
            stretches: Timeline::of_run(run).stretches(DRAWN_OF_RUN),
        });
    }

    /// Did the program acknowledge nothing?
    pub fn acknowledged_nothing(&self) -> bool {
        self.runs.iter().all(|run| run.acks == 0)
    }

    /// States in a second on one processor.
    pub fn states_per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64() * self.jobs as f64;
        if seconds > 0.0 { self.states as f64 / seconds } else { 0.0 }
    }

    /// The document of `--json`, without its schema.
    pub fn to_json(&self) -> serde_json::Map<String, Value> {
        let runs = self.runs.iter().map(|run| {
            json!({
                "pace": run.pace,
                "writes": run.writes,
                "flushes": run.flushes,
                "acknowledgements": run.acks,
            })
        });
        let document = json!({
            "file_system": self.leg,
            "seed": self.seed,
            "states": self.states,
            "distinct_states": self.distinct,
            "interrupted": self.interrupted,
            "passed": self.failure.is_none() && !self.interrupted,
            "runs": runs.collect::<Vec<_>>(),
            "states_per_second_and_core": (self.states_per_second() * 10.0).round() / 10.0,
            "failure": self.failure.as_ref().map(Failure::to_json),
        });
        match document {
            Value::Object(map) => map,
            _ => serde_json::Map::new(),
        }
    }
}

impl Failure {
    fn to_json(&self) -> Value {
        let lost = |moment: &Moment| json!({ "event": moment.event, "what": moment.words });
        let missing: Vec<Value> = match &self.explanation {
            Explanation::Missing(calls) => calls
                .iter()
                .map(|Missing { call, keeps, .. }| json!({ "call": call, "keeps": keeps }))
                .collect(),
            _ => Vec::new(),
        };
        json!({
            "state": self.state.to_string(),
            "problem": self.problem,
            "notes": self.notes,
            "acknowledged": self.acks.len(),
            "last_acknowledged": self.acks.last(),
            "lost_writes": self.timeline.lost().map(lost).collect::<Vec<_>>(),
            "explanation": self.explanation.to_string(),
            "missing_calls": missing,
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(calls) => {
                for (at, Missing { call, keeps, .. }) in calls.iter().enumerate() {
                    let start = if at == 0 { "missing" } else { "\nand    " };
                    write!(f, "{start}: {call}\n         it would keep: {keeps}")?;
                }
                Ok(())
            }
            Self::Early { operation, .. } => {
                write!(f, "too early: this was done only after the acknowledgement: {operation}")
            }
            Self::Order { operation, .. } => write!(
                f,
                "out of order: {operation}\n         leaves files that the check refuses until the next \
                 change, and no fsync helps: change the other file first, or write a new file, fsync \
                 it, rename it over the old one, and fsync the directory"
            ),
            Self::Torn { operation, .. } => write!(
                f,
                "torn: {operation}\n         changes the file in place, and a power cut leaves neither the old \
                 content nor the new one, whatever is synced: write a new file, fsync it and rename \
                 it, or keep a log"
            ),
            Self::Broken { what } => write!(
                f,
                "lost although it was synced: {}; this is a fault of the file system",
                what.join(", ")
            ),
            Self::Unknown { why } => write!(f, "not explained: {why}"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.acks.last().map_or(String::new(), |ack| format!(", the last: {ack}"));
        writeln!(f, "failed: state {}", self.state)?;
        writeln!(f, "acknowledged before the power cut: {}{last}", self.acks.len())?;
        writeln!(f, "{}", self.problem)?;
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        let lost: Vec<&Moment> = self.timeline.lost().collect();
        let reordered = self.timeline.reordered().count();
        match lost.as_slice() {
            [] if reordered > 0 => {
                writeln!(f, "lost: nothing; {reordered} writes reached the disk after later ones")?;
            }
            [] => writeln!(f, "lost: what had not been written to the disk at all")?,
            lost => {
                writeln!(f, "lost: {} writes that no flush covered", lost.len())?;
                for moment in lost.iter().take(10) {
                    writeln!(f, "    {}: {} ({})", moment.event, moment.words, moment.kind.name())?;
                }
                if lost.len() > 10 {
                    writeln!(f, "    and {} more", lost.len() - 10)?;
                }
            }
        }
        write!(f, "{}", self.explanation)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.failure {
            Some(_) => "FAILED",
            None if self.interrupted => "interrupted",
            None => "passed",
        };
        write!(f, "{word} on {}: {} states", self.leg, self.states)?;
        if let Some(distinct) = self.distinct {
            write!(f, ", {distinct} of them different")?;
        }
        write!(f, ", seed {}", self.seed)
    }
}

#[cfg(test)]
mod tests {
    use uxfs_disk::{BlockDev, MemDev};
    use uxfs_testkit::Survivor;

    use super::*;
    use crate::leg::Places;
    use crate::recorder::Recorder;

    /// A state that has all writes, in another order.
    #[test]
    fn writes_in_another_order_are_not_called_lost() {
        let before = MemDev::new(4096);
        let recorder = Recorder::new(before.clone(), 1 << 20);
        (0..2).for_each(|at| recorder.write_at(at * 512, &[1; 512]).unwrap());
        let run = Arc::new(recorder.finish(before.clone()));
        let state = State::new("p", 2, [1, 0].map(Survivor::whole).to_vec());
        let explanation = Explanation::Unknown { why: "no check".into() };
        let failure = Failure {
            timeline: Timeline::new(&run, &state, &Places::default(), &explanation, None),
            first: state.clone(),
            state,
            problem: "refused".into(),
            notes: Vec::new(),
            acks: Vec::new(),
            explanation,
            disk: before,
            run,
        };
        let text = failure.to_string();
        assert!(
            text.contains("lost: nothing; 1 writes reached the disk after later ones"),
            "{text}"
        );
        let summary = failure.summary();
        assert!(
            summary.contains("No write was lost") && !summary.contains("had not been"),
            "{summary}"
        );
    }
}
