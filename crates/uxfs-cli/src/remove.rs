//! Removing trees from an image.

use uxfs::format::Ino;
use uxfs::{Fs, Stat};

use crate::session::Result;
use crate::tree;

/// A step of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A directory that is not empty is about to be entered.
    Enter,
    /// It is about to be removed.
    Remove,
    /// It was removed.
    Removed,
}

/// Decides about the steps of a removal and receives its errors.
pub(crate) trait Watcher {
    /// Should the step be taken? The answer to [`Step::Removed`] is ignored.
    fn step(&mut self, step: Step, path: &[u8], stat: &Stat) -> Result<bool>;
    /// Receives an error.
    fn failed(&mut self, path: &[u8], error: uxfs::Error);
}

struct Level {
    parent: Ino,
    name: Vec<u8>,
    stat: Stat,
    names: std::vec::IntoIter<(Vec<u8>, Ino)>,
    len: usize,
    /// Something in it was kept, so it is kept.
    kept: bool,
}

/// Removes `name` in `parent`, with everything in it. Messages call it `path`.
pub(crate) fn remove_tree(
    fs: &Fs,
    (parent, name, stat): (Ino, Vec<u8>, Stat),
    path: Vec<u8>,
    watcher: &mut dyn Watcher,
) -> Result<()> {
    let mut path = path;
    let mut levels: Vec<Level> = Vec::new();
    let mut next = Some((parent, name, stat));
    loop {
        if let Some((parent, name, stat)) = next.take() {
            let gone = match tree::is_dir(&stat) {
                true => match enter(fs, &path, &stat, watcher)? {
                    Entered::Refused => false,
                    Entered::Empty => remove(fs, (parent, &name, &stat), &path, watcher)?,
                    Entered::Names(names) => {
                        let names = names.into_iter();
                        let len = path.len();
                        levels.push(Level { parent, name, stat, names, len, kept: false });
                        true
                    }
                },
                false => remove(fs, (parent, &name, &stat), &path, watcher)?,
            };
            if let Some(level) = levels.last_mut() {
                level.kept |= !gone;
            }
        }
        let Some(level) = levels.last_mut() else { return Ok(()) };
        path.truncate(level.len);
        if let Some((name, ino)) = level.names.next() {
            path.push(b'/');
            path.extend_from_slice(&name);
            match fs.stat(ino) {
                Ok(stat) => next = Some((level.stat.ino, name, stat)),
                Err(error) => {
                    level.kept = true;
                    watcher.failed(&path, error);
                }
            }
            continue;
        }
        let Some(level) = levels.pop() else { return Ok(()) };
        let gone =
            !level.kept && remove(fs, (level.parent, &level.name, &level.stat), &path, watcher)?;
        if let Some(up) = levels.last_mut() {
            up.kept |= !gone;
        }
    }
}

enum Entered {
    Refused,
    Empty,
    Names(Vec<(Vec<u8>, Ino)>),
}

fn enter(fs: &Fs, path: &[u8], stat: &Stat, watcher: &mut dyn Watcher) -> Result<Entered> {
    match tree::entries(fs, stat.ino) {
        Ok(names) if names.is_empty() => Ok(Entered::Empty),
        Ok(names) => match watcher.step(Step::Enter, path, stat)? {
            true => Ok(Entered::Names(names)),
            false => Ok(Entered::Refused),
        },
        Err(error) => {
            watcher.failed(path, error);
            Ok(Entered::Refused)
        }
    }
}

/// Removes one file or empty directory. Returns whether it was removed.
fn remove(
    fs: &Fs,
    (parent, name, stat): (Ino, &[u8], &Stat),
    path: &[u8],
    watcher: &mut dyn Watcher,
) -> Result<bool> {
    if !watcher.step(Step::Remove, path, stat)? {
        return Ok(false);
    }
    let removed = match tree::is_dir(stat) {
        true => fs.rmdir(parent, name),
        false => fs.unlink(parent, name),
    };
    match removed {
        Ok(()) => {
            watcher.step(Step::Removed, path, stat)?;
            Ok(true)
        }
        Err(error) => {
            watcher.failed(path, error);
            Ok(false)
        }
    }
}
