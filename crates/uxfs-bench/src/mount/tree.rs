//! The tree of source files that programs work on: a tarball that the user gave, or one made from a
//! seed.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use uxfs_testkit::Rng;

use crate::host::{Scratch, read_into_cache, run};
use crate::{BenchError, Result};

/// Files and directories of the made tree.
const FILES: usize = 8000;
const DIRS: usize = 520;
/// Most directories above a file.
const DEPTH: usize = 8;
const SEED: u64 = 18;

/// Sizes of files of Linux 6.1: the shortest, then the longest of each twentieth. The last is set so
/// that the mean is Linux', 16.5 KB.
const SIZES: [u64; 21] = [
    0, 254, 445, 687, 959, 1280, 1621, 2038, 2525, 3129, 3873, 4787, 5909, 7263, 9044, 11416,
    14832, 19904, 28758, 48085, 328_000,
];

const TOPS: [&str; 9] =
    ["Documentation", "arch", "drivers", "fs", "include", "kernel", "net", "sound", "tools"];
const WORDS: [&str; 24] = [
    "struct", "int", "return", "static", "const", "void", "unsigned", "if", "for", "while", "dev",
    "page", "inode", "lock", "queue", "buffer", "flags", "state", "index", "ret", "err", "size",
    "offset", "count",
];

/// The directory whose files git takes, if there is one.
const GIT: &str = "fs";

pub(super) struct Tree {
    pub(super) tar: PathBuf,
    /// What it is, for titles.
    pub(super) what: String,
    pub(super) files: u64,
    /// The directory that git takes, as in the tarball, and its files.
    pub(super) git: PathBuf,
    pub(super) git_files: u64,
}

impl Tree {
    /// The given tarball, or a made one.
    pub(super) fn new(given: Option<&Path>, scratch: &Scratch) -> Result<Self> {
        let tar = match given {
            Some(tar) => tar.to_owned(),
            None => make(scratch)?,
        };
        // Its content is in the page cache before the first row.
        let bytes = read_into_cache(&tar)?;
        let members = run("tar", &[&"-tf", &tar])?;
        let (files, git, git_files) = survey(&members);
        let name = tar.file_name().unwrap_or_default().display();
        let origin = match given {
            Some(_) => name.to_string(),
            None => format!("a tree made from seed {SEED} with sizes as in Linux"),
        };
        let what = format!("{origin}: {files} files, {} MB", bytes / 1_000_000);
        if files == 0 {
            return Err(BenchError::new(tar.display().to_string(), "holds no file"));
        }
        Ok(Self { tar, what, files, git, git_files })
    }
}

/// Number of files, the directory for git, and its number of files, from a tarball's list of members.
fn survey(members: &str) -> (u64, PathBuf, u64) {
    let files = || members.lines().filter(|member| !member.ends_with('/')).map(Path::new);
    let above = |file: &Path| {
        let named = |dir: &&Path| dir.file_name().is_some_and(|name| name == GIT);
        file.ancestors().skip(1).filter(named).last().map(Path::to_owned)
    };
    let git = files().filter_map(above).min_by_key(|dir| dir.components().count());
    let git = git.unwrap_or_default();
    let git_files = files().filter(|file| file.starts_with(&git)).count() as u64;
    (files().count() as u64, git, git_files)
}

/// Makes the tree and its tarball.
fn make(scratch: &Scratch) -> Result<PathBuf> {
    let (made, tar) = (scratch.file("made"), scratch.file("tree.tar"));
    let fail = |e: std::io::Error| BenchError::new(made.display().to_string(), e);
    let mut rng = Rng::new(SEED);
    let mut dirs: Vec<PathBuf> = TOPS.iter().map(|top| Path::new("linux").join(top)).collect();
    while dirs.len() < DIRS {
        let above = dirs[rng.index(dirs.len())].clone();
        if above.components().count() < DEPTH {
            dirs.push(above.join(format!("{}{}", word(&mut rng), dirs.len())));
        }
    }
    for dir in &dirs {
        std::fs::create_dir_all(made.join(dir)).map_err(fail)?;
    }
    for number in 0..FILES {
        let dir = &dirs[rng.index(dirs.len())];
        let path = made.join(dir).join(format!("{}-{number}.c", word(&mut rng)));
        let twentieth = rng.index(SIZES.len() - 1);
        let size = rng.range(SIZES[twentieth]..SIZES[twentieth + 1]);
        let mut file = BufWriter::new(File::create(path).map_err(fail)?);
        write_text(&mut file, size, &mut rng).and_then(|()| file.flush()).map_err(fail)?;
    }
    run("tar", &[&"-C", &made, &"--sort=name", &"-cf", &tar, &"linux"])?;
    std::fs::remove_dir_all(&made).map_err(fail)?;
    Ok(tar)
}

fn word(rng: &mut Rng) -> &'static str {
    WORDS[rng.index(WORDS.len())]
}

/// Writes text that compresses about as source does.
fn write_text(to: &mut impl Write, size: u64, rng: &mut Rng) -> std::io::Result<()> {
    let mut left = usize::try_from(size).unwrap_or(usize::MAX);
    let mut line = String::new();
    while left > 0 {
        line.clear();
        line.push('\t');
        for _ in 0..2 + rng.index(6) {
            line.push_str(word(rng));
            line.push(' ');
        }
        line.push_str(&format!("= {};\n", rng.below(1000)));
        let part = line.len().min(left);
        to.write_all(&line.as_bytes()[..part])?;
        left -= part;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_takes_the_uppermost_directory_of_its_name() {
        let members = "linux/\nlinux/a.c\nlinux/lib/fs/x.c\nlinux/fs/\nlinux/fs/xfs/fs/y.c\n\
                       linux/fs/z.c\n";
        assert_eq!(survey(members), (4, PathBuf::from("linux/fs"), 2));
        assert_eq!(survey("t/\nt/a\nt/fs\n"), (2, PathBuf::new(), 2), "a file is no directory");
    }

    #[test]
    fn made_files_have_their_size() {
        let mut text = Vec::new();
        write_text(&mut text, 1234, &mut Rng::new(1)).unwrap();
        assert_eq!(text.len(), 1234);
        assert!(text.iter().all(u8::is_ascii));
    }
}
