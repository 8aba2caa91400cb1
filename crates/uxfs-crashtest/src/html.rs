//! The result as one page of HTML that needs nothing else: verdict, explanation, and the timeline of
//! writes, flushes, acknowledgements and the cut.

use std::fmt::Write;

use crate::junit::escaped;
use crate::outcome::{Failure, MomentKind, Outcome};

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em;color:#222}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}
pre{background:#f5f5f2;padding:.8em 1em;white-space:pre-wrap;border-radius:4px}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.15em .8em;border-bottom:1px solid #eee}
td:first-child{color:#777;text-align:right;width:5em;font-variant-numeric:tabular-nums}
.passed{color:#1a7f37}.failed{color:#b42318}
tr.lost{background:#fde8e6}tr.torn{background:#fdf0d5}tr.ack{background:#e3f1fb}tr.flush td{color:#777}
tr.cut{background:#222;color:#fff;font-weight:600}tr.cut td:first-child{color:#ccc}";

/// The page of a result. `name` is the tested command, `repeat` the line that repeats a failure.
pub fn html(outcome: &Outcome, name: &str, repeat: &str) -> String {
    let (class, verdict) = match outcome.failure {
        Some(_) => ("failed", "failed"),
        None if outcome.interrupted => ("interrupted", "interrupted"),
        None => ("passed", "passed"),
    };
    let name = escaped(name);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>{verdict}: {name}\
         </title>\n<style>{STYLE}</style></head>\n<body>\n<h1>Power cuts under <code>{name}</code>: \
         <span class=\"{class}\">{verdict}</span></h1>\n<p>{}</p>\n",
        escaped(&outcome.to_string())
    );
    page.push_str(
        "<h2>Runs</h2>\n<table><tr><th>writes</th><th>flushes</th><th>acknowledgements</th>\
         <th>background</th></tr>\n",
    );
    for run in &outcome.runs {
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            run.writes,
            run.flushes,
            run.acks,
            escaped(&run.pace)
        );
    }
    page.push_str("</table>\n");
    if let Some(failure) = &outcome.failure {
        page.push_str(&failure_section(failure, repeat));
    }
    page.push_str("</body></html>\n");
    page
}

fn failure_section(failure: &Failure, repeat: &str) -> String {
    let mut text = format!(
        "<h2>Action is missing</h2>\n<pre>{}</pre>\n<h2>The failure</h2>\n<pre>{}</pre>\n<h2>Repeat</h2>\
         \n<pre>{}</pre>\n<h2>Timeline</h2>\n<p>Requests of the disk and acknowledgements, in their one \
         order, up to the power cut.</p>\n<table>\n",
        escaped(&failure.explanation.to_string()),
        escaped(&failure.to_string()),
        escaped(repeat)
    );
    if failure.timeline.left_out > 0 {
        let _ = writeln!(
            text,
            "<tr><td></td><td></td><td>{} earlier events</td></tr>",
            failure.timeline.left_out
        );
    }
    for moment in &failure.timeline.moments {
        let said = match moment.kind {
            MomentKind::Kept => "write",
            MomentKind::Torn => "write, torn",
            MomentKind::Lost => "write, lost",
            MomentKind::Flush => "flush",
            MomentKind::Acknowledged => "acknowledged",
            MomentKind::Cut => "",
        };
        let words = if moment.kind == MomentKind::Flush { "" } else { &moment.words };
        let _ = writeln!(
            text,
            "<tr class=\"{}\"><td>{}</td><td>{said}</td><td>{}</td></tr>",
            moment.kind.name(),
            moment.event,
            escaped(words)
        );
    }
    text.push_str("</table>\n");
    text
}
