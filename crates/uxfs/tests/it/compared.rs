//! docs/COMPARED.md is made from docs/compared.toml, and what it says of uxfs agrees with
//! docs/FORMAT.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;

use crate::docs::{has_test, named, root};

#[derive(Deserialize)]
struct Data {
    column: Vec<Column>,
    source: Vec<Source>,
    row: Vec<Row>,
    tried: Tried,
}

#[derive(Deserialize)]
struct Column {
    id: String,
    name: String,
}

#[derive(Deserialize)]
struct Source {
    text: String,
}

#[derive(Deserialize)]
struct Row {
    what: String,
    #[serde(flatten)]
    cells: BTreeMap<String, Cell>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cell {
    says: String,
    source: Option<usize>,
    /// Rows of FORMAT.md: the first cell, a column, the first word of its cell.
    #[serde(default)]
    format: Vec<(String, String, String)>,
    #[serde(default)]
    tests: Vec<String>,
}

/// A run of tools/compare.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tried {
    /// What was done.
    how: String,
    tool: Vec<Tool>,
    result: Vec<Outcome>,
    /// What the tables do not say.
    remarks: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    name: String,
    version: String,
    is: String,
    licence: String,
    /// What its own documents say of XFS.
    says: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Outcome {
    tool: String,
    task: String,
    volume: String,
    /// What the tool itself reported.
    said: String,
    repair: String,
    tree: String,
    seconds: String,
    mib: String,
}

const HEAD: &str = "<!-- Made from compared.toml by `UXFS_WRITE_DOCS=1 cargo test -p uxfs --test it compared`. -->

# uxfs beside other tools

This page compares what uxfs and other tools can do with an XFS volume. The column of uxfs agrees with
[FORMAT.md](FORMAT.md), which names the tests. The other columns follow the tools' own documents, listed
as numbered sources below. *Not said* marks what a document does not mention.

";

fn data() -> Data {
    toml::from_str(&std::fs::read_to_string(root().join("docs/compared.toml")).unwrap()).unwrap()
}

fn page(data: &Data) -> String {
    let mut page = String::from(HEAD);
    let names: Vec<_> = data.column.iter().map(|column| column.name.as_str()).collect();
    writeln!(page, "| | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len())).unwrap();
    for row in &data.row {
        write!(page, "| {} |", row.what).unwrap();
        for column in &data.column {
            let cell = &row.cells[&column.id];
            let source = cell.source.map(|number| format!(" [{number}]")).unwrap_or_default();
            write!(page, " {}{source} |", cell.says).unwrap();
        }
        page.push('\n');
    }
    tried(&mut page, &data.tried);
    page.push_str("\n## Sources\n\n");
    for (number, source) in (1..).zip(&data.source) {
        writeln!(page, "{number}. {}", source.text).unwrap();
    }
    page
}

/// The section about a run of tools/compare.
fn tried(page: &mut String, data: &Tried) {
    let Tried { how, tool, result, remarks } = data;
    writeln!(page, "\n## Tried\n\n{how}").unwrap();
    page.push_str("| tool | what it is | licence | its own documents say |\n|---|---|---|---|\n");
    for Tool { name, version, is, licence, says } in tool {
        writeln!(page, "| {name} {version} | {is} | {licence} | {says} |").unwrap();
    }
    page.push_str(
        "\n| tool | task | volume | the tool said | `xfs_repair -n`: 6.1, 7.2 | the tree | s | MiB |\n\
        |---|---|---|---|---|---|---|---|\n",
    );
    for Outcome { tool, task, volume, said, repair, tree, seconds, mib } in result {
        write!(page, "| {tool} | {task} | {volume} | {said} | {repair} | {tree} ").unwrap();
        writeln!(page, "| {seconds} | {mib} |").unwrap();
    }
    write!(page, "\n{remarks}").unwrap();
}

/// The cell of FORMAT.md in the row that begins with `row`, below the head `column`.
fn format_cell<'a>(format: &'a str, row: &str, column: &str) -> Option<&'a str> {
    let cells = |line: &'a str| -> Vec<&'a str> {
        line.trim_matches('|').split('|').map(str::trim).collect()
    };
    let mut head: Vec<&str> = Vec::new();
    let mut before = "";
    for line in format.lines() {
        if line.starts_with("|---") {
            head = cells(before);
        } else if line.starts_with("| ") && cells(line).first() == Some(&row) {
            let at = head.iter().position(|name| *name == column)?;
            return cells(line).get(at).copied();
        }
        before = line;
    }
    None
}

/// Does the cell say that something is not supported?
fn denies(says: &str) -> bool {
    let word = says.split(|c: char| !c.is_alphanumeric()).next();
    matches!(word, Some("no" | "refused"))
}

/// The contradictions between a cell about uxfs and FORMAT.md.
fn contradiction(cell: &Cell, format: &str) -> Option<String> {
    for (row, column, word) in &cell.format {
        let Some(there) = format_cell(format, row, column) else {
            return Some(format!("FORMAT.md has no row {row:?} with a column {column:?}"));
        };
        if !there.starts_with(word.as_str()) {
            return Some(format!("FORMAT.md says {there:?} of {row:?}, not {word:?}"));
        }
    }
    // A cell may say yes to one thing and no to another, as its rows do; but not only the opposite.
    let denied = cell.format.iter().filter(|(.., word)| denies(word)).count();
    if denies(&cell.says) != (denied == cell.format.len()) && !cell.format.is_empty() {
        return Some(format!("{:?} is not what FORMAT.md says of {:?}", cell.says, cell.format));
    }
    None
}

#[test]
fn compared_is_made_from_its_data() {
    let path = root().join("docs/COMPARED.md");
    let made = page(&data());
    if std::env::var_os("UXFS_WRITE_DOCS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap();
    assert!(there == made, "docs/COMPARED.md is not what docs/compared.toml makes: see its head");
}

#[test]
fn compared_agrees_with_format() {
    let data = data();
    let format = std::fs::read_to_string(root().join("docs/FORMAT.md")).unwrap();
    for row in &data.row {
        assert_eq!(row.cells.len(), data.column.len(), "{}: a cell for each column", row.what);
        let cell = &row.cells["uxfs"];
        assert_eq!(contradiction(cell, &format), None, "{}", row.what);
        for (file, test) in named(&cell.tests.iter().map(|t| format!("`{t}`")).collect::<String>())
        {
            let source = std::fs::read_to_string(root().join("crates").join(&file)).unwrap();
            assert!(has_test(&source, &test), "{}: no test {file}::{test}", row.what);
        }
        let known = 1..=data.source.len();
        for cell in row.cells.values() {
            assert!(cell.source.is_none_or(|number| known.contains(&number)), "{}", row.what);
        }
    }
}

/// The versions that were tried are the pinned ones, and every tool of tools/compare was.
#[test]
fn the_tools_that_were_tried_are_the_pinned_ones() {
    let read = |name: &str| std::fs::read_to_string(root().join(name)).unwrap();
    let (script, crates) = (read("tools/compare"), read("tools/compare.d/Cargo.toml"));
    let tried = data().tried;
    for Tool { name, version, .. } in &tried.tool {
        let installed = script.contains(&format!("{}_VERSION={version}\n", name.to_uppercase()));
        let is_line = |line: &str| {
            let names = line.starts_with(&format!("{name} = "))
                || line.contains(&format!("package = \"{name}\""));
            names && line.contains(&format!("\"={version}\""))
        };
        assert!(installed || crates.lines().any(is_line), "{name} {version} is not pinned");
        assert!(tried.result.iter().any(|result| result.tool == *name), "no result of {name}");
    }
    assert_eq!(tried.tool.len(), 5);
}

#[test]
fn a_cell_that_contradicts_format_is_found() {
    let format =
        "| what | done | tests |\n|---|---|---|\n| mounted | yes | `x` |\n| mended | no | |\n";
    let cell = |says: &str, row: &str, word: &str| Cell {
        says: says.into(),
        source: None,
        format: vec![(row.into(), "done".into(), word.into())],
        tests: Vec::new(),
    };
    assert_eq!(contradiction(&cell("yes, by FUSE", "mounted", "yes"), format), None);
    assert_eq!(contradiction(&cell("no", "mended", "no"), format), None);
    for (says, row, word) in [
        ("no", "mounted", "yes"),
        ("no", "mounted", "no"),
        ("yes", "mended", "yes"),
        ("yes", "mended", "no"),
        ("yes", "unheard of", "yes"),
    ] {
        assert!(contradiction(&cell(says, row, word), format).is_some(), "{says} {row} {word}");
    }
}
