//! The types of files that rules distinguish.

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file, `--` in a rule.
    File,
    /// Directory, `-d`.
    Dir,
    /// Symbolic link, `-l`.
    Symlink,
    /// Character device, `-c`.
    Char,
    /// Block device, `-b`.
    Block,
    /// Named pipe, `-p`.
    Fifo,
    /// Socket, `-s`.
    Socket,
}

impl FileKind {
    /// The type of a mode's type bits (`S_IFMT`), `None` if Linux has no such type.
    pub fn of_mode(mode: u32) -> Option<Self> {
        match mode & 0o170_000 {
            0o100_000 => Some(Self::File),
            0o040_000 => Some(Self::Dir),
            0o120_000 => Some(Self::Symlink),
            0o020_000 => Some(Self::Char),
            0o060_000 => Some(Self::Block),
            0o010_000 => Some(Self::Fifo),
            0o140_000 => Some(Self::Socket),
            _ => None,
        }
    }

    /// The type that a rule's letter stands for.
    pub(crate) fn of_rule(field: &[u8]) -> Option<Self> {
        Some(match field {
            b"--" => Self::File,
            b"-d" => Self::Dir,
            b"-l" => Self::Symlink,
            b"-c" => Self::Char,
            b"-b" => Self::Block,
            b"-p" => Self::Fifo,
            b"-s" => Self::Socket,
            _ => return None,
        })
    }
}
