//! Names and contents of a volume, as they are read from it.

use core::ops::ControlFlow;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use uxfs::Fs;
use uxfs::format::Ino;
use uxfs::format::inode::{S_IFDIR, S_IFLNK, S_IFMT};

use crate::sim::{PAGE, Page};

/// Bytes of one read.
const PIECE: usize = 64 << 10;

/// A file, directory or symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Dir(BTreeMap<String, Ino>),
    /// The length, and the pages that are not zero.
    File(u64, FxHashMap<u64, Page>),
    Symlink(Vec<u8>),
}

/// All that can be reached from the root.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) root: Ino,
    pub(super) seen: FxHashMap<Ino, Seen>,
}

impl Tree {
    pub(super) fn read(fs: &Fs) -> uxfs::Result<Self> {
        let mut tree = Self { root: fs.root(), seen: FxHashMap::default() };
        let mut found = vec![tree.root];
        while let Some(ino) = found.pop() {
            if tree.seen.contains_key(&ino) {
                continue;
            }
            let stat = fs.stat(ino)?;
            let seen = match stat.mode & S_IFMT {
                S_IFDIR => {
                    let names = names(fs, ino)?;
                    found.extend(names.values());
                    Seen::Dir(names)
                }
                S_IFLNK => Seen::Symlink(fs.readlink(ino)?),
                _ => Seen::File(stat.size, pages(fs, ino, stat.size)?),
            };
            tree.seen.insert(ino, seen);
        }
        Ok(tree)
    }
}

fn names(fs: &Fs, dir: Ino) -> uxfs::Result<BTreeMap<String, Ino>> {
    let mut names = BTreeMap::new();
    fs.read_dir(dir, 0, &mut |entry| {
        if !entry.is_dot() {
            names.insert(String::from_utf8_lossy(entry.name).into_owned(), entry.ino);
        }
        ControlFlow::Continue(())
    })?;
    Ok(names)
}

fn pages(fs: &Fs, ino: Ino, size: u64) -> uxfs::Result<FxHashMap<u64, Page>> {
    let mut pages = FxHashMap::default();
    let mut buf = vec![0; PIECE];
    for at in (0..size).step_by(PIECE) {
        let got = fs.read_at(ino, at, &mut buf)?;
        buf[got..].fill(0);
        for (number, page) in (at / PAGE as u64..).zip(buf.chunks(PAGE)) {
            let page = Page::of(page);
            if !page.is_zero() {
                pages.insert(number, page);
            }
        }
    }
    Ok(pages)
}
