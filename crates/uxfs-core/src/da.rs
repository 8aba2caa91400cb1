//! The node tree above the leaves of node-form directories and of attribute forks.
//!
//! 1. The root always lies at the tree's base block. When the root splits, its content moves and the
//!    base becomes the node above. When the root has one child left, that child's content moves into
//!    the base. A leaf that is the whole tree lies at the base too, and its [`Path`] has no nodes.
//! 2. A node's entry holds exactly the highest hash of its child.
//! 3. Blocks of a level are linked in hash order. A [`Path`] follows the nodes, not the links. Levels
//!    must fall by one at each step, so a damaged tree is detected and no walk runs in circles.
//! 4. What a function here calls "the path" stays valid when the nodes on it split, so several changes
//!    can use one path.
//!
//! To split a leaf: call [`new_leaf_after`], move entries over, call [`insert_after`]. The first call
//! may move the leaf that the path leads to, so take the leaf from the path again. To remove a leaf:
//! call [`remove_leaf`]. If only a leaf's highest hash changed: call [`fix_hash`].
//!
//! Called by [`crate::dir`] and the attribute code.

use smallvec::SmallVec;
use uxfs_format::da::{self, ENTRIES, ENTRY_LEN, MAX_DEPTH};
use uxfs_format::inode::Fork;
use uxfs_format::verify::BufKind;
use uxfs_format::{Check, FileBlock, Geometry};

use crate::buf::BufRef;
use crate::dabuf;
use crate::error::{Error, Result};
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::tx::{InodeSlot, Tx};

/// The two trees that an inode can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// The directory tree, with leaves of kind [`BufKind::DirLeafN`].
    Dir,
    /// The attribute tree, with leaves of kind [`BufKind::AttrLeaf`].
    Attr,
}

impl Tree {
    /// The fork that holds the tree.
    pub fn fork(self) -> Fork {
        match self {
            Self::Dir => Fork::Data,
            Self::Attr => Fork::Attr,
        }
    }

    /// The block of the root.
    pub fn base(self, geo: &Geometry) -> FileBlock {
        match self {
            Self::Dir => geo.dir_leaf_start(),
            Self::Attr => FileBlock(0),
        }
    }

    /// The kind of the leaves.
    pub fn leaf_kind(self) -> BufKind {
        match self {
            Self::Dir => BufKind::DirLeafN,
            Self::Attr => BufKind::AttrLeaf,
        }
    }

    fn leaf_magic(self) -> u16 {
        match self {
            Self::Dir => da::DIR_LEAFN_MAGIC,
            Self::Attr => da::ATTR_LEAF_MAGIC,
        }
    }

    /// End of the tree's address space.
    fn end(self, geo: &Geometry) -> u64 {
        match self {
            Self::Dir => geo.dir_free_start().0,
            Self::Attr => 1 << 32,
        }
    }
}

/// A node on the path to a leaf, and the entry that was followed.
#[derive(Clone)]
pub struct Step {
    /// The node.
    pub buf: BufRef,
    /// Its offset in the fork.
    pub at: FileBlock,
    /// Index of the entry that was followed.
    pub index: usize,
}

/// The path from the root to a leaf.
#[derive(Clone)]
pub struct Path {
    /// The nodes, starting with the root; empty if the leaf is the root.
    pub nodes: SmallVec<[Step; MAX_DEPTH]>,
    /// The leaf.
    pub leaf: BufRef,
    /// Offset of the leaf in the fork.
    pub leaf_at: FileBlock,
}

/// Finds the first leaf that may hold `hash`, or into which `hash` is to be inserted.
///
/// # Errors
/// If a block of the tree is missing or damaged.
pub fn find_leaf(fs: &Mount, inode: &InodeState, tree: Tree, hash: u32) -> Result<Path> {
    let at = tree.base(&fs.geo);
    let root = dabuf::read(fs, inode, tree.fork(), at, &[BufKind::DaNode, tree.leaf_kind()])?;
    find_leaf_from(fs, inode, tree, root, hash)
}

/// As [`find_leaf`], with a root that is already read.
pub(crate) fn find_leaf_from(
    fs: &Mount,
    inode: &InodeState,
    tree: Tree,
    root: BufRef,
    hash: u32,
) -> Result<Path> {
    let start = (root, tree.base(&fs.geo));
    descend(fs, inode, tree, SmallVec::new(), start, |node, count| {
        da::lower_bound(&node[ENTRIES..], count, hash).min(count - 1)
    })
}

/// Descends from `start`, a child of the last of `nodes`, to a leaf. `choose` selects the entry of
/// each node.
fn descend(
    fs: &Mount,
    inode: &InodeState,
    tree: Tree,
    mut nodes: SmallVec<[Step; MAX_DEPTH]>,
    start: (BufRef, FileBlock),
    choose: impl Fn(&[u8], usize) -> usize,
) -> Result<Path> {
    let mut level = nodes.last().map(|step| da::level(&step.buf.read()));
    let (mut buf, mut at) = start;
    loop {
        let (child, index) = {
            let node = buf.read();
            let own = if node.kind == BufKind::DaNode { da::level(&node) } else { 0 };
            if level.is_some_and(|above| own + 1 != above) {
                let above = level.unwrap_or(0);
                drop(node);
                return Err(buf.corrupt(Check::Level, format!("level {own} below level {above}")));
            }
            level = Some(own);
            if own == 0 {
                drop(node);
                return Ok(Path { nodes, leaf: buf, leaf_at: at });
            }
            let index = choose(&node, da::count(&node));
            (da::child(&node, index), index)
        };
        nodes.push(Step { buf, at, index });
        at = FileBlock(child.into());
        buf = read_child(fs, inode, tree, at)?;
    }
}

fn read_child(fs: &Mount, inode: &InodeState, tree: Tree, at: FileBlock) -> Result<BufRef> {
    let (base, step) = (tree.base(&fs.geo).0, dabuf::fsbs(fs, tree.fork()));
    if at.0 <= base || at.0 >= tree.end(&fs.geo) || !(at.0 - base).is_multiple_of(step) {
        return Err(inode.corrupt(Check::Pointer, format!("{tree:?} tree leads to block {at}")));
    }
    dabuf::read(fs, inode, tree.fork(), at, &[tree.leaf_kind(), BufKind::DaNode])
}

/// Moves the path to the next leaf. If it already leads to the last leaf, leaves it unchanged and
/// returns `false`.
///
/// # Errors
/// If a block of the tree is missing or damaged, or the links of the leaves disagree with the
/// nodes.
pub fn next_leaf(fs: &Mount, inode: &InodeState, tree: Tree, path: &mut Path) -> Result<bool> {
    let forw = da::forw(&path.leaf.read());
    let more = |step: &Step| step.index + 1 < da::count(&step.buf.read());
    let Some(turn) = path.nodes.iter().rposition(more) else {
        if forw != 0 {
            return Err(path
                .leaf
                .corrupt(Check::Pointer, format!("last leaf is followed by block {forw}")));
        }
        return Ok(false);
    };
    let mut nodes: SmallVec<[Step; MAX_DEPTH]> = path.nodes[..=turn].into();
    nodes[turn].index += 1;
    let at = FileBlock(da::child(&nodes[turn].buf.read(), nodes[turn].index).into());
    let buf = read_child(fs, inode, tree, at)?;
    let next = descend(fs, inode, tree, nodes, (buf, at), |_, _| 0)?;
    if next.leaf_at.0 != u64::from(forw) {
        let problem = format!("is followed by block {forw}, by the nodes by {}", next.leaf_at);
        return Err(path.leaf.corrupt(Check::Pointer, problem));
    }
    *path = next;
    Ok(true)
}

/// Updates the nodes above a leaf whose highest hash is now `last_hash`.
pub fn fix_hash(tx: &mut Tx<'_>, path: &Path, last_hash: u32) {
    set_hash(tx, &path.nodes, last_hash);
}

/// Sets the hash of the entry followed in the last of `nodes`, and in the nodes above as long as
/// that entry is the last of its node.
fn set_hash(tx: &mut Tx<'_>, nodes: &[Step], hash: u32) {
    for step in nodes.iter().rev() {
        let (old, count) = {
            let node = step.buf.read();
            (da::hash(&node, step.index), da::count(&node))
        };
        if old != hash {
            tx.set(&step.buf, da::hash_at(step.index), hash);
        }
        if step.index + 1 != count {
            return;
        }
    }
}

fn set_count(tx: &mut Tx<'_>, buf: &BufRef, count: usize) {
    tx.set(buf, da::COUNT, count as u16);
}

/// A block number as block headers store it.
fn number(at: FileBlock) -> u32 {
    // Below `Tree::end`, which is at most 2^32.
    at.0 as u32
}

/// Allocates the first unused block of the tree's address space. Address, UUID and owner are set,
/// the rest is zero.
///
/// # Errors
/// [`Error::NoSpace`], [`Error::FileTooBig`] if the tree's address space is full, or a damaged
/// structure on the way.
pub fn new_block(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    tree: Tree,
    kind: BufKind,
) -> Result<(BufRef, FileBlock)> {
    let fs = tx.fs();
    let fork = tree.fork();
    let len = dabuf::fsbs(fs, fork);
    let at = dabuf::first_unused(tx, slot, fork, tree.base(&fs.geo))?;
    if at.0 + len > tree.end(&fs.geo) {
        return Err(Error::FileTooBig);
    }
    let buf = dabuf::grow(tx, slot, fork, at, kind)?;
    Ok((buf, at))
}

/// Copies the content of a block to another block, except its own address.
fn copy_content(tx: &mut Tx<'_>, from: &BufRef, to: &BufRef) {
    let (kind, bytes) = {
        let content = from.read();
        (content.kind, content.bytes.clone())
    };
    tx.set_kind(to, kind);
    let mut target = tx.edit_all(to);
    let links = ..da::MAGIC.range().end;
    target[links].copy_from_slice(&bytes[links]);
    target[da::INFO_LEN..].copy_from_slice(&bytes[da::INFO_LEN..]);
}

/// Moves the root away from the base, and makes the base a node above it with one entry for
/// `last_hash`.
fn grow_root(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    tree: Tree,
    path: &mut Path,
    last_hash: u32,
) -> Result<()> {
    if path.nodes.len() + 2 > MAX_DEPTH {
        return Err(Error::FileTooBig);
    }
    let base = tree.base(&tx.fs().geo);
    let (root, kind, level) = match path.nodes.first() {
        Some(step) => (step.buf.clone(), BufKind::DaNode, da::level(&step.buf.read())),
        None => (path.leaf.clone(), tree.leaf_kind(), 0),
    };
    let (moved, at) = new_block(tx, slot, tree, kind)?;
    copy_content(tx, &root, &moved);
    tx.set_kind(&root, BufKind::DaNode);
    {
        let mut node = tx.edit_all(&root);
        node[..da::MAGIC.offset()].fill(0);
        node[da::INFO_LEN..].fill(0);
        da::put_node_header(&mut node, 1, level + 1);
        let entry = da::entry(last_hash, number(at));
        node[ENTRIES..ENTRIES + ENTRY_LEN].copy_from_slice(&entry);
    }
    match path.nodes.first_mut() {
        Some(step) => (step.buf, step.at) = (moved, at),
        None => (path.leaf, path.leaf_at) = (moved, at),
    }
    path.nodes.insert(0, Step { buf: root, at: base, index: 0 });
    Ok(())
}

/// Creates an empty leaf after the one that the path leads to: allocated, with its magic number,
/// and linked on both sides. If the path's leaf is the root, its content first moves to another
/// block, and a node takes its place. Afterwards use `path.leaf`, not an earlier copy of it.
///
/// The nodes do not refer to the new leaf before [`insert_after`]. The path still leads to the old
/// leaf.
///
/// # Errors
/// [`Error::NoSpace`], [`Error::FileTooBig`] if the tree has its maximum depth, or a damaged
/// structure on the way.
pub fn new_leaf_after(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    tree: Tree,
    path: &mut Path,
) -> Result<(BufRef, FileBlock)> {
    if path.nodes.is_empty() {
        // `insert_after` sets the correct hash.
        grow_root(tx, slot, tree, path, 0)?;
    }
    let (buf, at) = new_block(tx, slot, tree, tree.leaf_kind())?;
    tx.set(&buf, da::MAGIC, tree.leaf_magic());
    link_after(tx, slot, tree, (&path.leaf, path.leaf_at), (&buf, at))?;
    Ok((buf, at))
}

/// Links the new block `fresh` in after `old`.
fn link_after(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    tree: Tree,
    old: (&BufRef, FileBlock),
    fresh: (&BufRef, FileBlock),
) -> Result<()> {
    let forw = da::forw(&old.0.read());
    if forw != 0 {
        let next = neighbour(tx, slot, tree, old.0, forw)?;
        let back = da::back(&next.read());
        if u64::from(back) != old.1.0 {
            return Err(
                next.corrupt(Check::Pointer, format!("follows block {back}, not {}", old.1))
            );
        }
        tx.set(&next, da::BACK, number(fresh.1));
    }
    tx.set(fresh.0, da::FORW, forw);
    tx.set(fresh.0, da::BACK, number(old.1));
    tx.set(old.0, da::FORW, number(fresh.1));
    Ok(())
}

/// Reads the block `at`, a neighbour of `buf` on the same level.
fn neighbour(tx: &Tx<'_>, slot: InodeSlot, tree: Tree, buf: &BufRef, at: u32) -> Result<BufRef> {
    let next = read_child(tx.fs(), tx.inode(slot), tree, FileBlock(at.into()))?;
    let rank = |buf: &BufRef| {
        let block = buf.read();
        if block.kind == BufKind::DaNode { da::level(&block) } else { 0 }
    };
    if rank(&next) != rank(buf) {
        return Err(next.corrupt(Check::Level, "is linked to a block of another level"));
    }
    Ok(next)
}

/// Removes a block from the links of its level.
fn unlink(tx: &mut Tx<'_>, slot: InodeSlot, tree: Tree, buf: &BufRef, at: FileBlock) -> Result<()> {
    let (forw, back) = {
        let block = buf.read();
        (da::forw(&block), da::back(&block))
    };
    for (side, towards_us, other) in [(forw, da::BACK, back), (back, da::FORW, forw)] {
        if side == 0 {
            continue;
        }
        let beside = neighbour(tx, slot, tree, buf, side)?;
        let seen = beside.get(towards_us);
        if u64::from(seen) != at.0 {
            return Err(
                beside.corrupt(Check::Pointer, format!("is linked to block {seen}, not to {at}"))
            );
        }
        tx.set(&beside, towards_us, other);
    }
    Ok(())
}

/// Adds a leaf made by [`new_leaf_after`] to the nodes. `old_last_hash` is the highest hash of the
/// path's leaf, `new_last_hash` that of the new leaf. Nodes split as needed, including the root.
/// The path still leads to the old leaf; [`next_leaf`] moves it to the new one.
///
/// # Errors
/// [`Error::NoSpace`], [`Error::FileTooBig`] if the tree has its maximum depth, or a damaged
/// structure on the way.
pub fn insert_after(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    tree: Tree,
    path: &mut Path,
    new_leaf_at: FileBlock,
    old_last_hash: u32,
    new_last_hash: u32,
) -> Result<()> {
    insert_child(tx, slot, tree, path, 0, (old_last_hash, new_last_hash), new_leaf_at)
}

/// Inserts `child` after the entry that the path follows in the node `height` levels above the
/// lowest node. `hashes` are the highest hashes of that entry's child and of the new child.
fn insert_child(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    tree: Tree,
    path: &mut Path,
    height: usize,
    hashes: (u32, u32),
    child: FileBlock,
) -> Result<()> {
    let depth = |path: &Path| path.nodes.len() - 1 - height;
    let node = path.nodes[depth(path)].buf.clone();
    if da::count(&node.read()) >= da::capacity(node.len()) {
        split_node(tx, slot, tree, path, height)?;
    }
    let step = &path.nodes[depth(path)];
    let count = da::count(&step.buf.read());
    let at = ENTRIES + step.index * ENTRY_LEN;
    let end = ENTRIES + count * ENTRY_LEN;
    {
        let mut entries = tx.edit(&step.buf, at..end + ENTRY_LEN);
        entries.copy_within(ENTRY_LEN..end - at, 2 * ENTRY_LEN);
        da::ENTRY_HASH.set(&mut entries, hashes.0);
        let fresh = da::entry(hashes.1, number(child));
        entries[ENTRY_LEN..2 * ENTRY_LEN].copy_from_slice(&fresh);
    }
    set_count(tx, &step.buf, count + 1);
    if step.index + 1 == count {
        set_hash(tx, &path.nodes[..depth(path)], hashes.1);
    }
    Ok(())
}

/// Splits the full node `height` levels above the lowest node. The path continues through the half
/// that holds its entry.
fn split_node(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    tree: Tree,
    path: &mut Path,
    height: usize,
) -> Result<()> {
    if height + 1 == path.nodes.len() {
        let root = path.nodes[0].buf.clone();
        let last = {
            let node = root.read();
            da::hash(&node, da::count(&node) - 1)
        };
        grow_root(tx, slot, tree, path, last)?;
    }
    let depth = path.nodes.len() - 1 - height;
    let old = path.nodes[depth].clone();
    let (fresh, at) = new_block(tx, slot, tree, BufKind::DaNode)?;
    link_after(tx, slot, tree, (&old.buf, old.at), (&fresh, at))?;
    let (level, count, upper, hashes) = {
        let node = old.buf.read();
        let count = da::count(&node);
        let half = count / 2;
        let range = ENTRIES + half * ENTRY_LEN..ENTRIES + count * ENTRY_LEN;
        let hashes = (da::hash(&node, half - 1), da::hash(&node, count - 1));
        (da::level(&node), count, node[range].to_vec(), hashes)
    };
    let half = count / 2;
    {
        let mut node = tx.edit_all(&fresh);
        da::put_node_header(&mut node, count - half, level);
        node[ENTRIES..ENTRIES + upper.len()].copy_from_slice(&upper);
    }
    set_count(tx, &old.buf, half);
    insert_child(tx, slot, tree, path, height + 1, hashes, at)?;
    let depth = path.nodes.len() - 1 - height;
    if old.index >= half {
        path.nodes[depth] = Step { buf: fresh, at, index: old.index - half };
        path.nodes[depth - 1].index += 1;
    }
    Ok(())
}

/// Removes the path's leaf from the tree and frees its block, and the blocks of nodes that become
/// empty. A root with one child left takes over that child's content. The tree's only leaf cannot
/// be removed: see [`is_only_leaf`].
///
/// # Errors
/// If it is the only leaf, or a structure on the way is damaged.
pub fn remove_leaf(tx: &mut Tx<'_>, slot: InodeSlot, tree: Tree, path: Path) -> Result<()> {
    if is_only_leaf(&path) {
        return Err(path.leaf.corrupt(Check::Count, "is the only leaf of its tree"));
    }
    let Path { mut nodes, leaf, leaf_at } = path;
    unlink(tx, slot, tree, &leaf, leaf_at)?;
    dabuf::shrink(tx, slot, tree.fork(), leaf_at, &leaf)?;
    while let Some(step) = nodes.pop() {
        let count = da::count(&step.buf.read());
        if count == 1 {
            // This is not the root: another leaf exists, so a node above has another entry.
            unlink(tx, slot, tree, &step.buf, step.at)?;
            dabuf::shrink(tx, slot, tree.fork(), step.at, &step.buf)?;
            continue;
        }
        remove_entry(tx, &step, count);
        if step.index + 1 == count {
            let last = da::hash(&step.buf.read(), count - 2);
            set_hash(tx, &nodes, last);
        }
        break;
    }
    collapse_root(tx, slot, tree)
}

/// Does the path lead to the only leaf of its tree?
pub fn is_only_leaf(path: &Path) -> bool {
    path.nodes.iter().all(|step| da::count(&step.buf.read()) == 1)
}

fn remove_entry(tx: &mut Tx<'_>, step: &Step, count: usize) {
    let at = ENTRIES + step.index * ENTRY_LEN;
    let end = ENTRIES + count * ENTRY_LEN;
    {
        let mut entries = tx.edit(&step.buf, at..end);
        entries.copy_within(ENTRY_LEN.., 0);
        let len = entries.len();
        entries[len - ENTRY_LEN..].fill(0);
    }
    set_count(tx, &step.buf, count - 1);
}

/// While the root is a node with one child, moves that child's content into the base block.
fn collapse_root(tx: &mut Tx<'_>, slot: InodeSlot, tree: Tree) -> Result<()> {
    let fs = tx.fs();
    let base = tree.base(&fs.geo);
    let kinds = [BufKind::DaNode, tree.leaf_kind()];
    for _ in 0..MAX_DEPTH {
        let root = dabuf::read(fs, tx.inode(slot), tree.fork(), base, &kinds)?;
        let (child, level) = {
            let node = root.read();
            if node.kind != BufKind::DaNode || da::count(&node) != 1 {
                return Ok(());
            }
            (FileBlock(da::child(&node, 0).into()), da::level(&node))
        };
        let buf = read_child(fs, tx.inode(slot), tree, child)?;
        let own = {
            let block = buf.read();
            if block.kind == BufKind::DaNode { da::level(&block) } else { 0 }
        };
        if own + 1 != level || buf.get(da::FORW) != 0 || buf.get(da::BACK) != 0 {
            return Err(buf.corrupt(Check::Count, "is not the only block of its level"));
        }
        copy_content(tx, &buf, &root);
        dabuf::shrink(tx, slot, tree.fork(), child, &buf)?;
    }
    Ok(())
}
