//! The page of a result: its timeline shows the write that was not on stable storage, in the right
//! order. `UXFS_PAGES` names a directory that keeps the pages, to look at.

use std::path::Path;

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};
use serde::{Deserialize, Serialize};
use uxfs::Volume;
use uxfs_crashtest::{Explanation, InProcess, Outcome, Timeline, html};

use crate::rig::{planted, tested};

/// A mark of a chart.
#[derive(Debug)]
struct Drawn {
    class: String,
    event: usize,
    x: f64,
    title: String,
}

/// The page of a result, which is kept if that is wanted.
pub(crate) fn page(outcome: &Outcome, name: &str) -> String {
    let page = html(outcome, name, "uxfs crash-test --state late:71: -- program");
    if let Some(dir) = std::env::var_os("UXFS_PAGES") {
        std::fs::write(Path::new(&dir).join(format!("{name}.html")), &page).unwrap();
    }
    page
}

/// The charts of a page.
fn charts(page: &str) -> Vec<&str> {
    let starts = page.match_indices("<svg ").map(|(at, _)| at);
    starts.map(|at| &page[at..at + page[at..].find("</svg>").unwrap() + "</svg>".len()]).collect()
}

/// The marks of a chart, which must be well-formed XML without scripts, and lie inside of it.
fn marks(svg: &str) -> Vec<Drawn> {
    let attribute = |element: &BytesStart<'_>, name: &str| {
        // Each is read, so each must be well-formed.
        let all = element.attributes().map(|attribute| attribute.unwrap());
        let values: Vec<(String, String)> = all
            .map(|a| {
                let key = String::from_utf8(a.key.as_ref().to_vec()).unwrap();
                (key, a.normalized_value(quick_xml::XmlVersion::Implicit1_0).unwrap().into_owned())
            })
            .collect();
        values.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
    };
    let title = |found: &mut Vec<Drawn>, words: &str| {
        found.last_mut().unwrap().title.push_str(words);
    };
    let mut reader = Reader::from_str(svg);
    reader.config_mut().check_end_names = true;
    let (mut found, mut depth, mut width, mut in_title) = (Vec::<Drawn>::new(), 0, 0.0, false);
    loop {
        let event = reader.read_event().unwrap_or_else(|error| panic!("{error} in {svg}"));
        match &event {
            Event::Start(element) | Event::Empty(element) => {
                let name = String::from_utf8(element.name().as_ref().to_vec()).unwrap();
                let known =
                    ["svg", "g", "title", "text", "rect", "path", "circle", "line", "style"];
                assert!(known.contains(&name.as_str()), "<{name}> in {svg}");
                if name == "svg" {
                    width = attribute(element, "width").unwrap().parse().unwrap();
                }
                in_title =
                    name == "title" && found.last().is_some_and(|mark| mark.title.is_empty());
                if let Some(number) = attribute(element, "data-event") {
                    let place = attribute(element, "transform").unwrap();
                    let place = place.strip_prefix("translate(").unwrap();
                    let x = place.split_once(' ').unwrap().0.parse().unwrap();
                    let class = attribute(element, "class").unwrap();
                    let event = number.parse().unwrap();
                    found.push(Drawn { class, event, x, title: String::new() });
                }
                depth += usize::from(matches!(event, Event::Start(_)));
            }
            Event::End(_) => {
                in_title = false;
                depth -= 1;
            }
            Event::Text(text) if in_title => title(&mut found, &text.decode().unwrap()),
            Event::GeneralRef(name) if in_title => {
                let name = name.decode().unwrap();
                title(&mut found, resolve_predefined_entity(&name).unwrap());
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    assert!(found.iter().all(|mark| mark.x > 100.0 && mark.x < width), "{found:?}");
    assert!(found.iter().all(|mark| mark.title.starts_with("event")), "{found:?}");
    // The order of the axis is that of the events, and no mark lies on another.
    assert!(found.windows(2).all(|two| two[0].x + 15.0 < two[1].x), "{found:?}");
    assert!(found.windows(2).all(|two| two[0].event <= two[1].event), "{found:?}");
    found
}

/// The only mark, or the last one, of a class.
fn last<'a>(marks: &'a [Drawn], class: &str) -> &'a Drawn {
    let found = marks.iter().rfind(|mark| mark.class == class);
    found.unwrap_or_else(|| panic!("no {class} in {marks:#?}"))
}

/// The text of the first sentence.
fn first_sentence(page: &str) -> &str {
    let body = page.split_once("<body>\n<p class=\"first ").unwrap().1;
    body.split_once('>').unwrap().1.split_once("</p>").unwrap().0
}

/// The chart of a failure that lacks a call before an acknowledgement, on any file system.
pub(crate) fn shows_the_missing_call(outcome: &Outcome, page: &str) {
    let marks = marks(charts(page)[0]);
    let [unsynced, missing, ack, cut] =
        ["unsynced", "missing", "ack", "cut"].map(|class| last(&marks, class));
    assert!(unsynced.x < missing.x && missing.x < ack.x && ack.x < cut.x, "{marks:#?}");
    // The writes that the state lacks, and no others.
    let lost = outcome.failure.as_ref().unwrap().timeline.lost();
    let lost: Vec<usize> = lost.map(|moment| moment.event).collect();
    let drawn = marks.iter().filter(|mark| mark.class == "lost");
    assert_eq!(drawn.map(|mark| mark.event).collect::<Vec<_>>(), lost);
}

/// What never reached the disk: the operation, the missing call behind it, the acknowledgement, the
/// cut.
#[test]
fn the_call_that_a_program_lacks_stands_between_the_change_and_the_acknowledgement() {
    let outcome = tested(&planted("lost_directory_fsync", "bad")).unwrap();
    let page = page(&outcome, "lost_directory_fsync");
    let sentence = first_sentence(&page);
    let begins = "Missing: fsync of the directory . — without it, renaming t";
    assert!(sentence.starts_with(begins), "{sentence}");
    let ack = outcome.failure.as_ref().unwrap().acks.last().unwrap();
    let ends = format!("was not on stable storage when “{ack}” was acknowledged.");
    assert!(sentence.ends_with(&ends), "{sentence}");
    shows_the_missing_call(&outcome, &page);
    for svg in charts(&page) {
        let marks = marks(svg);
        let [unsynced, missing] = ["unsynced", "missing"].map(|class| last(&marks, class));
        assert!(unsynced.title.contains("renaming t"), "{unsynced:?}");
        assert!(unsynced.title.contains("(process "), "{unsynced:?}");
        assert!(missing.title.contains("fsync of the directory"), "{missing:?}");
    }
}

/// What a store overwrites in place, without a sync, in process: there the call is not known, and
/// the flush that is missing is shown.
fn overwritten(name: &str, ack: &str) -> Outcome {
    let path = format!("/{name}");
    let write = |volume: &Volume, acknowledge: &dyn Fn(&str)| -> uxfs::files::Result<()> {
        let file = volume.create_file(&path)?;
        file.write_all_at(&[b'0'; 8192], 0)?;
        volume.sync_all()?;
        for number in b'1'..b'4' {
            file.write_all_at(&[number; 8192], 0)?;
            acknowledge(&format!("{ack}{}", char::from(number)));
        }
        volume.sync_all()
    };
    let work = |volume: &Volume, acknowledge: &dyn Fn(&str)| {
        write(volume, acknowledge).map_err(|error| error.to_string())
    };
    let check = |volume: &Volume, acks: &[String]| {
        let Some(last) = acks.last() else { return Ok(()) };
        let found = volume.read(&path).map_err(|error| error.to_string())?;
        let wanted = last.as_bytes()[last.len() - 1];
        match found.iter().all(|byte| *byte >= wanted) {
            true => Ok(()),
            false => Err(format!("{last} is lost")),
        }
    };
    InProcess { count: 200, seed: 1 }.run(work, check).unwrap()
}

#[test]
fn in_process_the_flush_that_is_missing_stands_between_lost_write_and_acknowledgement() {
    let outcome = overwritten("store", "");
    let failure = outcome.failure.as_ref().unwrap();
    assert!(matches!(failure.explanation, Explanation::Unknown { .. }), "{failure}");
    let page = page(&outcome, "in-process");
    let marks = marks(charts(&page)[0]);
    let [lost, missing, ack, cut] =
        ["lost", "missing", "ack", "cut"].map(|class| last(&marks, class));
    assert!(lost.x < missing.x && missing.x < ack.x && ack.x < cut.x, "{marks:#?}");
    assert!(lost.title.contains("store"), "{lost:?}");
    let sentence = first_sentence(&page);
    let parts = ["No flush covered 8192 bytes of store at 0", "was acknowledged."];
    assert!(parts.iter().all(|part| sentence.contains(part)), "{sentence}");
}

/// Names and acknowledgements come from the program under test.
#[test]
fn hostile_names_stay_text() {
    let evil = "<script>alert('1')<\\script>&\"]]>--><svg onload=x>\u{7}\u{ffff}\u{202e}\n";
    let outcome = overwritten(evil, "</title></svg></style><script>alert(2)</script><!--");
    let page = page(&outcome, "hostile");
    for svg in charts(&page) {
        let lost = marks(svg).into_iter().find(|mark| mark.class == "lost");
        assert!(lost.is_none_or(|mark| mark.title.contains("script")));
    }
    let lower = page.to_lowercase();
    for tag in ["<script", "<\\script", "<!--", "onload=x>"] {
        assert!(!lower.contains(tag), "{tag}");
    }
    // One chart of the moment, one of the whole: what the program wrote makes and closes none.
    assert_eq!(page.matches("<svg ").count(), page.matches("</svg>").count());
    assert_eq!(page.matches("</style>").count(), 1);
}

#[test]
fn a_run_that_passed_has_a_timeline_and_no_failure() {
    let mut plan = planted("lost_directory_fsync", "good");
    plan.count = 30;
    let outcome = tested(&plan).unwrap();
    let page = page(&outcome, "passed");
    assert!(first_sentence(&page).starts_with("Nothing is missing"), "{page}");
    let charts = charts(&page);
    assert_eq!(charts.len(), outcome.runs.len());
    for svg in charts {
        let marks = marks(svg);
        assert!(
            ["ack", "flush", "kept", "synced"]
                .iter()
                .all(|class| !last(&marks, class).title.is_empty())
        );
        let failed = ["cut", "lost", "torn", "missing", "unsynced", "fault", "later"];
        let found = marks.iter().find(|mark| failed.contains(&mark.class.as_str()));
        assert!(found.is_none(), "{found:?}");
    }
}

#[derive(Serialize, Deserialize)]
struct Picture {
    title: String,
    timeline: Timeline,
}

/// The picture in the docs is drawn by today's code from the data beside it. `UXFS_WRITE_DOCS=1`
/// makes both anew from a run; process numbers differ each time, so there is one for all.
#[test]
fn the_picture_in_the_docs_is_drawn_by_todays_code() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/crash-test");
    let (data, svg) = (dir.join("timeline.json"), dir.join("timeline.svg"));
    if std::env::var_os("UXFS_WRITE_DOCS").is_some() {
        let outcome = tested(&planted("lost_directory_fsync", "bad")).unwrap();
        let failure = outcome.failure.unwrap();
        let pid = failure.run.operations.all()[0].pid;
        let made = Picture { title: failure.summary(), timeline: failure.timeline };
        let text = serde_json::to_string_pretty(&made).unwrap();
        let text = text.replace(&format!("(process {pid})"), "(process 4711)");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(&data, format!("{text}\n")).unwrap();
        let made: Picture = serde_json::from_str(&text).unwrap();
        std::fs::write(&svg, made.timeline.picture(&made.title)).unwrap();
    }
    let made: Picture = serde_json::from_str(&std::fs::read_to_string(data).unwrap()).unwrap();
    let there = std::fs::read_to_string(svg).unwrap();
    let again = "UXFS_WRITE_DOCS=1 cargo test -p uxfs-crashtest --test it timeline";
    assert!(there == made.timeline.picture(&made.title), "not today's: {again}");
    assert!(there.contains("prefers-color-scheme: dark"));
    let marks = marks(&there);
    let order = ["unsynced", "missing", "ack", "cut"].map(|class| last(&marks, class).x);
    assert!(order.is_sorted(), "{marks:#?}");
}
