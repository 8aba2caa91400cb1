//! Removes trees from an image.

use uxfs::format::Ino;
use uxfs::{Fs, Stat};

use crate::session::Result;
use crate::tree;

/// A step of the removal of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A directory that is not empty is about to be entered.
    Enter,
    /// The file is about to be removed.
    Remove,
    /// The file was removed.
    Removed,
}

/// Confirms and reports the steps of a removal.
pub(crate) trait Watcher {
    /// Called before [`Step::Enter`] and [`Step::Remove`]; false skips the file. Also called after
    /// [`Step::Removed`], where the result is ignored.
    fn step(&mut self, step: Step, path: &[u8], stat: &Stat) -> Result<bool>;
    /// Reports a file that could not be removed.
    fn failed(&mut self, path: &[u8], error: uxfs::Error);
}

struct Level {
    parent: Ino,
    name: Vec<u8>,
    stat: Stat,
    names: std::vec::IntoIter<(Vec<u8>, Ino)>,
    len: usize,
    /// An entry of this directory stays, so the directory stays.
    kept: bool,
}

/// Removes the file `name` in `parent`, with its content if it is a directory. Messages use `path`.
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

/// Removes one file or empty directory. True if it was removed.
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
