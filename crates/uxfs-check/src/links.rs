//! Phase 4: checks links between inodes. The link count of every inode matches its entries,
//! directories form a tree, and unlinked inodes are on their lists.

use rustc_hash::{FxHashMap, FxHashSet};
use uxfs_format::dir::FileType;
use uxfs_format::{AgIno, AgNo, Ino};

use crate::code;
use crate::ctx::Ctx;
use crate::finding::Place;
use crate::group::Group;
use crate::inode::Local;
use crate::table::Table;

/// A directory in the tree.
struct Node {
    ino: Ino,
    dotdot: Option<Ino>,
    parent: Option<Ino>,
    children: u32,
    /// Can the directory be reached from the root? `None` if not known yet.
    reached: Option<bool>,
}

/// Checks links after all inodes were read.
pub(crate) fn check(ctx: &Ctx<'_>, groups: &[Group], table: &Table, mut locals: Vec<Local>) {
    let nodes = tree(ctx, &mut locals);
    let waiting: FxHashMap<Ino, AgIno> =
        locals.iter().flat_map(|local| local.unlinked.iter().copied()).collect();
    let listed = unlinked_lists(ctx, groups, table, &waiting);
    table.for_each(&mut |ino, slot, parents_differ| {
        if !slot.is_read() {
            return;
        }
        let find = |code, message: String| ctx.find(code, Place::inode(ino), message);
        if let Some(entry_type) = slot.wrong_type() {
            let message =
                format!("an entry has type {entry_type}, the inode has type {}", slot.ftype());
            find(code::DIR_FTYPE, message);
        }
        if parents_differ {
            find(code::PARENT, "parent pointers and entries differ".into());
        }
        let meta = u32::from(slot.is_meta());
        let (nlink, seen) = (slot.nlink(), slot.seen() + meta);
        let on_list = listed.contains(&ino);
        if nlink == 0 && !on_list {
            find(code::INODE_UNLINKED, "no links, and on no unlinked list".into());
        } else if nlink != 0 && on_list {
            find(code::INODE_UNLINKED, format!("{nlink} links, and on an unlinked list"));
        } else if waiting.get(&ino).is_some_and(|next| !next.is_null()) && !on_list {
            find(code::INODE_UNLINKED, "has a next unlinked inode, but is on no list".into());
        }
        if slot.ftype() == FileType::Directory as u8 {
            return;
        }
        if seen == 0 && nlink != 0 {
            find(code::INODE_LOST, format!("{nlink} links, but no entry leads here"));
        } else if seen != nlink {
            find(code::INODE_NLINK, format!("{nlink} links, {seen} entries lead here"));
        }
    });
    directories(ctx, table, nodes, &listed);
}

/// Directories with their parents, sorted by inode number.
fn tree(ctx: &Ctx<'_>, locals: &mut [Local]) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for local in locals.iter_mut() {
        nodes.extend(core::mem::take(&mut local.dirs).into_iter().map(|dir| Node {
            ino: dir.ino,
            dotdot: dir.dotdot,
            parent: None,
            children: 0,
            reached: None,
        }));
    }
    nodes.sort_unstable_by_key(|node| node.ino);
    for (child, parent) in locals.iter().flat_map(|local| &local.links) {
        let find = |ino: &Ino| nodes.binary_search_by_key(ino, |node| node.ino).ok();
        let (Some(at), above) = (find(child), find(parent)) else { continue };
        if let Some(above) = above {
            nodes[above].children += 1;
        }
        if let Some(other) = nodes[at].parent.replace(*parent) {
            let message = format!("entries in inodes {other} and {parent} lead here");
            ctx.find(code::DIR_PARENTS, Place::inode(*child), message);
        }
    }
    nodes
}

fn directories(ctx: &Ctx<'_>, table: &Table, mut nodes: Vec<Node>, listed: &FxHashSet<Ino>) {
    reach(&mut nodes, ctx.geo.root_ino);
    for node in &nodes {
        let find = |code, message: String| ctx.find(code, Place::inode(node.ino), message);
        let root = node.ino == ctx.geo.root_ino;
        let Some(slot) = table.get(node.ino) else { continue };
        if slot.nlink() == 0 || listed.contains(&node.ino) {
            continue;
        }
        let nlink = node.children.saturating_add(2);
        if slot.nlink() != nlink {
            find(code::INODE_NLINK, format!("{} links, counted {nlink}", slot.nlink()));
        }
        let parent = if root { Some(node.ino) } else { node.parent };
        if let (Some(dotdot), Some(parent)) = (node.dotdot, parent)
            && dotdot != parent
        {
            find(code::DIR_DOT, format!("\"..\" leads to inode {dotdot}, not to {parent}"));
        }
        if root {
            if let Some(parent) = node.parent {
                find(code::DIR_PARENTS, format!("an entry in {parent} leads to the root"));
            }
        } else if node.parent.is_none() {
            find(code::INODE_LOST, "no entry leads to this directory".into());
        } else if node.reached != Some(true) {
            find(code::DIR_LOOP, "it cannot be reached from the root".into());
        }
    }
}

/// Follows the parents of every directory to the root; visits each directory once.
fn reach(nodes: &mut [Node], root: Ino) {
    let index = |nodes: &[Node], ino: Ino| nodes.binary_search_by_key(&ino, |n| n.ino).ok();
    for start in 0..nodes.len() {
        let mut path = Vec::new();
        let mut at = Some(start);
        let reached = loop {
            let Some(here) = at else { break false };
            if nodes[here].ino == root {
                break true;
            }
            if let Some(known) = nodes[here].reached {
                break known;
            }
            // Preliminary value, which ends a loop.
            nodes[here].reached = Some(false);
            path.push(here);
            at = nodes[here].parent.and_then(|parent| index(nodes, parent));
        };
        for here in path {
            nodes[here].reached = Some(reached);
        }
    }
}

/// Follows the unlinked lists; returns the inodes on them.
fn unlinked_lists(
    ctx: &Ctx<'_>,
    groups: &[Group],
    table: &Table,
    waiting: &FxHashMap<Ino, AgIno>,
) -> FxHashSet<Ino> {
    let geo = &ctx.geo;
    let mut listed = FxHashSet::default();
    for (ag, group) in (0u32..).map(AgNo).zip(groups) {
        for (bucket, &head) in group.unlinked.iter().enumerate() {
            let mut next = AgIno(head);
            let mut count = 0;
            while !next.is_null() {
                let ino = geo.ino(ag, next);
                let find = |message: String| {
                    ctx.find(code::UNLINKED_CHAIN, Place::ag(ag), message);
                };
                if next.0 as usize % group.unlinked.len() != bucket {
                    find(format!("inode {ino} is in the wrong bucket {bucket}"));
                }
                if next.0 >> geo.agino_bits() != 0 || table.get(ino).is_none_or(|s| !s.is_used()) {
                    find(format!("bucket {bucket} leads to inode {ino}, which is not in use"));
                    break;
                }
                if !listed.insert(ino) {
                    find(format!("inode {ino} is reached twice"));
                    break;
                }
                count += 1;
                next = waiting.get(&ino).copied().unwrap_or(AgIno::NULL);
            }
            if count > 0 {
                let message = format!("{count} inodes in bucket {bucket} are not freed yet");
                ctx.find(code::UNLINKED_LIST, Place::ag(ag), message);
            }
        }
    }
    listed
}
