//! The question of [`posts::FSYNC_COORDINATION`]: which way to coordinate fsyncs is right for the disk at hand? Every
//! policy, alone, on many disks and loads.

use super::blank::blank;
use crate::Result;
use crate::fsync::{Case, POLICIES, Row as Measured, cases};
use crate::outcome::{Best, Chart, Column, Drawn, Experiment, Series, Shape, figure};
use crate::plan::{Done, Found, How, Job, Progress, Rows, rounded, run as run_jobs};
use crate::posts;
use crate::verdict::{at_least, at_most};

/// Numbers of callers, the columns.
const CALLERS: [u32; 9] = [1, 2, 3, 4, 8, 16, 64, 256, 1000];
const AUTO: &str = "auto";
/// The group of cases in which load or disk change during the run.
const CHANGING: &str = "changing under way";
/// The durability of an acknowledgement: the simulation's own rule, which no policy can break.
const WORTH: &str = "stable storage: acknowledged after a flush that began after the arrival";

fn group(case: &Case) -> String {
    match (case.changing, case.name.split_once("; ")) {
        (false, Some((disk, _))) => disk.to_owned(),
        _ => CHANGING.to_owned(),
    }
}

/// Selects the cases to run. Those with 1,000 callers, and those in which 256 come and go, take
/// longer than all others together, and depend little on the duration of a flush. So all of them
/// are run with 8 ms, and every fifth with other durations: five, because that selects another load
/// for each disk.
fn chosen() -> Vec<Case> {
    let mut others = 0usize;
    let wanted = |case: &Case| {
        let many = case.name.contains(" 1000 think") || case.changing && case.name.contains("256");
        if !many || case.name.contains("flush 8 ms") {
            return true;
        }
        others += 1;
        others.is_multiple_of(5)
    };
    cases().into_iter().filter(wanted).collect()
}

/// A policy's rate relative to the best of the case, and its 99th percentile as a multiple of the
/// best one's.
fn shares(row: &Measured) -> impl Iterator<Item = (&str, f64, f64)> {
    let best = &row.others[0];
    let all = row.others.iter().chain([&row.auto]);
    all.map(|score| (score.policy.as_str(), score.rate / best.rate, score.p99 / best.p99))
}

fn job(case: Case, seed: u64) -> Job {
    let (group, name) = (group(&case), case.name.clone());
    Job::new(group, name, move || {
        let row = case.measure(seed);
        let mut found = Found::default();
        for (policy, share, slow) in shares(&row) {
            found.set(&format!("share {policy}"), share);
            found.set(&format!("slow {policy}"), slow);
        }
        found.set("to_own", row.to_own);
        found.set("lone", f64::from(u8::from(row.lone)));
        found.set("callers", f64::from(row.callers));
        Ok(found)
    })
}

/// Runs it.
///
/// # Errors
/// If it is interrupted.
pub(super) fn run(how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let jobs = chosen().into_iter().map(|case| job(case, how.seed)).collect();
    let measured = run_jobs(how, jobs, progress)?;
    let mut out =
        blank("policies", "each policy of fsync_policy= on each disk, 1 to 1,000 threads", how);
    out.about = "The commit pipeline's policies alone, without an engine: callers think, arrive, \
                 wait for a flush that began after their arrival, and think again. A disk is \
                 described by the duration of its flush (plus or minus 5 %) and the number of \
                 flushes that it works on in parallel. Figures are the rate of a policy in \
                 percent of the best of 13 policies in the same case (those shown, and gather, \
                 overlap and fixed with other numbers), as the mean over all think times (0.02 \
                 to 20 flushes; evenly, at random, of two kinds). auto can be above 100: it is \
                 none of the 13, and is compared with the best of them in hindsight. \
                 docs/FSYNC.md explains each policy, and why bounds are missed."
        .into();
    out.source = posts::FSYNC_COORDINATION.to_string();
    out.heads = ("disk".into(), "fsync_policy=".into());
    for callers in CALLERS {
        let (label, key) = (format!("{callers} threads, %"), format!("at {callers}"));
        let label = if callers == 1 { "1 thread, %".into() } else { label };
        out.columns.push(Column::new(&key, &label, 1, Best::High));
    }
    out.columns.extend([
        Column::new("mean", "all, %", 1, Best::High),
        Column::new("least", "least, %", 1, Best::High),
        Column::new("slow", "most p99, x best's", 2, Best::Low),
    ]);
    let rows = summed(&measured);
    out.rows = rows.table(how, "policies", &out.columns, |_, _, _| None);
    for row in &mut out.rows {
        row.checked = "not checked: there is no engine and no disk here".into();
        row.repeat = format!("uxfs lab run policies --seed {} --only '{} / '", how.seed, row.group);
    }
    out.shapes = shapes(&measured);
    out.charts = charts(&rows);
    out.notes = notes(&measured);
    Ok(out)
}

/// One row for each policy on each disk.
fn summed(measured: &Rows) -> Rows {
    let mut groups: Vec<&str> = Vec::new();
    for done in &measured.0 {
        if !groups.contains(&done.group.as_str()) {
            groups.push(&done.group);
        }
    }
    let words = POLICIES.into_iter().chain([AUTO]);
    let rows = words.flat_map(|policy| groups.iter().map(move |group| (*group, policy)));
    let row = |(group, policy): (&str, &str)| {
        let of = |key: &str, wanted: &dyn Fn(&Found) -> bool| -> Vec<f64> {
            let cases = measured.0.iter().filter(|d| d.group == group && wanted(&d.found));
            cases.filter_map(|d| d.found.get(&format!("{key} {policy}"))).collect()
        };
        let mut found = Found { worth: Some(WORTH.into()), ..Found::default() };
        if group != CHANGING {
            for callers in CALLERS {
                let with = |f: &Found| f.get("callers") == Some(f64::from(callers));
                if let Some(mean) = mean(&of("share", &with)) {
                    found.set(&format!("at {callers}"), 100.0 * mean);
                }
            }
        }
        let all = of("share", &|_| true);
        if let (Some(mean), Some(least)) = (mean(&all), all.iter().copied().reduce(f64::min)) {
            found.set("mean", 100.0 * mean);
            found.set("least", 100.0 * least);
        }
        if let Some(most) = of("slow", &|_| true).into_iter().reduce(f64::max) {
            found.set("slow", most);
        }
        Done { group: group.to_owned(), name: policy.to_owned(), found }
    };
    let mut rows: Vec<Done> = rows.map(row).collect();
    rows.sort_by_key(|done| groups.iter().position(|group| *group == done.group));
    Rows(rows)
}

fn mean(of: &[f64]) -> Option<f64> {
    (!of.is_empty()).then(|| of.iter().sum::<f64>() / of.len() as f64)
}

/// A bound on a figure of each case: at least or at most a value.
struct Bound {
    claim: &'static str,
    /// The name of the figure.
    what: &'static str,
    key: &'static str,
    bound: f64,
    least: bool,
    lone: bool,
}

const BOUNDS: [Bound; 4] = [
    Bound {
        claim: "auto serves at least 0.97 of the best in hindsight, in every case",
        what: "of the best one's rate",
        key: "share auto",
        bound: 0.97,
        least: true,
        lone: false,
    },
    Bound {
        claim: "auto's slowest hundredth is at most 1.1 times the best one's, in every case",
        what: "times the best one's p99",
        key: "slow auto",
        bound: 1.1,
        least: false,
        lone: false,
    },
    Bound {
        claim: "auto serves at least 0.98 of what own serves, in every case",
        what: "of own's rate",
        key: "to_own",
        bound: 0.98,
        least: true,
        lone: false,
    },
    Bound {
        claim: "a thread alone pays at most 1 % for auto",
        what: "of the best one's rate, alone",
        key: "share auto",
        bound: 0.99,
        least: true,
        lone: true,
    },
];

impl Bound {
    /// The cases to which it applies, with their figures.
    fn of<'a>(&self, measured: &'a Rows) -> Vec<(&'a Done, f64)> {
        let about = |done: &&Done| !self.lone || done.found.get("lone") == Some(1.0);
        let cases = measured.0.iter().filter(about);
        cases.filter_map(|done| Some((done, done.found.get(self.key)?))).collect()
    }

    fn missed(&self, value: f64) -> bool {
        if self.least { value < self.bound } else { value > self.bound }
    }

    fn shape(&self, measured: &Rows) -> Shape {
        let cases = self.of(measured);
        let pick = if self.least { f64::min } else { f64::max };
        let worst = cases.iter().map(|case| case.1).reduce(pick);
        let missed: Vec<&(&Done, f64)> = cases.iter().filter(|c| self.missed(c.1)).collect();
        let changing = missed.iter().filter(|c| c.0.group == CHANGING).count();
        let ours = worst.map_or_else(
            || "not run".into(),
            |worst| {
                let word = if self.least { "least" } else { "most" };
                let all = figure(cases.len() as f64, 0);
                let count = match missed.len() {
                    0 => format!("missed in none of {all} cases"),
                    n => format!("missed in {n} of {all} cases, {changing} of them changing"),
                };
                format!("{count}; {word} {worst:.3}")
            },
        );
        let bounds = if self.least { at_least(self.bound) } else { at_most(self.bound) };
        Shape { ours, ..Shape::goal(self.claim, "no policy won everywhere", worst, "", bounds) }
    }
}

fn shapes(measured: &Rows) -> Vec<Shape> {
    let mut all: Vec<Shape> = BOUNDS.iter().map(|bound| bound.shape(measured)).collect();
    let shares = |policy: &str| -> Vec<f64> {
        let key = format!("share {policy}");
        measured.0.iter().filter_map(|done| done.found.get(&key)).collect()
    };
    all.insert(
        1,
        Shape::goal(
            "auto serves at least 0.99 of the best in hindsight, in the mean of all cases",
            "no policy won everywhere",
            mean(&shares(AUTO)),
            " of the best",
            at_least(0.99),
        ),
    );
    let worst = |policy: &str| shares(policy).into_iter().reduce(f64::min);
    let fixed = POLICIES.into_iter().filter_map(|word| Some((word, worst(word)?)));
    let best = fixed.max_by(|a, b| a.1.total_cmp(&b.1));
    let claim = match best {
        Some((word, _)) => {
            format!(
                "none of the 13 fixed policies wins everywhere: even the best one's ({word}) least is below 0.9"
            )
        }
        None => "none of the 13 fixed policies wins everywhere".into(),
    };
    let post = "waiting won on slow disks and lost on fast ones";
    let whole =
        measured.0.iter().map(|done| &done.group).collect::<std::collections::BTreeSet<_>>();
    let ours = best.map(|best| best.1).filter(|_| whole.len() > 1);
    all.push(Shape::new(claim, post, ours, " of the best", at_most(0.9), None));
    all
}

fn charts(rows: &Rows) -> Vec<Chart> {
    let chart = |group: &str| {
        let series = rows.0.iter().filter(|row| row.group == group).filter(|row| {
            ["own", "journal", "average", "greedy", "gather", "overlap:16", AUTO]
                .contains(&row.name.as_str())
        });
        let series = series.map(|row| Series {
            name: row.name.clone(),
            points: CALLERS
                .iter()
                .filter_map(|callers| {
                    let value = row.found.get(&format!("at {callers}"))?;
                    Some((f64::from(*callers), rounded(value)))
                })
                .collect(),
            post: false,
            worth: WORTH.into(),
        });
        Chart {
            title: format!("What a policy serves, of the best: {group}"),
            axes: ("threads".into(), "% of the best in hindsight".into()),
            log: (true, false),
            drawn: Drawn::Lines,
            series: series.collect(),
        }
    };
    let all = ["flush 8 ms, one at a time", "flush 8 ms, 16 at once"].map(chart);
    all.into_iter().filter(|chart| !chart.series.is_empty()).collect()
}

/// The cases that were run, and those that missed a bound.
fn notes(measured: &Rows) -> Vec<String> {
    let mut all = vec![format!(
        "{} of the {} cases of the grid were run: of those with 1,000 threads, and those in which 256 \
         come and go, all with a flush of 8 ms and every fifth of the others; the whole grid: cargo \
         run --release -p uxfs-lab --example policies",
        figure(measured.0.len() as f64, 0),
        figure(cases().len() as f64, 0)
    )];
    for bound in &BOUNDS {
        let mut missed: Vec<(&Done, f64)> = bound.of(measured);
        missed.retain(|case| bound.missed(case.1));
        missed.sort_by(|a, b| a.1.total_cmp(&b.1));
        if !bound.least {
            missed.reverse();
        }
        for (done, value) in missed.iter().take(5) {
            all.push(format!("missed: {value:.3} {}: {}", bound.what, done.name));
        }
        if missed.len() > 5 {
            all.push(format!("… and {} more that missed {}", missed.len() - 5, bound.bound));
        }
    }
    all
}
