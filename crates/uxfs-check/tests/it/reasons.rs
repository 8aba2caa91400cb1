//! The tables in `docs/DAMAGE.md`: reasons why damage to some fields is not reported.

use crate::bases::Key;

/// The rows of the tables.
pub(crate) struct Reasons(Vec<(String, Vec<String>)>);

impl Default for Reasons {
    fn default() -> Self {
        Self::new()
    }
}

/// Name of the structure without the inode's form: `Inode(0x8)`.
fn kind(key: &Key) -> String {
    match key.0.split_once(' ') {
        Some((inode, _)) if inode.starts_with("Inode(") => format!("{inode})"),
        _ => key.0.clone(),
    }
}

/// Structure and field, as used in the totals.
pub(crate) fn merged(key: &Key) -> String {
    format!("{} {}", kind(key), key.1)
}

/// Does `text` match a row, which may end in `*`?
fn fits(row: &str, text: &str) -> bool {
    row.strip_suffix('*').map_or(row == text, |start| text.starts_with(start))
}

impl Reasons {
    /// Parses the tables: structures and fields are in backticks.
    pub(crate) fn new() -> Self {
        let text = include_str!("../../../../docs/DAMAGE.md");
        let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let row = |line: &str| {
            let cells: Vec<&str> = line.split('|').collect();
            let kinds: Vec<String> = quoted(cells.get(1)?);
            let fields: Vec<String> = quoted(cells.get(2)?);
            Some(kinds.into_iter().map(move |kind| (kind, fields.clone())).collect::<Vec<_>>())
        };
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        Self(rows.filter_map(row).flatten().collect())
    }

    /// Does a row give a reason for this field?
    pub(crate) fn cover(&self, key: &Key) -> bool {
        self.0.iter().any(|(structure, fields)| {
            fits(structure, &kind(key)) && fields.iter().any(|field| fits(field, &key.1))
        })
    }

    /// Names in the rows that match none of `keys`.
    pub(crate) fn stale<'k>(&self, keys: impl Iterator<Item = &'k Key>) -> Vec<String> {
        let keys: Vec<&Key> = keys.collect();
        let known = |structure: &str, field: &str| {
            keys.iter().any(|key| fits(structure, &kind(key)) && fits(field, &key.1))
        };
        let each = self
            .0
            .iter()
            .flat_map(|(structure, fields)| fields.iter().map(move |field| (structure, field)));
        let stale = each.filter(|(structure, field)| !known(structure, field));
        stale.map(|(structure, field)| format!("{structure} {field}")).collect()
    }
}
