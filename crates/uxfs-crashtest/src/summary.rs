//! A failure in one sentence: what is missing, and what was not on stable storage when.
//!
//! Names of the program are cut off where they are long. The page begins with it.

use crate::explain::Explanation;
use crate::outcome::Failure;
use crate::timeline::{Moment, MomentKind};

/// Most letters of a name.
const NAME_MAX: usize = 80;

impl Failure {
    /// What is missing, in one sentence.
    pub fn summary(&self) -> String {
        let acks = &self.acks;
        let when = |before_ack: bool| match acks.last().filter(|_| before_ack) {
            Some(ack) => format!("when “{}” was acknowledged", short(ack)),
            None => "when the power failed".to_owned(),
        };
        let place = |kind| self.timeline.moments.iter().rposition(|moment| moment.kind == kind);
        let acked = place(MomentKind::Acknowledged);
        match &self.explanation {
            Explanation::Missing(calls) => {
                let names: Vec<String> = calls.iter().map(|missing| short(&missing.call)).collect();
                let kept: Vec<String> = calls.iter().map(|missing| short(&missing.keeps)).collect();
                let (it, verb) = if kept.len() == 1 { ("it", "was") } else { ("them", "were") };
                let when = when(place(MomentKind::Missing) < acked);
                format!(
                    "Missing: {} — without {it}, {} {verb} not on stable storage {when}.",
                    names.join(" and "),
                    kept.join(" and ")
                )
            }
            Explanation::Early { operation, .. } => {
                let ack =
                    acks.last().map_or_else(String::new, |ack| format!(" of “{}”", short(ack)));
                format!("The acknowledgement{ack} came too early, before {}.", short(operation))
            }
            Explanation::Order { operation, .. } => format!(
                "No fsync is missing, but an order: after {} the check refuses the files \
                 until the next change.",
                short(operation)
            ),
            Explanation::Torn { operation, .. } => format!(
                "No fsync is missing, but a copy: {} changes the file in place, and a power cut leaves \
                 content.",
                short(operation)
            ),
            Explanation::Broken { what } => {
                let what: Vec<String> = what.iter().map(|what| short(what)).collect();
                format!(
                    "No call is missing: the file system lost {} although it was synced.",
                    what.join(", ")
                )
            }
            Explanation::Unknown { .. } => {
                let lost: Vec<&Moment> = self.timeline.lost().collect();
                let Some(first) = lost.first() else {
                    let reordered = self.timeline.reordered().count();
                    if reordered > 0 {
                        return format!(
                            "No write was lost, but {reordered} reached the disk after later ones, and no \
                             flush kept the order."
                        );
                    }
                    let acked =
                        acks.last().map(|ack| format!(", after “{}” was acknowledged", short(ack)));
                    return format!(
                        "What the check misses had not been written to the disk when the power failed{}.",
                        acked.unwrap_or_default()
                    );
                };
                let more = match lost.len() {
                    1 => String::new(),
                    count => format!(" and {} more writes", count - 1),
                };
                let flushless = place(MomentKind::Missing).is_some();
                let when = when(flushless);
                format!(
                    "No flush covered {}{more}: not on stable storage {when}.",
                    short(&first.words)
                )
            }
        }
    }
}

/// A name of the program, short enough for a sentence.
fn short(text: &str) -> String {
    match text.char_indices().nth(NAME_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
