//! Paths for findings: which names lead to the inodes that they are about.
//!
//! Only when there are findings: the directories on the way are read once more, quietly.

use rustc_hash::{FxHashMap, FxHashSet};
use uxfs_format::Ino;

use crate::ctx::Ctx;
use crate::finding::Finding;
use crate::group::Group;
use crate::inode::{self, Local, Pass};
use crate::options::CheckOptions;
use crate::table::Table;

/// Inodes that get paths; enough to read, and soon done.
const INODES_MAX: usize = 200;
/// Longest way to the root that is followed.
const DEPTH_MAX: usize = 200;
/// Directories that are read for names.
const DIRS_MAX: usize = 2000;

/// Gives paths to the findings about inodes, as far as names are known.
pub(crate) fn fill(ctx: &Ctx<'_>, groups: &[Group], table: &Table, findings: &mut [Finding]) {
    let mut inodes: Vec<Ino> = findings.iter().filter_map(|f| f.place.inode).collect();
    inodes.sort_unstable();
    inodes.dedup();
    inodes.truncate(INODES_MAX);
    let ways: Vec<(Ino, Vec<Ino>)> =
        inodes.iter().filter_map(|ino| Some((*ino, way(ctx, table, *ino)?))).collect();
    let names = names(ctx, groups, table, &ways);
    let paths: FxHashMap<Ino, Vec<u8>> =
        ways.iter().filter_map(|(ino, way)| Some((*ino, path(way, &names)?))).collect();
    for finding in findings {
        finding.place.path = finding.place.inode.and_then(|ino| paths.get(&ino).cloned());
    }
}

/// The inodes from one up to the root, itself first; `None` if they do not lead there.
fn way(ctx: &Ctx<'_>, table: &Table, ino: Ino) -> Option<Vec<Ino>> {
    let mut way = vec![ino];
    while *way.last()? != ctx.geo.root_ino {
        let above = table.get(*way.last()?)?.parent()?;
        if way.len() > DEPTH_MAX {
            return None;
        }
        way.push(above);
    }
    Some(way)
}

/// The name of each (directory, inode) on the ways.
fn names(
    ctx: &Ctx<'_>,
    groups: &[Group],
    table: &Table,
    ways: &[(Ino, Vec<Ino>)],
) -> FxHashMap<(Ino, Ino), Vec<u8>> {
    let mut wanted: FxHashMap<Ino, FxHashSet<Ino>> = FxHashMap::default();
    for pair in ways.iter().flat_map(|(_, way)| way.windows(2)) {
        wanted.entry(pair[1]).or_default().insert(pair[0]);
    }
    let options = CheckOptions { max_findings: 0, ..ctx.options.clone() };
    let quiet = ctx.quiet(&options);
    let pass = Pass { ctx: &quiet, groups, table };
    let mut names = FxHashMap::default();
    for (dir, children) in wanted.into_iter().take(DIRS_MAX) {
        let mut local = Local::default();
        local.wanted = children;
        inode::reread(&pass, dir, &mut local);
        names.extend(local.names.into_iter().map(|(ino, name)| ((dir, ino), name)));
    }
    names
}

fn path(way: &[Ino], names: &FxHashMap<(Ino, Ino), Vec<u8>>) -> Option<Vec<u8>> {
    if way.len() == 1 {
        return Some(b"/".to_vec());
    }
    let mut path = Vec::new();
    for pair in way.windows(2).rev() {
        path.push(b'/');
        path.extend_from_slice(names.get(&(pair[1], pair[0]))?);
    }
    Some(path)
}
