//! The parts of a volume (names, pages, lengths) with all values that they had in a history.
//!
//! 1. A file, directory or link is a *node*. A node is new with each creation, also if its inode number was
//!    in use before.
//! 2. What no call changed has the value that it had before the first call.

use rustc_hash::FxHashMap;
use uxfs::format::Ino;

use super::tree::{Seen, Tree};
use super::versions::{Length, Set, Versions};
use crate::history::{Call, Change, History, Kind, Written};
use crate::sim::{PAGE, Page};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeId(usize);

/// What a name stands for; nothing, or a node.
pub(super) type Named = Option<NodeId>;
/// The content of a page; nothing if it is zero or behind the end.
pub(super) type Content = Option<Page>;

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) ino: Ino,
    pub(super) body: Body,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Dir(FxHashMap<String, Versions<Named>>),
    File(Length, FxHashMap<u64, Versions<Content>>),
    Symlink(Vec<u8>),
}

/// A part that a call changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Name(NodeId, String),
    Page(NodeId, u64),
    /// The length, before and after.
    Length(NodeId, u64, u64),
}

/// A call with the parts that it changed.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) set: Set,
    pub(super) parts: Vec<Part>,
}

pub(super) struct Parts {
    nodes: Vec<Node>,
    /// The newest node of each inode number.
    newest: FxHashMap<Ino, NodeId>,
    /// In the order in which the calls ended.
    pub(super) calls: Vec<Changed>,
}

impl Part {
    /// Is it the same part, whatever the calls made of it?
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Length(one, ..), Self::Length(two, ..)) => one == two,
            _ => self == other,
        }
    }
}

impl Parts {
    /// The parts of a volume that was as `base` before the first call.
    ///
    /// # Errors
    /// If calls overlapped in a way that leaves more than one outcome.
    pub(super) fn new(base: &Tree, history: &History) -> Result<Self, String> {
        let mut parts = Self { nodes: Vec::new(), newest: FxHashMap::default(), calls: Vec::new() };
        // All nodes first, so that names find theirs.
        let mut inos: Vec<Ino> = base.seen.keys().copied().collect();
        inos.sort_by_key(|ino| (*ino != base.root, ino.0));
        for ino in &inos {
            let body = match &base.seen[ino] {
                Seen::Dir(_) => Body::Dir(FxHashMap::default()),
                Seen::File(length, pages) => {
                    let pages =
                        pages.iter().map(|(at, page)| (*at, Versions::new(Some(page.clone()))));
                    Body::File(Length::new(*length), pages.collect())
                }
                Seen::Symlink(target) => Body::Symlink(target.clone()),
            };
            parts.add(*ino, body);
        }
        for ino in &inos {
            let Seen::Dir(names) = &base.seen[ino] else { continue };
            let named = |(name, ino): (&String, &Ino)| {
                (name.clone(), Versions::new(Some(parts.newest[ino])))
            };
            let all = names.iter().map(named).collect();
            let dir = parts.newest[ino];
            parts.nodes[dir.0].body = Body::Dir(all);
        }
        for call in &history.calls {
            let changed = parts.take(call).ok_or_else(|| {
                format!(
                    "the history has an order that is not known: {:?} at {}",
                    call.change, call.end
                )
            })?;
            let set = Set { begin: call.begin, end: call.end };
            parts.calls.push(Changed { set, parts: changed });
        }
        Ok(parts)
    }

    /// The root, which is the first node.
    pub(super) fn root(&self) -> NodeId {
        NodeId(0)
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    fn add(&mut self, ino: Ino, body: Body) -> NodeId {
        self.nodes.push(Node { ino, body });
        let id = NodeId(self.nodes.len() - 1);
        self.newest.insert(ino, id);
        id
    }

    /// Takes a call in. `None` if its effect is not known.
    fn take(&mut self, call: &Call) -> Option<Vec<Part>> {
        let set = Set { begin: call.begin, end: call.end };
        match &call.change {
            Change::Made { dir, name, ino, kind } => {
                let body = match kind {
                    Kind::File => Body::File(Length::new(0), FxHashMap::default()),
                    Kind::Dir => Body::Dir(FxHashMap::default()),
                    Kind::Symlink(target) => Body::Symlink(target.clone()),
                };
                let node = self.add(*ino, body);
                Some(vec![self.name(*dir, name, set, Some(node))?])
            }
            Change::Linked { ino, dir, name } => {
                let node = *self.newest.get(ino)?;
                Some(vec![self.name(*dir, name, set, Some(node))?])
            }
            Change::Removed { dir, name } => Some(vec![self.name(*dir, name, set, None)?]),
            Change::Renamed { dir, name, to_dir, to_name } => {
                let node = self.named(*dir, name)?;
                Some(vec![
                    self.name(*dir, name, set, None)?,
                    self.name(*to_dir, to_name, set, Some(node))?,
                ])
            }
            Change::Wrote { ino, at, bytes } => self.write(*ino, *at, bytes, set),
            Change::Cut { ino, size } => self.cut(*ino, *size, set),
            Change::MadeDurable => Some(Vec::new()),
        }
    }

    /// What a name stands for after all calls so far.
    fn named(&self, dir: Ino, name: &str) -> Option<NodeId> {
        let Body::Dir(names) = &self.node(*self.newest.get(&dir)?).body else { return None };
        *names.get(name)?.last()
    }

    fn name(&mut self, dir: Ino, name: &str, set: Set, named: Named) -> Option<Part> {
        let dir = *self.newest.get(&dir)?;
        let Body::Dir(names) = &mut self.nodes[dir.0].body else { return None };
        let versions = names.entry(name.to_owned()).or_insert_with(|| Versions::new(None));
        versions.set(set, named);
        Some(Part::Name(dir, name.to_owned()))
    }

    fn write(&mut self, ino: Ino, at: u64, bytes: &Written, set: Set) -> Option<Vec<Part>> {
        let node = *self.newest.get(&ino)?;
        let Body::File(length, pages) = &mut self.nodes[node.0].body else { return None };
        let end = at + bytes.len() as u64;
        let before = length.last();
        if !length.wrote(set, end) {
            return None;
        }
        let mut parts = vec![Part::Length(node, before, before.max(end))];
        let page = PAGE as u64;
        for number in at / page..end.div_ceil(page) {
            let (start, until) = ((number * page).max(at), ((number + 1) * page).min(end));
            let versions = pages.entry(number).or_insert_with(|| Versions::new(None));
            // A part of a page keeps the rest, so it must be known what that was.
            if until - start < page && set.begin <= versions.last_end() {
                return None;
            }
            let mut whole = [0; PAGE];
            if let Some(old) = versions.last() {
                old.copy(0, &mut whole);
            }
            let inside = (start - number * page) as usize..(until - number * page) as usize;
            bytes.copy((start - at) as usize, &mut whole[inside]);
            versions.set(set, content(&whole));
            parts.push(Part::Page(node, number));
        }
        Some(parts)
    }

    fn cut(&mut self, ino: Ino, size: u64, set: Set) -> Option<Vec<Part>> {
        let node = *self.newest.get(&ino)?;
        let Body::File(length, pages) = &mut self.nodes[node.0].body else { return None };
        let before = length.last();
        if !length.cut(set, size) {
            return None;
        }
        let mut parts = vec![Part::Length(node, before, size)];
        for (number, versions) in pages.iter_mut() {
            let kept = size.saturating_sub(number * PAGE as u64).min(PAGE as u64) as usize;
            let Some(old) = versions.last().as_ref().filter(|_| kept < PAGE) else { continue };
            if set.begin <= versions.last_end() {
                return None;
            }
            let mut whole = [0; PAGE];
            old.copy(0, &mut whole[..kept]);
            versions.set(set, content(&whole));
            parts.push(Part::Page(node, *number));
        }
        Some(parts)
    }
}

fn content(bytes: &[u8]) -> Content {
    Some(Page::of(bytes)).filter(|page| !page.is_zero())
}
