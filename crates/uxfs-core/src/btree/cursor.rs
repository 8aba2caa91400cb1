//! A cursor: the path from the root of a tree to a record.

use core::marker::PhantomData;

use smallvec::SmallVec;
use uxfs_format::Check;
use uxfs_format::btree::MAX_LEVELS;
use uxfs_format::verify::BufKind;

use super::node::{Node, level_of};
use super::tree::{Env, Root, Tree};
use crate::error::Result;

pub(super) struct Level {
    pub(super) node: Node,
    pub(super) index: usize,
}

/// A position in a tree: between two records, pointing at the second one.
pub struct Cursor<T: Tree> {
    /// From the leaf (0) to the root.
    pub(super) path: SmallVec<[Level; 4]>,
    tree: PhantomData<T>,
}

impl<T: Tree> Cursor<T> {
    /// Moves to the first record whose key is not below `key`, or past the end if there is none.
    ///
    /// # Errors
    /// A damaged or unreadable block on the way.
    pub fn seek(env: Env<'_, '_>, tree: &T, key: &T::Key) -> Result<Self> {
        let mut cursor = Self::descend(env, tree, |b, s, level| {
            if level == 0 {
                return search(s.num(b), |i| T::key(&T::read_rec(&b[s.entries(i..i + 1)])) < *key);
            }
            // Enter the last child whose lowest key is below the key sought.
            let below = search(s.num(b), |i| T::read_key(&b[s.entries(i..i + 1)]) < *key);
            below.saturating_sub(1)
        })?;
        cursor.leave_leaf_end(env, tree)?;
        Ok(cursor)
    }

    /// Moves to the last record whose key is not above `key`; `None` if all keys are above.
    ///
    /// # Errors
    /// A damaged or unreadable block on the way.
    pub fn seek_le(env: Env<'_, '_>, tree: &T, key: &T::Key) -> Result<Option<Self>> {
        let mut cursor = Self::descend(env, tree, |b, s, level| {
            if level == 0 {
                return search(s.num(b), |i| T::key(&T::read_rec(&b[s.entries(i..i + 1)])) <= *key);
            }
            let below = search(s.num(b), |i| T::read_key(&b[s.entries(i..i + 1)]) <= *key);
            below.saturating_sub(1)
        })?;
        Ok(if cursor.back(env, tree)? { Some(cursor) } else { None })
    }

    /// Moves to the first record.
    ///
    /// # Errors
    /// A damaged or unreadable block on the way.
    pub fn first(env: Env<'_, '_>, tree: &T) -> Result<Self> {
        Self::descend(env, tree, |_, _, _| 0)
    }

    /// Moves to the last record; `None` in an empty tree.
    ///
    /// # Errors
    /// A damaged or unreadable block on the way.
    pub fn last(env: Env<'_, '_>, tree: &T) -> Result<Option<Self>> {
        let mut cursor = Self::descend(env, tree, |b, s, level| {
            if level == 0 { s.num(b) } else { s.num(b).saturating_sub(1) }
        })?;
        Ok(if cursor.back(env, tree)? { Some(cursor) } else { None })
    }

    fn descend(
        env: Env<'_, '_>,
        tree: &T,
        choose: impl Fn(&[u8], &super::node::Shape, usize) -> usize,
    ) -> Result<Self> {
        let mut path: SmallVec<[Level; 4]> = SmallVec::new();
        let (mut node, mut level) = match tree.root(env) {
            Root::Block(block, levels) => {
                let level = levels.saturating_sub(1);
                (read_block(env, tree, block, level)?, level)
            }
            Root::Fork(_, level) => (Node::Fork, level),
        };
        if level >= MAX_LEVELS {
            return Err(damaged(env, tree, &node, Check::Level, format!("{} levels", level + 1)));
        }
        loop {
            let (index, num, child) = node.with(env, tree, level, |b, s| {
                let num = s.num(b);
                if num > s.max {
                    return (0, num, None);
                }
                let index = choose(b, &s, level);
                let child = (level > 0 && index < num).then(|| s.ptr(b, index));
                (index, num, child)
            });
            let overfull = child.is_none() && level > 0;
            if overfull {
                let problem = format!("{num} entries at level {level}");
                return Err(damaged(env, tree, &node, Check::Count, problem));
            }
            path.push(Level { node, index });
            let Some(child) = child else { break };
            level -= 1;
            node = read_block(env, tree, child, level)?;
        }
        path.reverse();
        Ok(Self { path, tree: PhantomData })
    }

    /// Calls `visit` for every record of an overlapping tree whose keys may touch `low..=high`, in
    /// order, until it returns `false`.
    ///
    /// # Errors
    /// A damaged or unreadable block on the way.
    pub fn overlapping(
        env: Env<'_, '_>,
        tree: &T,
        low: &T::Key,
        high: &T::Key,
        visit: &mut dyn FnMut(&T::Rec) -> bool,
    ) -> Result<()> {
        let Root::Block(block, levels) = tree.root(env) else { return Ok(()) };
        let level = levels.saturating_sub(1);
        let root = read_block(env, tree, block, level)?;
        Self::overlapping_below(env, tree, &root, level, (low, high), visit).map(|_| ())
    }

    fn overlapping_below(
        env: Env<'_, '_>,
        tree: &T,
        node: &Node,
        level: usize,
        (low, high): (&T::Key, &T::Key),
        visit: &mut dyn FnMut(&T::Rec) -> bool,
    ) -> Result<bool> {
        if level == 0 {
            return Ok(node.with(env, tree, 0, |b, s| {
                let recs = (0..s.num(b)).map(|i| T::read_rec(&b[s.entries(i..i + 1)]));
                // The records are in the order of their first keys.
                let mut near = recs.take_while(|rec| T::key(rec) <= *high);
                near.all(|rec| T::high_key(&rec) < *low || visit(&rec))
            }));
        }
        let half = T::KIND.key_len() / 2;
        let children: SmallVec<[u64; 8]> = node.with(env, tree, level, |b, s| {
            let touches = |i: &usize| {
                let raw = &b[s.entries(*i..*i + 1)];
                T::read_key(raw) <= *high && T::read_key(&raw[half..]) >= *low
            };
            (0..s.num(b)).filter(touches).map(|i| s.ptr(b, i)).collect()
        });
        for child in children {
            let below = read_block(env, tree, child, level - 1)?;
            if !Self::overlapping_below(env, tree, &below, level - 1, (low, high), visit)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the record at the cursor; `None` past the end.
    pub fn rec(&self, env: Env<'_, '_>, tree: &T) -> Option<T::Rec> {
        let leaf = &self.path[0];
        leaf.node.with(env, tree, 0, |b, s| {
            (leaf.index < s.num(b)).then(|| T::read_rec(&b[s.entries(leaf.index..leaf.index + 1)]))
        })
    }

    /// Moves from past the end of a leaf to the next leaf, if there is one.
    fn leave_leaf_end(&mut self, env: Env<'_, '_>, tree: &T) -> Result<()> {
        let leaf = &self.path[0];
        if leaf.index >= leaf.node.num(env, tree, 0) {
            self.step_leaf(env, tree, true)?;
        }
        Ok(())
    }

    /// Would the record at the cursor keep its place with this key, which is lower than its own? `false` also
    /// if the record before it is in another leaf.
    pub(crate) fn keeps_place(&self, env: Env<'_, '_>, tree: &T, key: &T::Key) -> bool {
        let leaf = &self.path[0];
        let Some(before) = leaf.index.checked_sub(1) else { return self.path.len() == 1 };
        leaf.node.with(env, tree, 0, |b, s| {
            T::key(&T::read_rec(&b[s.entries(before..leaf.index)])) < *key
        })
    }

    /// Is the record at the cursor the last one?
    pub(crate) fn is_last(&self, env: Env<'_, '_>, tree: &T) -> bool {
        let mut levels = self.path.iter().enumerate();
        levels.all(|(level, at)| at.index + 1 == at.node.num(env, tree, level))
    }

    /// Moves to the next record. Returns `false` and does not move past the end if there is none.
    ///
    /// # Errors
    /// A damaged or unreadable block on the way.
    pub fn next(&mut self, env: Env<'_, '_>, tree: &T) -> Result<bool> {
        let leaf = &mut self.path[0];
        let num = leaf.node.num(env, tree, 0);
        if leaf.index + 1 < num {
            leaf.index += 1;
            return Ok(true);
        }
        if self.step_leaf(env, tree, true)? {
            return Ok(true);
        }
        self.path[0].index = num;
        Ok(false)
    }

    /// Moves to the previous record. Returns `false` if there is none.
    ///
    /// # Errors
    /// A damaged or unreadable block on the way.
    pub fn back(&mut self, env: Env<'_, '_>, tree: &T) -> Result<bool> {
        let leaf = &mut self.path[0];
        if leaf.index > 0 {
            leaf.index -= 1;
            return Ok(true);
        }
        self.step_leaf(env, tree, false)
    }

    /// Moves to the neighbouring leaf: to its first record forwards, to its last record backwards.
    fn step_leaf(&mut self, env: Env<'_, '_>, tree: &T, forwards: bool) -> Result<bool> {
        let mut level = 1;
        loop {
            let Some(up) = self.path.get(level) else { return Ok(false) };
            let num = up.node.num(env, tree, level);
            if forwards && up.index + 1 < num || !forwards && up.index > 0 {
                break;
            }
            level += 1;
        }
        let up = &mut self.path[level];
        if forwards {
            up.index += 1;
        } else {
            up.index -= 1;
        }
        while level > 0 {
            let up = &self.path[level];
            let child = up.node.with(env, tree, level, |b, s| s.ptr(b, up.index));
            level -= 1;
            let node = read_block(env, tree, child, level)?;
            let num = node.num(env, tree, level);
            if num == 0 {
                return Err(damaged(
                    env,
                    tree,
                    &node,
                    Check::Count,
                    "no records in a block below the root",
                ));
            }
            self.path[level] = Level { node, index: if forwards { 0 } else { num - 1 } };
        }
        Ok(true)
    }
}

/// Number of leading entries for which `below` holds, by binary search.
fn search(num: usize, below: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, num);
    while low < high {
        let middle = low + (high - low) / 2;
        if below(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Reads a block of the tree and checks that it is at `level`.
pub(super) fn read_block<T: Tree>(
    env: Env<'_, '_>,
    tree: &T,
    block: u64,
    level: usize,
) -> Result<Node> {
    let fs = env.fs();
    let daddr = tree.daddr(fs, block)?;
    let kinds = [BufKind::Btree(T::KIND)];
    let buf = fs.bufs.get(daddr, fs.geo.block_size, &kinds, tree.owner(env))?;
    let seen = level_of(&buf.read());
    if seen != level {
        return Err(
            buf.corrupt(Check::Level, format!("is at level {seen}, its parent at {}", level + 1))
        );
    }
    Ok(Node::Block(buf))
}

pub(super) fn damaged<T: Tree>(
    env: Env<'_, '_>,
    tree: &T,
    node: &Node,
    check: Check,
    detail: impl Into<String>,
) -> crate::Error {
    match (node, tree.fork()) {
        (Node::Block(buf), _) => buf.corrupt(check, detail),
        (Node::Fork, Some((slot, _))) => env.inode(slot).corrupt(check, detail),
        (Node::Fork, None) => unreachable!("only extent trees have their root in a fork"),
    }
}
