//! A state of the disk after a power cut, and its name: `PACE:CUT:WRITES`.
//!
//! The pace is that of the run, the cut is the number of the event before which the power failed, and
//! the writes are those at risk that reached the disk, in this order: `7,9-12,20[0-3;5]` are the writes
//! 7, 9 to 12, and the sectors 0 to 3 and 5 of 20.

use std::fmt::{self, Write};
use std::str::FromStr;

use uxfs_testkit::Survivor;

/// Most writes that a name may list: no run has more, and a name may come from anywhere.
const WRITES_MAX: usize = 1 << 22;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub pace: String,
    pub at: usize,
    pub survivors: Vec<Survivor>,
}

impl State {
    pub fn new(pace: &str, at: usize, survivors: Vec<Survivor>) -> Self {
        Self { pace: pace.to_owned(), at, survivors }
    }
}

/// `FIRST-LAST`, or one number.
fn span(first: usize, last: usize) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        let mut run: Option<(usize, usize)> = None;
        for survivor in &self.survivors {
            match (&survivor.sectors, run) {
                (None, Some((first, last))) if survivor.event == last + 1 => {
                    run = Some((first, last + 1));
                    continue;
                }
                (_, Some((first, last))) => parts.push(span(first, last)),
                (_, None) => {}
            }
            run = None;
            match &survivor.sectors {
                None => run = Some((survivor.event, survivor.event)),
                Some(sectors) => {
                    let mut text = String::new();
                    for range in sectors {
                        let sep = if text.is_empty() { "" } else { ";" };
                        write!(text, "{sep}{}", span(range.start, range.end.saturating_sub(1)))?;
                    }
                    parts.push(format!("{}[{text}]", survivor.event));
                }
            }
        }
        parts.extend(run.map(|(first, last)| span(first, last)));
        write!(f, "{}:{}:{}", self.pace, self.at, parts.join(","))
    }
}

impl FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is not a state: one is PACE:CUT:WRITES, as a failure prints it");
        let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
        let span = |text: &str| {
            let (first, last) = match text.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => number(text).map(|only| (only, only))?,
            };
            let is_span = first <= last && last < usize::MAX;
            if is_span { Ok((first, last)) } else { Err(wrong()) }
        };
        let mut parts = text.splitn(3, ':');
        let (Some(pace), Some(at), Some(writes)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let mut survivors = Vec::new();
        for write in writes.split(',').filter(|write| !write.is_empty()) {
            if let Some((event, sectors)) = write.split_once('[') {
                let sectors = sectors.strip_suffix(']').ok_or_else(wrong)?;
                let spans = sectors.split(';').filter(|sectors| !sectors.is_empty());
                let ranges = spans.map(|sectors| span(sectors).map(|(a, b)| a..b + 1));
                let sectors = Some(ranges.collect::<Result<Vec<_>, _>>()?);
                survivors.push(Survivor { event: number(event)?, sectors });
            } else {
                let (first, last) = span(write)?;
                if last - first >= WRITES_MAX.saturating_sub(survivors.len()) {
                    return Err(wrong());
                }
                survivors.extend((first..=last).map(Survivor::whole));
            }
        }
        Ok(Self { pace: pace.to_owned(), at: number(at)?, survivors })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_gives_the_state_back() {
        let torn = |event, sectors: &[(usize, usize)]| {
            let sectors = sectors.iter().map(|(a, b)| *a..*b).collect();
            Survivor { event, sectors: Some(sectors) }
        };
        let whole = Survivor::whole;
        let survivors =
            vec![whole(9), whole(10), whole(11), torn(12, &[(0, 4), (5, 6)]), whole(13), whole(7)];
        let state = State::new("late", 20, survivors);
        assert_eq!(state.to_string(), "late:20:9-11,12[0-3;5],13,7");
        let states = [state, State::new("x", 0, vec![]), State::new("x", 3, vec![torn(1, &[])])];
        for state in states {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        let huge = "late:1:0-18446744073709551615";
        let last = "late:1:1[0-18446744073709551615]";
        let many = format!("late:1:{}", "0-4000000,".repeat(2));
        let wrong =
            ["", "late", "late:x:", "late:1:a", "late:1:2[3", "late:9:7[5-3]", "late:9:7-6"];
        for wrong in wrong.into_iter().chain([huge, last, many.as_str()]) {
            assert!(wrong.parse::<State>().is_err(), "{wrong}");
        }
    }
}
