//! Flags and hints of files: set, inherited, and enforced.

use uxfs::{Fallocate, Fsx, NewInode, SetAttr, XattrMode, Xflags};
use uxfs_format::inode::{S_IFDIR, S_IFMT, S_IFREG};

use super::Run;
use super::tree::Body;

const EPERM: i32 = 1;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

/// The flags and hints that a new file inherits.
pub(super) fn inherited(dir: &Fsx, mode: u16) -> Fsx {
    let mut fsx = Fsx::default();
    let kind = mode & S_IFMT;
    if !matches!(kind, S_IFREG | S_IFDIR) {
        return fsx;
    }
    let plain = Xflags::NOATIME | Xflags::NODUMP | Xflags::SYNC | Xflags::NODEFRAG;
    fsx.xflags = dir.xflags & (plain | Xflags::COWEXTSIZE);
    fsx.cowextsize = dir.cowextsize;
    if dir.xflags.contains(Xflags::EXTSZINHERIT) {
        fsx.extsize = dir.extsize;
        fsx.xflags |= if kind == S_IFDIR { Xflags::EXTSZINHERIT } else { Xflags::EXTSIZE };
    }
    fsx
}

impl Run {
    pub(super) fn set_hints(&mut self) {
        let ino = if self.rng.once_in(2) { self.dir() } else { self.any() };
        let block = u64::from(self.tree.block_size);
        let dir = self.tree.is_dir(ino);
        let reg = matches!(self.tree.get(ino).body, Body::File(_));
        let mut fsx = Fsx { projid: self.tree.get(ino).projid, ..Fsx::default() };
        for flag in [Xflags::NOATIME, Xflags::NODUMP, Xflags::SYNC, Xflags::NODEFRAG] {
            fsx.xflags.set(flag, self.rng.once_in(3));
        }
        let sizes = [0, 0, 1, 3, 4, 16, 40];
        fsx.extsize = sizes[self.rng.index(7)] * block;
        fsx.cowextsize = sizes[self.rng.index(7)] * block;
        fsx.xflags.set(Xflags::EXTSIZE, reg && fsx.extsize != 0);
        fsx.xflags.set(Xflags::EXTSZINHERIT, dir && fsx.extsize != 0);
        fsx.xflags.set(Xflags::COWEXTSIZE, fsx.cowextsize != 0);
        let old = self.fs().get_fsx(ino).unwrap();
        let misplaced = !dir && !reg && (fsx.extsize != 0 || fsx.cowextsize != 0);
        let cow = fsx.cowextsize != 0 && !self.fs().geo.has_reflink();
        let late = reg && old.nextents > 0 && old.extsize != fsx.extsize;
        let want = (misplaced || cow || late).then_some(EINVAL);
        let got = self.fs().set_fsx(ino, &fsx);
        if self.same(&format!("set_fsx {ino:?} {fsx:?}"), got, want).is_some() {
            self.tree.get_mut(ino).fsx = fsx;
            self.tree.change(ino);
        }
    }

    /// An immutable or append-only file refuses the forbidden operations.
    pub(super) fn freeze(&mut self) {
        let ino = self.any();
        let node = self.tree.get(ino);
        let old = Fsx { projid: node.projid, ..node.fsx };
        let append = self.rng.once_in(2);
        let flag = if append { Xflags::APPEND } else { Xflags::IMMUTABLE };
        let frozen = Fsx { xflags: old.xflags | flag, ..old };
        let got = self.fs().set_fsx(ino, &frozen);
        if self.same("freeze", got, None).is_none() {
            return;
        }
        let change = SetAttr { uid: Some(1), ..SetAttr::default() };
        let mut refused = vec![
            ("set_attr", self.fs().set_attr(ino, &change)),
            ("set_xattr", self.fs().set_xattr(ino, b"user.x", b"", XattrMode::Any)),
            ("remove_xattr", self.fs().remove_xattr(ino, b"user.x")),
        ];
        if let Body::File(content) = &self.tree.get(ino).body {
            let size = content.size;
            refused.push(("truncate", self.fs().truncate(ino, size / 2)));
            refused.push(("punch", self.fs().fallocate(ino, Fallocate::PunchHole, 0, 4096)));
            refused.push(("write", self.fs().write_at(ino, size + 1, b"x")));
            if !append {
                let mode = Fallocate::Allocate { keep_size: true };
                refused.push(("allocate", self.fs().fallocate(ino, mode, 0, 4096)));
                refused.push(("append", self.fs().write_at(ino, size, b"x")));
            }
        }
        let root = self.tree.root;
        if self.tree.is_dir(ino) {
            if let Some(name) = self.tree.entries(ino).keys().next().cloned() {
                let kept = self.fs().rename(ino, &name, root, b"never", Default::default());
                refused.push(("rename out", kept));
                refused.push(("unlink", self.fs().unlink(ino, &name)));
            }
            if !append {
                let made = self.fs().create(ino, b"never", &NewInode::file(0));
                refused.push(("create", made.map(drop)));
            }
        } else {
            refused.push(("link", self.fs().link(ino, root, b"never")));
        }
        for (what, got) in refused {
            // ENOSPC may be reported first.
            let errno = got.as_ref().err().map(uxfs::Error::errno);
            assert!(
                matches!(errno, Some(EPERM | ENOSPC)),
                "{}: {what} of {flag:?}: {got:?}",
                self.at()
            );
        }
        self.fs().set_fsx(ino, &old).unwrap();
        self.tree.change(ino);
    }
}
