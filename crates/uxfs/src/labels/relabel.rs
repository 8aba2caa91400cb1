//! Labels the files of a volume that exist already.

use std::collections::HashSet;
use std::ops::ControlFlow;

use uxfs_core::{Error, Fs, SetAttr, Stat, XattrMode};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFDIR, S_IFMT};
use uxfs_selinux::{ContextsError, FileContexts, FileKind, Lookup, XATTR};

use super::labeller::stored;
use crate::held::HeldInode;

/// How to relabel.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct RelabelOptions {
    /// Find the labels that differ, and change nothing.
    pub dry_run: bool,
    /// Leave the times of last change as they are.
    pub keep_ctime: bool,
}

/// The result of relabelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelabelSummary {
    /// Files that were looked at.
    pub files: u64,
    /// Files whose label differed.
    pub changed: u64,
    /// Files that could not be read or changed.
    pub failed: u64,
}

/// What happened to a file.
#[derive(Debug)]
pub enum LabelEvent<'a> {
    /// The label differed from the rules, and was changed unless [`RelabelOptions::dry_run`] is set.
    Changed {
        /// The file.
        path: &'a [u8],
        /// The label before; `None` if the file had none.
        old: Option<&'a [u8]>,
        /// The label by the rules.
        new: &'a [u8],
    },
    /// A file could not be read or changed. The others are looked at nevertheless.
    Failed {
        /// The file.
        path: &'a [u8],
        /// The error.
        error: Error,
    },
}

/// Why relabelling stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelabelError {
    /// The rules could not be applied.
    #[error(transparent)]
    Contexts(#[from] ContextsError),
    /// The volume cannot be read or changed any more.
    #[error(transparent)]
    Volume(#[from] Error),
}

/// Gives the file at `top`, and all files below it, the labels of `contexts`. `top` is an absolute
/// path without symbolic links on the way.
///
/// Changes are logged like others; they are durable after [`Fs::sync`] or [`Fs::close`]. Other threads may change
/// the tree meanwhile: a label goes to the file that has the path at that moment, and a file whose name is
/// removed before its turn is reported as one that could not be read.
///
/// # Errors
/// `top` does not exist; a regular expression took too long; the volume has stopped.
pub fn relabel(
    fs: &Fs,
    top: &[u8],
    contexts: &FileContexts,
    options: RelabelOptions,
    listener: &mut dyn FnMut(LabelEvent<'_>),
) -> Result<RelabelSummary, RelabelError> {
    let names: Vec<&[u8]> = top.split(|byte| *byte == b'/').filter(|n| !n.is_empty()).collect();
    let mut path = Vec::with_capacity(top.len() + 1);
    names.iter().for_each(|name| path.extend([b"/", *name].concat()));
    if path.is_empty() {
        path.push(b'/');
    }
    let held = HeldInode::find(fs, || fs.resolve(&path, false))?;
    fs.stat(held.ino())?;
    let lookup = contexts.lookup();
    let (seen, summary) = (HashSet::new(), RelabelSummary::default());
    let mut walk = Walk { fs, options, lookup, seen, summary, listener };
    walk.tree(path, held)?;
    Ok(walk.summary)
}

/// A directory that is being walked: its inode, the names left, and the length of its path.
struct Level<'a> {
    dir: HeldInode<'a>,
    names: std::vec::IntoIter<Vec<u8>>,
    len: usize,
}

struct Walk<'a> {
    fs: &'a Fs,
    options: RelabelOptions,
    lookup: Lookup<&'a FileContexts>,
    /// Files with several names that have their label.
    seen: HashSet<Ino>,
    summary: RelabelSummary,
    listener: &'a mut dyn FnMut(LabelEvent<'_>),
}

impl<'a> Walk<'a> {
    fn tree(&mut self, mut path: Vec<u8>, top: HeldInode<'a>) -> Result<(), RelabelError> {
        let mut levels: Vec<Level<'_>> = Vec::new();
        let mut next = Some(top);
        loop {
            if let Some(held) = next.take() {
                let is_dir = match self.fs.stat(held.ino()) {
                    Ok(stat) => {
                        self.file(&path, &stat)?;
                        stat.mode & S_IFMT == S_IFDIR
                    }
                    Err(error) => {
                        self.failed(&path, error)?;
                        false
                    }
                };
                if is_dir {
                    // A damaged volume can form a cycle.
                    let cycle = levels.iter().any(|level| level.dir.ino() == held.ino());
                    let names = if cycle { Err(Error::Loop) } else { self.names(held.ino()) };
                    match names {
                        Ok(names) => {
                            let names = names.into_iter();
                            levels.push(Level { dir: held, names, len: path.len() });
                        }
                        Err(error) => self.failed(&path, error)?,
                    }
                }
            }
            let Some(level) = levels.last_mut() else { return Ok(()) };
            path.truncate(level.len);
            let Some(name) = level.names.next() else {
                levels.pop();
                continue;
            };
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            let dir = level.dir.ino();
            match HeldInode::find(self.fs, || self.fs.lookup(dir, &name)) {
                Ok(held) => next = Some(held),
                Err(error) => self.failed(&path, error)?,
            }
        }
    }

    fn names(&self, dir: Ino) -> Result<Vec<Vec<u8>>, Error> {
        let mut names = Vec::new();
        self.fs.read_dir(dir, 0, &mut |entry| {
            if !entry.is_dot() {
                names.push(entry.name.to_vec());
            }
            ControlFlow::Continue(())
        })?;
        names.sort_unstable();
        Ok(names)
    }

    fn file(&mut self, path: &[u8], stat: &Stat) -> Result<(), RelabelError> {
        self.summary.files += 1;
        let several = stat.nlink > 1 && stat.mode & S_IFMT != S_IFDIR;
        if several && !self.seen.insert(stat.ino) {
            return Ok(());
        }
        let Some(kind) = FileKind::of_mode(stat.mode.into()) else { return Ok(()) };
        let Some(new) = self.lookup.label(path, kind)?.map(<[u8]>::to_vec) else { return Ok(()) };
        let new = &*new;
        let old = match self.fs.get_xattr(stat.ino, XATTR) {
            Ok(value) => Some(value),
            Err(Error::NoAttr) => None,
            Err(error) => return self.failed(path, error),
        };
        let old = old.as_deref().map(|value| value.strip_suffix(b"\0").unwrap_or(value));
        if old == Some(new) {
            return Ok(());
        }
        if !self.options.dry_run
            && let Err(error) = self.set(stat, new)
        {
            return self.failed(path, error);
        }
        self.summary.changed += 1;
        (self.listener)(LabelEvent::Changed { path, old, new });
        Ok(())
    }

    fn set(&self, stat: &Stat, label: &[u8]) -> Result<(), Error> {
        self.fs.set_xattr(stat.ino, XATTR, &stored(label), XattrMode::Any)?;
        if self.options.keep_ctime {
            let times = SetAttr { ctime: Some(stat.ctime), ..SetAttr::default() };
            self.fs.set_attr(stat.ino, &times)?;
        }
        Ok(())
    }

    /// Reports a file's error; the error of a volume that has stopped ends the walk.
    fn failed(&mut self, path: &[u8], error: Error) -> Result<(), RelabelError> {
        if self.fs.shutdown_cause().is_some() {
            return Err(error.into());
        }
        self.summary.failed += 1;
        (self.listener)(LabelEvent::Failed { path, error });
        Ok(())
    }
}
