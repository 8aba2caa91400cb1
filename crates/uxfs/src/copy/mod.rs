//! Copies trees: from the host into a volume, from a volume to the host, and between volumes.
//!
//! The engine walks a [`SourceTree`] and creates files in a [`TargetTree`]; both are implemented by
//! `host` and `image`. It reports each failure and continues, as `cp` does.
//!
//! 1. Nothing is written outside the target directory: every file is created relative to an open
//!    directory that was reached name by name, and no symbolic link below the target is followed. A
//!    link in the place of a file is replaced; a link in the place of a directory is an error. On
//!    other systems than Linux files are reached by path, so a tree must not be changed meanwhile.
//! 2. A name from a source is used only if it can be the name of a directory entry.
//! 3. A directory gets its own permissions and times after its contents are complete.
//! 4. Holes stay holes. Files with several names stay one file if [`Preserve::links`] is set.
//! 5. Each level of depth costs the memory of its name: no stack, and a fixed number of
//!    descriptors.
//! 6. A stream (FIFO or device) passes through one buffer. If reading fails, what was read before
//!    is kept and the failure is reported.
//! 7. A directory that contains itself, through a followed link or through damage, is entered once.
//!
//! Used by `uxfs cp`.

mod host;
mod image;
mod sides;
mod stream;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

pub use crate::held::HeldInode;
pub use host::{HostDir, HostSource, HostTarget};
pub use image::{ImageSource, ImageTarget};
pub use sides::{
    Attributes, CopyError, FileId, FileInfo, FileKind, SourceTree, TargetTree, Xattrs,
};
use sides::{Result, WINDOW, reading, refused};
pub use stream::{StreamSource, copy_to_writer};

use crate::labels::{FileContexts, FileKind as LabelKind, Labeller};
use crate::posix::{ACL_ACCESS, ACL_DEFAULT, is_plain_name};

/// The properties to preserve besides names and content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Permissions and ACLs. Without this the umask applies.
    pub mode: bool,
    /// Owner and group. Without this the files belong to the user that copies.
    pub ownership: bool,
    /// Access and modification times, in nanoseconds.
    pub timestamps: bool,
    /// Hard links: files with several names stay one file.
    pub links: bool,
    /// Extended attributes other than ACLs.
    pub xattr: bool,
    /// Fail if the target refuses an extended attribute.
    pub require_xattr: bool,
}

impl Preserve {
    /// Everything that can be preserved.
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

/// Which symbolic links of the source to follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// No links.
    #[default]
    Never,
    /// Links given as arguments, not links found in directories.
    Named,
    /// All links.
    Always,
}

/// Whether copies share blocks with their source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reflink {
    /// Never.
    #[default]
    Never,
    /// If both files are on one volume that supports it.
    Auto,
    /// Always; a file that cannot be shared is not copied.
    Always,
}

/// Options of a copy. Start with `CopyOptions::default()` and set the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyOptions {
    /// Copy directories with their contents and recreate devices, FIFOs and sockets. Without this
    /// the content of devices and FIFOs is copied.
    pub recursive: bool,
    /// Copy the content of devices and FIFOs even with [`Self::recursive`].
    pub copy_contents: bool,
    /// The properties to preserve.
    pub preserve: Preserve,
    /// Which links to follow.
    pub follow: Follow,
    /// Do not overwrite existing files.
    pub no_clobber: bool,
    /// Overwrite a file only if the source's modification time is later.
    pub update: bool,
    /// If an existing file cannot be opened for writing, remove it and create a new one.
    pub force: bool,
    /// Whether copies share blocks.
    pub reflink: Reflink,
    /// Permissions to remove from new files; unused with [`Preserve::mode`].
    pub umask: u16,
}

/// Events that a copy reports.
#[derive(Debug)]
pub enum Event<'a> {
    /// A file was copied: source path, target path.
    Copied(&'a [u8], &'a [u8]),
    /// A file was not copied, or not completely: the path concerned, and the error.
    Failed(&'a [u8], CopyError),
}

/// Receives the events of a copy.
pub type Listener<'a> = &'a mut dyn FnMut(Event<'_>);

/// Decides whether the file at this target path may be overwritten.
pub type Confirm<'a> = Box<dyn FnMut(&[u8]) -> bool + 'a>;

/// A file to copy.
pub struct CopyFrom<'a, S: SourceTree> {
    /// The source.
    pub tree: &'a S,
    /// The file in the source.
    pub node: S::Node,
    /// The file's metadata.
    pub info: FileInfo,
    /// The path to show in messages.
    pub display_path: Vec<u8>,
}

/// Where to copy a file.
pub struct CopyTo<'a, T: TargetTree> {
    /// The target.
    pub tree: &'a T,
    /// The directory in the target.
    pub dir: Rc<T::Dir>,
    /// The new name in the directory.
    pub name: Vec<u8>,
    /// The path to show in messages.
    pub display_path: Vec<u8>,
    /// The absolute path in the target, by which the file is labelled.
    pub path: Vec<u8>,
}

/// Copies files with one set of options. Remembers hard links from call to call.
pub struct Copier<'a, T: TargetTree> {
    options: CopyOptions,
    confirm: Option<Confirm<'a>>,
    labeller: Option<Labeller<&'a FileContexts>>,
    links: HashMap<FileId, T::LinkHandle>,
    buffer: Vec<u8>,
}

/// A directory of the walk that is not finished.
struct Level<N, D> {
    node: N,
    id: FileId,
    dir: Rc<D>,
    names: std::vec::IntoIter<Vec<u8>>,
    want: Option<Attributes>,
    from_len: usize,
    to_len: usize,
}

/// The state of one call.
struct Job<'a, S: SourceTree, T: TargetTree> {
    source: &'a S,
    target: &'a T,
    levels: Vec<Level<S::Node, T::Dir>>,
    from: Vec<u8>,
    to: Vec<u8>,
    /// Bytes of `to` before the part that `base` stands for, and that part's path in the target.
    base: (usize, Vec<u8>),
    /// The top directory created or entered by this call; it is not copied into itself.
    top_dir: Option<FileId>,
    /// The source directories from the top down to the current one.
    ancestors: HashSet<FileId>,
}

impl<'a, T: TargetTree> Copier<'a, T> {
    /// A copier with these options.
    pub fn new(options: CopyOptions) -> Self {
        let links = HashMap::new();
        Self { options, confirm: None, labeller: None, links, buffer: Vec::new() }
    }

    /// Asks before a file is overwritten.
    pub fn with_confirm(self, confirm: Confirm<'a>) -> Self {
        Self { confirm: Some(confirm), ..self }
    }

    /// Gives the copies SELinux labels by these rules, instead of those of the source.
    pub fn with_labels(self, contexts: &'a FileContexts) -> Self {
        Self { labeller: Some(Labeller::new(contexts)), ..self }
    }

    /// Copies a file, or a tree with [`CopyOptions::recursive`]. Returns whether everything was
    /// copied; failures were reported to `listener`.
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
            from: from.display_path,
            base: (to.display_path.len(), to.path),
            to: to.display_path,
            top_dir: None,
            ancestors: HashSet::new(),
        };
        let mut all_copied = true;
        let mut report = |job: &Job<'_, S, T>, result: Result<bool>, finishing: bool| match result {
            Ok(true) if !finishing => listener(Event::Copied(&job.from, &job.to)),
            Ok(_) => {}
            Err(error) => {
                all_copied = false;
                let path = if error.is_about_source() { &job.from } else { &job.to };
                listener(Event::Failed(path, error));
            }
        };
        let result = self.copy_one(&mut job, from.node, from.info, &to.dir, &to.name);
        report(&job, result, false);
        while let Some(level) = job.levels.last_mut() {
            job.from.truncate(level.from_len);
            job.to.truncate(level.to_len);
            let Some(name) = level.names.next() else {
                let Some(level) = job.levels.pop() else { continue };
                job.ancestors.remove(&level.id);
                // Before the directory's final permissions, which may deny access to `..`.
                job.source.leave(&level.node);
                job.target.leave(&level.dir);
                if let Some(want) = level.want {
                    let result = job.target.finish_dir(&level.dir, &want).map(|()| true);
                    report(&job, result, true);
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
                false => refused("not a valid file name (damaged or hostile): skipped"),
            };
            match result {
                Ok((node, info)) => {
                    let result = self.copy_one(&mut job, node, info, &dir, &name);
                    report(&job, result, false);
                }
                Err(error) => report(&job, Err(error), false),
            }
        }
        all_copied
    }

    /// Copies one file, or creates and enters a directory. Returns whether a file was copied or
    /// created.
    fn copy_one<S: SourceTree>(
        &mut self,
        job: &mut Job<'_, S, T>,
        node: S::Node,
        info: FileInfo,
        dir: &Rc<T::Dir>,
        name: &[u8],
    ) -> Result<bool> {
        let existing = job.target.find(dir, name)?;
        if info.kind == FileKind::Dir {
            return self.copy_dir(job, node, &info, dir, name, existing);
        }
        let recreate = self.options.recursive && !self.options.copy_contents;
        let kind = match info.kind {
            FileKind::Special(_) if !recreate => FileKind::Stream,
            other => other,
        };
        if let Some(existing) = &existing {
            if existing.id == info.id {
                return refused("source and target are the same file");
            }
            if existing.kind == FileKind::Dir {
                return refused("cannot overwrite a directory with a file");
            }
            let current = self.options.update && existing.mtime >= info.mtime;
            if self.options.no_clobber || current {
                return Ok(false);
            }
            if self.confirm.as_mut().is_some_and(|confirm| !confirm(&job.to)) {
                return Ok(false);
            }
        }
        let hard_linked =
            self.options.preserve.links && info.nlink > 1 && info.kind != FileKind::Stream;
        if hard_linked && let Some(link_handle) = self.links.get(&info.id) {
            if existing.is_some() {
                job.target.remove(dir, name)?;
            }
            job.target.link(link_handle, dir, name)?;
            return Ok(true);
        }
        let want = self.attributes(job, &node, &info, kind)?;
        match kind {
            FileKind::File => self.copy_file(job, &node, &info, dir, name, (&want, existing))?,
            FileKind::Stream => self.copy_stream(job, &node, dir, name, (&want, existing))?,
            _ => {
                if existing.is_some() {
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
        if hard_linked {
            self.links.insert(info.id, job.target.link_handle(dir, name)?);
        }
        Ok(true)
    }

    fn copy_dir<S: SourceTree>(
        &mut self,
        job: &mut Job<'_, S, T>,
        node: S::Node,
        info: &FileInfo,
        dir: &Rc<T::Dir>,
        name: &[u8],
        existing: Option<FileInfo>,
    ) -> Result<bool> {
        if !self.options.recursive {
            return refused("is a directory, and -r was not given");
        }
        if job.top_dir == Some(info.id) {
            return refused("cannot copy a directory into itself");
        }
        if job.ancestors.contains(&info.id) {
            return refused("is inside itself (a link that leads upwards, or damage): skipped");
        }
        let want = self.attributes(job, &node, info, info.kind)?;
        let (new_dir, created) = match existing {
            Some(existing) if existing.kind == FileKind::Dir => {
                (job.target.enter(dir, name)?, false)
            }
            Some(_) => return refused("cannot overwrite a file with a directory"),
            None => (job.target.make_dir(dir, name, &want)?, true),
        };
        let id = job.target.id(&new_dir)?;
        if id == info.id {
            return refused("cannot copy a directory onto itself");
        }
        if job.top_dir.is_none() {
            job.top_dir = Some(id);
        }
        let preserve = self.options.preserve;
        let finish = created
            || preserve.mode
            || preserve.ownership
            || preserve.timestamps
            || preserve.xattr
            || self.labeller.is_some();
        let names = reading(job.source.names(&node))?;
        job.ancestors.insert(info.id);
        job.levels.push(Level {
            node,
            id: info.id,
            dir: Rc::new(new_dir),
            names: names.into_iter(),
            want: finish.then_some(want),
            from_len: job.from.len(),
            to_len: job.to.len(),
        });
        Ok(created)
    }

    fn copy_file<S: SourceTree>(
        &mut self,
        job: &Job<'_, S, T>,
        node: &S::Node,
        info: &FileInfo,
        dir: &T::Dir,
        name: &[u8],
        (want, existing): (&Attributes, Option<FileInfo>),
    ) -> Result<()> {
        let reflink = self.options.reflink;
        let share = reflink != Reflink::Never && job.target.can_share(info.id);
        if reflink == Reflink::Always && !share {
            return refused("cannot share blocks: not one volume, or one made without reflink");
        }
        // Files of /proc report length 0 and have content.
        let unknown = info.size == 0;
        let data = match unknown {
            true => vec![(0, u64::MAX)],
            false => reading(job.source.data(node, info.size))?,
        };
        let file = self.open_file(job, dir, name, (want, existing))?;
        if share {
            match job.target.share(&file, info.id) {
                Ok(()) => return job.target.finish_file(file, info.size, want),
                // The copy below overwrites what was shared.
                Err(_) if reflink == Reflink::Auto => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.resize(WINDOW, 0);
        let mut size = info.size;
        for (start, len) in data {
            let mut done = 0;
            while done < len {
                let want_len = (len - done).min(WINDOW as u64);
                let window = &mut self.buffer[..usize::try_from(want_len).unwrap_or(WINDOW)];
                let count = reading(job.source.read(node, start + done, window))?;
                if count == 0 {
                    // The source became shorter while it was copied.
                    size = if unknown { done } else { size.min(start + done) };
                    break;
                }
                job.target.write(&file, start + done, &window[..count])?;
                done += count as u64;
            }
        }
        job.target.finish_file(file, size, want)
    }

    /// Opens the target file, empty. A symbolic link in its place is replaced.
    fn open_file<S: SourceTree>(
        &self,
        job: &Job<'_, S, T>,
        dir: &T::Dir,
        name: &[u8],
        (want, existing): (&Attributes, Option<FileInfo>),
    ) -> Result<T::File> {
        let mut exists = existing.is_some();
        if existing.is_some_and(|t| t.kind == FileKind::Symlink) {
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

    fn copy_stream<S: SourceTree>(
        &mut self,
        job: &Job<'_, S, T>,
        node: &S::Node,
        dir: &T::Dir,
        name: &[u8],
        (want, existing): (&Attributes, Option<FileInfo>),
    ) -> Result<()> {
        if self.options.reflink == Reflink::Always {
            return refused("cannot share blocks: not a regular file");
        }
        // Open the source first, so that no target is emptied for a source that cannot be read.
        let mut reader = reading(job.source.stream(node))?;
        let file = self.open_file(job, dir, name, (want, existing))?;
        self.buffer.resize(WINDOW, 0);
        let mut size = 0;
        loop {
            let (count, end) = stream::fill(&mut *reader, &mut self.buffer);
            job.target.write(&file, size, &self.buffer[..count])?;
            size += count as u64;
            match end {
                stream::End::Full => {}
                stream::End::Eof => return job.target.finish_file(file, size, want),
                stream::End::Failed(error) => return reading(Err(error.into())),
            }
        }
    }

    fn attributes<S: SourceTree>(
        &mut self,
        job: &Job<'_, S, T>,
        node: &S::Node,
        info: &FileInfo,
        kind: FileKind,
    ) -> Result<Attributes> {
        let preserve = self.options.preserve;
        let mut want = Attributes {
            mode: if preserve.mode { info.mode } else { info.mode & 0o777 },
            exact: preserve.mode,
            owner: preserve.ownership.then_some((info.uid, info.gid)),
            times: preserve.timestamps.then_some((info.atime, info.mtime)),
            xattrs: Vec::new(),
            require_xattr: preserve.require_xattr,
        };
        if preserve.xattr || preserve.mode {
            want.xattrs = reading(job.source.xattrs(node))?;
            want.xattrs.retain(|(name, _)| {
                let is_list = name == ACL_ACCESS || name == ACL_DEFAULT;
                if is_list { preserve.mode } else { preserve.xattr }
            });
        }
        if let (Some(labeller), Some(kind)) = (&mut self.labeller, label_kind(kind)) {
            want.xattrs.sort_unstable();
            let path = [&job.base.1, &job.to[job.base.0..]].concat();
            let path = path.strip_prefix(b"/").unwrap_or(&path);
            let labelled = labeller.set(&mut want.xattrs, path, kind);
            labelled.map_err(|error| CopyError::Refused(error.to_string()))?;
        }
        Ok(want)
    }
}

/// The type by which a file is labelled. A stream becomes a regular file.
fn label_kind(kind: FileKind) -> Option<LabelKind> {
    match kind {
        FileKind::File | FileKind::Stream => Some(LabelKind::File),
        FileKind::Dir => Some(LabelKind::Dir),
        FileKind::Symlink => Some(LabelKind::Symlink),
        FileKind::Special(mode) => LabelKind::of_mode(mode.into()),
    }
}
