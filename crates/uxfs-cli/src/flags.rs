//! The letters of `chattr` and `lsattr` for inode flags.

use uxfs::Xflags;
use uxfs::format::inode::{S_IFDIR, S_IFMT, S_IFREG};

/// A letter, its column in a line of `lsattr`, the flag's name, and the flag.
struct Letter(char, usize, &'static str, Xflags);

const LETTERS: [Letter; 7] = [
    Letter('S', 2, "Synchronous_Updates", Xflags::SYNC),
    Letter('i', 4, "Immutable", Xflags::IMMUTABLE),
    Letter('a', 5, "Append_Only", Xflags::APPEND),
    Letter('d', 6, "No_Dump", Xflags::NODUMP),
    Letter('A', 7, "No_Atime", Xflags::NOATIME),
    Letter('x', 16, "DAX", Xflags::DAX),
    Letter('P', 19, "Project_Hierarchy", Xflags::PROJINHERIT),
];

/// Columns of the flags in a line of `lsattr`.
const WIDTH: usize = 22;

/// The flag of a letter, if XFS has it.
pub(crate) fn by_letter(letter: char) -> Option<Xflags> {
    LETTERS.iter().find(|l| l.0 == letter).map(|l| l.3)
}

/// All flags that have a letter.
pub(crate) fn all() -> Xflags {
    LETTERS.iter().fold(Xflags::empty(), |all, letter| all | letter.3)
}

/// The flags as `lsattr` prints them.
pub(crate) fn line(flags: Xflags) -> String {
    let mut line = ['-'; WIDTH];
    for Letter(letter, at, _, flag) in LETTERS {
        if flags.contains(flag) {
            line[at] = letter;
        }
    }
    line.into_iter().collect()
}

/// The flags by their names, as `lsattr -l` prints them.
pub(crate) fn names(flags: Xflags) -> String {
    let names: Vec<&str> = LETTERS.iter().filter(|l| flags.contains(l.3)).map(|l| l.2).collect();
    if names.is_empty() { "---".into() } else { names.join(", ") }
}

/// Can flags of files of this mode be read and set? Linux allows it for regular files and directories
/// only, because the tools open the file.
pub(crate) fn are_accessible(mode: u16) -> bool {
    matches!(mode & S_IFMT, S_IFREG | S_IFDIR)
}
