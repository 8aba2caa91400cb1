//! Operations on the space of files: sharing, and fallocate in all its modes.

use uxfs::{DefragOptions, Error, Fallocate, Xflags};
use uxfs_format::Ino;

use super::Run;
use super::content::Content;
use super::tree::Body;

const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

impl Run {
    fn content(&self, ino: Ino) -> &Content {
        match &self.tree.get(ino).body {
            Body::File(content) => content,
            _ => panic!("{ino:?} is no file"),
        }
    }

    fn content_mut(&mut self, ino: Ino) -> &mut Content {
        match &mut self.tree.get_mut(ino).body {
            Body::File(content) => content,
            _ => panic!("{ino:?} is no file"),
        }
    }

    /// An offset in a file of `size` bytes, mostly at the start of a block.
    fn place(&mut self, size: u64) -> u64 {
        let block = u64::from(self.tree.block_size);
        let at = self.rng.below(size.min(4 << 20) + 2 * block);
        if self.rng.once_in(8) { at } else { at - at % block }
    }

    /// A length in bytes, mostly of whole blocks.
    fn length(&mut self) -> u64 {
        let block = u64::from(self.tree.block_size);
        let most = if self.rng.once_in(5) { 100 } else { 12 };
        let len = 1 + self.rng.below(most * block);
        if self.rng.once_in(6) { len } else { len.next_multiple_of(block) }
    }

    pub(super) fn share(&mut self) {
        let (Some(from), Some(to)) = (self.file(), self.file()) else { return };
        let (source, target) = (self.content(from).size, self.content(to).size);
        let whole = self.rng.once_in(3);
        let (from_at, to_at, len) = match whole {
            true => (0, 0, 0),
            false => {
                let from_at = self.place(source);
                let to_at = if self.rng.once_in(4) { target } else { self.place(target) };
                let len = match self.rng.below(4) {
                    0 => source.saturating_sub(from_at),
                    _ => self.length(),
                };
                (from_at, to_at, len)
            }
        };
        let want = self.share_outcome((from, from_at, source), (to, to_at, target), len);
        let got = self.fs().share(from, from_at, to, to_at, len);
        let what = format!("share {from:?}+{from_at} as {to:?}+{to_at}, {len}");
        if let Err(Error::NoSpace) = got {
            self.resync(to);
            // The hint must be set before blocks are allocated.
            let told = self.fs().get_fsx(to).unwrap();
            let fsx = &mut self.tree.get_mut(to).fsx;
            fsx.cowextsize = told.cowextsize;
            fsx.xflags.set(Xflags::COWEXTSIZE, told.xflags.contains(Xflags::COWEXTSIZE));
        }
        if self.same(&what, got, want).is_none() {
            return;
        }
        let len = if len == 0 { source - from_at } else { len };
        if len == 0 {
            return;
        }
        let hint = self.tree.get(from).fsx.cowextsize;
        let all = from_at == 0 && to_at == 0 && len == source && len >= target;
        let fsx = &mut self.tree.get_mut(to).fsx;
        if all && hint != 0 && fsx.cowextsize == 0 {
            fsx.cowextsize = hint;
            fsx.xflags.insert(Xflags::COWEXTSIZE);
        }
        let part = self.content(from).part(from_at, len);
        self.content_mut(to).put(to_at, &part, len);
        self.tree.touch(to);
    }

    fn share_outcome(
        &self,
        (from, from_at, source): (Ino, u64, u64),
        (to, to_at, target): (Ino, u64, u64),
        len: u64,
    ) -> Option<i32> {
        let block = u64::from(self.tree.block_size);
        if !self.fs().geo.has_reflink() {
            return Some(EOPNOTSUPP);
        }
        if from_at > source {
            return Some(EINVAL);
        }
        let len = if len == 0 { source - from_at } else { len };
        if len == 0 {
            return None;
        }
        let (from_end, to_end) = (from_at + len, to_at + len);
        let ragged = len % block != 0 && (from_end != source || to_end < target);
        let (from_last, to_last) =
            (from_end.next_multiple_of(block), to_end.next_multiple_of(block));
        let overlap = from == to && from_at < to_last && to_at < from_last;
        let bad = from_at % block != 0 || to_at % block != 0 || from_end > source;
        (bad || ragged || overlap).then_some(EINVAL)
    }

    /// Moves a file, which changes nothing that the model knows.
    pub(super) fn defrag(&mut self) {
        let Some(ino) = self.file() else { return };
        let shared = self.rng.once_in(3);
        let got = self.fs().defrag(ino, DefragOptions { shared });
        self.same("defrag", got, None);
    }

    pub(super) fn fallocate(&mut self) {
        let Some(ino) = self.file() else { return };
        let block = u64::from(self.tree.block_size);
        let size = self.content(ino).size;
        let keep_size = self.rng.once_in(3);
        let mode = match self.rng.below(14) {
            0..=2 => Fallocate::Allocate { keep_size },
            3..=5 => Fallocate::PunchHole,
            6..=7 => Fallocate::ZeroRange { keep_size },
            8..=9 => Fallocate::CollapseRange,
            10..=11 => Fallocate::InsertRange,
            _ => Fallocate::Unshare { keep_size },
        };
        let (offset, len) = (self.place(size), self.length());
        let end = offset + len;
        let whole = offset % block == 0 && len % block == 0;
        let want = match mode {
            Fallocate::CollapseRange => (!whole || end >= size).then_some(EINVAL),
            Fallocate::InsertRange => (!whole || offset >= size).then_some(EINVAL),
            _ => None,
        };
        let got = self.fs().fallocate(ino, mode, offset, len);
        if let Err(Error::NoSpace) = got {
            self.resync(ino);
        }
        if self.same(&format!("{mode:?} {ino:?}+{offset}, {len}"), got, want).is_none() {
            return;
        }
        let content = self.content_mut(ino);
        match mode {
            Fallocate::PunchHole | Fallocate::ZeroRange { .. } => content.zero(offset, end),
            Fallocate::CollapseRange => content.collapse(offset, len),
            Fallocate::InsertRange => content.insert(offset, len),
            _ => {}
        }
        let grows = match mode {
            Fallocate::Allocate { keep_size }
            | Fallocate::ZeroRange { keep_size }
            | Fallocate::Unshare { keep_size } => !keep_size,
            _ => false,
        };
        if grows {
            content.size = content.size.max(end);
        }
        self.tree.touch(ino);
    }

    /// Copies a file's content and times into the model after an operation failed midway with ENOSPC.
    fn resync(&mut self, ino: Ino) {
        let stat = self.fs().stat(ino).unwrap();
        let mut content = Content::default();
        content.truncate(stat.size);
        let segments = self.fs().segments(ino).unwrap();
        let mut buf = vec![0; 1 << 16];
        for segment in segments.iter().filter(|s| s.device.is_some()) {
            let mut done = 0;
            while done < segment.len {
                let step = (segment.len - done).min(1 << 16) as usize;
                self.fs().read_at(ino, segment.offset + done, &mut buf[..step]).unwrap();
                content.write(segment.offset + done, &buf[..step]);
                done += step as u64;
            }
        }
        let node = self.tree.get_mut(ino);
        (node.mtime, node.ctime) = (stat.mtime, stat.ctime);
        node.body = Body::File(content);
    }
}
