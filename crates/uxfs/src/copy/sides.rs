//! What the engine asks of the two sides of a copy, and what they speak of: files, attributes,
//! failures.

use std::io::{self, Read};

use uxfs_core::Error;
use uxfs_format::timestamp::Timestamp;

/// Bytes copied at a time.
pub(super) const WINDOW: usize = 4 << 20;

/// What kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Regular.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Character device, block device, fifo or socket: the type bits of its mode.
    Special(u16),
    /// Bytes that are read to their end, as standard input.
    Stream,
}

/// Names a file uniquely: the volume or device, and the inode.
pub type FileId = (u64, u64);

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Its kind.
    pub kind: FileKind,
    /// Permissions with set-ID and sticky bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
    /// Number of names.
    pub nlink: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Which file it is.
    pub id: FileId,
}

/// Extended attributes: names and values as Linux has them.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// What a file is to be given. What is `None` is for the target's rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions; exact if `exact`, else the umask or the directory's default list applies.
    pub mode: u16,
    /// Are the permissions to be exactly `mode`?
    pub exact: bool,
    /// Owner and group.
    pub owner: Option<(u32, u32)>,
    /// Times of access and of change.
    pub times: Option<(Timestamp, Timestamp)>,
    /// Extended attributes.
    pub xattrs: Xattrs,
    /// Is an attribute that the target refuses a failure?
    pub require_xattr: bool,
}

/// Why one file was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The volume says so.
    #[error(transparent)]
    Volume(#[from] Error),
    /// The host says so.
    #[error("{0}")]
    Host(#[from] io::Error),
    /// The engine refuses it; said why.
    #[error("{0}")]
    Refused(String),
    /// The same, on the source's side.
    #[error("{0}")]
    Source(Box<CopyError>),
}

impl CopyError {
    /// Is the trouble with the file that is copied, rather than with what it becomes?
    pub(super) fn is_about_source(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Source(_))
    }
}

/// Marks a failure as the source's.
pub(super) fn reading<R>(result: Result<R>) -> Result<R> {
    result.map_err(|error| CopyError::Source(Box::new(error)))
}

impl From<rustix::io::Errno> for CopyError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Host(errno.into())
    }
}

pub(super) type Result<T> = core::result::Result<T, CopyError>;

pub(super) fn refused<T>(why: impl Into<String>) -> Result<T> {
    Err(CopyError::Refused(why.into()))
}

/// Where files come from.
pub trait SourceTree {
    /// A file of it, open as far as it needs to be.
    type Node;

    /// The entry `name` of a directory; the file that a symbolic link leads to if `follow`.
    ///
    /// # Errors
    /// There is none, or it cannot be looked at.
    fn child(&self, dir: &Self::Node, name: &[u8], follow: bool) -> Result<(Self::Node, FileInfo)>;

    /// The names in a directory, without `.` and `..`.
    ///
    /// # Errors
    /// It cannot be read.
    fn names(&self, dir: &Self::Node) -> Result<Vec<Vec<u8>>>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// It cannot be read.
    fn link_target(&self, node: &Self::Node) -> Result<Vec<u8>>;

    /// The extended attributes, access lists among them.
    ///
    /// # Errors
    /// They cannot be read.
    fn xattrs(&self, node: &Self::Node) -> Result<Xattrs>;

    /// Where a regular file has data: offsets and lengths, ascending.
    ///
    /// # Errors
    /// It cannot be read.
    fn data(&self, node: &Self::Node, size: u64) -> Result<Vec<(u64, u64)>>;

    /// Reads from a regular file; fewer bytes than asked for only at its end.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self, node: &Self::Node, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// What a fifo, a device or another stream holds, from now to its end. Waits for a fifo's
    /// writer.
    ///
    /// # Errors
    /// It cannot be opened, or holds nothing.
    fn stream(&self, node: &Self::Node) -> Result<Box<dyn Read + '_>>;

    /// The walk leaves this directory for the one above.
    fn leave(&self, _dir: &Self::Node) {}
}

/// Where files go.
pub trait TargetTree {
    /// An open directory.
    type Dir;
    /// A regular file being written.
    type File;
    /// What is remembered of a file to give it a further name.
    type Mark;

    /// What is there under `name`; a symbolic link is told as such.
    ///
    /// # Errors
    /// It cannot be looked at.
    fn find(&self, dir: &Self::Dir, name: &[u8]) -> Result<Option<FileInfo>>;

    /// Which directory this is.
    ///
    /// # Errors
    /// It cannot be looked at.
    fn id(&self, dir: &Self::Dir) -> Result<FileId>;

    /// Opens a directory that exists; never through a symbolic link.
    ///
    /// # Errors
    /// It is none, or cannot be opened.
    fn enter(&self, dir: &Self::Dir, name: &[u8]) -> Result<Self::Dir>;

    /// Makes a directory, writable for now; [`TargetTree::finish_dir`] follows.
    ///
    /// # Errors
    /// It cannot be made.
    fn make_dir(&self, dir: &Self::Dir, name: &[u8], want: &Attributes) -> Result<Self::Dir>;

    /// Gives a directory what it is to have.
    ///
    /// # Errors
    /// Something of it is refused.
    fn finish_dir(&self, dir: &Self::Dir, want: &Attributes) -> Result<()>;

    /// The walk leaves this directory for the one above.
    fn leave(&self, _dir: &Self::Dir) {}

    /// Makes a regular file, or empties the one that `exists`.
    ///
    /// # Errors
    /// It cannot be made or opened.
    fn open_file(
        &self,
        dir: &Self::Dir,
        name: &[u8],
        want: &Attributes,
        exists: bool,
    ) -> Result<Self::File>;

    /// Can a file share blocks with that file of the source?
    fn can_share(&self, _source: FileId) -> bool {
        false
    }

    /// Makes the file, which is empty, a copy of the source by sharing its blocks.
    ///
    /// # Errors
    /// It cannot be done.
    fn share(&self, _file: &Self::File, _source: FileId) -> Result<()> {
        refused("blocks are shared on one volume only")
    }

    /// Writes into the file.
    ///
    /// # Errors
    /// It cannot be written.
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> Result<()>;

    /// Gives the file its length and, if it is new or `want` says more than a mode, its attributes.
    ///
    /// # Errors
    /// Something of it is refused.
    fn finish_file(&self, file: Self::File, size: u64, want: &Attributes) -> Result<()>;

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// It cannot be made.
    fn make_symlink(
        &self,
        dir: &Self::Dir,
        name: &[u8],
        target: &[u8],
        want: &Attributes,
    ) -> Result<()>;

    /// Makes a device, fifo or socket.
    ///
    /// # Errors
    /// It cannot be made.
    fn make_special(
        &self,
        dir: &Self::Dir,
        name: &[u8],
        info: &FileInfo,
        want: &Attributes,
    ) -> Result<()>;

    /// What to remember of a file that was made.
    ///
    /// # Errors
    /// It cannot be found again.
    fn mark(&self, dir: &Self::Dir, name: &[u8]) -> Result<Self::Mark>;

    /// Gives a file that was made another name.
    ///
    /// # Errors
    /// It cannot be linked.
    fn link(&self, mark: &Self::Mark, dir: &Self::Dir, name: &[u8]) -> Result<()>;

    /// Removes a file that is no directory.
    ///
    /// # Errors
    /// It cannot be removed.
    fn remove(&self, dir: &Self::Dir, name: &[u8]) -> Result<()>;
}
