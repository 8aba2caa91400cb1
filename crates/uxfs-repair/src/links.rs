//! The links between inodes: which entries stay, whose parent a directory's is, and what no entry leads
//! to.
//!
//! 1. An entry stays if its inode is in use and may have it. A directory has one parent: of two, the one
//!    that its ".." names.
//! 2. Directories that cannot stay as they are become empty here, in their inodes, and wait in
//!    [`Links::refill`] for the engine, which enters their entries again.
//! 3. Inodes in use that no entry leads to wait in [`Links::lost`]; with parent pointers, their places are
//!    in [`Links::refill`] as well.
//! 4. An inode that has no links and whose checksum is right was deleted: it becomes free.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use uxfs_check::Place;
use uxfs_format::attr::{AttrFlags, PARENT_VALUE_LEN, parent_of};
use uxfs_format::bytes::Field;
use uxfs_format::dir::FileType;
use uxfs_format::inode::{CRC_OFFSET, InodeCore};
use uxfs_format::{AgNo, Ino, crc};

use crate::attr::{self, Attr};
use crate::dir::{self, Content, Entry};
use crate::error::{RepairError, Result};
use crate::fork::ForkMap;
use crate::inode::{self, State};
use crate::pass::Pass;
use crate::volume::Volume;

const NLINK: Field<u32> = Field::at(16);

/// What is wrong, by the check of this round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspects {
    /// Directories whose index is wrong.
    pub(crate) dirs: FxHashSet<Ino>,
    /// Inodes whose attributes or parent pointers are wrong.
    pub(crate) attrs: FxHashSet<Ino>,
}

/// What the engine has to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    /// Entries to enter, by directory.
    pub(crate) refill: BTreeMap<Ino, Vec<Entry>>,
    /// Attributes to set, by inode.
    pub(crate) attrs: BTreeMap<Ino, Vec<Attr>>,
    /// Parent pointers to set: inode, parent, name.
    pub(crate) pointers: Vec<(Ino, Ino, Box<[u8]>)>,
    /// Inodes that no entry leads to.
    pub(crate) lost: Vec<Ino>,
    /// Groups in which entries lead to inodes that no tree lists. They must be scanned first; the links
    /// are not settled then.
    pub(crate) doubted: FxHashSet<AgNo>,
}

/// A directory.
#[derive(Clone, Copy, Debug)]
struct Node {
    ino: Ino,
    dotdot: Option<Ino>,
    parent: Option<Ino>,
    children: u32,
}

/// State of the phase.
struct Linker<'v> {
    volume: &'v mut Volume,
    pass: &'v mut Pass,
    suspects: &'v Suspects,
    nodes: Vec<Node>,
    /// Directory entries: child, parent.
    edges: Vec<(Ino, Ino)>,
    /// Names of directories, and of inodes of steps.
    names: FxHashMap<Ino, (Ino, Box<[u8]>)>,
    /// Inodes of steps.
    wanted: FxHashSet<Ino>,
    links: Links,
    /// What is wrong with directories that are to be refilled, and what is lost there.
    wrong: BTreeMap<Ino, (Vec<String>, Vec<String>)>,
}

/// Settles all links.
pub(crate) fn settle(volume: &mut Volume, pass: &mut Pass, suspects: &Suspects) -> Result<Links> {
    let wanted = volume.steps.iter().filter_map(|step| step.place.inode).collect();
    let mut linker = Linker {
        volume,
        pass,
        suspects,
        nodes: Vec::new(),
        edges: Vec::new(),
        names: FxHashMap::default(),
        wanted,
        links: Links::default(),
        wrong: BTreeMap::new(),
    };
    linker.root()?;
    linker.read()?;
    if !linker.links.doubted.is_empty() {
        return Ok(linker.links);
    }
    linker.parents()?;
    linker.cycles()?;
    linker.lost()?;
    linker.attributes()?;
    linker.counts()?;
    linker.write()?;
    linker.paths();
    Ok(linker.links)
}

/// An inode as the repair leaves it: its core, its bytes, and the maps of its forks.
type Mended = (InodeCore, Vec<u8>, [ForkMap; 2]);

impl Linker<'_> {
    /// Makes the root a directory if it is none.
    fn root(&mut self) -> Result<()> {
        let root = self.volume.geo.root_ino;
        if self.pass.get(root).is_some_and(crate::pass::Known::is_dir) {
            return Ok(());
        }
        Err(RepairError::Beyond(format!("inode {root}, the root directory, is lost")))
    }

    fn mended(&self, ino: Ino) -> Result<Option<Mended>> {
        let raw = self.volume.inode(ino)?;
        let State::Used(mended) = inode::mend(self.volume, ino, &raw)? else { return Ok(None) };
        let mut mended = *mended;
        for index in 0..2 {
            if let Some(map) = self.pass.rewrites.get(&(ino, index)) {
                mended.maps[index] = map.clone();
            }
        }
        Ok(Some((mended.core, mended.raw, mended.maps)))
    }

    fn content(&self, ino: Ino) -> Result<Content> {
        match self.mended(ino)? {
            Some((core, raw, maps)) => dir::read(self.volume, ino, &core, &raw, &maps[0]),
            None => Ok(Content::default()),
        }
    }

    /// Reads all directories: counts links, drops entries that cannot stay.
    fn read(&mut self) -> Result<()> {
        let dirs: Vec<Ino> =
            self.pass.inodes.iter().filter(|known| known.is_dir()).map(|known| known.ino).collect();
        for ino in dirs {
            let mut content = self.content(ino)?;
            let mut wrong = core::mem::take(&mut content.wrong);
            if self.pass.rewrites.contains_key(&(ino, 0)) {
                wrong.push("blocks of it are lost".into());
            }
            if self.suspects.dirs.contains(&ino) && wrong.is_empty() {
                wrong.push("its index disagrees with its entries".into());
            }
            let mut dropped = Vec::new();
            let mut names = FxHashSet::default();
            for entry in &content.entries {
                self.doubt(entry.ino)?;
            }
            content.entries.retain_mut(|entry| match self.fits(ino, entry, &mut names) {
                Ok(changed) => {
                    wrong.extend(changed);
                    true
                }
                Err(problem) => {
                    wrong.push(problem);
                    dropped.push(format!("entry \"{}\"", entry.name.escape_ascii()));
                    false
                }
            });
            for entry in &content.entries {
                self.see(ino, entry);
            }
            self.nodes.push(Node { ino, dotdot: content.dotdot, parent: None, children: 0 });
            if !wrong.is_empty() {
                self.wrong.insert(ino, (wrong, dropped));
                self.links.refill.insert(ino, content.entries);
            }
        }
        Ok(())
    }

    /// Doubts the trees of a group if an inode that they do not list is in use.
    fn doubt(&mut self, ino: Ino) -> Result<()> {
        let ag = self.volume.geo.ino_ag(ino);
        if self.pass.get(ino).is_some() || self.pass.scanned.contains(&ag) {
            return Ok(());
        }
        let raw = self.volume.inode(ino)?;
        if inode::is_likely(self.volume, ino, &raw)
            && crc::matches(&raw, CRC_OFFSET)
            && uxfs_format::inode::MODE.get(&raw) != 0
        {
            self.links.doubted.insert(ag);
        }
        Ok(())
    }

    /// Can an entry stay? Its type is put right; `Some` says that it was wrong.
    fn fits(
        &self,
        ino: Ino,
        entry: &mut Entry,
        names: &mut FxHashSet<Box<[u8]>>,
    ) -> core::result::Result<Option<String>, String> {
        let show = || entry.name.escape_ascii().to_string();
        let Some(target) = self.pass.get(entry.ino) else {
            return Err(format!("entry \"{}\" leads to inode {}, not in use", show(), entry.ino));
        };
        if self.is_internal(entry.ino) || entry.ino == ino {
            return Err(format!("entry \"{}\" leads to inode {}", show(), entry.ino));
        }
        if !names.insert(self.volume.geo.naming.key(&entry.name).into()) {
            return Err(format!("a second entry \"{}\"", show()));
        }
        let ftype = FileType::from_mode(target.mode) as u8;
        if entry.ftype == ftype {
            return Ok(None);
        }
        let problem = format!("entry \"{}\" has type {}, not {ftype}", show(), entry.ftype);
        entry.ftype = ftype;
        Ok(Some(problem))
    }

    /// Is it the root, or an inode that the superblock names and that has no entry?
    fn is_internal(&self, ino: Ino) -> bool {
        ino == self.volume.geo.root_ino
            || crate::superblock::internal(&self.volume.sb).contains(&ino)
    }

    fn see(&mut self, parent: Ino, entry: &Entry) {
        let Some(target) = self.pass.get_mut(entry.ino) else { return };
        target.seen += 1;
        if target.is_dir() {
            self.edges.push((entry.ino, parent));
        }
        if target.is_dir() || self.wanted.contains(&entry.ino) {
            self.names.insert(entry.ino, (parent, entry.name.clone()));
        }
    }

    fn index(&self, ino: Ino) -> Option<usize> {
        self.nodes.binary_search_by_key(&ino, |node| node.ino).ok()
    }

    /// Gives each directory one parent.
    fn parents(&mut self) -> Result<()> {
        let mut edges = core::mem::take(&mut self.edges);
        edges.sort_unstable();
        for group in edges.chunk_by(|a, b| a.0 == b.0) {
            let child = group[0].0;
            let Some(at) = self.index(child) else { continue };
            let dotdot = self.nodes[at].dotdot;
            let chosen = group.iter().find(|(_, parent)| Some(*parent) == dotdot);
            let parent = chosen.unwrap_or(&group[0]).1;
            self.nodes[at].parent = Some(parent);
            let mut kept = false;
            for (_, other) in group {
                if *other == parent && !kept {
                    kept = true;
                    continue;
                }
                self.drop_entry(*other, child, *other == parent)?;
            }
        }
        Ok(())
    }

    /// Drops the entry of a directory that leads to a child; the last of several if `last`.
    fn drop_entry(&mut self, parent: Ino, child: Ino, last: bool) -> Result<()> {
        let mut entries = match self.links.refill.remove(&parent) {
            Some(entries) => entries,
            None => {
                let mut entries = self.content(parent)?.entries;
                let mut names = FxHashSet::default();
                entries.retain_mut(|entry| self.fits(parent, entry, &mut names).is_ok());
                entries
            }
        };
        let found = match last {
            true => entries.iter().rposition(|entry| entry.ino == child),
            false => entries.iter().position(|entry| entry.ino == child),
        };
        if let Some(found) = found {
            let entry = entries.remove(found);
            let (wrong, lost) = self.wrong.entry(parent).or_default();
            let name = entry.name.escape_ascii();
            wrong.push(format!("entry \"{name}\" leads to directory {child} of another parent"));
            lost.push(format!("entry \"{name}\""));
            if let Some(target) = self.pass.get_mut(child) {
                target.seen = target.seen.saturating_sub(1);
            }
        }
        self.links.refill.insert(parent, entries);
        Ok(())
    }

    /// Cuts circles of directories that the root does not reach.
    fn cycles(&mut self) -> Result<()> {
        let root = self.volume.geo.root_ino;
        let mut reached: FxHashMap<Ino, bool> = FxHashMap::default();
        for start in 0..self.nodes.len() {
            let mut path = Vec::new();
            let mut at = self.nodes[start].ino;
            let ends = loop {
                if at == root || reached.get(&at) == Some(&true) {
                    break None;
                }
                if reached.get(&at) == Some(&false) {
                    break Some(at);
                }
                reached.insert(at, false);
                path.push(at);
                match self.index(at).and_then(|index| self.nodes[index].parent) {
                    Some(parent) => at = parent,
                    // A directory without a parent: it is found lost later.
                    None => break None,
                }
            };
            if let Some(circle) = ends
                && let Some(from) = path.iter().position(|ino| *ino == circle)
                && let Some(first) = path[from..].iter().min().copied()
                && let Some(index) = self.index(first)
                && let Some(parent) = self.nodes[index].parent.take()
            {
                self.drop_entry(parent, first, false)?;
            }
            for ino in path {
                reached.insert(ino, true);
            }
        }
        Ok(())
    }

    /// Finds inodes that no entry leads to; frees those that were deleted.
    fn lost(&mut self) -> Result<()> {
        let mut deleted = FxHashSet::default();
        let mut lost = Vec::new();
        for known in &self.pass.inodes {
            if known.seen > 0 || self.is_internal(known.ino) {
                continue;
            }
            if known.nlink == 0 && !known.doubtful {
                deleted.insert(known.ino);
            } else {
                lost.push(known.ino);
            }
        }
        for ino in deleted.iter().copied() {
            let mut raw = self.volume.inode(ino)?;
            inode::encode_free(self.volume, ino, &mut raw);
            let wrong = "it was deleted, and not freed yet";
            let step = self.volume.step("inode", Place::inode(ino), wrong, "a free inode");
            self.volume.write(step, self.volume.inode_at(ino), &raw)?;
        }
        if !deleted.is_empty() {
            self.pass.free(self.volume, &deleted);
            self.nodes.retain(|node| !deleted.contains(&node.ino));
            self.links.refill.retain(|ino, _| !deleted.contains(ino));
            self.wrong.retain(|ino, _| !deleted.contains(ino));
        }
        for ino in lost {
            if !self.home(ino)? {
                self.links.lost.push(ino);
            }
        }
        Ok(())
    }

    /// Enters a lost inode where its parent pointers say. False if it has none that lead anywhere.
    fn home(&mut self, ino: Ino) -> Result<bool> {
        if !self.volume.geo.has_parent() {
            return Ok(false);
        }
        let Some((core, raw, maps)) = self.mended(ino)? else { return Ok(false) };
        let mut found = false;
        for attr in attr::read(self.volume, ino, &core, &raw, &maps[1])? {
            if attr.namespace != AttrFlags::PARENT || attr.value.len() != PARENT_VALUE_LEN {
                continue;
            }
            let (parent, generation) = parent_of(&attr.value);
            let right = parent != ino
                && self.pass.get(parent).is_some_and(|p| p.is_dir() && p.generation == generation);
            if !right || found && core.is_dir() {
                continue;
            }
            let entries = match self.links.refill.remove(&parent) {
                Some(entries) => entries,
                None => self.content(parent)?.entries,
            };
            let naming = self.volume.geo.naming;
            let taken = entries.iter().any(|entry| naming.same(&entry.name, &attr.name));
            self.links.refill.insert(parent, entries);
            if taken || self.leads_to(parent, ino) {
                continue;
            }
            let ftype = FileType::from_mode(core.mode) as u8;
            let entry = Entry { name: attr.name.into(), ino, ftype };
            let show = entry.name.escape_ascii().to_string();
            let (wrong, _) = self.wrong.entry(parent).or_default();
            wrong.push(format!("entry \"{show}\" of inode {ino} is missing"));
            self.names.insert(ino, (parent, entry.name.clone()));
            if let Some(entries) = self.links.refill.get_mut(&parent) {
                entries.push(entry);
            }
            if let Some(target) = self.pass.get_mut(ino) {
                target.seen += 1;
            }
            if core.is_dir()
                && let Some(at) = self.index(ino)
            {
                self.nodes[at].parent = Some(parent);
            }
            found = true;
        }
        Ok(found)
    }

    /// Is a directory one of those above another?
    fn leads_to(&self, from: Ino, above: Ino) -> bool {
        let mut at = Some(from);
        for _ in 0..=self.nodes.len() {
            match at {
                Some(ino) if ino == above => return true,
                Some(ino) => at = self.index(ino).and_then(|index| self.nodes[index].parent),
                None => return false,
            }
        }
        true
    }

    /// Saves the attributes of inodes whose attributes are wrong. With parent pointers, those that agree
    /// with the entries are made anew.
    fn attributes(&mut self) -> Result<()> {
        let lost: FxHashSet<Ino> = match self.volume.geo.has_parent() {
            true => self.links.lost.iter().copied().collect(),
            false => FxHashSet::default(),
        };
        let suspects: Vec<Ino> = self
            .pass
            .inodes
            .iter()
            .map(|known| known.ino)
            .filter(|ino| {
                self.suspects.attrs.contains(ino)
                    || self.pass.rewrites.contains_key(&(*ino, 1))
                    || lost.contains(ino)
            })
            .collect();
        let mut gone = FxHashSet::default();
        for ino in suspects {
            let Some((core, raw, maps)) = self.mended(ino)? else { continue };
            let mut kept = attr::read(self.volume, ino, &core, &raw, &maps[1])?;
            kept.retain(|attr| attr.namespace != AttrFlags::PARENT);
            let wrong = "its attributes break rules";
            let becomes = format!("{} attributes are kept", kept.len());
            let step = self.volume.step("attribute fork", Place::inode(ino), wrong, becomes);
            self.volume.lose(step, "attributes that cannot be read, if there were any");
            attr::reset(self.volume, step, ino, maps[0].blocks())?;
            self.pass.rewrites.remove(&(ino, 1));
            gone.insert((ino, 1));
            self.links.attrs.insert(ino, kept);
        }
        self.pass.withdraw(&gone);
        if self.volume.geo.has_parent() && !self.links.attrs.is_empty() {
            self.pointers()?;
        }
        Ok(())
    }

    /// The parent pointers of inodes whose attributes are made anew, from all directories.
    fn pointers(&mut self) -> Result<()> {
        let dirs: Vec<Ino> = self.nodes.iter().map(|node| node.ino).collect();
        for parent in dirs {
            let entries = match self.links.refill.get(&parent) {
                Some(entries) => entries.clone(),
                None => self.content(parent)?.entries,
            };
            let own = entries.into_iter().filter(|entry| self.links.attrs.contains_key(&entry.ino));
            self.links.pointers.extend(own.map(|entry| (entry.ino, parent, entry.name)));
        }
        Ok(())
    }

    /// Puts link counts right.
    fn counts(&mut self) -> Result<()> {
        let mut children: FxHashMap<Ino, u32> = FxHashMap::default();
        for parent in self.nodes.iter().filter_map(|node| node.parent) {
            *children.entry(parent).or_default() += 1;
        }
        for node in &mut self.nodes {
            node.children = children.get(&node.ino).copied().unwrap_or(0);
        }
        for index in 0..self.pass.inodes.len() {
            let known = self.pass.inodes[index];
            let wanted = match self.index(known.ino) {
                Some(at) => self.nodes[at].children.saturating_add(2),
                None if self.is_internal(known.ino) => 1,
                None => known.seen.max(1),
            };
            if wanted == known.nlink {
                continue;
            }
            let mut raw = self.volume.inode(known.ino)?;
            NLINK.set(&mut raw, wanted);
            crc::stamp(&mut raw, CRC_OFFSET);
            let wrong = format!("{} links, {wanted} counted", known.nlink);
            let becomes = format!("{wanted} links");
            let step = self.volume.step("inode", Place::inode(known.ino), wrong, becomes);
            self.wanted.insert(known.ino);
            self.volume.write(step, self.volume.inode_at(known.ino), &raw)?;
            self.pass.inodes[index].nlink = wanted;
        }
        Ok(())
    }

    /// Writes what changes in directories: ".." in place; those that are refilled become empty.
    fn write(&mut self) -> Result<()> {
        let root = self.volume.geo.root_ino;
        let mut gone = FxHashSet::default();
        for index in 0..self.nodes.len() {
            let node = self.nodes[index];
            let parent = if node.ino == root { Some(root) } else { node.parent };
            let refill =
                self.links.refill.contains_key(&node.ino) && self.wrong.contains_key(&node.ino);
            if !refill {
                self.links.refill.remove(&node.ino);
            }
            let wanted = parent.unwrap_or(root);
            if !refill && (node.dotdot == Some(wanted) || parent.is_none()) {
                continue;
            }
            let Some((core, _, maps)) = self.mended(node.ino)? else { continue };
            if !refill {
                let wrong = "\"..\" leads elsewhere";
                let becomes = format!("it leads to inode {wanted}");
                let step = self.volume.step("directory", Place::inode(node.ino), wrong, becomes);
                self.wanted.insert(node.ino);
                if dir::set_parent(self.volume, step, node.ino, &core, &maps[0], wanted)? {
                    continue;
                }
                let entries = self.content(node.ino)?.entries;
                self.links.refill.insert(node.ino, entries);
            }
            self.wanted.insert(node.ino);
            let (wrong, lost) = self.wrong.remove(&node.ino).unwrap_or_default();
            let count = self.links.refill.get(&node.ino).map_or(0, Vec::len);
            let becomes = format!("made anew of its {count} entries");
            let wrong = summary(&wrong);
            let step = self.volume.step("directory", Place::inode(node.ino), wrong, becomes);
            lost.into_iter().for_each(|lost| self.volume.lose(step, lost));
            let attrs = match self.links.attrs.contains_key(&node.ino) {
                true => 0,
                false => maps[1].blocks(),
            };
            dir::reset(self.volume, step, node.ino, wanted, attrs)?;
            self.pass.rewrites.remove(&(node.ino, 0));
            gone.insert((node.ino, 0));
        }
        self.pass.withdraw(&gone);
        Ok(())
    }

    /// Adds paths to the steps.
    fn paths(&mut self) {
        let root = self.volume.geo.root_ino;
        let path = |ino: Ino| {
            let mut parts: Vec<&[u8]> = Vec::new();
            let mut at = ino;
            while at != root {
                let (parent, name) = self.names.get(&at)?;
                if parts.len() > self.names.len() {
                    return None;
                }
                parts.push(name);
                at = *parent;
            }
            let mut path = Vec::new();
            for part in parts.iter().rev() {
                path.push(b'/');
                path.extend_from_slice(part);
            }
            Some(if path.is_empty() { b"/".to_vec() } else { path })
        };
        let mut found: Vec<Option<Vec<u8>>> = Vec::new();
        for step in &self.volume.steps {
            found.push(step.place.inode.filter(|_| step.place.path.is_none()).and_then(path));
        }
        for (step, path) in self.volume.steps.iter_mut().zip(found) {
            if let Some(path) = path {
                step.place.path = Some(path);
            }
        }
    }
}

/// The first few of many problems.
fn summary(wrong: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = wrong.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
    match wrong.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown}; and {more} more"),
    }
}
