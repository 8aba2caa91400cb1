//! The report: one page, complete in itself.
//!
//! 1. No network, no scripts: charts are SVG in the page.
//! 2. Every figure has its durability in the same row.
//! 3. Text of a result is text on the page, whatever it contains.

mod chart;
mod machine;
mod picture;

use core::fmt::Write;
use std::path::Path;

use crate::outcome::{Experiment, Row, SCHEMA, Shape, figure};
use crate::verdict::Verdict;
use crate::{LabError, Result};

pub use picture::Picture;

const STYLE: &str = include_str!("style.css");

/// Text escaped for HTML.
fn text(plain: &str) -> String {
    let mut out = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// Text escaped for HTML, with parts between backticks as code.
fn prose(plain: &str) -> String {
    let mut out = String::with_capacity(plain.len());
    let mut pieces = text(plain).split('`').map(str::to_owned).collect::<Vec<_>>();
    // An unpaired backtick stays.
    if pieces.len().is_multiple_of(2) {
        let last = pieces.pop().unwrap_or_default();
        if let Some(before) = pieces.last_mut() {
            *before = format!("{before}`{last}");
        }
    }
    for (at, piece) in pieces.iter().enumerate() {
        out += &if at % 2 == 1 { format!("<code>{piece}</code>") } else { piece.clone() };
    }
    out
}

/// The results in a directory, in the order of the list of experiments.
///
/// # Errors
/// If it cannot be read, or holds none.
pub fn load(dir: &Path) -> Result<Vec<Experiment>> {
    let failed = |e: std::io::Error| LabError::new(dir.display().to_string(), e);
    let mut found: Vec<Experiment> = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_none_or(|end| end != "json") {
            continue;
        }
        let bytes = std::fs::read(&path);
        let bytes = bytes.map_err(|e| LabError::new(path.display().to_string(), e))?;
        // There may be other JSON files.
        let Ok(json) = serde_json::from_slice::<serde_json::Value>(&bytes) else { continue };
        if json["schema"] != SCHEMA.0 {
            continue;
        }
        let of = |e: &dyn core::fmt::Display| LabError::new(path.display().to_string(), e);
        if json["version"] != SCHEMA.1 {
            let again = format!(
                "is of version {} of the lab's outcomes, this is version {}: run the experiment again",
                json["version"], SCHEMA.1
            );
            return Err(of(&again));
        }
        found.push(serde_json::from_value(json).map_err(|e| of(&e))?);
    }
    if found.is_empty() {
        let why = "holds no outcome of an experiment: `uxfs lab run all --out` there first";
        return Err(LabError::new(dir.display().to_string(), why));
    }
    let place = |name: &str| crate::experiments::ALL.iter().position(|known| known.name == name);
    found.sort_by_key(|e| (place(&e.name).unwrap_or(usize::MAX), e.name.clone()));
    Ok(found)
}

pub fn page(experiments: &[Experiment]) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut out, experiments);
    out
}

fn write(out: &mut String, experiments: &[Experiment]) -> core::fmt::Result {
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>uxfs lab</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    )?;
    let seeds: Vec<String> = experiments.iter().map(|e| e.seed.to_string()).collect();
    let seed = if seeds.windows(2).all(|w| w[0] == w[1]) { &seeds[0] } else { "several" };
    writeln!(
        out,
        "<header><h1>uxfs lab</h1><p class=\"lead\">Measurements that file systems were argued over, \
         done again on disks whose every parameter is stated, in virtual time, with what an \
         acknowledged operation was worth beside every figure: derived from the flushes and forced \
         writes that went down, and checked by cutting the power and recovering.</p>\
         <p class=\"small\">Random seed {}. The same random seed gives the same digits on any Linux \
         machine, but for what was measured in real time, which says so. A claim that a post makes \
         <b>holds in size</b> if what is gained here is half to twice what was gained there, and \
         <b>in direction only</b> if it goes the same way by less or more; the bounds stand beside \
         each verdict.</p></header>",
        text(seed)
    )?;
    contents(out, experiments)?;
    for experiment in experiments {
        section(out, experiment)?;
    }
    machine_section(out)?;
    out.push_str("</main>\n</body>\n</html>\n");
    Ok(())
}

fn contents(out: &mut String, experiments: &[Experiment]) -> core::fmt::Result {
    out.push_str(
        "<section><h2>At a glance</h2><div class=\"scroll\"><table><thead><tr><th>experiment</th>\
         <th>answers</th><th class=\"n\">rows</th><th>claims that hold</th>\
         <th class=\"n\">goals reached</th><th>durability</th></tr></thead><tbody>\n",
    );
    for e in experiments {
        let goals = e.shapes.iter().filter(|s| s.goal).filter_map(Shape::holds);
        let goals = match goals.clone().count() {
            0 => "–".to_owned(),
            count => format!("{} of {count}", goals.filter(|held| *held).count()),
        };
        let (cuts, failed) = checks(e);
        let rows = e.rows.len();
        let checked = e.rows.iter().filter(|row| row.is_checked()).count();
        let others = match rows - checked {
            0 => String::new(),
            n => format!("; {n} rows not checked"),
        };
        let kept = match failed {
            0 if checked == 0 => "not checked".into(),
            0 if checked == rows => format!("as promised in every row; {cuts} cuts"),
            0 => format!("as promised in {checked} of {rows} rows; {cuts} cuts{others}"),
            n => format!("<b class=\"bad\">{n} rows failed</b>; {cuts} cuts{others}"),
        };
        writeln!(
            out,
            "<tr><td><a href=\"#{0}\">{0}</a></td><td>{1}</td><td class=\"n\">{2}</td>\
             <td>{3}</td><td class=\"n\">{4}</td><td>{kept}</td></tr>",
            text(&e.name),
            text(&e.source),
            e.rows.len(),
            claims(e),
            goals
        )?;
    }
    out.push_str("</tbody></table></div></section>\n");
    Ok(())
}

/// How many claims of posts hold, by verdict.
fn claims(e: &Experiment) -> String {
    let all = e.shapes.iter().filter(|shape| !shape.goal && shape.verdict.is_some());
    let count = |verdict| all.clone().filter(|shape| shape.verdict == Some(verdict)).count();
    let counts = [
        (count(Verdict::Size), "in size"),
        (count(Verdict::Direction), "in direction"),
        (count(Verdict::No), "not"),
    ];
    let words = counts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}"));
    match words.collect::<Vec<_>>() {
        none if none.is_empty() => "–".into(),
        words => words.join(", "),
    }
}

fn section(out: &mut String, e: &Experiment) -> core::fmt::Result {
    writeln!(
        out,
        "<section id=\"{0}\"><h2>{0}</h2><p class=\"title\">{1}</p><p class=\"small\">Answers {3}</p>\
         <p>{2}</p>",
        text(&e.name),
        text(&e.title),
        prose(&e.about),
        text(&e.source)
    )?;
    if !e.shapes.is_empty() {
        out.push_str("<h3>Claims and goals</h3><ul class=\"shapes\">\n");
        e.shapes.iter().try_for_each(|shape| shape_item(out, shape))?;
        out.push_str("</ul>\n");
    }
    table(out, e)?;
    durability(out, e)?;
    if !e.charts.is_empty() {
        out.push_str("<div class=\"charts\">\n");
        e.charts.iter().try_for_each(|c| chart::draw(out, c))?;
        out.push_str("</div>\n");
    }
    if !e.notes.is_empty() {
        out.push_str("<ul class=\"notes\">\n");
        e.notes.iter().try_for_each(|note| writeln!(out, "<li>{}</li>", text(note)))?;
        out.push_str("</ul>\n");
    }
    details(out, e)?;
    out.push_str("</section>\n");
    Ok(())
}

fn shape_item(out: &mut String, shape: &Shape) -> core::fmt::Result {
    let class = match shape.verdict {
        Some(Verdict::Direction) if !shape.goal && shape.size.is_some() => "half",
        Some(Verdict::Size | Verdict::Direction) => "good",
        Some(Verdict::No) => "bad",
        None => "open",
    };
    let goal = if shape.goal { "<span class=\"pill goal\">goal</span>" } else { "" };
    let post = match shape.post.as_str() {
        "" => String::new(),
        post => format!(" <i>(the post: {})</i>", text(post)),
    };
    writeln!(
        out,
        "<li><span class=\"pill {class}\">{}</span>{goal}<span>{}: <b>{}</b> \
         <small class=\"bounds\">[{}]</small>{post}</span></li>",
        shape.words(),
        text(&shape.claim),
        text(&shape.ours),
        text(&shape.bounds()),
    )
}

/// The durability of all rows in one paragraph. Printed pages show it in place of the table of an
/// experiment that has charts.
fn durability(out: &mut String, e: &Experiment) -> core::fmt::Result {
    let mut worths: Vec<(&str, usize)> = Vec::new();
    for row in &e.rows {
        match worths.iter_mut().find(|(worth, _)| *worth == row.worth) {
            Some((_, rows)) => *rows += 1,
            None => worths.push((&row.worth, 1)),
        }
    }
    worths.sort_by_key(|(_, rows)| core::cmp::Reverse(*rows));
    let (checked, failed) = checks(e);
    write!(out, "<p class=\"durability\">What was acknowledged was on: ")?;
    for (at, (worth, rows)) in worths.iter().enumerate() {
        let separator = if at == 0 { "" } else { "; " };
        write!(out, "{separator}{} ({rows} of {} rows)", text(worth), e.rows.len())?;
    }
    let (rows, all) = (e.rows.iter().filter(|row| row.is_checked()).count(), e.rows.len());
    let others = match all - rows {
        0 => String::new(),
        n => format!(" in {rows} of {all} rows; {n} were not checked"),
    };
    match (failed, checked) {
        (0, 0) => write!(out, ". No power cut checked it.")?,
        (0, cuts) => write!(out, ". {cuts} power cuts confirmed it{others}.")?,
        (n, cuts) => {
            let failed = format!("<b class=\"bad\">{n} rows failed</b>");
            write!(out, ". {failed} in {cuts} power cuts{others}.")?;
        }
    }
    writeln!(out, " The figure of each row is on the page and in its CSV.</p>")
}

/// Power cuts done, and the rows whose durability they refuted.
fn checks(e: &Experiment) -> (u32, usize) {
    let cuts = e.rows.iter().filter_map(|row| Some(row.durability.as_ref()?.cuts)).sum();
    (cuts, e.rows.iter().filter(|row| row.failed).count())
}

fn table(out: &mut String, e: &Experiment) -> core::fmt::Result {
    let class = if e.charts.is_empty() { "scroll" } else { "scroll charted" };
    write!(
        out,
        "<div class=\"{class}\"><table><caption><span>The best of each group among rows that are as durable is bold; the post's figure, \
         from hardware of its day, stands below in italics.</span></caption><thead><tr><th>{}</th><th>{}</th>",
        text(&e.heads.0),
        text(&e.heads.1)
    )?;
    for column in &e.columns {
        write!(out, "<th class=\"n\">{}</th>", text(&column.label))?;
    }
    out.push_str("<th>what was acknowledged was on</th></tr></thead><tbody>\n");
    let mut group = None;
    for row in &e.rows {
        let first = group.replace(&row.group) != Some(&row.group);
        table_row(out, e, row, first)?;
    }
    out.push_str("</tbody></table></div>\n");
    Ok(())
}

fn table_row(out: &mut String, e: &Experiment, row: &Row, first: bool) -> core::fmt::Result {
    let class = match (row.failed, first) {
        (true, _) => " class=\"failed\"",
        (false, true) => " class=\"first\"",
        (false, false) => "",
    };
    let group = if first { text(&row.group) } else { String::new() };
    write!(out, "<tr{class}><th>{group}</th><th>{}</th>", text(&row.name))?;
    for (at, (cell, column)) in row.cells.iter().zip(&e.columns).enumerate() {
        let ours = cell.ours.map_or_else(|| "–".into(), |v| figure(v, column.digits));
        let best = cell.ours.is_some() && cell.ours == e.best(row, at);
        let ours = if best { format!("<b>{ours}</b>") } else { ours };
        let post = cell
            .post
            .map_or_else(String::new, |v| format!("<br><i>{}</i>", figure(v, column.digits)));
        write!(out, "<td class=\"n\">{ours}{post}</td>")?;
    }
    let problem = row.durability.as_ref().filter(|d| d.failed).and_then(|d| d.problem.as_deref());
    let problem = problem.map_or_else(String::new, |p| format!("<br>{}", text(p)));
    writeln!(
        out,
        "<td class=\"worth\">{}<br><small>{}{problem}</small></td></tr>",
        text(&row.worth),
        text(&row.checked)
    )
}

fn details(out: &mut String, e: &Experiment) -> core::fmt::Result {
    out.push_str(
        "<details><summary>The disks, the processors, and how to repeat each row</summary>\n",
    );
    for disk in &e.disks {
        writeln!(out, "<p><b>{}</b>: {}.</p>", text(&disk.name), text(&disk.about))?;
    }
    if let Some(cpu) = &e.cpu {
        writeln!(
            out,
            "<p><b>processors</b> (stated, not measured): {}; making, removing or renaming a name \
             takes {} µs, of which one client at a time {} µs more to join the log; looking \
             something up {} µs; a call that moves bytes {} µs and {} µs for each KiB; an fsync {} \
             µs besides what it waits for.</p>",
            cpu.processors,
            cpu.name_us,
            cpu.serial_us,
            cpu.look_us,
            cpu.call_us,
            cpu.kib_us,
            cpu.sync_us
        )?;
    }
    out.push_str("<ul class=\"repeat\">\n");
    for row in &e.rows {
        writeln!(out, "<li><code>{}</code></li>", text(&row.repeat))?;
    }
    out.push_str("</ul></details>\n");
    Ok(())
}

fn machine_section(out: &mut String) -> core::fmt::Result {
    out.push_str(
        "<section><h2>The machine</h2><p>On which the experiments were done. What is modelled does \
         not depend on it; what was measured on real disks does.</p><dl>\n",
    );
    for (what, value) in machine::describe() {
        writeln!(out, "<dt>{}</dt><dd>{}</dd>", text(what), text(&value))?;
    }
    out.push_str("</dl></section>\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::{Durability, DurabilityLevel, Fsyncs};
    use crate::outcome::{Best, Cell, Column};
    use crate::plan::How;

    fn row(name: &str, rate: f64, found: Option<(DurabilityLevel, u32)>) -> Row {
        let durability = found.map(|(found, cuts)| Durability {
            promised: DurabilityLevel::Stable,
            found,
            exposed_s: 0.0,
            within_s: 30.0,
            open_end: false,
            acknowledged: 1,
            flushes: 1,
            forced: 0,
            cuts,
            looked_for: 1,
            lost: 0,
            broken: 0,
            unsound: 0,
            fsyncs: Fsyncs::Waited,
            moments: None,
            failed: false,
            problem: None,
        });
        Row {
            group: "g".into(),
            name: name.into(),
            cells: vec![Cell { ours: Some(rate), post: None }],
            worth: durability.as_ref().map_or("memory".into(), Durability::label),
            durability,
            checked: "not checked".into(),
            failed: false,
            repeat: String::new(),
        }
    }

    fn experiment(rows: Vec<Row>) -> Experiment {
        let mut e = crate::experiments::blank::blank("fs-mark", "a test", &How::new(1));
        e.columns = vec![Column::new("rate", "files/s", 0, Best::High)];
        e.rows = rows;
        e
    }

    /// Power cuts of one row say nothing of another.
    #[test]
    fn rows_that_were_not_cut_are_counted_apart() {
        let checked = || row("uxfs", 10.0, Some((DurabilityLevel::Stable, 8)));
        let all = page(&[experiment(vec![checked(), checked()])]);
        assert!(all.contains("as promised in every row; 16 cuts"));
        assert!(all.contains("16 power cuts confirmed it."));
        let some = page(&[experiment(vec![checked(), row("kernel:xfs", 20.0, None)])]);
        assert!(!some.contains("every row"));
        assert!(some.contains("as promised in 1 of 2 rows; 8 cuts; 1 rows not checked"));
        assert!(some.contains("8 power cuts confirmed it in 1 of 2 rows; 1 were not checked."));
        let none = page(&[experiment(vec![row("kernel:xfs", 20.0, None)])]);
        assert!(none.contains("<td>not checked</td>") && none.contains("No power cut checked it."));
    }

    /// What is faster because it keeps less is not the best of what keeps more.
    #[test]
    fn the_best_is_one_of_rows_that_are_as_durable() {
        let stable = |name, rate| row(name, rate, Some((DurabilityLevel::Stable, 8)));
        let cache = row("nobarrier", 50.0, Some((DurabilityLevel::Cache, 8)));
        let e = experiment(vec![stable("own", 10.0), stable("auto", 12.0), cache]);
        let best: Vec<Option<f64>> = e.rows.iter().map(|row| e.best(row, 0)).collect();
        assert_eq!(best, [Some(12.0), Some(12.0), Some(50.0)]);
        let words = e.to_string();
        assert!(words.contains("*12") && words.contains("among rows as durable"), "{words}");
        // The printed durability is the lesser of the found and the promised one, also in the CSV.
        let mut promised = e.clone();
        let durability = promised.rows[0].durability.as_mut().unwrap();
        durability.promised = DurabilityLevel::Memory;
        let line = promised.csv().lines().nth(1).unwrap().to_owned();
        assert!(line.contains(",Memory,Memory,"), "{line}");
    }
}
