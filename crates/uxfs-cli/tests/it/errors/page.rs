//! Parses the matrix of docs/ERRORS.md.

use std::path::Path;

use super::out::Ending;

#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The name of the host's refusal.
    pub(super) refusal: String,
    /// Each report must contain one of these words; empty if there is nothing to report.
    pub(super) words: Vec<String>,
    /// The cells, in the order of [`Ending::ALL`].
    pub(super) cells: Vec<String>,
}

impl Row {
    /// The cell for a ending to end work.
    pub(super) fn cell(&self, ending: Ending) -> &str {
        let at = Ending::ALL.iter().position(|other| *other == ending).unwrap();
        &self.cells[at]
    }
}

pub(super) fn text() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ERRORS.md");
    std::fs::read_to_string(page).unwrap()
}

/// Parses the matrix in a text.
pub(super) fn matrix(text: &str) -> Vec<Row> {
    let (_, behind) = text.split_once("\n## The matrix\n").expect("a heading 'The matrix'");
    let part = behind.split("\n## ").next().unwrap_or_default();
    let lines = part.lines().filter(|line| line.starts_with('|'));
    // Skip the headings and the line below them.
    let rows = lines.skip(2).map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 2 + Ending::ALL.len(), "{line}");
        Row {
            refusal: cells[0].to_owned(),
            words: cells[1].split('`').skip(1).step_by(2).map(str::to_owned).collect(),
            cells: cells[2..].iter().map(|cell| (*cell).to_owned()).collect(),
        }
    });
    rows.collect()
}
