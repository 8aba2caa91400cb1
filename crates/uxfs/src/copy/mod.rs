//! Copies trees: from the host into a volume, from a volume to the host, from volume to volume.
//!
//! The engine walks a [`SourceTree`] and builds in a [`TargetTree`]; the sides are `host` and
//! `image`. It goes on after a failure and reports each, as `cp` does.
//!
//! 1. Nothing is written outside the target directory: every file is made in an open directory
//!    that was itself reached name by name, and no symbolic link below it is followed. A link in
//!    the way of a file is replaced, one in the way of a directory is an error.
//! 2. A name from a source is used only if it stands for one entry of one directory.
//! 3. A directory gets its own permissions and times after all in it is there.
//! 4. Holes stay holes; files with several names stay one file if [`Preserve::links`] asks for it.
//! 5. Depth costs one name's memory a level: no stack, and no descriptor beyond a fixed number.
//! 6. What is read to its end, a fifo or a device, passes through one window of memory. If it
//!    breaks, what came before stays, and the failure is reported.
//! 7. A directory that contains itself, by a followed link or by damage, is entered once.
//!
//! Called by `uxfs cp`.

mod dirs;
mod host;
mod image;
mod sides;
mod stream;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

pub use host::{HostDir, HostSource, HostTarget};
pub use image::{ImageSource, ImageTarget};
pub use sides::{
    Attributes, CopyError, FileId, FileInfo, FileKind, SourceTree, TargetTree, Xattrs,
};
use sides::{Result, WINDOW, reading, refused};
pub use stream::{StreamSource, pour};

use crate::posix::{ACL_ACCESS, ACL_DEFAULT, is_plain_name};

/// What is carried over besides names and content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Permissions and access lists. Otherwise the umask applies.
    pub mode: bool,
    /// Owner and group. Otherwise files belong to whoever copies.
    pub ownership: bool,
    /// Times of access and change of content, to the nanosecond.
    pub timestamps: bool,
    /// Files with several names stay one file.
    pub links: bool,
    /// Extended attributes other than access lists.
    pub xattr: bool,
    /// A target that refuses an extended attribute is a failure.
    pub require_xattr: bool,
}

impl Preserve {
    /// Everything that can be kept.
    pub fn all() -> Self {
        Self {
            mode: true,
            ownership: true,
            timestamps: true,
            links: true,
            xattr: true,
            require_xattr: false,
        }
    }
}

/// Which symbolic links of the source are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// None.
    #[default]
    Never,
    /// Those that are named themselves, not those met on the way.
    Named,
    /// All.
    Always,
}

/// Do copies share blocks with what they are copies of?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reflink {
    /// No.
    #[default]
    Never,
    /// If both are on one volume that can.
    Auto,
    /// A file for which that is not possible is not copied.
    Always,
}

/// How to copy. New ones are made by `CopyOptions::default()`, and changed field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyOptions {
    /// Directories with all that is in them; devices, fifos and sockets are made anew. Otherwise
    /// what they hold is copied.
    pub recursive: bool,
    /// Copy what devices and fifos hold even if [`Self::recursive`].
    pub copy_contents: bool,
    /// What to carry over.
    pub preserve: Preserve,
    /// Which links to follow.
    pub follow: Follow,
    /// Leave files that exist as they are.
    pub no_clobber: bool,
    /// Leave files alone whose content changed when the source's did, or later.
    pub update: bool,
    /// Replace a file that cannot be written by a new one.
    pub force: bool,
    /// Do copies share blocks?
    pub reflink: Reflink,
    /// Permissions that are not given unless [`Preserve::mode`].
    pub umask: u16,
}

/// What the engine tells while it works.
#[derive(Debug)]
pub enum Event<'a> {
    /// A file was copied: where from, where to.
    Copied(&'a [u8], &'a [u8]),
    /// A file was not, or not wholly: the path that the trouble is about, and the trouble.
    Failed(&'a [u8], CopyError),
}

/// Listens to the engine.
pub type Listener<'a> = &'a mut dyn FnMut(Event<'_>);

/// Says whether the file at a path of the target, as messages have it, may be overwritten.
pub type Confirm<'a> = Box<dyn FnMut(&[u8]) -> bool + 'a>;

/// A file to be copied, and how messages call it.
pub struct CopyFrom<'a, S: SourceTree> {
    /// The side.
    pub tree: &'a S,
    /// The file.
    pub node: S::Node,
    /// What is known of it.
    pub info: FileInfo,
    /// Its path as messages have it.
    pub shown: Vec<u8>,
}

/// Where to copy it to, and how messages call that.
pub struct CopyTo<'a, T: TargetTree> {
    /// The side.
    pub tree: &'a T,
    /// The directory.
    pub dir: Rc<T::Dir>,
    /// The name in it.
    pub name: Vec<u8>,
    /// Its path as messages have it.
    pub shown: Vec<u8>,
}

/// Copies with one set of options; remembers files with several names from call to call.
pub struct Copier<'a, T: TargetTree> {
    options: CopyOptions,
    confirm: Option<Confirm<'a>>,
    links: HashMap<FileId, T::Mark>,
    buffer: Vec<u8>,
}

/// A directory on the way down.
struct Level<N, D> {
    node: N,
    id: FileId,
    dir: Rc<D>,
    names: std::vec::IntoIter<Vec<u8>>,
    want: Option<Attributes>,
    from_len: usize,
    to_len: usize,
}

/// The walk of one call.
struct Job<'a, S: SourceTree, T: TargetTree> {
    source: &'a S,
    target: &'a T,
    levels: Vec<Level<S::Node, T::Dir>>,
    from: Vec<u8>,
    to: Vec<u8>,
    /// Directories made or entered at the top, which are not copied into themselves.
    top: Option<FileId>,
    /// The directories of the source that `levels` are in.
    above: HashSet<FileId>,
}

impl<'a, T: TargetTree> Copier<'a, T> {
    /// A copier with these options.
    pub fn new(options: CopyOptions) -> Self {
        Self { options, confirm: None, links: HashMap::new(), buffer: Vec::new() }
    }

    /// A copier that asks before it overwrites a file.
    pub fn confirming(self, confirm: Confirm<'a>) -> Self {
        Self { confirm: Some(confirm), ..self }
    }

    /// Copies a file, or a tree if [`CopyOptions::recursive`]. Says whether all went well; what
    /// did not was told to `listener`.
    pub fn copy<S: SourceTree>(
        &mut self,
        from: CopyFrom<'_, S>,
        to: CopyTo<'_, T>,
        listener: Listener<'_>,
    ) -> bool {
        let mut job = Job {
            source: from.tree,
            target: to.tree,
            levels: Vec::new(),
            from: from.shown,
            to: to.shown,
            top: None,
            above: HashSet::new(),
        };
        let mut good = true;
        let mut tell = |job: &Job<'_, S, T>, result: Result<bool>, finishing: bool| match result {
            Ok(true) if !finishing => listener(Event::Copied(&job.from, &job.to)),
            Ok(_) => {}
            Err(error) => {
                good = false;
                let path = if error.is_about_source() { &job.from } else { &job.to };
                listener(Event::Failed(path, error));
            }
        };
        let result = self.one(&mut job, from.node, from.info, &to.dir, &to.name);
        tell(&job, result, false);
        while let Some(level) = job.levels.last_mut() {
            job.from.truncate(level.from_len);
            job.to.truncate(level.to_len);
            let Some(name) = level.names.next() else {
                let Some(level) = job.levels.pop() else { continue };
                job.above.remove(&level.id);
                // Before its permissions may shut the way up.
                job.source.leave(&level.node);
                job.target.leave(&level.dir);
                if let Some(want) = level.want {
                    let result = job.target.finish_dir(&level.dir, &want).map(|()| true);
                    tell(&job, result, true);
                }
                continue;
            };
            for path in [&mut job.from, &mut job.to] {
                if path.last() != Some(&b'/') {
                    path.push(b'/');
                }
                path.extend_from_slice(&name);
            }
            let dir = Rc::clone(&level.dir);
            let follow = self.options.follow == Follow::Always;
            let result = match is_plain_name(&name) {
                true => reading(job.source.child(&level.node, &name, follow)),
                false => refused("not a name for a file: damaged or hostile, left out"),
            };
            match result {
                Ok((node, info)) => {
                    let result = self.one(&mut job, node, info, &dir, &name);
                    tell(&job, result, false);
                }
                Err(error) => tell(&job, Err(error), false),
            }
        }
        good
    }

    /// Copies one file; a directory is made and entered. Says whether it was copied now.
    fn one<S: SourceTree>(
        &mut self,
        job: &mut Job<'_, S, T>,
        node: S::Node,
        info: FileInfo,
        dir: &Rc<T::Dir>,
        name: &[u8],
    ) -> Result<bool> {
        let there = job.target.find(dir, name)?;
        if info.kind == FileKind::Dir {
            return self.directory(job, node, &info, dir, name, there);
        }
        let made_anew = self.options.recursive && !self.options.copy_contents;
        let kind = match info.kind {
            FileKind::Special(_) if !made_anew => FileKind::Stream,
            other => other,
        };
        if let Some(there) = &there {
            if there.id == info.id {
                return refused("source and target are the same file");
            }
            if there.kind == FileKind::Dir {
                return refused("cannot overwrite a directory with what is none");
            }
            let current = self.options.update && there.mtime >= info.mtime;
            if self.options.no_clobber || current {
                return Ok(false);
            }
            if self.confirm.as_mut().is_some_and(|confirm| !confirm(&job.to)) {
                return Ok(false);
            }
        }
        let several =
            self.options.preserve.links && info.nlink > 1 && info.kind != FileKind::Stream;
        if several && let Some(mark) = self.links.get(&info.id) {
            if there.is_some() {
                job.target.remove(dir, name)?;
            }
            job.target.link(mark, dir, name)?;
            return Ok(true);
        }
        let want = self.attributes(job.source, &node, &info)?;
        match kind {
            FileKind::File => self.file(job, &node, &info, dir, name, (&want, there))?,
            FileKind::Stream => self.stream(job, &node, dir, name, (&want, there))?,
            _ => {
                if there.is_some() {
                    job.target.remove(dir, name)?;
                }
                if kind == FileKind::Symlink {
                    let target = reading(job.source.link_target(&node))?;
                    job.target.make_symlink(dir, name, &target, &want)?;
                } else {
                    job.target.make_special(dir, name, &info, &want)?;
                }
            }
        }
        if several {
            self.links.insert(info.id, job.target.mark(dir, name)?);
        }
        Ok(true)
    }

    fn directory<S: SourceTree>(
        &mut self,
        job: &mut Job<'_, S, T>,
        node: S::Node,
        info: &FileInfo,
        dir: &Rc<T::Dir>,
        name: &[u8],
        there: Option<FileInfo>,
    ) -> Result<bool> {
        if !self.options.recursive {
            return refused("is a directory, and -r was not given");
        }
        if job.top == Some(info.id) {
            return refused("cannot copy a directory into itself");
        }
        if job.above.contains(&info.id) {
            return refused("is inside itself (a link that leads upwards, or damage): left out");
        }
        let want = self.attributes(job.source, &node, info)?;
        let (made, fresh) = match there {
            Some(there) if there.kind == FileKind::Dir => (job.target.enter(dir, name)?, false),
            Some(_) => return refused("cannot overwrite what is no directory with a directory"),
            None => (job.target.make_dir(dir, name, &want)?, true),
        };
        let id = job.target.id(&made)?;
        if id == info.id {
            return refused("cannot copy a directory onto itself");
        }
        if job.top.is_none() {
            job.top = Some(id);
        }
        let kept = self.options.preserve;
        let finish = fresh || kept.mode || kept.ownership || kept.timestamps || kept.xattr;
        let names = reading(job.source.names(&node))?;
        job.above.insert(info.id);
        job.levels.push(Level {
            node,
            id: info.id,
            dir: Rc::new(made),
            names: names.into_iter(),
            want: finish.then_some(want),
            from_len: job.from.len(),
            to_len: job.to.len(),
        });
        Ok(fresh)
    }

    fn file<S: SourceTree>(
        &mut self,
        job: &Job<'_, S, T>,
        node: &S::Node,
        info: &FileInfo,
        dir: &T::Dir,
        name: &[u8],
        (want, there): (&Attributes, Option<FileInfo>),
    ) -> Result<()> {
        let reflink = self.options.reflink;
        let share = reflink != Reflink::Never && job.target.can_share(info.id);
        if reflink == Reflink::Always && !share {
            return refused("cannot share blocks: not one volume, or one made without reflink");
        }
        // Files of /proc tell no length, and have content.
        let unknown = info.size == 0;
        let data = match unknown {
            true => vec![(0, u64::MAX)],
            false => reading(job.source.data(node, info.size))?,
        };
        let file = self.open_file(job, dir, name, (want, there))?;
        if share {
            match job.target.share(&file, info.id) {
                Ok(()) => return job.target.finish_file(file, info.size, want),
                // What was shared is written once more.
                Err(_) if reflink == Reflink::Auto => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.resize(WINDOW, 0);
        let mut size = info.size;
        for (start, len) in data {
            let mut done = 0;
            while done < len {
                let room = (len - done).min(WINDOW as u64);
                let window = &mut self.buffer[..usize::try_from(room).unwrap_or(WINDOW)];
                let count = reading(job.source.read(node, start + done, window))?;
                if count == 0 {
                    // Or it became shorter meanwhile.
                    size = if unknown { done } else { size.min(start + done) };
                    break;
                }
                job.target.write(&file, start + done, &window[..count])?;
                done += count as u64;
            }
        }
        job.target.finish_file(file, size, want)
    }

    /// The file to be written, empty. A symbolic link in the way is replaced.
    fn open_file<S: SourceTree>(
        &self,
        job: &Job<'_, S, T>,
        dir: &T::Dir,
        name: &[u8],
        (want, there): (&Attributes, Option<FileInfo>),
    ) -> Result<T::File> {
        let mut exists = there.is_some();
        if there.is_some_and(|t| t.kind == FileKind::Symlink) {
            job.target.remove(dir, name)?;
            exists = false;
        }
        match job.target.open_file(dir, name, want, exists) {
            Err(_) if exists && self.options.force => {
                job.target.remove(dir, name)?;
                job.target.open_file(dir, name, want, false)
            }
            other => other,
        }
    }

    fn stream<S: SourceTree>(
        &mut self,
        job: &Job<'_, S, T>,
        node: &S::Node,
        dir: &T::Dir,
        name: &[u8],
        (want, there): (&Attributes, Option<FileInfo>),
    ) -> Result<()> {
        if self.options.reflink == Reflink::Always {
            return refused("cannot share blocks: not a regular file");
        }
        // First, so that nothing is emptied for a source that cannot be read.
        let mut reader = reading(job.source.stream(node))?;
        let file = self.open_file(job, dir, name, (want, there))?;
        self.buffer.resize(WINDOW, 0);
        let mut size = 0;
        loop {
            let (count, end) = stream::fill(&mut *reader, &mut self.buffer);
            job.target.write(&file, size, &self.buffer[..count])?;
            size += count as u64;
            match end {
                stream::End::NotYet => {}
                stream::End::Reached => return job.target.finish_file(file, size, want),
                stream::End::Broken(error) => return reading(Err(error.into())),
            }
        }
    }

    fn attributes<S: SourceTree>(
        &self,
        source: &S,
        node: &S::Node,
        info: &FileInfo,
    ) -> Result<Attributes> {
        let kept = self.options.preserve;
        let mut want = Attributes {
            mode: if kept.mode { info.mode } else { info.mode & 0o777 },
            exact: kept.mode,
            owner: kept.ownership.then_some((info.uid, info.gid)),
            times: kept.timestamps.then_some((info.atime, info.mtime)),
            xattrs: Vec::new(),
            require_xattr: kept.require_xattr,
        };
        if kept.xattr || kept.mode {
            want.xattrs = reading(source.xattrs(node))?;
            want.xattrs.retain(|(name, _)| {
                let is_list = name == ACL_ACCESS || name == ACL_DEFAULT;
                if is_list { kept.mode } else { kept.xattr }
            });
        }
        Ok(want)
    }
}
