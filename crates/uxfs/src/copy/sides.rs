//! The interfaces between the copy engine and its source and target, and their types: files,
//! attributes, errors.

use std::io::{self, Read};

use uxfs_core::Error;
use uxfs_format::timestamp::Timestamp;

/// Bytes copied at a time.
pub(super) const WINDOW: usize = 4 << 20;

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Character device, block device, FIFO or socket: the type bits of the mode.
    Special(u16),
    /// A byte stream that is read to its end, such as standard input.
    Stream,
}

/// Identifies a file: number of the volume or device, and inode number.
pub type FileId = (u64, u64);

/// Metadata of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Type of the file.
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
    /// Number of hard links.
    pub nlink: u32,
    /// Access time.
    pub atime: Timestamp,
    /// Modification time.
    pub mtime: Timestamp,
    /// Identity of the file.
    pub id: FileId,
}

/// Extended attributes: names and values as Linux has them.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// The attributes to give to a file. The target's rules decide about what is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions. If `exact` is false, the umask or the directory's default ACL applies.
    pub mode: u16,
    /// True if the permissions must be exactly `mode`.
    pub exact: bool,
    /// Owner and group.
    pub owner: Option<(u32, u32)>,
    /// Access time and modification time.
    pub times: Option<(Timestamp, Timestamp)>,
    /// Extended attributes.
    pub xattrs: Xattrs,
    /// True if it is an error that the target refuses an extended attribute.
    pub require_xattr: bool,
}

/// Why one file was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The volume returned an error.
    #[error(transparent)]
    Volume(#[from] Error),
    /// The host returned an error.
    #[error("{0}")]
    Host(#[from] io::Error),
    /// The engine refuses to copy the file; the text says why.
    #[error("{0}")]
    Refused(String),
    /// An error on the source's side.
    #[error("{0}")]
    Source(Box<CopyError>),
}

impl CopyError {
    /// True if the error concerns the source rather than the target.
    pub(super) fn is_about_source(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Source(_))
    }
}

/// Marks an error as one of the source.
pub(super) fn reading<R>(result: Result<R>) -> Result<R> {
    result.map_err(|error| CopyError::Source(Box::new(error)))
}

#[cfg(target_os = "linux")]
impl From<rustix::io::Errno> for CopyError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Host(errno.into())
    }
}

pub(super) type Result<T> = core::result::Result<T, CopyError>;

pub(super) fn refused<T>(why: impl Into<String>) -> Result<T> {
    Err(CopyError::Refused(why.into()))
}

/// A tree that files are copied from.
pub trait SourceTree {
    /// A file of the tree, opened as far as necessary.
    type Node;

    /// Opens the entry `name` of a directory; with `follow`, the target of a symbolic link.
    ///
    /// # Errors
    /// The entry does not exist or cannot be opened.
    fn child(&self, dir: &Self::Node, name: &[u8], follow: bool) -> Result<(Self::Node, FileInfo)>;

    /// The names in a directory, without `.` and `..`.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn names(&self, dir: &Self::Node) -> Result<Vec<Vec<u8>>>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// The link cannot be read.
    fn link_target(&self, node: &Self::Node) -> Result<Vec<u8>>;

    /// The extended attributes, including ACLs.
    ///
    /// # Errors
    /// The attributes cannot be read.
    fn xattrs(&self, node: &Self::Node) -> Result<Xattrs>;

    /// The data segments of a regular file: offsets and lengths in bytes, ascending.
    ///
    /// # Errors
    /// The file cannot be read.
    fn data(&self, node: &Self::Node, size: u64) -> Result<Vec<(u64, u64)>>;

    /// Reads from a regular file. Returns fewer bytes than requested only at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read.
    fn read(&self, node: &Self::Node, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Opens the content of a FIFO, device or other stream for reading. Blocks until a FIFO has a
    /// writer.
    ///
    /// # Errors
    /// The stream cannot be opened, or the file has no content.
    fn stream(&self, node: &Self::Node) -> Result<Box<dyn Read + '_>>;

    /// Called when the walk leaves this directory for its parent.
    fn leave(&self, _dir: &Self::Node) {}
}

/// A tree that files are copied into.
pub trait TargetTree {
    /// An open directory.
    type Dir;
    /// A regular file that is open for writing.
    type File;
    /// The target's handle for adding a hard link to a file.
    type LinkHandle;

    /// Looks up `name`. A symbolic link is not followed.
    ///
    /// # Errors
    /// The entry cannot be examined.
    fn find(&self, dir: &Self::Dir, name: &[u8]) -> Result<Option<FileInfo>>;

    /// The identity of a directory.
    ///
    /// # Errors
    /// The directory cannot be examined.
    fn id(&self, dir: &Self::Dir) -> Result<FileId>;

    /// Opens an existing directory. A symbolic link is not followed.
    ///
    /// # Errors
    /// The entry is not a directory, or cannot be opened.
    fn enter(&self, dir: &Self::Dir, name: &[u8]) -> Result<Self::Dir>;

    /// Creates a directory that is writable until [`TargetTree::finish_dir`].
    ///
    /// # Errors
    /// The directory cannot be created.
    fn make_dir(&self, dir: &Self::Dir, name: &[u8], want: &Attributes) -> Result<Self::Dir>;

    /// Sets the final attributes of a directory.
    ///
    /// # Errors
    /// An attribute cannot be set.
    fn finish_dir(&self, dir: &Self::Dir, want: &Attributes) -> Result<()>;

    /// Called when the walk leaves this directory for its parent.
    fn leave(&self, _dir: &Self::Dir) {}

    /// Creates a regular file, or empties an existing one (`exists`).
    ///
    /// # Errors
    /// The file cannot be created or opened.
    fn open_file(
        &self,
        dir: &Self::Dir,
        name: &[u8],
        want: &Attributes,
        exists: bool,
    ) -> Result<Self::File>;

    /// True if files of the target can share blocks with this source file.
    fn can_share(&self, _source: FileId) -> bool {
        false
    }

    /// Makes an empty file a copy of the source that shares its blocks.
    ///
    /// # Errors
    /// The blocks cannot be shared.
    fn share(&self, _file: &Self::File, _source: FileId) -> Result<()> {
        refused("blocks are shared on one volume only")
    }

    /// Writes to the file.
    ///
    /// # Errors
    /// The file cannot be written.
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> Result<()>;

    /// Sets the length of the file, and its attributes if the file is new or `want` contains more
    /// than a mode.
    ///
    /// # Errors
    /// Length or attributes cannot be set.
    fn finish_file(&self, file: Self::File, size: u64, want: &Attributes) -> Result<()>;

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// The link cannot be created.
    fn make_symlink(
        &self,
        dir: &Self::Dir,
        name: &[u8],
        target: &[u8],
        want: &Attributes,
    ) -> Result<()>;

    /// Creates a device, FIFO or socket.
    ///
    /// # Errors
    /// The file cannot be created.
    fn make_special(
        &self,
        dir: &Self::Dir,
        name: &[u8],
        info: &FileInfo,
        want: &Attributes,
    ) -> Result<()>;

    /// Returns what [`TargetTree::link`] needs to give this file a further name.
    ///
    /// # Errors
    /// The file cannot be found.
    fn link_handle(&self, dir: &Self::Dir, name: &[u8]) -> Result<Self::LinkHandle>;

    /// Gives a file a further name.
    ///
    /// # Errors
    /// The link cannot be created.
    fn link(&self, link_handle: &Self::LinkHandle, dir: &Self::Dir, name: &[u8]) -> Result<()>;

    /// Removes a file that is not a directory.
    ///
    /// # Errors
    /// The file cannot be removed.
    fn remove(&self, dir: &Self::Dir, name: &[u8]) -> Result<()>;
}
