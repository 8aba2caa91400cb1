//! The pictures in docs/lab are drawn by today's code from the data beside them. The data of three
//! experiments are those of a run today.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use uxfs_lab::experiments;
use uxfs_lab::plan::{How, NoProgress};
use uxfs_lab::report::{Picture, page};

/// The commands that redraw the pictures.
const REGENERATE: &str =
    "uxfs lab run all --seed 7 --out lab && uxfs lab report lab --charts docs/lab";
const SEED: u64 = 7;

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab")
}

fn data(name: &str) -> String {
    std::fs::read_to_string(dir().join(format!("{name}.chart.json"))).expect("a picture has data")
}

/// Every file in docs/lab is a picture or its data; each picture is what is drawn from its data
/// today. Whether the data are today's is the subject of the next test.
#[test]
fn committed_pictures_are_drawn_by_todays_code() {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(dir()).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let name = file.strip_suffix(".svg").or_else(|| file.strip_suffix(".chart.json"));
        names.insert(name.unwrap_or_else(|| panic!("docs/lab/{file}: not a picture")).to_owned());
    }
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        let picture: Picture = serde_json::from_str(&data(&name)).unwrap();
        assert_eq!((&picture.name, picture.seed), (&name, SEED));
        let there = std::fs::read_to_string(dir().join(format!("{name}.svg"))).unwrap();
        assert!(there == picture.svg(), "docs/lab/{name}.svg is not today's: {REGENERATE}");
        // Every series states the durability of its figures, and the source is cited.
        for series in picture.chart.series.iter().filter(|series| !series.post) {
            assert!(!series.worth.is_empty() && there.contains(&series.worth), "{}", series.name);
        }
        assert!(there.contains("prefers-color-scheme: dark"));
        assert!(there.contains(&format!("uxfs lab run {name} --seed {SEED}")));
    }
}

/// Today's engine, models and seed give the digits of these committed pictures. The others take
/// minutes each; their digits are as old as their last run.
#[test]
fn committed_digits_are_those_of_a_run() {
    for name in ["fs-mark", "spindle", "tar-star"] {
        let found = experiments::run(name, &How::new(SEED), &NoProgress).unwrap();
        let today = serde_json::json!(Picture::of(&found).unwrap());
        assert!(
            format!("{today}\n") == data(name),
            "docs/lab/{name}.chart.json is not today's: {REGENERATE}"
        );
    }
}

/// No table can be wider than a phone's screen: each has a container that scrolls.
#[test]
fn each_table_of_the_page_is_in_a_container_that_scrolls() {
    let mut how = How::new(SEED);
    how.only = "1 thread / own".into();
    let uncharted = experiments::run("fsync-overwrite", &how, &NoProgress).unwrap();
    let charted = experiments::run("fs-mark", &How::new(SEED), &NoProgress).unwrap();
    assert!(uncharted.charts.is_empty() && !charted.charts.is_empty());
    let page = page(&[uncharted, charted]);
    let tables = page.matches("<table").count();
    assert!(tables >= 3);
    assert_eq!(page.matches("<div class=\"scroll").count(), tables);
    assert!(page.contains(".scroll { overflow-x: auto;"));
    // In print, charts replace the table, and a paragraph states the durability.
    assert_eq!(page.matches("<div class=\"scroll charted\"><table").count(), 1);
    assert_eq!(page.matches("<p class=\"durability\">What was acknowledged was on: ").count(), 2);
    let print = page.split_once("@media print {").unwrap().1;
    assert!(
        print.contains(".charted, details,") && print.contains(".durability { display: block; }")
    );
}
