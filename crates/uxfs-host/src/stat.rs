//! Metadata of the host's files.
//!
//! 1. Systems other than Unix have no owners, modes and device numbers. There a file belongs to
//!    0:0, a directory has the mode 0755, a file 0644, or 0444 if it is read-only, and each file
//!    counts as having one name.

use std::fs::{FileType, Metadata};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What copies to this system leave out, if anything.
pub const LEFT_OUT: Option<&str> = if cfg!(target_os = "linux") {
    None
} else if cfg!(unix) {
    Some("extended attributes and holes are not written on this system")
} else {
    Some("owners, modes, extended attributes and holes are not written on this system")
};

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Character device.
    Char,
    /// Block device.
    Block,
    /// FIFO.
    Fifo,
    /// Socket.
    Socket,
    /// Something that only this host knows.
    Other,
}

/// A moment: seconds since 1970, and nanoseconds after them.
type Moment = (i64, u32);

/// What the host tells of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Type of the file.
    pub kind: Type,
    /// Permissions with set-ID and sticky bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Bytes that it takes on the host's disk.
    pub stored: u64,
    /// Number of names.
    pub links: u32,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
    /// Number of the device and of the file on it, if the host numbers files.
    pub id: Option<(u64, u64)>,
    /// Access time.
    pub atime: Moment,
    /// Modification time.
    pub mtime: Moment,
    /// Time of the last change of the metadata, if the host keeps it.
    pub ctime: Option<Moment>,
    /// Time of creation, if the host keeps it.
    pub created: Option<Moment>,
}

/// A time of the host with nanoseconds that count forward, also before 1970.
fn moment(time: SystemTime) -> Moment {
    let secs = |secs: u64| i64::try_from(secs).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (secs(after.as_secs()), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            match before.subsec_nanos() {
                0 => (-secs(before.as_secs()), 0),
                nanos => (-secs(before.as_secs()) - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

/// Is it a block device?
pub fn is_block_device(kind: FileType) -> bool {
    #[cfg(unix)]
    return std::os::unix::fs::FileTypeExt::is_block_device(&kind);
    #[cfg(not(unix))]
    return {
        let _ = kind;
        false
    };
}

/// Tells files of the host apart, whatever path leads to them. Where the host numbers files, it is
/// the numbers of device and file; elsewhere a number of the full path, so that two names of one
/// file count as two files.
pub fn id_of(path: &Path, meta: &Metadata) -> (u64, u64) {
    #[cfg(unix)]
    return {
        use std::os::unix::fs::MetadataExt;
        let _ = path;
        (meta.dev(), meta.ino())
    };
    #[cfg(not(unix))]
    return {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let _ = meta;
        let mut hasher = DefaultHasher::new();
        path.canonicalize().unwrap_or_else(|_| path.to_owned()).hash(&mut hasher);
        (0, hasher.finish())
    };
}

impl Stat {
    /// What this metadata tells.
    #[cfg(unix)]
    pub fn of(meta: &Metadata) -> Self {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        let kind = match meta.file_type() {
            kind if kind.is_file() => Type::File,
            kind if kind.is_dir() => Type::Dir,
            kind if kind.is_symlink() => Type::Symlink,
            kind if kind.is_char_device() => Type::Char,
            kind if kind.is_block_device() => Type::Block,
            kind if kind.is_fifo() => Type::Fifo,
            kind if kind.is_socket() => Type::Socket,
            _ => Type::Other,
        };
        // The nanoseconds are below 1,000,000,000.
        let nsec = |nsec: i64| u32::try_from(nsec).unwrap_or(0);
        Self {
            kind,
            mode: (meta.mode() & 0o7777) as u16,
            uid: meta.uid(),
            gid: meta.gid(),
            size: meta.len(),
            stored: meta.blocks().saturating_mul(512),
            links: u32::try_from(meta.nlink()).unwrap_or(u32::MAX),
            rdev: device(meta.rdev()),
            id: Some((meta.dev(), meta.ino())),
            atime: (meta.atime(), nsec(meta.atime_nsec())),
            mtime: (meta.mtime(), nsec(meta.mtime_nsec())),
            ctime: Some((meta.ctime(), nsec(meta.ctime_nsec()))),
            created: meta.created().ok().map(moment),
        }
    }

    /// What this metadata tells, with the values of invariant 1 for what it does not.
    #[cfg(not(unix))]
    pub fn of(meta: &Metadata) -> Self {
        let (kind, mode) = match meta.file_type() {
            kind if kind.is_symlink() => (Type::Symlink, 0o777),
            kind if kind.is_dir() => (Type::Dir, 0o755),
            kind if kind.is_file() && meta.permissions().readonly() => (Type::File, 0o444),
            kind if kind.is_file() => (Type::File, 0o644),
            _ => (Type::Other, 0o644),
        };
        let mtime = meta.modified().map_or((0, 0), moment);
        Self {
            kind,
            mode,
            uid: 0,
            gid: 0,
            size: meta.len(),
            stored: meta.len(),
            links: 1,
            rdev: (0, 0),
            id: None,
            atime: meta.accessed().map_or(mtime, moment),
            mtime,
            ctime: None,
            created: meta.created().ok().map(moment),
        }
    }
}

/// Major and minor number of a device.
#[cfg(target_os = "linux")]
fn device(number: u64) -> (u32, u32) {
    (rustix::fs::major(number), rustix::fs::minor(number))
}

/// Major and minor number of a device, as BSD packs them.
#[cfg(all(unix, not(target_os = "linux")))]
fn device(number: u64) -> (u32, u32) {
    ((number >> 24 & 0xff) as u32, (number & 0xff_ffff) as u32)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_count_forward_before_1970() {
        let half = Duration::from_millis(1500);
        assert_eq!(moment(UNIX_EPOCH + half), (1, 500_000_000));
        assert_eq!(moment(UNIX_EPOCH - half), (-2, 500_000_000));
        assert_eq!(moment(UNIX_EPOCH - Duration::from_secs(3)), (-3, 0));
    }

    #[test]
    fn a_file_and_its_directory_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"12345").unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        let (file, above) = (Stat::of(&meta), Stat::of(&std::fs::metadata(dir.path()).unwrap()));
        assert_eq!((file.kind, file.size, file.links), (Type::File, 5, 1));
        assert_eq!(above.kind, Type::Dir);
        assert_eq!(id_of(&path, &meta), id_of(&dir.path().join("./file"), &meta));
        let all = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        assert!((all - 60..=all).contains(&file.mtime.0));
    }
}
