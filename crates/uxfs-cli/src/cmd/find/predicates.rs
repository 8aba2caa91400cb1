//! The tests of `find`.

use uxfs::Stat;
use uxfs::format::inode::{S_IFDIR, S_IFMT, S_IFREG};
use uxfs::format::timestamp::Timestamp;

use super::Candidate;
use super::parse::{Perm, Range, Test, Which};
use crate::mode::type_letter;
use crate::session::{Failure, Result};
use crate::{pattern, tree, users};

impl Range {
    fn holds(self, value: u64) -> bool {
        value.cmp(&self.number) == self.order
    }
}

/// Is the test true for the file?
pub(super) fn holds(test: &Test, candidate: &Candidate<'_>, now: Timestamp) -> Result<bool> {
    let stat = candidate.visited.stat;
    Ok(match test {
        Test::Name { pattern, path, fold } => {
            let text = if *path { candidate.visited.path } else { candidate.name() };
            pattern::matches(pattern, text, *fold)
        }
        Test::Target { pattern, fold } => {
            tree::is_link(stat) && pattern::matches(pattern, &target(candidate)?, *fold)
        }
        Test::Type(types) => types.iter().any(|t| char::from(*t) == type_letter(stat.mode)),
        Test::Size(range, unit) => range.holds(stat.size.div_ceil(*unit)),
        Test::Empty => is_empty(candidate)?,
        Test::Perm(how, file, dir) => {
            let wanted = if tree::is_dir(stat) { dir } else { file };
            let has = stat.mode & 0o7777;
            match how {
                Perm::Exactly => has == *wanted,
                Perm::All => has & wanted == *wanted,
                Perm::Any => *wanted == 0 || has & wanted != 0,
            }
        }
        Test::Uid(range) => range.holds(stat.uid.into()),
        Test::Gid(range) => range.holds(stat.gid.into()),
        Test::NoUser => users::user_name(stat.uid).is_none(),
        Test::NoGroup => users::group_name(stat.gid).is_none(),
        Test::Links(range) => range.holds(stat.nlink.into()),
        Test::Inum(range) => range.holds(stat.ino.0),
        Test::Age(which, range, unit) => aged(stat, *which, *range, *unit, now),
        Test::Newer(which, than) => which.of(stat) > *than,
        Test::Regex(regex) => regex.is_match(candidate.visited.path),
        Test::Constant(value) => *value,
    })
}

/// The target of a link; empty for other files.
pub(super) fn target(candidate: &Candidate<'_>) -> Result<Vec<u8>> {
    let visited = &candidate.visited;
    match tree::is_link(visited.stat) {
        true => visited.fs.readlink(visited.stat.ino).map_err(|error| failed(candidate, error)),
        false => Ok(Vec::new()),
    }
}

/// A failure at the file's path.
pub(super) fn failed(candidate: &Candidate<'_>, error: uxfs::Error) -> Failure {
    Failure::at(candidate.visited.path, error.to_string())
}

fn is_empty(candidate: &Candidate<'_>) -> Result<bool> {
    let (fs, stat) = (candidate.visited.fs, candidate.visited.stat);
    match stat.mode & S_IFMT {
        S_IFREG => Ok(stat.size == 0),
        S_IFDIR => {
            let names = tree::entries(fs, stat.ino).map_err(|error| failed(candidate, error))?;
            Ok(names.is_empty())
        }
        _ => Ok(false),
    }
}

/// Compares the age in whole units. As in find(1), ages in days are rounded down and ages in minutes
/// are rounded up.
fn aged(stat: &Stat, which: Which, range: Range, unit: i64, now: Timestamp) -> bool {
    let time = match which {
        Which::Access => stat.atime,
        Which::Modify => stat.mtime,
        Which::Change => stat.ctime,
    };
    let nanos = |t: Timestamp| i128::from(t.sec) * 1_000_000_000 + i128::from(t.nsec);
    let age = nanos(now) - nanos(time);
    let unit = i128::from(unit) * 1_000_000_000;
    let limit = i128::from(range.number) * unit;
    match range.order {
        std::cmp::Ordering::Less => age < limit,
        std::cmp::Ordering::Greater if unit < 86_400_000_000_000 => age > limit,
        std::cmp::Ordering::Greater => age >= limit + unit,
        std::cmp::Ordering::Equal if unit < 86_400_000_000_000 => {
            age <= limit && age > limit - unit
        }
        std::cmp::Ordering::Equal => age >= limit && age < limit + unit,
    }
}
