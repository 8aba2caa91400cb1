//! The result as one page of HTML that needs nothing else.
//!
//! 1. It says first, in one sentence, what is missing.
//! 2. The timeline around the failure follows ([`chart`]), then the failure in words, the line that
//!    repeats it, the whole timeline, and the other runs.
//! 3. Its size has a bound that does not depend on the length of the recording.

use std::fmt::Write;

use crate::chart;
use crate::junit::{clipped, escaped};
use crate::outcome::{Failure, Outcome, RunSummary};
use crate::stretch::Stretch;
use crate::timeline::MomentKind;

const STYLE: &str = include_str!("page.css");
/// Most parts of the whole timeline.
const WHOLE: usize = 240;
/// Most bytes of a text of several lines, and of a row's.
const TEXT_MAX: usize = 30_000;
const ROW_MAX: usize = 200;

/// The page of a result. `name` is the tested command, `repeat` the line that repeats a failure.
pub fn html(outcome: &Outcome, name: &str, repeat: &str) -> String {
    let (class, verdict) = match outcome.failure {
        Some(_) => ("failed", "failed"),
        None if outcome.interrupted => ("interrupted", "interrupted"),
        None => ("passed", "passed"),
    };
    let first = match &outcome.failure {
        Some(failure) => failure.summary(),
        None if outcome.interrupted => {
            format!(
                "Interrupted: nothing was missing in the {} states that were tried.",
                outcome.states
            )
        }
        None => format!("Nothing is missing: each of {} states passed.", outcome.states),
    };
    let name = escaped(name);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{verdict}: {name}</title>\n\
         <style>{}{STYLE}</style></head>\n<body>\n<p class=\"first {class}\">{}</p>\n\
         <h1 class=\"{class}\">Power cuts under <code>{name}</code>: <span>{verdict}</span></h1>\n",
        chart::STYLE,
        clipped(&first, TEXT_MAX)
    );
    if let Some(failure) = &outcome.failure {
        page.push_str(&failure_section(failure, repeat));
    }
    // Writing to a string does not fail.
    let _ = writeln!(page, "<h2>Runs</h2>\n<p>{}</p>", escaped(&outcome.to_string()));
    let failed = outcome.failure.as_ref().map(|failure| failure.state.pace.as_str());
    for run in &outcome.runs {
        page.push_str(&run_section(run, failed));
    }
    page.push_str("</body></html>\n");
    page
}

fn failure_section(failure: &Failure, repeat: &str) -> String {
    let timeline = &failure.timeline;
    let focus = timeline.stretches(chart::FOCUS);
    let whole = timeline.stretches(WHOLE);
    let name = format!("Timeline of state {}", failure.state);
    let at_risk = Some(timeline.at_risk);
    let mut text = format!(
        "<div class=\"scroll end\">\n{}</div>\n<h2>The failure</h2>\n<pre>{}</pre>\n\
         <h2>Repeat</h2>\n<pre>{}</pre>\n",
        chart::inline(&focus, at_risk, &name),
        clipped(&failure.to_string(), TEXT_MAX),
        escaped(repeat)
    );
    let events = timeline.moments.len();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "<details><summary>The timeline up to the power cut: {events} events</summary>"
    );
    if whole != focus {
        let drawn = chart::inline(&whole, at_risk, &name);
        let _ = writeln!(text, "<div class=\"scroll\">\n{drawn}</div>");
    }
    text.push_str("<table>\n");
    for stretch in &whole {
        text.push_str(&row(stretch));
    }
    text.push_str("</table></details>\n");
    text
}

fn row(stretch: &Stretch) -> String {
    let (first, last) = stretch.events;
    let events = if first == last { first.to_string() } else { format!("{first}–{last}") };
    let name = stretch.kind.map_or("folded", MomentKind::name);
    format!(
        "<tr class=\"{name}\"><td>{events}</td><td>{}</td><td>{}</td></tr>\n",
        chart::said(stretch.kind),
        clipped(&stretch.words, ROW_MAX)
    )
}

/// A run in numbers, and drawn if the failure does not show it. `failed` is the pace of that.
fn run_section(run: &RunSummary, failed: Option<&str>) -> String {
    let name = format!("Run {}", run.pace);
    let summary = format!(
        "{name}: {} writes, {} flushes, {} acknowledgements",
        run.writes, run.flushes, run.acks
    );
    if failed == Some(run.pace.as_str()) {
        return format!("<p>{}</p>\n", escaped(&summary));
    }
    let open = if failed.is_none() { " open" } else { "" };
    format!(
        "<details{open}><summary>{}</summary>\n<div class=\"scroll\">\n{}</div></details>\n",
        escaped(&summary),
        chart::inline(&run.stretches, None, &name)
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uxfs_disk::{BlockDev, MemDev};

    use super::*;
    use crate::explain::{Explanation, Missing};
    use crate::leg::Places;
    use crate::operations::{Action, Operation};
    use crate::recorder::Recorder;
    use crate::state::State;
    use crate::timeline::Timeline;

    /// Steps of a long recording: each changes another file, writes, flushes at times, and
    /// acknowledges.
    fn outcome(steps: u64, lost: bool) -> Outcome {
        const NAME: &str = "<&\"'>";
        let before = MemDev::new(1 << 20);
        let recorder = Recorder::new(before.clone(), 1 << 40);
        recorder.start();
        for step in 0..steps {
            let name = (1, format!("{}{step}", NAME.repeat(40)).into_bytes());
            let what = Action::Made { name, ino: 2 + step, generation: 0, mode: 0o100_644 };
            recorder.record_operation(Operation { pid: 7, what });
            recorder.write_at(step * 512 % (1 << 20), &[1; 512]).unwrap();
            if step % 2 == 0 && !lost {
                recorder.flush().unwrap();
            }
            recorder.acknowledge(&format!("{}{step}", NAME.repeat(200)));
        }
        recorder.ended();
        let run = Arc::new(recorder.finish(before.clone()));
        // Lost are all writes of the window, or the last one.
        let state = State::new("late", run.recording.len(), Vec::new());
        let call = format!("fsync of {}", NAME.repeat(2000));
        let after = usize::try_from(steps).ok();
        let missing = Missing { call: call.clone(), keeps: call, after };
        let explanation = Explanation::Missing(vec![missing]);
        let mut outcome = Outcome::new("uxfs", 1);
        for pace in ["names", "data", "late"] {
            outcome.add_run(pace, &run);
        }
        outcome.failure = Some(Failure {
            timeline: Timeline::new(&run, &state, &Places::default(), &explanation, None),
            first: state.clone(),
            state,
            problem: NAME.repeat(3000),
            notes: Vec::new(),
            acks: run.acks.clone(),
            explanation,
            disk: before,
            run,
        });
        outcome
    }

    /// The worst of recordings: no two neighbours are alike, all names are long and need escapes.
    #[test]
    fn a_page_of_a_hundred_thousand_events_is_small() {
        for lost in [false, true] {
            let outcome = outcome(30_000, lost);
            let events = outcome.failure.as_ref().unwrap().run.recording.len();
            assert!(events >= if lost { 90_000 } else { 100_000 }, "{events}");
            let page = html(&outcome, "program", "repeat");
            assert!(page.len() < 300_000, "{} bytes", page.len());
            // It is drawn all the same: chart of the moment, of the whole, and of two other runs.
            assert_eq!(page.matches("<svg ").count(), 4);
            let drawn = page.matches("data-event").count();
            println!("{} bytes, {drawn} marks", page.len());
            assert!(drawn > 200, "{drawn} marks");
        }
    }
}
