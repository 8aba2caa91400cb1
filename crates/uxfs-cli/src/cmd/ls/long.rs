//! The long format: one line per file, with aligned columns.

use uxfs::format::inode::{S_IFBLK, S_IFCHR, S_IFMT};
use uxfs::posix::{ACL_ACCESS, ACL_DEFAULT};

use super::{Item, Lister, taken};
use crate::mode::letters;
use crate::time::Style;
use crate::{number, quote, users};

/// The cells of a line.
struct Line {
    inode: String,
    blocks: String,
    mode: String,
    links: String,
    owner: String,
    group: String,
    size: Size,
    time: String,
}

enum Size {
    Bytes(String),
    Device(String, String),
}

impl Lister<'_> {
    /// Appends the lines for `items` to `out`.
    pub(super) fn long(&self, items: &[Item], out: &mut Vec<u8>) {
        let pad = self.some_quoted(items);
        let lines: Vec<Line> = items.iter().map(|item| self.line(item)).collect();
        let widest = |cell: &dyn Fn(&Line) -> &str| {
            lines.iter().map(|line| quote::width(cell(line).as_bytes())).max().unwrap_or(0)
        };
        let (inode, blocks) = (widest(&|l| &l.inode), widest(&|l| &l.blocks));
        let (mode, links) = (widest(&|l| &l.mode), widest(&|l| &l.links));
        let (owner, group) = (widest(&|l| &l.owner), widest(&|l| &l.group));
        // As in coreutils, a user's own time format is not padded.
        let time = match self.style {
            Style::Format(..) => 0,
            _ => widest(&|l| &l.time),
        };
        let device = |which: usize| {
            lines.iter().filter_map(move |line| match (&line.size, which) {
                (Size::Device(major, _), 0) => Some(major.len()),
                (Size::Device(_, minor), _) => Some(minor.len()),
                _ => None,
            })
        };
        let (mut major, minor) = (device(0).max().unwrap_or(0), device(1).max().unwrap_or(0));
        let bytes = lines.iter().map(|line| match &line.size {
            Size::Bytes(text) => text.len(),
            Size::Device(..) => major + 2 + minor,
        });
        let size = bytes.max().unwrap_or(0);
        if minor > 0 {
            major = major.max(size.saturating_sub(minor + 2));
        }
        for (line, item) in lines.iter().zip(items) {
            let mut text = String::new();
            if self.options.inode {
                text += &format!("{:>inode$} ", line.inode);
            }
            if self.options.size {
                text += &format!("{:>blocks$} ", line.blocks);
            }
            text += &format!("{:<mode$} {:>links$} ", line.mode, line.links);
            if !self.options.no_owner {
                text += &self.name_cell(&line.owner, owner);
            }
            if !self.options.no_group && !self.options.no_group_long {
                text += &self.name_cell(&line.group, group);
            }
            match &line.size {
                Size::Bytes(bytes) => text += &format!("{bytes:>size$} "),
                Size::Device(high, low) => text += &format!("{high:>major$}, {low:>minor$} "),
            }
            text += &format!("{:<time$} {}", line.time, self.margin(item, pad));
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(&self.named(item));
            if let Some((target, end)) = &item.target {
                out.extend_from_slice(b" -> ");
                out.extend_from_slice(&self.target(target, end.as_ref()));
            }
            out.push(b'\n');
        }
    }

    /// A cell for an owner or group: names are aligned left, numbers right.
    fn name_cell(&self, name: &str, width: usize) -> String {
        let missing = " ".repeat(width.saturating_sub(quote::width(name.as_bytes())));
        match name.bytes().all(|b| b.is_ascii_digit()) {
            true => format!("{missing}{name} "),
            false => format!("{name}{missing} "),
        }
    }

    fn line(&self, item: &Item) -> Line {
        let stat = &item.found.stat;
        let number = self.options.numeric_uid_gid;
        let name = |name: Option<&str>, id: u32| match name.filter(|_| !number) {
            Some(name) => name.to_owned(),
            None => id.to_string(),
        };
        let size = match stat.mode & S_IFMT {
            S_IFCHR | S_IFBLK => Size::Device(stat.rdev.0.to_string(), stat.rdev.1.to_string()),
            _ if self.options.human_readable => Size::Bytes(number::human(stat.size)),
            _ => Size::Bytes(stat.size.to_string()),
        };
        let mut mode = letters(stat.mode);
        mode.push_str(mark(item));
        Line {
            inode: stat.ino.0.to_string(),
            blocks: self.space(taken(&item.found)),
            mode,
            links: stat.nlink.to_string(),
            owner: name(users::user_name(stat.uid), stat.uid),
            group: name(users::group_name(stat.gid), stat.gid),
            size,
            time: self.style.show(self.options.time(stat), self.now),
        }
    }
}

/// The mark after the permissions: `+` for an ACL, `.` for only a security context.
fn mark(item: &Item) -> &'static str {
    let names = item.found.fs().list_xattrs(item.found.stat.ino).unwrap_or_default();
    let has = |wanted: &[u8]| names.iter().any(|name| name == wanted);
    if has(ACL_ACCESS) || has(ACL_DEFAULT) {
        "+"
    } else if has(b"security.selinux") {
        "."
    } else {
        ""
    }
}
