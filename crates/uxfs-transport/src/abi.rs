//! The wire format of FUSE 7.31 to 7.45: structures, operation codes, flags.
//!
//! 1. Every number is in the machine's byte order.
//! 2. A structure has no padding of the compiler's, so every byte of it can be read and sent.
//!
//! Source: `include/uapi/linux/fuse.h` of the kernel, for names, sizes and offsets.

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version of the protocol that this crate speaks.
pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 45;
/// The oldest minor version whose structures are those below (Linux 5.4).
pub(crate) const MINOR_OLDEST: u32 = 31;

/// Most bytes of content of a request or reply. The kernel's limit is 256 pages, unless root raises it.
pub(crate) const CONTENT_MAX: u32 = 1 << 20;
/// Bytes that a request needs at most besides the data of a write: header, structure, two names or
/// a name and a value.
pub(crate) const REQUEST_OVERHEAD: usize = 4096 + (64 << 10);

macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

wire! {
    InHeader = 40 {
        len: u32, opcode: u32, unique: u64, node: u64, uid: u32, gid: u32, pid: u32,
        extension_len: u16, unused: u16,
    }
    OutHeader = 16 { len: u32, error: i32, unique: u64, }
    /// What kernels since 5.17 send. Older ones send the first 16 bytes.
    InitIn = 64 { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11], }
    InitOut = 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16,
        unused: [u16; 11],
    }
    ForgetIn = 8 { count: u64, }
    BatchForgetIn = 8 { count: u32, unused: u32, }
    ForgetOne = 16 { node: u64, count: u64, }
    GetattrIn = 16 { flags: u32, unused: u32, handle: u64, }
    WireAttr = 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atime_nsec: u32,
        mtime_nsec: u32, ctime_nsec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32,
        blksize: u32, flags: u32,
    }
    AttrOut = 104 { valid: u64, valid_nsec: u32, unused: u32, attr: WireAttr, }
    EntryOut = 128 {
        node: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: WireAttr,
    }
    SetattrIn = 88 {
        valid: u32, unused: u32, handle: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64,
        ctime: u64, atime_nsec: u32, mtime_nsec: u32, ctime_nsec: u32, mode: u32, unused4: u32,
        uid: u32, gid: u32, unused5: u32,
    }
    MknodIn = 16 { mode: u32, rdev: u32, umask: u32, unused: u32, }
    MkdirIn = 8 { mode: u32, umask: u32, }
    RenameIn = 8 { to: u64, }
    Rename2In = 16 { to: u64, flags: u32, unused: u32, }
    LinkIn = 8 { node: u64, }
    OpenIn = 8 { flags: u32, open_flags: u32, }
    OpenOut = 16 { handle: u64, flags: u32, backing: i32, }
    CreateIn = 16 { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    CreateOut = 144 { entry: EntryOut, open: OpenOut, }
    ReleaseIn = 24 { handle: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    FlushIn = 24 { handle: u64, unused: u32, unused2: u32, lock_owner: u64, }
    ReadIn = 40 {
        handle: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        unused: u32,
    }
    WriteIn = 40 {
        handle: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        unused: u32,
    }
    WriteOut = 8 { size: u32, unused: u32, }
    StatfsOut = 80 {
        blocks: u64, free: u64, available: u64, files: u64, files_free: u64, block_size: u32,
        name_max: u32, fragment_size: u32, unused: u32, spare: [u32; 6],
    }
    FsyncIn = 16 { handle: u64, flags: u32, unused: u32, }
    SetxattrIn = 8 { size: u32, flags: u32, }
    GetxattrIn = 8 { size: u32, unused: u32, }
    GetxattrOut = 8 { size: u32, unused: u32, }
    AccessIn = 8 { mask: u32, unused: u32, }
    IoctlIn = 32 { handle: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
    IoctlOut = 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    FallocateIn = 32 { handle: u64, offset: u64, len: u64, mode: u32, unused: u32, }
    LseekIn = 24 { handle: u64, offset: u64, whence: u32, unused: u32, }
    LseekOut = 8 { offset: u64, }
    CopyFileRangeIn = 56 {
        from: u64, from_at: u64, to_node: u64, to: u64, to_at: u64, len: u64, flags: u64,
    }
    SyncfsIn = 8 { unused: u64, }
    StatxIn = 24 { getattr_flags: u32, unused: u32, handle: u64, flags: u32, mask: u32, }
    StatxTime = 16 { sec: i64, nsec: u32, unused: i32, }
    StatxOut = 288 {
        valid: u64, valid_nsec: u32, flags: u32, spare: [u64; 2], mask: u32, blksize: u32,
        attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, unused: u16, ino: u64,
        size: u64, blocks: u64, attributes_mask: u64, atime: StatxTime, btime: StatxTime,
        ctime: StatxTime, mtime: StatxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32,
        dev_minor: u32, spare2: [u64; 14],
    }
    Dirent = 24 { ino: u64, next: u64, name_len: u32, kind: u32, }
    InvalInodeOut = 24 { node: u64, offset: i64, len: i64, }
    /// Before each request and each reply of a ring's entry.
    RingHeader = 288 {
        in_out: [u64; 16], op_in: [u64; 16], flags: u64, commit_id: u64, payload_size: u32,
        unused: u32, reserved: u64,
    }
    /// The command area of a ring's submission.
    RingCommand = 80 { flags: u64, commit_id: u64, queue: u16, unused: [u16; 3], rest: [u64; 7], }
}

impl RingHeader {
    /// The request's header.
    pub(crate) fn request(&self) -> InHeader {
        InHeader::read_from_prefix(self.in_out.as_bytes())
            .map_or_else(|_| InHeader::default(), |(head, _)| head)
    }

    /// Sets the reply's header and the length of its payload.
    pub(crate) fn set_reply(&mut self, head: OutHeader, payload_size: u32) {
        let to = self.in_out.as_mut_bytes();
        to[..size_of::<OutHeader>()].copy_from_slice(head.as_bytes());
        self.payload_size = payload_size;
    }
}

/// Commands of a ring's submissions.
pub(crate) const RING_REGISTER: u32 = 1;
pub(crate) const RING_COMMIT_AND_FETCH: u32 = 2;

/// Codes of notifications.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;

/// The bit of [`FsyncIn::flags`] that only data must become durable.
pub(crate) const FSYNC_DATA: u32 = 1;

macro_rules! opcodes {
    ($($name:ident = $code:literal, $fixed:expr;)*) => {
        /// Operation codes.
        pub(crate) mod op {
            $(pub(crate) const $name: u32 = $code;)*
        }

        /// Bytes of the structure before the variable part of a request; `None` if the operation
        /// is unknown.
        pub(crate) fn fixed_len(opcode: u32) -> Option<usize> {
            Some(match opcode {
                $($code => $fixed,)*
                _ => return None,
            })
        }

        /// The protocol's name of an operation; `None` if it is unknown.
        pub(crate) fn kind(opcode: u32) -> Option<&'static str> {
            Some(match opcode {
                $($code => stringify!($name),)*
                _ => return None,
            })
        }

        /// Operation codes are below this number.
        pub(crate) const OPCODES: usize = {
            let mut end = 0;
            $(if $code >= end { end = $code + 1; })*
            end
        };
    };
}

opcodes! {
    LOOKUP = 1, 0;
    FORGET = 2, size_of::<ForgetIn>();
    GETATTR = 3, size_of::<GetattrIn>();
    SETATTR = 4, size_of::<SetattrIn>();
    READLINK = 5, 0;
    SYMLINK = 6, 0;
    MKNOD = 8, size_of::<MknodIn>();
    MKDIR = 9, size_of::<MkdirIn>();
    UNLINK = 10, 0;
    RMDIR = 11, 0;
    RENAME = 12, size_of::<RenameIn>();
    LINK = 13, size_of::<LinkIn>();
    OPEN = 14, size_of::<OpenIn>();
    READ = 15, size_of::<ReadIn>();
    WRITE = 16, size_of::<WriteIn>();
    STATFS = 17, 0;
    RELEASE = 18, size_of::<ReleaseIn>();
    FSYNC = 20, size_of::<FsyncIn>();
    SETXATTR = 21, size_of::<SetxattrIn>();
    GETXATTR = 22, size_of::<GetxattrIn>();
    LISTXATTR = 23, size_of::<GetxattrIn>();
    REMOVEXATTR = 24, 0;
    FLUSH = 25, size_of::<FlushIn>();
    INIT = 26, 0;
    OPENDIR = 27, size_of::<OpenIn>();
    READDIR = 28, size_of::<ReadIn>();
    RELEASEDIR = 29, size_of::<ReleaseIn>();
    FSYNCDIR = 30, size_of::<FsyncIn>();
    ACCESS = 34, size_of::<AccessIn>();
    CREATE = 35, size_of::<CreateIn>();
    INTERRUPT = 36, 0;
    DESTROY = 38, 0;
    IOCTL = 39, size_of::<IoctlIn>();
    BATCH_FORGET = 42, size_of::<BatchForgetIn>();
    FALLOCATE = 43, size_of::<FallocateIn>();
    READDIRPLUS = 44, size_of::<ReadIn>();
    RENAME2 = 45, size_of::<Rename2In>();
    LSEEK = 46, size_of::<LseekIn>();
    COPY_FILE_RANGE = 47, size_of::<CopyFileRangeIn>();
    SYNCFS = 50, size_of::<SyncfsIn>();
    TMPFILE = 51, size_of::<CreateIn>();
    STATX = 52, size_of::<StatxIn>();
}

bitflags! {
    /// What the kernel offers, and what a server asks for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Capabilities: u64 {
        /// Several reads of one file at once.
        const ASYNC_READ = 1 << 0;
        /// Handles of files, for NFS.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than 4 KiB.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask.
        const DONT_MASK = 1 << 6;
        /// Directories take ioctls.
        const HAS_IOCTL_DIR = 1 << 11;
        /// Listings return attributes too.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel decides whether a listing returns attributes.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Lookups and listings of one directory at once.
        const PARALLEL_DIROPS = 1 << 18;
        /// The kernel enforces access lists.
        const POSIX_ACL = 1 << 20;
        /// `max_pages` counts.
        const MAX_PAGES = 1 << 22;
        /// The kernel caches targets of symbolic links.
        const CACHE_SYMLINKS = 1 << 23;
        /// The server invalidates cached data; the kernel does not by itself.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The server removes set-ID bits and capabilities, where a request says so.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// `flags2` counts.
        const INIT_EXT = 1 << 30;
        /// Requests and replies over io_uring.
        const OVER_IO_URING = 1 << 41;
    }

    /// Flags of an opened file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenedFlags: u32 {
        /// The kernel keeps what it has cached of the file.
        const KEEP_CACHE = 1 << 1;
        /// The kernel caches the entries of the directory.
        const CACHE_DIR = 1 << 3;
        /// The kernel sends no request when the file is closed.
        const NO_FLUSH = 1 << 5;
    }

    /// Fields that a request to change attributes sets.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct SetattrValid: u32 {
        const MODE = 1 << 0;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const HANDLE = 1 << 6;
        const ATIME_NOW = 1 << 7;
        const MTIME_NOW = 1 << 8;
        const KILL_PRIVILEGES = 1 << 11;
    }
}
