//! The moments of a workload, and the comparison of a tree with them.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use uxfs::{Fs, Result, Xflags};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFLNK, S_IFMT, S_IFREG};
use uxfs_format::timestamp::Timestamp;

use crate::content::{File, InPlaceWrites};

/// The attributes of a file apart from content and extended attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) mode: u16,
    pub(crate) nlink: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) rdev: (u32, u32),
    /// atime, mtime, ctime, birth time.
    pub(crate) times: [Timestamp; 4],
    pub(crate) xflags: u32,
    pub(crate) projid: u32,
    pub(crate) extsize: u64,
    pub(crate) cowextsize: u64,
    pub(crate) target: Vec<u8>,
}

pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Number of the file, equal for its hard links.
    pub(crate) id: u64,
    pub(crate) attributes: Attributes,
    pub(crate) xattrs: Arc<Xattrs>,
    pub(crate) file: Arc<File>,
}

/// Files by path. The root is the empty path.
pub(crate) type Tree = BTreeMap<Vec<u8>, Arc<Node>>;

/// The volume after a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) tree: Tree,
    pub(crate) label: Vec<u8>,
    /// The file whose content the step changed, perhaps in several transactions.
    pub(crate) changed: Option<u64>,
    pub(crate) operation: &'static str,
}

/// All moments: the volume before the first step and after each.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) block: usize,
    pub(crate) moments: Vec<Moment>,
    pub(crate) in_place_writes: InPlaceWrites,
    /// Data was written back later: the content of a file may be older than its name.
    pub(crate) delayed: bool,
    /// The steps after which the data of one file, or of all, was synced.
    pub(crate) synced: Vec<(usize, Option<u64>)>,
    /// The versions of each file, and the moment from which on each holds.
    pub(crate) versions: HashMap<u64, Vec<(usize, Arc<Node>)>>,
}

/// A file on a recovered volume.
pub(crate) struct RecoveredFile {
    ino: Ino,
    attributes: Attributes,
    xattrs: Xattrs,
    content: Vec<u8>,
}

pub(crate) struct RecoveredTree {
    label: Vec<u8>,
    files: BTreeMap<Vec<u8>, RecoveredFile>,
}

/// Receives differences; `Break` ends the comparison.
type Report<'a> = &'a mut dyn FnMut(&[u8], &dyn Fn() -> String) -> ControlFlow<()>;

/// The bounds of a comparison.
#[derive(Clone, Copy)]
struct Span {
    /// The last moment that was acknowledged as durable.
    durable: usize,
    moment: usize,
    /// The last step that had begun.
    begun: usize,
}

impl History {
    /// A file after the step that follows in [`History::moments`].
    pub(crate) fn version(&mut self, node: &Arc<Node>) {
        let at = self.moments.len();
        let versions = self.versions.entry(node.id).or_default();
        if versions.last().is_none_or(|(_, last)| !Arc::ptr_eq(last, node)) {
            versions.push((at, Arc::clone(node)));
        }
    }

    /// The allowed data of a file: that of its last sync, or any since.
    fn allowed_versions(&self, id: u64, span: Span) -> impl Iterator<Item = (usize, &Arc<Node>)> {
        let whose = |of: Option<u64>| of.is_none_or(|of| of == id);
        let synced = self.synced.iter().filter(|(step, of)| *step <= span.durable && whose(*of));
        let floor = synced.map(|(step, _)| *step).max().unwrap_or(0);
        let all = self.versions.get(&id).map_or(&[][..], |all| all);
        let last = (span.moment + 1).min(span.begun);
        let first = all.partition_point(|(at, _)| *at <= floor).saturating_sub(1);
        all[first..].iter().filter(move |(at, _)| *at <= last).map(|(at, node)| (*at, node))
    }
    /// Finds the moment between `durable` and `begun` that the volume shows.
    ///
    /// # Errors
    /// The difference from the nearest moment.
    pub(crate) fn find(
        &self,
        recovered: &RecoveredTree,
        durable: usize,
        begun: usize,
    ) -> core::result::Result<usize, String> {
        let last = begun.min(self.moments.len() - 1);
        let moments = || (durable.min(last)..=last).rev();
        let fits = |moment: &usize| {
            let span = Span { durable, moment: *moment, begun };
            self.compare(recovered, span, &mut |_, _| ControlFlow::Break(())).is_continue()
        };
        if let Some(moment) = moments().find(fits) {
            return Ok(moment);
        }
        let mut near: Vec<(usize, String)> = Vec::new();
        for moment in moments() {
            let mut found = Vec::new();
            let span = Span { durable, moment, begun };
            let _all = self.compare(recovered, span, &mut |path, problem| {
                found.push(format!("{}: {}", path.escape_ascii(), problem()));
                ControlFlow::Continue(())
            });
            let count = found.len();
            found.truncate(2);
            near.push((count, format!("after step {moment} {count} differ: {}", found.join("; "))));
        }
        near.sort();
        let nearest: Vec<String> = near.into_iter().take(3).map(|(_, text)| text).collect();
        let operation = |moment: usize| format!("{moment} {}", self.moments[moment].operation);
        let steps: Vec<String> = (durable.min(last)..=last).map(operation).collect();
        Err(format!(
            "it is the tree of no moment from step {durable} to {begun}; {}; steps: {}",
            nearest.join(" | "),
            steps.join(", ")
        ))
    }

    fn compare(
        &self,
        recovered: &RecoveredTree,
        span: Span,
        report: Report<'_>,
    ) -> ControlFlow<()> {
        let Span { moment, begun, .. } = span;
        let Moment { tree, label, .. } = &self.moments[moment];
        let next = self.moments.get(moment + 1).filter(|_| moment < begun);
        // The label changes at once, without the log.
        if recovered.label != *label && next.is_none_or(|next| next.label != recovered.label) {
            report(b"", &|| format!("label {}", recovered.label.escape_ascii()))?;
        }
        let mut inos: HashMap<u64, Ino> = HashMap::new();
        let mut found = recovered.files.iter().peekable();
        for (path, want) in tree {
            while let Some((extra, _)) = found.next_if(|(seen, _)| *seen < path) {
                report(extra, &|| "should not be there".into())?;
            }
            let Some((_, have)) = found.next_if(|(seen, _)| *seen == path) else {
                report(path, &|| "is missing".into())?;
                continue;
            };
            if *inos.entry(want.id).or_insert(have.ino) != have.ino {
                report(path, &|| "is another file than its other name".into())?;
            }
            let changing = next.filter(|next| next.changed == Some(want.id));
            let changing = changing.and_then(|next| next.tree.get(path));
            self.compare_file(have, want, changing, span, path, report)?;
        }
        found.try_for_each(|(extra, _)| report(extra, &|| "should not be there".into()))
    }

    fn compare_file(
        &self,
        have: &RecoveredFile,
        want: &Node,
        changing: Option<&Arc<Node>>,
        span: Span,
        path: &[u8],
        report: Report<'_>,
    ) -> ControlFlow<()> {
        let whole = have.attributes == want.attributes;
        let partly =
            || changing.is_some_and(|next| attributes_between(&have.attributes, want, next));
        if !whole && !partly() && !self.is_late(have, want, span) {
            report(path, &|| format!("{:?}, not {:?}", have.attributes, want.attributes))?;
        }
        if have.xattrs != *want.xattrs {
            report(path, &|| {
                let names = |all: &Xattrs| -> Vec<String> {
                    all.iter().map(|(n, v)| format!("{}[{}]", n.escape_ascii(), v.len())).collect()
                };
                format!("attributes {:?}, not {:?}", names(&have.xattrs), names(&want.xattrs))
            })?;
        }
        if want.attributes.mode & S_IFMT != S_IFREG {
            return ControlFlow::Continue(());
        }
        if let Err(problem) = self.content(have, want, changing, span) {
            report(path, &|| problem.clone())?;
        }
        ControlFlow::Continue(())
    }

    /// With delayed write-back, times alone may differ, because they change with the data.
    fn is_late(&self, have: &RecoveredFile, want: &Node, span: Span) -> bool {
        if !self.delayed || want.attributes.mode & S_IFMT != S_IFREG {
            return false;
        }
        let mut like = have.attributes.clone();
        like.times = want.attributes.times;
        let known = |n: usize| {
            self.allowed_versions(want.id, span)
                .any(|(_, node)| node.attributes.times[n] == have.attributes.times[n])
        };
        like == want.attributes && (0..4).all(known)
    }

    /// A length that the file had since its last sync, or one in between.
    fn is_late_length(&self, len: usize, want: &Node, span: Span) -> bool {
        let sizes = || self.allowed_versions(want.id, span).map(|(_, node)| node.file.size);
        self.delayed && sizes().min() <= Some(len) && Some(len) <= sizes().max()
    }

    /// The problem with a file's content.
    fn content(
        &self,
        have: &RecoveredFile,
        want: &Node,
        changing: Option<&Arc<Node>>,
        span: Span,
    ) -> core::result::Result<(), String> {
        let Span { moment, begun, .. } = span;
        let len = have.content.len();
        let right = want.file.size;
        let next = changing.map(|next| &next.file);
        if len != right && !self.is_late_length(len, want, span) {
            let fits = next.is_some_and(|next| len == next.size || len > right && len < next.size);
            if !fits {
                return Err(format!("{len} bytes, not {right}"));
            }
        }
        for (number, bytes) in have.content.chunks(self.block).enumerate() {
            let of = |file: &File| file.blocks.get(number).cloned().flatten();
            let old = of(&want.file);
            let Some(at) = self.in_place_writes.differs(old.as_ref(), bytes, moment, begun) else {
                continue;
            };
            let old_data = |(at, node): (usize, &Arc<Node>)| {
                self.in_place_writes.differs(of(&node.file).as_ref(), bytes, at, begun).is_none()
            };
            if self.delayed && self.allowed_versions(want.id, span).any(old_data) {
                continue;
            }
            // A change of several transactions may be partly done.
            let fits = next.is_some_and(|next| {
                let new = of(next);
                self.in_place_writes.differs(new.as_ref(), bytes, moment + 1, begun).is_none()
                    || self.in_place_writes.differs(None, bytes, moment, begun).is_none()
            });
            if !fits {
                let byte = bytes[at];
                let was = old.as_ref().map_or(0, |block| block.data[at]);
                let at = number * self.block + at;
                return Err(format!("byte {at} is {byte:#04x}, where {was:#04x} had been written"));
            }
        }
        Ok(())
    }
}

/// Are these the attributes of a file in the middle of a step that changes its content?
fn attributes_between(have: &Attributes, old: &Node, new: &Node) -> bool {
    let (old, new) = (&old.attributes, &new.attributes);
    let mut like = have.clone();
    like.times = old.times;
    if (have.cowextsize, have.xflags) == (new.cowextsize, new.xflags) {
        (like.cowextsize, like.xflags) = (old.cowextsize, old.xflags);
    }
    like == *old && (0..4).all(|n| have.times[n] == old.times[n] || have.times[n] == new.times[n])
}

pub(crate) fn read(fs: &Fs) -> Result<RecoveredTree> {
    let mut files = BTreeMap::new();
    let mut todo = vec![(fs.root(), Vec::new())];
    while let Some((ino, path)) = todo.pop() {
        let attributes = attributes(fs, ino)?;
        let mut content = Vec::new();
        match attributes.mode & S_IFMT {
            S_IFREG => {
                // A length beyond the workload's must not use up memory.
                let size = fs.stat(ino)?.size.min(1 << 26);
                content.resize(size as usize, 0);
                fs.read_at(ino, 0, &mut content)?;
            }
            uxfs_format::inode::S_IFDIR => fs.read_dir(ino, 0, &mut |entry| {
                if !entry.is_dot() {
                    todo.push((entry.ino, [&path[..], b"/", entry.name].concat()));
                }
                ControlFlow::Continue(())
            })?,
            _ => {}
        }
        files.insert(path, RecoveredFile { ino, attributes, xattrs: xattrs(fs, ino)?, content });
    }
    Ok(RecoveredTree { label: label(fs), files })
}

pub(crate) fn label(fs: &Fs) -> Vec<u8> {
    let name = fs.superblock().fname;
    name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

pub(crate) fn attributes(fs: &Fs, ino: Ino) -> Result<Attributes> {
    let stat = fs.stat(ino)?;
    // Data must stay in memory until the workload or the engine writes it back.
    let fsx = fs.get_fsx_on_disk(ino)?;
    let target = if stat.mode & S_IFMT == S_IFLNK { fs.readlink(ino)? } else { Vec::new() };
    // These flags follow from content and attributes.
    let derived = Xflags::PREALLOC | Xflags::HASATTR;
    Ok(Attributes {
        mode: stat.mode,
        nlink: stat.nlink,
        owner: (stat.uid, stat.gid),
        rdev: stat.rdev,
        times: [stat.atime, stat.mtime, stat.ctime, stat.crtime],
        xflags: (fsx.xflags - derived).bits(),
        projid: fsx.projid,
        extsize: fsx.extsize,
        cowextsize: fsx.cowextsize,
        target,
    })
}

pub(crate) fn xattrs(fs: &Fs, ino: Ino) -> Result<Xattrs> {
    let mut all = Xattrs::new();
    for name in fs.list_xattrs(ino)? {
        let value = fs.get_xattr(ino, &name)?;
        all.insert(name, value);
    }
    Ok(all)
}
