//! Finds paths for the inodes in findings.
//!
//! Only runs if there are findings. It reads the directories on the paths again, without reporting.

use rustc_hash::{FxHashMap, FxHashSet};
use uxfs_format::Ino;

use crate::ctx::Ctx;
use crate::finding::Finding;
use crate::group::Group;
use crate::inode::{self, Local, Pass};
use crate::options::CheckOptions;
use crate::table::Table;

/// Maximum number of inodes that get paths, which bounds the time.
const INODES_MAX: usize = 200;
/// Maximum depth of a path.
const DEPTH_MAX: usize = 200;
/// Maximum number of directories that are read.
const DIRS_MAX: usize = 2000;

/// Adds paths to the findings about inodes, as far as names are known.
pub(crate) fn fill(ctx: &Ctx<'_>, groups: &[Group], table: &Table, findings: &mut [Finding]) {
    let mut inodes: Vec<Ino> = findings.iter().filter_map(|f| f.place.inode).collect();
    inodes.sort_unstable();
    inodes.dedup();
    inodes.truncate(INODES_MAX);
    let chains: Vec<(Ino, Vec<Ino>)> =
        inodes.iter().filter_map(|ino| Some((*ino, chain(ctx, table, *ino)?))).collect();
    let names = names(ctx, groups, table, &chains);
    let paths: FxHashMap<Ino, Vec<u8>> =
        chains.iter().filter_map(|(ino, chain)| Some((*ino, path(chain, &names)?))).collect();
    for finding in findings {
        finding.place.path = finding.place.inode.and_then(|ino| paths.get(&ino).cloned());
    }
}

/// The inodes from one up to the root, starting with `ino`; `None` if the root is not reached.
fn chain(ctx: &Ctx<'_>, table: &Table, ino: Ino) -> Option<Vec<Ino>> {
    let mut chain = vec![ino];
    while *chain.last()? != ctx.geo.root_ino {
        let above = table.get(*chain.last()?)?.parent()?;
        if chain.len() > DEPTH_MAX {
            return None;
        }
        chain.push(above);
    }
    Some(chain)
}

/// The names of each (directory, inode) on the paths.
fn names(
    ctx: &Ctx<'_>,
    groups: &[Group],
    table: &Table,
    chains: &[(Ino, Vec<Ino>)],
) -> FxHashMap<(Ino, Ino), Vec<u8>> {
    let mut wanted: FxHashMap<Ino, FxHashSet<Ino>> = FxHashMap::default();
    for pair in chains.iter().flat_map(|(_, chain)| chain.windows(2)) {
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

fn path(chain: &[Ino], names: &FxHashMap<(Ino, Ino), Vec<u8>>) -> Option<Vec<u8>> {
    if chain.len() == 1 {
        return Some(b"/".to_vec());
    }
    let mut path = Vec::new();
    for pair in chain.windows(2).rev() {
        path.push(b'/');
        path.extend_from_slice(names.get(&(pair[1], pair[0]))?);
    }
    Some(path)
}
