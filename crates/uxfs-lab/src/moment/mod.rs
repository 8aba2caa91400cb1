//! Is the volume that a power cut left that of one moment of its history? And of which?
//!
//! Each name, page and length that is read allows some moments: those at which it may have had this value.
//! There must be a moment that all of them allow, and at which no call was partly in effect.
//!
//! 1. The history is that of the clients' calls. Nothing that the engine reports is used.
//! 2. A moment lies between two positions. A call that ended before it is in effect, one that began after it
//!    is not, and one in between is in effect as a whole or not at all.
//! 3. Everything below the root is judged. Attributes are not.
//!
//! Called by [`crate::durability`] after each cut of a run in ordered mode.

mod parts;
mod positions;
mod tree;
mod versions;

use std::sync::Arc;

use uxfs::disk::BlockDev;
use uxfs::format::Ino;
use uxfs::{Fs, OpenOptions};

use crate::history::{Change, History};
use crate::sim::{Store, StoreDev};
use parts::{Body, Changed, NodeId, Part, Parts};
use positions::Positions;
use tree::{Seen, Tree};

/// The history of a volume, ready to be compared with trees.
pub(crate) struct Moments<'a> {
    history: &'a History,
    parts: Parts,
}

impl<'a> Moments<'a> {
    /// The history of a volume that was as in `initial` before.
    ///
    /// # Errors
    /// If that cannot be read, or the history has more than one outcome.
    pub(crate) fn new(initial: &Store, history: &'a History) -> Result<Self, String> {
        let dev: Arc<dyn BlockDev> = Arc::new(StoreDev::new(initial.clone()));
        let fs = Fs::open(dev, OpenOptions::read_only()).map_err(|e| format!("the start: {e}"))?;
        let base = Tree::read(&fs).map_err(|e| format!("the start: {e}"))?;
        Ok(Self { history, parts: Parts::new(&base, history)? })
    }

    /// Until when, at the latest, the volume was as it was recovered after a cut at this time.
    ///
    /// # Errors
    /// What fits no moment, or none late enough.
    pub(crate) fn of(&self, recovered: &Fs, cut: u64) -> Result<u64, String> {
        let tree = Tree::read(recovered).map_err(|e| format!("reading the tree: {e}"))?;
        let last = self.history.position_at(cut);
        let mut view = View { parts: &self.parts, tree: &tree, problem: None };
        let allowed = view.node(self.parts.root(), tree.root, "");
        if allowed.is_empty() {
            return Err(view.problem.unwrap_or_default());
        }
        let allowed = allowed.and(&Positions::of(0..last + 1));
        if allowed.is_empty() {
            return Err("the tree is of a moment after the cut".into());
        }
        let allowed = allowed.and(&Positions::of(self.durable(cut)..last + 1));
        if allowed.is_empty() {
            return Err("the tree is older than what was made durable".into());
        }
        let mut torn = None;
        for position in allowed.latest_first() {
            match view.half_done(position) {
                None => return Ok(self.history.time(position + 1).unwrap_or(cut).min(cut)),
                half => torn = torn.or(half),
            }
        }
        let call = torn.map(|at| &self.history.calls[at].change);
        Err(format!("a call is partly there: {call:?}"))
    }

    /// The position at which the last call began that had made everything durable by this time.
    fn durable(&self, cut: u64) -> u64 {
        let last = self.history.position_at(cut);
        let done = self.history.calls.iter().take_while(|call| call.end <= last);
        let durable = done.filter(|call| matches!(call.change, Change::MadeDurable));
        durable.map(|call| call.begin).max().unwrap_or(0)
    }
}

struct View<'a> {
    parts: &'a Parts,
    tree: &'a Tree,
    /// The first part that left no moment to the others.
    problem: Option<String>,
}

impl View<'_> {
    /// The moments that a node allows which has this inode number in the tree.
    fn node(&mut self, id: NodeId, ino: Ino, path: &str) -> Positions {
        match (&self.parts.node(id).body, self.tree.seen.get(&ino)) {
            (Body::Dir(_), Some(Seen::Dir(_))) => self.dir(id, ino, path),
            (Body::File(length, pages), Some(Seen::File(size, seen))) => {
                let mut all = length.when(*size);
                self.note(&all, || format!("{path}: its length of {size}"));
                for (number, versions) in pages {
                    let page = seen.get(number);
                    all = all.and(&versions.when(|value| value.as_ref() == page));
                    self.note(&all, || format!("{path}: its page {number}"));
                }
                match seen.keys().find(|number| !pages.contains_key(number)) {
                    Some(number) => self.none(format!("{path}: nobody wrote its page {number}")),
                    None => all,
                }
            }
            (Body::Symlink(target), Some(Seen::Symlink(seen))) if target == seen => {
                Positions::all()
            }
            _ => self.none(format!("{path}: something else has this name")),
        }
    }

    fn dir(&mut self, id: NodeId, ino: Ino, path: &str) -> Positions {
        let (parts, tree) = (self.parts, self.tree);
        let (Body::Dir(names), Some(Seen::Dir(seen))) = (&parts.node(id).body, tree.seen.get(&ino))
        else {
            return self.none(format!("{path}: is no directory"));
        };
        let mut all = Positions::all();
        for (name, versions) in names {
            let below = format!("{path}/{name}");
            let span = match seen.get(name) {
                None => versions.when(Option::is_none),
                Some(ino) => {
                    let mut any = Positions::default();
                    for (named, span) in versions.spans() {
                        if let Some(node) = named.filter(|node| parts.node(*node).ino == *ino) {
                            any = any.or(span.and(&self.node(node, *ino, &below)));
                        }
                    }
                    any
                }
            };
            all = all.and(&span);
            let there = if seen.contains_key(name) { "there" } else { "missing" };
            self.note(&all, || format!("{below}: is {there}"));
        }
        match seen.keys().find(|name| !names.contains_key(*name)) {
            Some(name) => self.none(format!("{path}/{name}: nobody made it")),
            None => all,
        }
    }

    fn note(&mut self, all: &Positions, what: impl FnOnce() -> String) {
        if all.is_empty() && self.problem.is_none() {
            self.problem = Some(format!("{}, at no moment of what was read before it", what()));
        }
    }

    fn none(&mut self, what: String) -> Positions {
        self.problem.get_or_insert(what);
        Positions::default()
    }

    /// The number of a call that is partly in effect, if the volume is of this moment.
    fn half_done(&self, moment: u64) -> Option<usize> {
        let from = self.parts.calls.partition_point(|call| call.set.end <= moment);
        let running = |at: &usize| self.parts.calls[*at].set.begin <= moment;
        let running: Vec<usize> = (from..self.parts.calls.len()).filter(running).collect();
        running.iter().copied().find(|at| {
            let call = &self.parts.calls[*at];
            let shared = |part: &Part| {
                let others = running.iter().filter(|other| *other != at);
                others
                    .flat_map(|other| &self.parts.calls[*other].parts)
                    .any(|other| part.is_same(other))
            };
            let signs = call.parts.iter().filter(|part| !shared(part));
            let signs: Vec<bool> = signs.filter_map(|part| self.sign(call, part)).collect();
            signs.contains(&true) && signs.contains(&false)
        })
    }

    /// Does this part show that the call is in effect, or that it is not?
    fn sign(&self, call: &Changed, part: &Part) -> Option<bool> {
        let at = |id: &NodeId| Some((&self.parts.node(*id).body, self.seen(*id)?));
        let sign = |before: bool, after: bool| (before != after).then_some(after);
        match part {
            Part::Name(dir, name) => {
                let (Body::Dir(names), Seen::Dir(seen)) = at(dir)? else { return None };
                let (before, after) = names.get(name)?.around(call.set.end)?;
                let is = |named: &parts::Named| {
                    named.map(|node| self.parts.node(node).ino) == seen.get(name).copied()
                };
                sign(is(before), is(after))
            }
            Part::Page(file, number) => {
                let (Body::File(_, pages), Seen::File(_, seen)) = at(file)? else { return None };
                let (before, after) = pages.get(number)?.around(call.set.end)?;
                let is = |page: &parts::Content| page.as_ref() == seen.get(number);
                sign(is(before), is(after))
            }
            Part::Length(file, before, after) => {
                let Seen::File(size, _) = self.seen(*file)? else { return None };
                sign(size == before, size == after)
            }
        }
    }

    fn seen(&self, id: NodeId) -> Option<&Seen> {
        self.tree.seen.get(&self.parts.node(id).ino)
    }
}

#[cfg(test)]
mod tests;
