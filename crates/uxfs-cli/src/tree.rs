//! Finds files of an image by path, and walks trees.

use std::ops::ControlFlow;
use std::rc::Rc;

use uxfs::format::Ino;
use uxfs::format::inode::{S_IFDIR, S_IFLNK, S_IFMT};
use uxfs::{Fs, Stat};
use uxfs_host::os_str;

use crate::image::{Image, Images};
use crate::place::{Inside, trim};
use crate::session::{Failure, Result};

/// A file of an image, found by a path.
#[derive(Clone)]
pub(crate) struct Found {
    /// The image.
    pub(crate) image: Rc<Image>,
    /// The path.
    pub(crate) place: Inside,
    /// The file's attributes.
    pub(crate) stat: Stat,
}

impl Found {
    pub(crate) fn fs(&self) -> &Fs {
        &self.image.fs
    }

    pub(crate) fn is_dir(&self) -> bool {
        is_dir(&self.stat)
    }
}

pub(crate) fn is_dir(stat: &Stat) -> bool {
    stat.mode & S_IFMT == S_IFDIR
}

/// Is the file a symbolic link?
pub(crate) fn is_link(stat: &Stat) -> bool {
    stat.mode & S_IFMT == S_IFLNK
}

/// Finds the file at a path. Follows a symbolic link at its end if `follow`.
pub(crate) fn find(images: &Images, place: &Inside, write: bool, follow: bool) -> Result<Found> {
    let image = images.get(&place.image, write)?;
    let found = image.fs.resolve(&place.path, follow).and_then(|ino| image.fs.stat(ino));
    let stat = found.map_err(|error| at(place, error))?;
    Ok(Found { image, place: place.clone(), stat })
}

pub(crate) fn at(place: &Inside, error: uxfs::Error) -> Failure {
    Failure::volume(os_str(&place.shown()), error)
}

/// A name in a directory, whether or not a file of that name exists.
pub(crate) struct Slot {
    /// The image.
    pub(crate) image: Rc<Image>,
    /// The path.
    pub(crate) place: Inside,
    /// The directory.
    pub(crate) dir: Ino,
    /// The name in it.
    pub(crate) name: Vec<u8>,
    /// Did the path end in a slash, which requires a directory?
    pub(crate) wants_dir: bool,
}

impl Slot {
    pub(crate) fn fs(&self) -> &Fs {
        &self.image.fs
    }

    /// The file of that name, if it exists. Does not follow a symbolic link.
    pub(crate) fn there(&self) -> Result<Option<Stat>> {
        let fs = self.fs();
        match fs.lookup(self.dir, &self.name).and_then(|ino| fs.stat(ino)) {
            Ok(stat) => Ok(Some(stat)),
            Err(uxfs::Error::NotFound) => Ok(None),
            Err(error) => Err(at(&self.place, error)),
        }
    }

    pub(crate) fn failed(&self, error: uxfs::Error) -> Failure {
        at(&self.place, error)
    }
}

/// Finds the directory that holds a path's last name. Fails for the root, which has no name.
pub(crate) fn slot(images: &Images, place: &Inside) -> Result<Slot> {
    let image = images.get(&place.image, true)?;
    let name = place.base().to_vec();
    if matches!(name.as_slice(), b"" | b"." | b"..") {
        let what = if name.is_empty() { "is the root directory" } else { "ends in '.' or '..'" };
        return Err(Failure::at(&place.shown(), what));
    }
    let dir = image.fs.resolve(place.parent(), true).map_err(|error| at(place, error))?;
    let up = image.fs.stat(dir).map_err(|error| at(place, error))?;
    if !is_dir(&up) {
        return Err(at(place, uxfs::Error::NotDir));
    }
    let wants_dir = place.path.ends_with(b"/");
    Ok(Slot { image, place: place.clone(), dir, name, wants_dir })
}

/// Finds the slot for a file to be created. If the last name is a symbolic link, the slot is at the
/// link's target.
pub(crate) fn slot_following_links(images: &Images, place: &Inside) -> Result<Slot> {
    let there = images.get(&place.image, true)?.fs.resolve(&place.path, false);
    match there {
        Ok(_) => slot(images, &canonical(images, place, false)?),
        Err(_) => slot(images, place),
    }
}

/// Number of symbolic links that the kernel follows in one path.
const LINKS_MAX: usize = 40;

/// Resolves all symbolic links of a path. With `existing` the file must exist; without, only its
/// directory must.
pub(crate) fn canonical(images: &Images, place: &Inside, existing: bool) -> Result<Inside> {
    let image = images.get(&place.image, false)?;
    let fs = &image.fs;
    let failed = |error| at(place, error);
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        path.split(|b| *b == b'/').rev().filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect()
    };
    let mut left = names(&place.path);
    let (mut path, mut links) = (Vec::new(), 0);
    while let Some(name) = left.pop() {
        match name.as_slice() {
            b"." => continue,
            b".." => {
                let end = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
                path.truncate(end);
                continue;
            }
            _ => {}
        }
        let next = [&path, b"/".as_slice(), &name].concat();
        let stat = match fs.resolve(&next, false).and_then(|ino| fs.stat(ino)) {
            Ok(stat) => stat,
            Err(uxfs::Error::NotFound) if !existing && left.is_empty() => {
                path = next;
                break;
            }
            Err(error) => return Err(failed(error)),
        };
        if is_link(&stat) {
            links += 1;
            if links > LINKS_MAX {
                return Err(failed(uxfs::Error::Loop));
            }
            let target = fs.readlink(stat.ino).map_err(failed)?;
            if target.starts_with(b"/") {
                path.clear();
            }
            left.extend(names(&target));
        } else if !left.is_empty() && !is_dir(&stat) {
            return Err(failed(uxfs::Error::NotDir));
        } else {
            path = next;
        }
    }
    if path.is_empty() {
        path.push(b'/');
    }
    Ok(Inside { image: place.image.clone(), path })
}

/// Names and inodes in a directory, without `.` and `..`, in the directory's order.
pub(crate) fn entries(fs: &Fs, dir: Ino) -> uxfs::Result<Vec<(Vec<u8>, Ino)>> {
    let mut names = Vec::new();
    fs.read_dir(dir, 0, &mut |entry| {
        if !entry.is_dot() {
            names.push((entry.name.to_vec(), entry.ino));
        }
        ControlFlow::Continue(())
    })?;
    Ok(names)
}

/// A file that a walk visits.
pub(crate) struct Visited<'a> {
    /// The volume.
    pub(crate) fs: &'a Fs,
    /// The file's path, beginning with the start as the user wrote it.
    pub(crate) path: &'a [u8],
    /// Levels below the start.
    pub(crate) depth: usize,
    /// The file's attributes.
    pub(crate) stat: &'a Stat,
    /// Is this the visit after the directory's content?
    pub(crate) leaving: bool,
}

/// How a walk continues after a visit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Enter the file if it is a directory.
    Enter,
    /// Continue with the next file.
    Skip,
    /// End the walk.
    Stop,
}

/// Options of a walk.
#[derive(Clone, Copy, Default)]
pub(crate) struct WalkOptions {
    /// Visit each directory again after its content.
    pub(crate) both: bool,
    /// Follow symbolic links.
    pub(crate) follow: bool,
}

struct Level {
    stat: Stat,
    names: std::vec::IntoIter<(Vec<u8>, Ino)>,
    len: usize,
}

/// Walks a tree depth first, each directory in its own order. Reports files that cannot be read to
/// `on_error` with their path, and skips them.
pub(crate) fn walk(
    fs: &Fs,
    (path, stat): (Vec<u8>, Stat),
    options: WalkOptions,
    visit: &mut dyn FnMut(Visited<'_>) -> Result<Next>,
    on_error: &mut dyn FnMut(&[u8], uxfs::Error),
) -> Result<()> {
    let mut path = path;
    let mut levels: Vec<Level> = Vec::new();
    let mut next = Some(stat);
    loop {
        if let Some(stat) = next.take() {
            let depth = levels.len();
            let visited = Visited { fs, path: &path, depth, stat: &stat, leaving: false };
            match visit(visited)? {
                Next::Stop => return Ok(()),
                Next::Enter if is_dir(&stat) => {
                    // A damaged volume or a followed link can form a cycle.
                    if levels.iter().any(|level| level.stat.ino == stat.ino) {
                        on_error(&path, uxfs::Error::Loop);
                        continue;
                    }
                    match entries(fs, stat.ino) {
                        Ok(names) => {
                            let names = names.into_iter();
                            levels.push(Level { stat, names, len: path.len() });
                        }
                        Err(error) => on_error(&path, error),
                    }
                }
                _ => {}
            }
        }
        let Some(level) = levels.last_mut() else { return Ok(()) };
        path.truncate(level.len);
        let Some((name, ino)) = level.names.next() else {
            let depth = levels.len() - 1;
            if let Some(level) = levels.pop()
                && options.both
            {
                let stat = &level.stat;
                if visit(Visited { fs, path: &path, depth, stat, leaving: true })? == Next::Stop {
                    return Ok(());
                }
            }
            continue;
        };
        let dir = level.stat.ino;
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        let stat = fs.stat(ino).map(|stat| match options.follow && is_link(&stat) {
            // A dangling link itself is visited.
            true => fs.resolve_at(dir, &name, true).and_then(|to| fs.stat(to)).unwrap_or(stat),
            false => stat,
        });
        match stat {
            Ok(stat) => next = Some(stat),
            Err(error) => on_error(&path, error),
        }
    }
}

/// The path with its image for messages and results, without trailing slashes except for the root.
pub(crate) fn shown(place: &Inside) -> Vec<u8> {
    let shown = place.shown();
    match trim(&place.path).is_empty() {
        true => shown,
        false => trim(&shown).to_vec(),
    }
}
