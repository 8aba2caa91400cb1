//! Changing a tree: update, insert, delete.

use uxfs_format::Check;
use uxfs_format::btree::{self, MAX_LEVELS};
use uxfs_format::verify::{BufKind, Owner};

use super::cursor::{Cursor, Level, damaged, read_block};
use super::node::{ENTRY_MAX, Entry, Node};
use super::tree::{Env, Tree, ag_of};
use crate::buf::{BufRef, Piece, Pieces};
use crate::error::Result;
use crate::tx::Tx;

impl<T: Tree> Cursor<T> {
    /// Replaces the record at the cursor by one that keeps the order.
    ///
    /// # Errors
    /// If there is no record at the cursor.
    pub fn update(&mut self, tx: &mut Tx<'_>, tree: &T, rec: &T::Rec) -> Result<()> {
        let Level { node, index } = &self.path[0];
        let shape = node.shape(Env::Tx(tx), tree, 0);
        if *index >= node.num(Env::Tx(tx), tree, 0) {
            return Err(damaged(
                Env::Tx(tx),
                tree,
                node,
                Check::Missing,
                "a record to be changed is not there",
            ));
        }
        node.put(tx, tree, &shape, *index, &rec_entry::<T>(rec));
        self.fix_keys(tx, tree, 0)
    }

    /// Inserts a record at the cursor, which must have been sought by the record's key. Consumes
    /// the cursor.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`], a damaged block, or a record of the same key.
    pub fn insert(mut self, tx: &mut Tx<'_>, tree: &T, rec: &T::Rec) -> Result<()> {
        if let Some(found) = self.rec(Env::Tx(tx), tree)
            && T::key(&found) <= T::key(rec)
        {
            let problem = format!("{rec:?} would stand at {found:?}");
            return Err(damaged(Env::Tx(tx), tree, &self.path[0].node, Check::Order, problem));
        }
        // The start of a leaf is equivalent to the end of the leaf before it. What matters is that
        // the record's key lies between its neighbours' keys.
        self.insert_entry(tx, tree, 0, rec_entry::<T>(rec))
    }

    fn insert_entry(
        &mut self,
        tx: &mut Tx<'_>,
        tree: &T,
        level: usize,
        entry: Entry,
    ) -> Result<()> {
        let shape = self.path[level].node.shape(Env::Tx(tx), tree, level);
        let num = self.path[level].node.num(Env::Tx(tx), tree, level);
        if num >= shape.max {
            self.make_room(tx, tree, level)?;
        }
        let Level { node, index } = &self.path[level];
        let shape = node.shape(Env::Tx(tx), tree, level);
        let num = node.num(Env::Tx(tx), tree, level);
        node.open(tx, tree, &shape, num, *index, 1);
        node.put(tx, tree, &shape, *index, &entry);
        node.set_num(tx, tree, &shape, num + 1);
        if T::OVERLAPPING {
            self.widen_keys(tx, tree, level, &entry);
            return Ok(());
        }
        self.fix_keys(tx, tree, level)
    }

    /// Makes space in the full node of the path at `level`. The cursor keeps its position.
    fn make_room(&mut self, tx: &mut Tx<'_>, tree: &T, level: usize) -> Result<()> {
        if level + 1 == self.path.len() {
            match self.path[level].node {
                Node::Fork => {
                    self.push_down(tx, tree)?;
                    let num = self.path[level].node.num(Env::Tx(tx), tree, level);
                    if num < self.path[level].node.shape(Env::Tx(tx), tree, level).max {
                        return Ok(());
                    }
                }
                Node::Block(_) => self.grow_root(tx, tree)?,
            }
        }
        if self.shift_left(tx, tree, level)? {
            return Ok(());
        }
        self.split(tx, tree, level)
    }

    /// Moves the root's entries from the inode into a new block, which becomes the root's only
    /// child.
    fn push_down(&mut self, tx: &mut Tx<'_>, tree: &T) -> Result<()> {
        let level = self.path.len() - 1;
        let (num, near) =
            self.path[level].node.with(Env::Tx(tx), tree, level, |b, s| (s.num(b), s.ptr(b, 0)));
        let (buf, block) = new_block(tx, tree, level, near)?;
        let child = Node::Block(buf);
        child.copy(tx, tree, level, 0, &Node::Fork, 0..num);
        let shape = child.shape(Env::Tx(tx), tree, level);
        child.set_num(tx, tree, &shape, num);
        let index = self.path[level].index;
        self.path[level] = Level { node: child, index };
        self.path.push(Level { node: Node::Fork, index: 0 });
        let top = self.path.len() - 1;
        tree.set_root(tx, 0, top + 1);
        let entry = child_entry(Env::Tx(tx), tree, &self.path[level].node, level, block);
        let shape = Node::Fork.shape(Env::Tx(tx), tree, top);
        Node::Fork.put(tx, tree, &shape, 0, &entry);
        Node::Fork.set_num(tx, tree, &shape, 1);
        Ok(())
    }

    /// Adds a new root with one child above the full root.
    fn grow_root(&mut self, tx: &mut Tx<'_>, tree: &T) -> Result<()> {
        let level = self.path.len() - 1;
        let old = self.block_number(tx, tree, level);
        if level + 1 >= MAX_LEVELS {
            let node = &self.path[level].node;
            return Err(damaged(
                Env::Tx(tx),
                tree,
                node,
                Check::Level,
                "the tree cannot grow any higher",
            ));
        }
        let (buf, block) = new_block(tx, tree, level + 1, old)?;
        let root = Node::Block(buf);
        let entry = child_entry(Env::Tx(tx), tree, &self.path[level].node, level, old);
        let shape = root.shape(Env::Tx(tx), tree, level + 1);
        root.put(tx, tree, &shape, 0, &entry);
        root.set_num(tx, tree, &shape, 1);
        self.path.push(Level { node: root, index: 0 });
        tree.set_root(tx, block, level + 2);
        Ok(())
    }

    fn block_number(&self, tx: &Tx<'_>, tree: &T, level: usize) -> u64 {
        match &self.path[level].node {
            Node::Block(buf) => tree.block_at(tx.fs(), buf.daddr()),
            Node::Fork => 0,
        }
    }

    /// The left sibling of the node at `level`, if both have the same parent.
    fn left(&self, tx: &Tx<'_>, tree: &T, level: usize) -> Result<Option<Node>> {
        self.sibling(tx, tree, level, |i| i.checked_sub(1))
    }

    fn sibling(
        &self,
        tx: &Tx<'_>,
        tree: &T,
        level: usize,
        of: impl Fn(usize) -> Option<usize>,
    ) -> Result<Option<Node>> {
        let env = Env::Tx(tx);
        let Some(up) = self.path.get(level + 1) else { return Ok(None) };
        let Some(index) = of(up.index) else { return Ok(None) };
        let block =
            up.node.with(env, tree, level + 1, |b, s| (index < s.num(b)).then(|| s.ptr(b, index)));
        block.map(|block| read_block(env, tree, block, level)).transpose()
    }

    /// Moves entries of the full node at `level` into its left sibling if that has space, so that a
    /// tree filled in order has full blocks.
    fn shift_left(&mut self, tx: &mut Tx<'_>, tree: &T, level: usize) -> Result<bool> {
        let Some(left) = self.left(tx, tree, level)? else { return Ok(false) };
        let env = Env::Tx(tx);
        let shape = left.shape(env, tree, level);
        let room = shape.max.saturating_sub(left.num(env, tree, level));
        let Level { node, index } = &self.path[level];
        let (num, index) = (node.num(env, tree, level), *index);
        // When filling in order, fill the sibling completely. Otherwise leave half of its space, so
        // that the new entry finds space on either side.
        let count = if index == num { room } else { room.div_ceil(2) };
        let fits = index == num || room >= 2;
        if room == 0 || !fits || num < count + shape.min {
            return Ok(false);
        }
        let node = node.clone();
        let left_num = left.num(env, tree, level);
        move_left(tx, tree, level, &left, &node, count);
        let at = self.path[level + 1].index;
        self.fix_child(tx, tree, level, at - 1, &left)?;
        self.fix_child(tx, tree, level, at, &node)?;
        if index < count {
            self.path[level] = Level { node: left, index: left_num + index };
            self.path[level + 1].index -= 1;
        } else {
            self.path[level].index -= count;
        }
        Ok(true)
    }

    /// Splits the full node at `level` into two.
    fn split(&mut self, tx: &mut Tx<'_>, tree: &T, level: usize) -> Result<()> {
        let Node::Block(buf) = self.path[level].node.clone() else {
            unreachable!("a root in an inode is pushed down, not split");
        };
        let old = tree.block_at(tx.fs(), buf.daddr());
        let (new_buf, new) = new_block(tx, tree, level, old)?;
        let (left, right) = (Node::Block(buf.clone()), Node::Block(new_buf.clone()));
        let shape = left.shape(Env::Tx(tx), tree, level);
        let num = left.num(Env::Tx(tx), tree, level);
        let keep = num.div_ceil(2);
        right.copy(tx, tree, level, 0, &left, keep..num);
        right.set_num(tx, tree, &shape, num - keep);
        left.set_num(tx, tree, &shape, keep);
        // Link the siblings: left <-> right <-> the former right sibling of left.
        let behind = sibling_number::<T>(&buf, false);
        set_sibling::<T>(tx, &new_buf, false, behind);
        set_sibling::<T>(tx, &new_buf, true, Some(old));
        set_sibling::<T>(tx, &buf, false, Some(new));
        if let Some(behind) = behind
            && let Node::Block(next) = read_block(Env::Tx(tx), tree, behind, level)?
        {
            set_sibling::<T>(tx, &next, true, Some(new));
        }
        let up = &self.path[level + 1];
        self.fix_child(tx, tree, level, up.index, &left)?;
        let entry = child_entry(Env::Tx(tx), tree, &right, level, new);
        self.path[level + 1].index += 1;
        self.insert_entry(tx, tree, level + 1, entry)?;
        let index = self.path[level].index;
        if index > keep {
            self.path[level] = Level { node: right, index: index - keep };
        } else {
            // The path's position in the parent is now the new node's; move back to the old node.
            self.step_parent_back(tx, tree, level + 1)?;
        }
        Ok(())
    }

    /// After inserting a child, moves the path's position from it to the child before it.
    fn step_parent_back(&mut self, tx: &Tx<'_>, tree: &T, level: usize) -> Result<()> {
        if self.path[level].index > 0 {
            self.path[level].index -= 1;
            return Ok(());
        }
        // The new child became the first of a new parent, so the child before it is the last of the
        // parent before.
        let env = Env::Tx(tx);
        self.step_parent_back(tx, tree, level + 1)?;
        let up = &self.path[level + 1];
        let block = up.node.with(env, tree, level + 1, |b, s| s.ptr(b, up.index));
        let node = read_block(env, tree, block, level)?;
        let last = node.num(env, tree, level).saturating_sub(1);
        self.path[level] = Level { node, index: last };
        Ok(())
    }

    /// Deletes the record at the cursor. Consumes the cursor.
    ///
    /// # Errors
    /// If there is no record at the cursor, or a block is damaged.
    pub fn delete(mut self, tx: &mut Tx<'_>, tree: &T) -> Result<()> {
        self.delete_entry(tx, tree, 0)
    }

    fn delete_entry(&mut self, tx: &mut Tx<'_>, tree: &T, level: usize) -> Result<()> {
        let Level { node, index } = &self.path[level];
        let (node, index) = (node.clone(), *index);
        let shape = node.shape(Env::Tx(tx), tree, level);
        let num = node.num(Env::Tx(tx), tree, level);
        if index >= num {
            return Err(damaged(
                Env::Tx(tx),
                tree,
                &node,
                Check::Missing,
                "a record to be deleted is not there",
            ));
        }
        node.close(tx, tree, &shape, num, index, 1);
        node.set_num(tx, tree, &shape, num - 1);
        if level + 1 == self.path.len() {
            return self.shrink_root(tx, tree);
        }
        if num > 1 {
            self.fix_keys(tx, tree, level)?;
        }
        if num > shape.min {
            return Ok(());
        }
        self.rebalance(tx, tree, level)
    }

    /// Merges the node at `level`, which is below its minimum, with a sibling, or moves entries
    /// between them.
    fn rebalance(&mut self, tx: &mut Tx<'_>, tree: &T, level: usize) -> Result<()> {
        // Choose the pair (left, right) so that the path's position in the parent is at right.
        let node = self.path[level].node.clone();
        let (left, right) = if let Some(left) = self.left(tx, tree, level)? {
            (left, node)
        } else if let Some(right) = self.sibling(tx, tree, level, |i| i.checked_add(1))? {
            self.path[level + 1].index += 1;
            (node, right)
        } else {
            // An only child. Its parent is a root in an inode with one entry, which `shrink_root`
            // removes if possible.
            return self.shrink_root(tx, tree);
        };
        let env = Env::Tx(tx);
        let shape = left.shape(env, tree, level);
        let (left_num, right_num) = (left.num(env, tree, level), right.num(env, tree, level));
        if left_num + right_num <= shape.max {
            return self.merge(tx, tree, level, &left, &right);
        }
        let even = (left_num + right_num) / 2;
        if left_num < even {
            move_left(tx, tree, level, &left, &right, even - left_num);
        } else {
            move_right(tx, tree, level, &left, &right, left_num - even);
        }
        let at = self.path[level + 1].index;
        self.fix_child(tx, tree, level, at - 1, &left)?;
        self.fix_child(tx, tree, level, at, &right)?;
        self.fix_keys(tx, tree, level + 1)
    }

    fn merge(
        &mut self,
        tx: &mut Tx<'_>,
        tree: &T,
        level: usize,
        left: &Node,
        right: &Node,
    ) -> Result<()> {
        let (Node::Block(left_buf), Node::Block(right_buf)) = (left, right) else {
            unreachable!("only blocks have siblings");
        };
        let env = Env::Tx(tx);
        let (left_num, right_num) = (left.num(env, tree, level), right.num(env, tree, level));
        let shape = left.shape(env, tree, level);
        left.copy(tx, tree, level, left_num, right, 0..right_num);
        left.set_num(tx, tree, &shape, left_num + right_num);
        let behind = sibling_number::<T>(right_buf, false);
        set_sibling::<T>(tx, left_buf, false, behind);
        if let Some(behind) = behind
            && let Node::Block(next) = read_block(Env::Tx(tx), tree, behind, level)?
        {
            let own = tree.block_at(tx.fs(), left_buf.daddr());
            set_sibling::<T>(tx, &next, true, Some(own));
        }
        let at = self.path[level + 1].index;
        self.fix_child(tx, tree, level, at - 1, left)?;
        tree.free(tx, right_buf)?;
        self.delete_entry(tx, tree, level + 1)
    }

    /// Removes a root with one child while that child can be the root.
    fn shrink_root(&mut self, tx: &mut Tx<'_>, tree: &T) -> Result<()> {
        loop {
            let top = self.path.len() - 1;
            let env = Env::Tx(tx);
            let (num, child) = self.path[top].node.with(env, tree, top, |b, s| {
                let num = s.num(b);
                (num, (top > 0 && num == 1).then(|| s.ptr(b, 0)))
            });
            let Some(child) = child else {
                debug_assert!(top == 0 || num > 0, "a node without children");
                return Ok(());
            };
            let below = read_block(env, tree, child, top - 1)?;
            let Node::Block(below_buf) = &below else { unreachable!("read from a block") };
            match self.path[top].node.clone() {
                Node::Block(old) => {
                    tree.set_root(tx, child, top);
                    tree.free(tx, &old)?;
                }
                Node::Fork => {
                    // The last leaf stays, because a root in an inode is never a leaf.
                    let num = below.num(env, tree, top - 1);
                    if top == 1 || num > Node::Fork.shape(env, tree, top - 1).max {
                        return Ok(());
                    }
                    Node::Fork.copy(tx, tree, top - 1, 0, &below, 0..num);
                    tree.set_root(tx, 0, top);
                    let shape = Node::Fork.shape(Env::Tx(tx), tree, top - 1);
                    Node::Fork.set_num(tx, tree, &shape, num);
                    tree.free(tx, below_buf)?;
                    self.path[top - 1].node = Node::Fork;
                }
            }
            self.path.pop();
        }
    }

    /// Updates the keys above the node at `level`, as far up as they change.
    fn fix_keys(&mut self, tx: &mut Tx<'_>, tree: &T, level: usize) -> Result<()> {
        for level in level..self.path.len() - 1 {
            let node = self.path[level].node.clone();
            let at = self.path[level + 1].index;
            if !self.fix_child(tx, tree, level, at, &node)? {
                break;
            }
        }
        Ok(())
    }

    /// Updates the keys above the node at `level`, to which `entry` was added. An entry can only lower
    /// the first key and raise the high key, so no node is read whole.
    fn widen_keys(&self, tx: &mut Tx<'_>, tree: &T, level: usize, entry: &Entry) {
        let half = T::KIND.key_len() / 2;
        let added = match level {
            0 => T::high_key(&T::read_rec(&entry.bytes[..T::KIND.rec_len()])),
            _ => T::read_key(&entry.bytes[half..2 * half]),
        };
        for level in level..self.path.len() - 1 {
            let mut bytes = [0; ENTRY_MAX];
            self.path[level].node.with(Env::Tx(tx), tree, level, |b, s| {
                let first = &b[s.entries(0..1)];
                match level {
                    0 => T::write_key(&T::key(&T::read_rec(first)), &mut bytes[..half]),
                    _ => bytes[..half].copy_from_slice(&first[..half]),
                }
            });
            let Level { node: up, index } = &self.path[level + 1];
            let range = up.shape(Env::Tx(tx), tree, level + 1).entries(*index..*index + 1);
            let same = up.with(Env::Tx(tx), tree, level + 1, |b, _| {
                let old = &b[range.clone()];
                bytes[half..2 * half].copy_from_slice(&old[half..2 * half]);
                if T::read_key(&old[half..2 * half]) < added {
                    T::write_key(&added, &mut bytes[half..2 * half]);
                }
                old[..2 * half] == bytes[..2 * half]
            });
            if same {
                break;
            }
            up.edit(tx, tree, range.start..range.start + 2 * half, |b| {
                b.copy_from_slice(&bytes[..2 * half]);
            });
        }
    }

    /// Updates the key of child `index` of the node above `level`. Returns whether it changed.
    fn fix_child(
        &self,
        tx: &mut Tx<'_>,
        tree: &T,
        level: usize,
        index: usize,
        child: &Node,
    ) -> Result<bool> {
        let up = &self.path[level + 1].node;
        let env = Env::Tx(tx);
        let entry = child_entry(env, tree, child, level, 0);
        let shape = up.shape(env, tree, level + 1);
        let range = shape.entries(index..index + 1);
        let len = range.len();
        let same = up.with(env, tree, level + 1, |b, _| b[range.clone()] == entry.bytes[..len]);
        if !same {
            up.edit(tx, tree, range, |b| b.copy_from_slice(&entry.bytes[..len]));
        }
        Ok(!same)
    }
}

fn rec_entry<T: Tree>(rec: &T::Rec) -> Entry {
    let mut bytes = [0; ENTRY_MAX];
    T::write_rec(rec, &mut bytes[..T::KIND.rec_len()]);
    Entry { bytes, ptr: 0 }
}

/// The entry for a child in the node above it.
fn child_entry<T: Tree>(
    env: Env<'_, '_>,
    tree: &T,
    child: &Node,
    level: usize,
    block: u64,
) -> Entry {
    let mut bytes = [0; ENTRY_MAX];
    child.with(env, tree, level, |b, s| {
        let num = s.num(b);
        let half = if T::OVERLAPPING { T::KIND.key_len() / 2 } else { T::KIND.key_len() };
        if num == 0 {
            return;
        }
        if level == 0 {
            let rec = |i: usize| T::read_rec(&b[s.entries(i..i + 1)]);
            T::write_key(&T::key(&rec(0)), &mut bytes[..half]);
            if T::OVERLAPPING
                && let Some(high) = (0..num).map(|i| T::high_key(&rec(i))).max()
            {
                T::write_key(&high, &mut bytes[half..2 * half]);
            }
        } else {
            bytes[..half].copy_from_slice(&b[s.entries(0..1)][..half]);
            let high = |i: usize| T::read_key(&b[s.entries(i..i + 1)][half..]);
            if T::OVERLAPPING
                && let Some(high) = (0..num).map(high).max()
            {
                T::write_key(&high, &mut bytes[half..2 * half]);
            }
        }
    });
    Entry { bytes, ptr: block }
}

/// Moves the first `count` entries of `right` to the end of `left`.
fn move_left<T: Tree>(
    tx: &mut Tx<'_>,
    tree: &T,
    level: usize,
    left: &Node,
    right: &Node,
    count: usize,
) {
    let env = Env::Tx(tx);
    let shape = left.shape(env, tree, level);
    let (left_num, right_num) = (left.num(env, tree, level), right.num(env, tree, level));
    left.copy(tx, tree, level, left_num, right, 0..count);
    left.set_num(tx, tree, &shape, left_num + count);
    right.close(tx, tree, &shape, right_num, 0, count);
    right.set_num(tx, tree, &shape, right_num - count);
}

/// Moves the last `count` entries of `left` to the start of `right`.
fn move_right<T: Tree>(
    tx: &mut Tx<'_>,
    tree: &T,
    level: usize,
    left: &Node,
    right: &Node,
    count: usize,
) {
    let env = Env::Tx(tx);
    let shape = left.shape(env, tree, level);
    let (left_num, right_num) = (left.num(env, tree, level), right.num(env, tree, level));
    right.open(tx, tree, &shape, right_num, 0, count);
    right.copy(tx, tree, level, 0, left, left_num - count..left_num);
    right.set_num(tx, tree, &shape, right_num + count);
    left.set_num(tx, tree, &shape, left_num - count);
}

/// Allocates an empty block of the tree and writes its header.
pub(super) fn new_block<T: Tree>(
    tx: &mut Tx<'_>,
    tree: &T,
    level: usize,
    near: u64,
) -> Result<(BufRef, u64)> {
    let fs = tx.fs();
    let block = tree.alloc(tx, near)?;
    let daddr = tree.daddr(fs, block)?;
    let kind = BufKind::Btree(T::KIND);
    let pieces = Pieces::from_buf([Piece { daddr, len: fs.geo.block_size }]);
    let buf = tx.make_buf(pieces, kind);
    let owner = match tree.owner(Env::Tx(tx)) {
        Owner::Inode(ino) => ino.0,
        owner => ag_of(owner).0.into(),
    };
    crate::tx::label(tx, &buf, kind, owner);
    let header = 0..T::KIND.header().len;
    T::KIND.put_header(&mut tx.edit(&buf, header), level as u16);
    Ok((buf, block))
}

pub(super) fn sibling_number<T: Tree>(buf: &BufRef, left: bool) -> Option<u64> {
    btree::sibling(&buf.read()[T::KIND.header().sibling(left)])
}

fn set_sibling<T: Tree>(tx: &mut Tx<'_>, buf: &BufRef, left: bool, block: Option<u64>) {
    btree::put_sibling(&mut tx.edit(buf, T::KIND.header().sibling(left)), block);
}
