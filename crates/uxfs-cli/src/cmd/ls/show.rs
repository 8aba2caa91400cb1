//! The short formats: names in columns, across, with commas, or one per line. Also formats a single
//! name with its colour and mark.

use uxfs::Stat;
use uxfs::format::inode::{S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};

use super::{Item, Lister, taken};
use crate::{quote, tree};

/// Width of a line if neither COLUMNS nor a terminal gives it.
const LINE: usize = 80;
/// Blanks between columns.
const GAP: usize = 2;

/// Columns between tab stops.
const TAB: usize = 8;

/// A formatted name and its width.
struct Cell {
    text: Vec<u8>,
    width: usize,
}

fn line_width(wanted: Option<usize>) -> usize {
    if let Some(width) = wanted {
        return if width == 0 { usize::MAX } else { width };
    }
    let variable = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    #[cfg(not(unix))]
    let terminal = || None;
    #[cfg(unix)]
    let terminal = || {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        (size.ws_col > 0).then_some(usize::from(size.ws_col))
    };
    variable.filter(|width| *width > 0).or_else(terminal).unwrap_or(LINE)
}

impl Lister<'_> {
    /// Appends the names of `items` to `out`.
    pub(super) fn short(&self, items: &[Item], out: &mut Vec<u8>) {
        let options = self.options;
        let columns = options.columns || options.across || self.session.terminal && !options.one;
        let pad = columns && !options.commas && self.some_quoted(items);
        let cells = self.cells(items, pad);
        if options.commas {
            return commas(&cells, line_width(options.width), out);
        }
        if !columns {
            for cell in cells {
                out.extend_from_slice(&cell.text);
                out.push(b'\n');
            }
            return;
        }
        columned(&cells, options.across, line_width(options.width), out);
    }

    /// Is any name quoted, so that unquoted names are indented by a blank to align?
    pub(super) fn some_quoted(&self, items: &[Item]) -> bool {
        self.quotes() && items.iter().any(|item| self.plain(&item.name) != item.name)
    }

    /// The blank before an unquoted name if other names are quoted.
    pub(super) fn margin(&self, item: &Item, pad: bool) -> &'static str {
        if pad && self.plain(&item.name) == item.name { " " } else { "" }
    }

    fn cells(&self, items: &[Item], pad: bool) -> Vec<Cell> {
        let prefix =
            |item: &Item| (item.found.stat.ino.0.to_string(), self.space(taken(&item.found)));
        let prefixes: Vec<(String, String)> = items.iter().map(prefix).collect();
        let inode = prefixes.iter().map(|(inode, _)| inode.len()).max().unwrap_or(0);
        let space = prefixes.iter().map(|(_, space)| space.len()).max().unwrap_or(0);
        let cells = items.iter().zip(prefixes).map(|(item, (number, blocks))| {
            let mut text = String::new();
            if self.options.inode {
                text += &format!("{number:>inode$} ");
            }
            if self.options.size {
                text += &format!("{blocks:>space$} ");
            }
            text += self.margin(item, pad);
            let sign = usize::from(self.sign(&item.found.stat).is_some());
            let width = text.len() + quote::width(&self.plain(&item.name)) + sign;
            Cell { text: [text.as_bytes(), &self.named(item)].concat(), width }
        });
        cells.collect()
    }

    /// The name with its colour and its mark.
    pub(super) fn named(&self, item: &Item) -> Vec<u8> {
        let stat = &item.found.stat;
        let dangling = matches!(item.target, Some((_, None)));
        let mut text = self.coloured(&item.name, Some(stat), dangling);
        // In the long format the mark follows a link's target.
        if !(self.options.is_long() && tree::is_link(stat)) {
            text.extend(self.sign(stat));
        }
        text
    }

    /// The target of a link, in the colour of the file it leads to.
    pub(super) fn target(&self, target: &[u8], end: Option<&Stat>) -> Vec<u8> {
        let mut text = self.coloured(target, end, end.is_none());
        text.extend(end.and_then(|stat| self.sign(stat)));
        text
    }

    fn coloured(&self, name: &[u8], stat: Option<&Stat>, dangling: bool) -> Vec<u8> {
        let plain = self.plain(name);
        match &self.colors {
            Some(colors) => colors.paint(name, plain, stat, dangling),
            None => plain,
        }
    }

    /// The mark for the kind of a file, with `-F` or `-p`.
    fn sign(&self, stat: &Stat) -> Option<u8> {
        let kind = stat.mode & S_IFMT;
        if self.options.slash && !self.options.classify {
            return (kind == S_IFDIR).then_some(b'/');
        }
        if !self.options.classify {
            return None;
        }
        match kind {
            S_IFDIR => Some(b'/'),
            S_IFLNK => Some(b'@'),
            S_IFIFO => Some(b'|'),
            S_IFSOCK => Some(b'='),
            S_IFREG if stat.mode & 0o111 != 0 => Some(b'*'),
            _ => None,
        }
    }
}

fn commas(cells: &[Cell], line: usize, out: &mut Vec<u8>) {
    let mut at = 0;
    for (index, cell) in cells.iter().enumerate() {
        if index > 0 {
            out.push(b',');
            if at + cell.width + 2 <= line {
                out.push(b' ');
                at += 2;
            } else {
                out.push(b'\n');
                at = 0;
            }
        }
        out.extend_from_slice(&cell.text);
        at += cell.width;
    }
    if !cells.is_empty() {
        out.push(b'\n');
    }
}

/// Prints as many columns as fit on a line.
fn columned(cells: &[Cell], across: bool, line: usize, out: &mut Vec<u8>) {
    let (rows, widths) = fit(cells, across, line);
    for row in 0..rows {
        // Current column of the line, and the start of the next column.
        let (mut at, mut start) = (0, 0);
        for (column, width) in widths.iter().enumerate() {
            let index = if across { row * widths.len() + column } else { column * rows + row };
            let Some(cell) = cells.get(index) else { break };
            indent(at, start, out);
            out.extend_from_slice(&cell.text);
            at = start + cell.width;
            start += width + GAP;
        }
        out.push(b'\n');
    }
}

/// Moves from column `at` of the line to column `to`, with tabs where that is shorter.
fn indent(mut at: usize, to: usize, out: &mut Vec<u8>) {
    while at < to {
        if to / TAB > (at + 1) / TAB {
            out.push(b'\t');
            at += TAB - at % TAB;
        } else {
            out.push(b' ');
            at += 1;
        }
    }
}

/// Number of rows, and the width of each column.
fn fit(cells: &[Cell], across: bool, line: usize) -> (usize, Vec<usize>) {
    // A column needs at least one letter and the gap.
    let most = (line / (GAP + 1)).max(1).min(cells.len());
    for columns in (1..=most).rev() {
        let rows = cells.len().div_ceil(columns);
        let mut widths = vec![0; columns];
        for (index, cell) in cells.iter().enumerate() {
            let column = if across { index % columns } else { index / rows };
            widths[column] = widths[column].max(cell.width);
        }
        let used = widths.iter().filter(|width| **width > 0).count();
        let total = widths.iter().sum::<usize>() + GAP * columns.saturating_sub(1);
        if total < line && used == columns || columns == 1 {
            return (rows, widths);
        }
    }
    (cells.len(), vec![0; 1])
}
