//! Every test that a document names exists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The test names in backquotes: a path, `::`, a function.
pub(crate) fn named(text: &str) -> BTreeSet<(String, String)> {
    let quoted = text.split('`').skip(1).step_by(2);
    let split = quoted.filter_map(|name| name.split_once(".rs::"));
    split.map(|(file, test)| (format!("{file}.rs"), test.to_owned())).collect()
}

/// Does the source have a test function of this name?
pub(crate) fn has_test(source: &str, test: &str) -> bool {
    let head = format!("fn {test}()");
    let mut marked = false;
    for line in source.lines().map(str::trim) {
        if marked && line.starts_with(&head) {
            return true;
        }
        marked = line == "#[test]" || marked && (line.starts_with('#') || line.starts_with("//"));
    }
    false
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_test_that_a_document_names_exists() {
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        let document = entry.unwrap().path();
        if document.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&document).unwrap();
        for (file, test) in named(&text) {
            let source = std::fs::read_to_string(root().join("crates").join(&file));
            let source = source.unwrap_or_else(|e| panic!("{}: {file}: {e}", document.display()));
            assert!(has_test(&source, &test), "{}: no test {file}::{test}", document.display());
            count += 1;
        }
    }
    assert!(count > 40, "only {count} tests are named");
}

/// Every row of the feature table that claims support names a test.
#[test]
fn every_row_has_a_test() {
    let text = std::fs::read_to_string(root().join("docs/FORMAT.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains("| yes"));
    for row in rows {
        assert!(!named(row).is_empty(), "no test: {row}");
    }
}

#[test]
fn a_missing_test_is_reported() {
    let source = "#[test]\n#[should_panic]\nfn one() {}\n#[test]\nfn two() {}\nfn three() {}\n";
    for (test, there) in [("one", true), ("two", true), ("three", false), ("tw", false)] {
        assert_eq!(has_test(source, test), there, "{test}");
    }
    let found = named("| `a/b.rs::c`, `d` | `e.rs::f` |");
    assert_eq!(found.len(), 2, "{found:?}");
}
