//! What docs/ERRORS.md says.

use std::path::Path;

use super::out::Way;

/// A row of the matrix.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// What the host does.
    pub(super) refusal: String,
    /// Words of which each report of it has one; none if there is nothing to report.
    pub(super) words: Vec<String>,
    /// By way out, in the order of [`Way::ALL`].
    pub(super) cells: Vec<String>,
}

impl Row {
    /// What it says of a way out.
    pub(super) fn cell(&self, way: Way) -> &str {
        let at = Way::ALL.iter().position(|other| *other == way).unwrap();
        &self.cells[at]
    }
}

/// The text.
pub(super) fn text() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ERRORS.md");
    std::fs::read_to_string(page).unwrap()
}

/// The matrix in a text.
pub(super) fn matrix(text: &str) -> Vec<Row> {
    let (_, behind) = text.split_once("\n## The matrix\n").expect("a heading 'The matrix'");
    let part = behind.split("\n## ").next().unwrap_or_default();
    let lines = part.lines().filter(|line| line.starts_with('|'));
    // The heads of the columns, and the line below them.
    let rows = lines.skip(2).map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 2 + Way::ALL.len(), "{line}");
        Row {
            refusal: cells[0].to_owned(),
            words: cells[1].split('`').skip(1).step_by(2).map(str::to_owned).collect(),
            cells: cells[2..].iter().map(|cell| (*cell).to_owned()).collect(),
        }
    });
    rows.collect()
}
