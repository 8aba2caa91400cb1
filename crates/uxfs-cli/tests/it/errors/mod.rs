//! Tests the matrix of docs/ERRORS.md. For each refusal of the host and each way to end work on the
//! volume, the page says which program reports the failure and what is on the volume.
//!
//! 1. The page is the expectation: a cell that differs from the observation fails the test.
//! 2. Three rules hold in every cell, regardless of the page ([`judge`]): acknowledged data is on the
//!    volume; success is reported only if all data is; a failure comes with a message.
//! 3. A refusal that no request met proves nothing and fails the test.

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
use out::{Found, Plan, Seen, Trouble, Way, see};
use page::Row;

/// The rows, by the page's names.
const TROUBLES: [(&str, Trouble); 11] = [
    ("nothing", Trouble::None),
    ("`ENOSPC`", Trouble::Refuses(Refusal::Allocating(Errno::NOSPC))),
    ("`ENOSPC`, overwriting too", Trouble::Refuses(Refusal::Writing(Errno::NOSPC))),
    ("`EDQUOT`", Trouble::Refuses(Refusal::Allocating(Errno::DQUOT))),
    ("`EFBIG`", Trouble::Limit),
    ("`EIO` of writes", Trouble::Refuses(Refusal::Writing(Errno::IO))),
    ("`EIO` of flushes", Trouble::Refuses(Refusal::Flushing(Errno::IO))),
    ("short writes", Trouble::Refuses(Refusal::Half)),
    ("writes of 0 bytes", Trouble::Refuses(Refusal::Nothing)),
    ("truncated", Trouble::Cut),
    ("vanished", Trouble::Refuses(Refusal::Everything(Errno::NODEV))),
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
fn cell(way: Way, seen: &Seen) -> String {
    let server = seen.server.as_ref().map_or(-1, |(code, _)| *code);
    let end = match way {
        Way::Close | Way::Drop => if seen.code == 0 { "`Ok`" } else { "`Err`" }.to_owned(),
        Way::Umount | Way::Copy => format!("`{}`", seen.code),
        Way::Term => format!("`{server}`"),
        Way::Fusermount => format!("`{}`, server `{server}`", seen.code),
        Way::Fsync if seen.code == 0 => "`0`".to_owned(),
        Way::Fsync => format!("`{}`", errno(&seen.said)),
    };
    let fate = match (&seen.files[1], seen.code) {
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
fn is_success(way: Way, seen: &Seen) -> bool {
    match way {
        Way::Term | Way::Fusermount => seen.server.as_ref().is_some_and(|(code, _)| *code == 0),
        _ => seen.code == 0,
    }
}

/// The rules that an observation violates, regardless of the page.
fn rules(way: Way, seen: &Seen) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            wrong.push(what.to_owned());
        }
    };
    let [acknowledged, other] = &seen.files;
    must(*acknowledged == Found::Whole, "what was acknowledged is not on the volume");
    must(!matches!(other, Found::Wrong(_)), "a file has content that was not written to it");
    must(seen.check == 0, "uxfs check finds damage");
    must(seen.gone, "the mount cannot be ended");
    must(!seen.grew, "a file that was cut short was written behind its end");
    let is_whole = *other == Found::Whole;
    must(is_whole || !is_success(way, seen), "success is reported, and a file is not whole");
    must(is_whole || seen.again != Some(0), "success is reported later, and a file is not whole");
    if let Some((code, later)) = &seen.later {
        must(*code != 0 || *later == Found::Whole, "what was acknowledged later is not there");
        must(*code == 0 || !is_whole, "the mount does not go on, though nothing is lost");
    }
    wrong
}

/// The differences of an observation from the rules and from the page.
fn judge(row: &Row, trouble: Trouble, way: Way, seen: &Seen) -> Vec<String> {
    let mut wrong = rules(way, seen);
    let is_success = is_success(way, seen);
    let reports = match way {
        Way::Fsync => None,
        Way::Term | Way::Fusermount => seen.server.as_ref().map(|(_, said)| said.as_str()),
        _ => Some(seen.said.as_str()),
    };
    let words = &row.words;
    if is_success != words.is_empty() {
        let what = if is_success { "no failure is reported" } else { "a failure is reported" };
        wrong.push(what.into());
    } else if !is_success && reports.is_some_and(|said| !has(said, words)) {
        wrong.push(format!("no report says {words:?}"));
    }
    if let (Some(status), true) = (&seen.status, way != Way::Fsync) {
        let (holds, codes) = match (is_success, seen.server.is_some()) {
            (true, _) => (status.out.contains("ended"), 3..4),
            (false, true) => (has(&status.out, words), 1..2),
            // The volume is still mounted, but can have stopped.
            (false, false) => (has(&status.out, words), 0..2),
        };
        if !holds || !codes.contains(&status.code) {
            wrong.push(format!("uxfs status does not say it: {status:?}"));
        }
    }
    let is_silent = matches!(trouble, Trouble::None | Trouble::OwnLimit | Trouble::Cut);
    if is_silent != (seen.met == 0) {
        wrong.push(format!("{} requests were refused", seen.met));
    }
    let (said, shown) = (row.cell(way), cell(way, seen));
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
fn looked(
    plan: impl Into<Plan>,
    way: Way,
    name: &str,
    look: impl Fn(&Seen) -> Vec<String>,
) -> String {
    let plan = plan.into();
    let seen = catch_unwind(|| see(plan, way));
    let wrong = match &seen {
        Ok(seen) => look(seen),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            vec![format!("panicked: {}", text.unwrap_or_default())]
        }
    };
    if wrong.is_empty() {
        return String::new();
    }
    format!("{name}, {way:?}, {plan:?}:\n  {}\n  {seen:?}\n", wrong.join("\n  "))
}

#[test]
fn every_cell_of_the_page_matches_the_observation() {
    let rows = page::matrix(&page::text());
    assert_eq!(rows.len(), TROUBLES.len(), "a row that is not tested");
    let cells: Vec<_> = TROUBLES.iter().flat_map(|t| Way::ALL.map(|way| (t.0, t.1, way))).collect();
    let shown = Mutex::new(BTreeMap::new());
    let wrong = each(&cells, |(name, trouble, way)| {
        let row = row(&rows, name);
        looked(*trouble, *way, name, |seen| {
            let key = (*name, *way);
            shown.lock().unwrap_or_else(PoisonError::into_inner).insert(key, cell(*way, seen));
            judge(&row, *trouble, *way, seen)
        })
    });
    let shown = shown.into_inner().unwrap_or_else(PoisonError::into_inner);
    let lines = TROUBLES.map(|(name, _)| {
        let cells = Way::ALL.map(|way| shown.get(&(name, way)).map_or("", |cell| cell));
        format!("| {name} | {} |", cells.join(" | "))
    });
    assert!(wrong.is_empty(), "{wrong}\nWhat was seen:\n{}", lines.join("\n"));
}

/// The process' own file size limit has the same effect as the host's, and no signal ends the process.
#[test]
fn a_process_file_size_limit_equals_the_efbig_row() {
    let row = row(&page::matrix(&page::text()), "`EFBIG`");
    let ways = [Way::Fsync, Way::Umount, Way::Term, Way::Fusermount, Way::Copy];
    let trouble = Trouble::OwnLimit;
    let wrong = each(&ways, |way| {
        looked(trouble, *way, "ulimit -f", |seen| judge(&row, trouble, *way, seen))
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
    for (name, trouble) in TROUBLES {
        if matches!(trouble, Trouble::None | Trouble::Cut) {
            continue;
        }
        for way in Way::ALL {
            let times = if rng.once_in(2) { u64::MAX } else { 1 + rng.below(4) };
            plans.push((name, way, Plan { trouble, before: rng.below(12), times }));
        }
    }
    let wrong =
        each(&plans, |(name, way, plan)| looked(*plan, *way, name, |seen| rules(*way, seen)));
    assert!(wrong.is_empty(), "UXFS_SEED={seed}:\n{wrong}");
}

/// Asserts that the check reports this changed observation.
#[track_caller]
fn finds(what: &str, row: &Row, trouble: Trouble, way: Way, seen: &Seen, words: &str) {
    let wrong = judge(row, trouble, way, seen);
    assert!(wrong.iter().any(|line| line.contains(words)), "{what}: {wrong:?}");
}

/// Tests the check itself: it finds each false row and each false observation.
#[test]
fn false_rows_and_observations_are_reported() {
    let rows = page::matrix(&page::text());
    let (name, trouble) = TROUBLES[1];
    let way = Way::Copy;
    let honest = row(&rows, name);
    let seen = see(trouble, way);
    assert_eq!(judge(&honest, trouble, way, &seen), Vec::<String>::new());
    // The page is wrong.
    for lie in ["`0` written", "`1` written", "`0` lost", "`2` lost", ""] {
        let mut row = honest.clone();
        row.cells = vec![lie.to_owned(); Way::ALL.len()];
        finds(lie, &row, trouble, way, &seen, "the page says");
    }
    let mut row = honest.clone();
    row.words = vec!["Input/output error".into()];
    finds("words", &row, trouble, way, &seen, "no report says");
    // The observation violates a rule.
    let mut silent = seen.clone();
    silent.said.clear();
    finds("silence", &honest, trouble, way, &silent, "no report says");
    let mut success = seen.clone();
    success.code = 0;
    finds("success", &honest, trouble, way, &success, "success is reported");
    let mut lost = seen.clone();
    lost.files[0] = Found::Part;
    finds("loss", &honest, trouble, way, &lost, "what was acknowledged");
    // The host refuses nothing.
    let tame = see(Trouble::None, way);
    finds("no refusal", &honest, trouble, way, &tame, "refused");
    finds("no refusal", &honest, trouble, way, &tame, "the page says");
}
