//! Tests the matrix of docs/ERRORS.md. For each refusal of the host and each ending to end work on the
//! volume, the page says which program reports the failure and what is on the volume.
//!
//! 1. The page is the expectation: a cell that differs from the observation fails the test.
//! 2. Three rules hold in every cell, regardless of the page ([`judge`]): acknowledged data is on the
//!    volume; success is reported only if all data is; a failure comes with a message.
//! 3. A refusal that no request refused proves nothing and fails the test.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod commands;
mod host;
mod out;
mod page;

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use uxfs_oracle::Rng;

use host::Refusal;
use out::{Ending, Found, HostFailure, Observation, Plan, observe};
use page::Row;

/// The rows, by the page's names.
const HOST_FAILURES: [(&str, HostFailure); 11] = [
    ("nothing", HostFailure::None),
    ("`ENOSPC`", HostFailure::Refuses(Refusal::Allocating(Errno::NOSPC))),
    ("`ENOSPC`, overwriting too", HostFailure::Refuses(Refusal::Writing(Errno::NOSPC))),
    ("`EDQUOT`", HostFailure::Refuses(Refusal::Allocating(Errno::DQUOT))),
    ("`EFBIG`", HostFailure::Limit),
    ("`EIO` of writes", HostFailure::Refuses(Refusal::Writing(Errno::IO))),
    ("`EIO` of flushes", HostFailure::Refuses(Refusal::Flushing(Errno::IO))),
    ("short writes", HostFailure::Refuses(Refusal::Half)),
    ("writes of 0 bytes", HostFailure::Refuses(Refusal::Nothing)),
    ("truncated", HostFailure::Cut),
    ("vanished", HostFailure::Refuses(Refusal::Everything(Errno::NODEV))),
];

/// The errno that a program's message names.
fn errno(said: &str) -> &'static str {
    let all = [
        ("No space left on device", "ENOSPC"),
        ("Disk quota exceeded", "EDQUOT"),
        ("File too large", "EFBIG"),
        ("Input/output error", "EIO"),
        ("No such device", "ENODEV"),
    ];
    all.iter().find(|(words, _)| said.contains(words)).map_or("another errno", |(_, name)| name)
}

/// The cell that describes an observation.
fn cell(ending: Ending, observed: &Observation) -> String {
    let server = observed.server.as_ref().map_or(-1, |(code, _)| *code);
    let end = match ending {
        Ending::Close | Ending::Drop => {
            if observed.code == 0 { "`Ok`" } else { "`Err`" }.to_owned()
        }
        Ending::Umount | Ending::Copy => format!("`{}`", observed.code),
        Ending::Term => format!("`{server}`"),
        Ending::Fusermount => format!("`{}`, server `{server}`", observed.code),
        Ending::Fsync if observed.code == 0 => "`0`".to_owned(),
        Ending::Fsync => format!("`{}`", errno(&observed.said)),
    };
    let fate = match (&observed.files[1], observed.code) {
        (Found::Whole, 0) => "written",
        (Found::Whole, _) => "kept",
        _ => "lost",
    };
    format!("{end} {fate}")
}

/// Does the text contain one of these words? Ignores case.
fn has(text: &str, words: &[String]) -> bool {
    words.iter().any(|word| text.to_lowercase().contains(&word.to_lowercase()))
}

/// Did the reporting program report success?
fn is_success(ending: Ending, observed: &Observation) -> bool {
    match ending {
        Ending::Term | Ending::Fusermount => {
            observed.server.as_ref().is_some_and(|(code, _)| *code == 0)
        }
        _ => observed.code == 0,
    }
}

/// The rules that an observation violates, regardless of the page.
fn rules(ending: Ending, observed: &Observation) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            wrong.push(what.to_owned());
        }
    };
    let [acknowledged, other] = &observed.files;
    must(*acknowledged == Found::Whole, "what was acknowledged is not on the volume");
    must(!matches!(other, Found::Wrong(_)), "a file has content that was not written to it");
    must(observed.check == 0, "uxfs check finds damage");
    must(observed.gone, "the mount cannot be ended");
    must(!observed.grew, "a file that was cut short was written behind its end");
    let is_whole = *other == Found::Whole;
    must(is_whole || !is_success(ending, observed), "success is reported, and a file is not whole");
    must(
        is_whole || observed.again != Some(0),
        "success is reported later, and a file is not whole",
    );
    if let Some((code, later)) = &observed.later {
        must(*code != 0 || *later == Found::Whole, "what was acknowledged later is not there");
        must(*code == 0 || !is_whole, "the mount does not go on, though nothing is lost");
    }
    wrong
}

/// The differences of an observation from the rules and from the page.
fn judge(row: &Row, failure: HostFailure, ending: Ending, observed: &Observation) -> Vec<String> {
    let mut wrong = rules(ending, observed);
    let is_success = is_success(ending, observed);
    let reports = match ending {
        Ending::Fsync => None,
        Ending::Term | Ending::Fusermount => {
            observed.server.as_ref().map(|(_, said)| said.as_str())
        }
        _ => Some(observed.said.as_str()),
    };
    let words = &row.words;
    if is_success != words.is_empty() {
        let what = if is_success { "no failure is reported" } else { "a failure is reported" };
        wrong.push(what.into());
    } else if !is_success && reports.is_some_and(|said| !has(said, words)) {
        wrong.push(format!("no report says {words:?}"));
    }
    if let (Some(status), true) = (&observed.status, ending != Ending::Fsync) {
        let (holds, codes) = match (is_success, observed.server.is_some()) {
            (true, _) => (status.out.contains("ended"), 3..4),
            (false, true) => (has(&status.out, words), 1..2),
            // The volume is still mounted, but can have stopped.
            (false, false) => (has(&status.out, words), 0..2),
        };
        if !holds || !codes.contains(&status.code) {
            wrong.push(format!("uxfs status does not say it: {status:?}"));
        }
    }
    let is_silent = matches!(failure, HostFailure::None | HostFailure::OwnLimit | HostFailure::Cut);
    if is_silent != (observed.refused == 0) {
        wrong.push(format!("{} requests were refused", observed.refused));
    }
    let (said, shown) = (row.cell(ending), cell(ending, observed));
    if said != shown {
        wrong.push(format!("the page says '{said}', it is '{shown}'"));
    }
    wrong
}

/// The page's row of a refusal.
fn row(rows: &[Row], name: &str) -> Row {
    let found = rows.iter().find(|row| row.refusal == name);
    found.unwrap_or_else(|| panic!("docs/ERRORS.md has no row '{name}'")).clone()
}

/// Seed of the random choices.
fn seed() -> u64 {
    std::env::var("UXFS_SEED").map_or(1, |seed| seed.parse().unwrap())
}

/// Calls `look` for each item, several at a time. Returns the problems found.
fn each<T: Sync>(all: &[T], look: impl Fn(&T) -> String + Sync) -> String {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(String::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = look(one);
                    wrong.lock().unwrap_or_else(PoisonError::into_inner).push_str(&found);
                }
            });
        }
    });
    wrong.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The problems found in one case. A panic is a problem.
fn problems(
    plan: impl Into<Plan>,
    ending: Ending,
    name: &str,
    look: impl Fn(&Observation) -> Vec<String>,
) -> String {
    let plan = plan.into();
    let observed = catch_unwind(|| observe(plan, ending));
    let wrong = match &observed {
        Ok(observed) => look(observed),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            vec![format!("panicked: {}", text.unwrap_or_default())]
        }
    };
    if wrong.is_empty() {
        return String::new();
    }
    format!("{name}, {ending:?}, {plan:?}:\n  {}\n  {observed:?}\n", wrong.join("\n  "))
}

#[test]
fn every_cell_of_the_page_matches_the_observation() {
    let rows = page::matrix(&page::text());
    assert_eq!(rows.len(), HOST_FAILURES.len(), "a row that is not tested");
    let cells: Vec<_> =
        HOST_FAILURES.iter().flat_map(|t| Ending::ALL.map(|ending| (t.0, t.1, ending))).collect();
    let shown = Mutex::new(BTreeMap::new());
    let wrong = each(&cells, |(name, failure, ending)| {
        let row = row(&rows, name);
        problems(*failure, *ending, name, |observed| {
            let key = (*name, *ending);
            shown
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(key, cell(*ending, observed));
            judge(&row, *failure, *ending, observed)
        })
    });
    let shown = shown.into_inner().unwrap_or_else(PoisonError::into_inner);
    let lines = HOST_FAILURES.map(|(name, _)| {
        let cells = Ending::ALL.map(|ending| shown.get(&(name, ending)).map_or("", |cell| cell));
        format!("| {name} | {} |", cells.join(" | "))
    });
    assert!(wrong.is_empty(), "{wrong}\nWhat was observed:\n{}", lines.join("\n"));
}

/// The process' own file size limit has the same effect as the host's, and no signal ends the process.
#[test]
fn a_process_file_size_limit_equals_the_efbig_row() {
    let row = row(&page::matrix(&page::text()), "`EFBIG`");
    let ways = [Ending::Fsync, Ending::Umount, Ending::Term, Ending::Fusermount, Ending::Copy];
    let failure = HostFailure::OwnLimit;
    let wrong = each(&ways, |ending| {
        problems(failure, *ending, "ulimit -f", |observed| judge(&row, failure, *ending, observed))
    });
    assert!(wrong.is_empty(), "{wrong}");
}

/// In the cells, the host refuses from the start of the end of work. Here it begins later, or stops
/// refusing.
#[test]
fn the_rules_hold_whenever_the_host_refuses() {
    let mut plans = Vec::new();
    let seed = seed();
    let mut rng = Rng::new(seed);
    for (name, failure) in HOST_FAILURES {
        if matches!(failure, HostFailure::None | HostFailure::Cut) {
            continue;
        }
        for ending in Ending::ALL {
            let times = if rng.once_in(2) { u64::MAX } else { 1 + rng.below(4) };
            plans.push((name, ending, Plan { failure, before: rng.below(12), times }));
        }
    }
    let wrong = each(&plans, |(name, ending, plan)| {
        problems(*plan, *ending, name, |observed| rules(*ending, observed))
    });
    assert!(wrong.is_empty(), "UXFS_SEED={seed}:\n{wrong}");
}

/// Asserts that the check reports this changed observation.
#[track_caller]
fn finds(
    what: &str,
    row: &Row,
    failure: HostFailure,
    ending: Ending,
    observed: &Observation,
    words: &str,
) {
    let wrong = judge(row, failure, ending, observed);
    assert!(wrong.iter().any(|line| line.contains(words)), "{what}: {wrong:?}");
}

/// Tests the check itself: it finds each false row and each false observation.
#[test]
fn false_rows_and_observations_are_reported() {
    let rows = page::matrix(&page::text());
    let (name, failure) = HOST_FAILURES[1];
    let ending = Ending::Copy;
    let honest = row(&rows, name);
    let observed = observe(failure, ending);
    assert_eq!(judge(&honest, failure, ending, &observed), Vec::<String>::new());
    // The page is wrong.
    for lie in ["`0` written", "`1` written", "`0` lost", "`2` lost", ""] {
        let mut row = honest.clone();
        row.cells = vec![lie.to_owned(); Ending::ALL.len()];
        finds(lie, &row, failure, ending, &observed, "the page says");
    }
    let mut row = honest.clone();
    row.words = vec!["Input/output error".into()];
    finds("words", &row, failure, ending, &observed, "no report says");
    // The observation violates a rule.
    let mut silent = observed.clone();
    silent.said.clear();
    finds("silence", &honest, failure, ending, &silent, "no report says");
    let mut success = observed.clone();
    success.code = 0;
    finds("success", &honest, failure, ending, &success, "success is reported");
    let mut lost = observed.clone();
    lost.files[0] = Found::Part;
    finds("loss", &honest, failure, ending, &lost, "what was acknowledged");
    // The host refuses nothing.
    let tame = observe(HostFailure::None, ending);
    finds("no refusal", &honest, failure, ending, &tame, "refused");
    finds("no refusal", &honest, failure, ending, &tame, "the page says");
}
