//! File modes: formats them as letters, and parses `chmod`'s modes.

use uxfs::format::inode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};

/// The mode as letters, such as `drwxr-xr-x`.
pub(crate) fn letters(mode: u16) -> String {
    let mut text = String::with_capacity(10);
    text.push(match mode & S_IFMT {
        S_IFREG => '-',
        other => type_letter(other),
    });
    for (shift, special, set, unset) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// The letter of a file type in `find -type`.
pub(crate) fn type_letter(mode: u16) -> char {
    match mode & S_IFMT {
        S_IFREG => 'f',
        S_IFDIR => 'd',
        S_IFLNK => 'l',
        S_IFCHR => 'c',
        S_IFBLK => 'b',
        S_IFIFO => 'p',
        S_IFSOCK => 's',
        _ => '?',
    }
}

/// The file type in `stat`'s words.
pub(crate) fn type_words(mode: u16, size: u64) -> &'static str {
    match mode & S_IFMT {
        S_IFREG if size == 0 => "regular empty file",
        S_IFREG => "regular file",
        S_IFDIR => "directory",
        S_IFLNK => "symbolic link",
        S_IFCHR => "character special file",
        S_IFBLK => "block special file",
        S_IFIFO => "fifo",
        S_IFSOCK => "socket",
        _ => "weird file",
    }
}

/// A change of permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Sets exactly these permissions; with `true`, directories keep their set-ID bits.
    Octal(u16, bool),
    /// Applies the steps in order.
    Symbolic(Vec<Step>),
}

/// One `u+x` of a symbolic mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Bits of the classes it changes: user `0o4700`, group `0o2070`, others `0o1007`; 0 if the step
    /// names no class.
    who: u16,
    operator: char,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// Permissions out of `rwxXst`.
    Bits { rwx: u16, big_x: bool, set_id: bool, sticky: bool },
    /// The permissions of user, group or others, given as the right shift of their bits.
    Copy(u16),
}

const USER: u16 = 0o4700;
const GROUP: u16 = 0o2070;
const OTHER: u16 = 0o1007;
const ALL: u16 = 0o7777;

impl Change {
    /// Parses `755`, `u+rwx,go=`, `a+X`, `g=u`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= ALL)?;
            // With five or more digits, GNU chmod also clears a directory's set-ID bits.
            return Some(Self::Octal(mode, text.len() < 5));
        }
        let mut steps = Vec::new();
        for clause in text.split(',') {
            steps.extend(clause_steps(clause)?);
        }
        Some(Self::Symbolic(steps))
    }

    /// The new permissions of a file with `mode`, which includes the file type.
    pub(crate) fn apply(&self, mode: u16, umask: u16) -> u16 {
        let is_dir = mode & S_IFMT == S_IFDIR;
        let old = mode & ALL;
        match self {
            Self::Octal(new, keep) => new | if *keep && is_dir { old & 0o6000 } else { 0 },
            Self::Symbolic(steps) => {
                steps.iter().fold(old, |mode, step| step.apply(mode, is_dir, umask))
            }
        }
    }
}

fn clause_steps(clause: &str) -> Option<Vec<Step>> {
    let rest = clause.trim_start_matches(['u', 'g', 'o', 'a']);
    let who = clause[..clause.len() - rest.len()].chars().fold(0, |bits, c| {
        bits | match c {
            'u' => USER,
            'g' => GROUP,
            'o' => OTHER,
            _ => ALL,
        }
    });
    let mut steps = Vec::new();
    let mut rest = rest;
    while !rest.is_empty() {
        let operator = rest.chars().next().filter(|c| "+-=".contains(*c))?;
        rest = &rest[1..];
        let end = rest.find(['+', '-', '=']).unwrap_or(rest.len());
        steps.push(Step { who, operator, what: what(&rest[..end])? });
        rest = &rest[end..];
    }
    (!steps.is_empty()).then_some(steps)
}

fn what(text: &str) -> Option<What> {
    match text {
        "u" => return Some(What::Copy(6)),
        "g" => return Some(What::Copy(3)),
        "o" => return Some(What::Copy(0)),
        _ => {}
    }
    let (mut rwx, mut big_x, mut set_id, mut sticky) = (0, false, false, false);
    for letter in text.chars() {
        match letter {
            'r' => rwx |= 0o444,
            'w' => rwx |= 0o222,
            'x' => rwx |= 0o111,
            'X' => big_x = true,
            's' => set_id = true,
            't' => sticky = true,
            _ => return None,
        }
    }
    Some(What::Bits { rwx, big_x, set_id, sticky })
}

impl Step {
    fn apply(&self, old: u16, is_dir: bool, umask: u16) -> u16 {
        let mut value = match &self.what {
            What::Copy(shift) => (old >> shift & 7) * 0o111,
            What::Bits { rwx, big_x, set_id, sticky } => {
                let x = *big_x && (is_dir || old & 0o111 != 0);
                let id = if *set_id { 0o6000 } else { 0 };
                rwx | if x { 0o111 } else { 0 } | id | if *sticky { 0o1000 } else { 0 }
            }
        };
        let who = if self.who == 0 { ALL } else { self.who };
        value &= if self.who == 0 { !(umask & 0o777) } else { who };
        match self.operator {
            '+' => old | value,
            '-' => old & !value,
            _ => {
                // "=" keeps a directory's set-ID bits unless it names them.
                let kept = if is_dir { 0o6000 & !value } else { 0 };
                old & (!who | kept) | value
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_become_letters() {
        assert_eq!(letters(S_IFDIR | 0o1777), "drwxrwxrwt");
        assert_eq!(letters(S_IFREG | 0o4644), "-rwSr--r--");
        assert_eq!(letters(S_IFSOCK | 0o2755), "srwxr-sr-x");
    }

    #[test]
    fn mode_changes_apply_as_in_chmod() {
        let after = |text: &str, mode: u16| Change::parse(text).map(|c| c.apply(mode, 0o022));
        let (file, dir) = (S_IFREG | 0o644, S_IFDIR | 0o2755);
        assert_eq!(after("755", file), Some(0o755));
        assert_eq!(after("755", dir), Some(0o2755));
        assert_eq!(after("00755", dir), Some(0o755));
        assert_eq!(after("u+x,go-r", file), Some(0o700));
        assert_eq!(after("+w", file), Some(0o644));
        assert_eq!(after("a+w", file), Some(0o666));
        assert_eq!(after("g=u", file), Some(0o664));
        assert_eq!(after("a+X", file), Some(0o644));
        assert_eq!(after("u=rwx,g=,o=", file), Some(0o700));
        assert_eq!(after("u+s,o+t", file), Some(0o5644));
        assert_eq!(after("u+x-r", file), Some(0o344));
        for bad in ["", "u", "u+q", "9", "77777", "u+x,", "z+x"] {
            assert_eq!(after(bad, file), None, "{bad}");
        }
    }
}
