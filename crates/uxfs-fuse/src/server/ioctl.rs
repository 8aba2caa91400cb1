//! The ioctls that FUSE lets through: flags, project, label.
//!
//! 1. Each one that changes something checks its caller. The kernel checks some of them since Linux 5.13, and
//!    forwards [`SETFLAGS32`] of a 64-bit program unchecked.

#![expect(clippy::host_endian_bytes, reason = "the kernel hands over the caller's memory")]

use std::ops::Range;

use uxfs::format::Ino;
use uxfs::{Fs, Fsx, Xflags};
use uxfs_transport::Errno;

use super::credentials::Credentials;
use super::outcome::Result;
use crate::volume::errno;

const GETFLAGS: u32 = 0x8008_6601;
const GETFLAGS32: u32 = 0x8004_6601;
const SETFLAGS: u32 = 0x4008_6602;
const SETFLAGS32: u32 = 0x4004_6602;
const GETVERSION: u32 = 0x8008_7601;
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;
const GETFSLABEL: u32 = 0x8100_9431;
const SETFSLABEL: u32 = 0x4100_9432;

/// uxfs' own, `_IO('U', 240)` and `_IO('U', 241)`, on any file or directory: everything done so far is in
/// order, or is on stable storage, when the call returns.
pub(super) const ORDER: u32 = 0x55f0;
pub(super) const DURABLE: u32 = 0x55f1;

/// Discards free space. It takes long and runs elsewhere ([`Trim`]).
pub(super) const FITRIM: u32 = 0xc018_5879;

/// The argument of FITRIM: `struct fstrim_range`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trim {
    pub(super) range: Range<u64>,
    /// Shorter free extents are not discarded.
    pub(super) least: u64,
}

impl Trim {
    /// Decodes the caller's memory. Root may do this, and the owner of the mount.
    pub(super) fn of(fs: &Fs, call: &Call<'_>) -> Result<Self> {
        if !call.who.is_root() && !call.who.owns_mount() {
            return Err(Errno::PERM);
        }
        let mut words = [0_u64; 3];
        let raw: &[u8; 24] = call.data.first_chunk().ok_or(Errno::INVAL)?;
        for (word, from) in words.iter_mut().zip(raw.chunks_exact(8)) {
            *word = u64::from_ne_bytes(from.try_into().unwrap_or_default());
        }
        let [start, len, least] = words;
        let block = u64::from(fs.geo.block_size);
        let group = block * u64::from(fs.geo.ag_blocks);
        let size = fs.geo.dblocks * block;
        if start >= size || least > group || len < block {
            return Err(Errno::INVAL);
        }
        Ok(Self { range: start..start.saturating_add(len).min(size), least })
    }

    /// The reply: the number of discarded bytes in place of the length.
    pub(super) fn answer(self, trimmed: u64) -> [u8; 24] {
        let mut raw = [0; 24];
        let words = [self.range.start, trimmed, self.least];
        for (to, word) in raw.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        raw
    }
}

/// The flags of `chattr`, and XFS' flags.
const FLAGS: [(u32, Xflags); 7] = [
    (0x8, Xflags::SYNC),
    (0x10, Xflags::IMMUTABLE),
    (0x20, Xflags::APPEND),
    (0x40, Xflags::NODUMP),
    (0x80, Xflags::NOATIME),
    (0x200_0000, Xflags::DAX),
    (0x2000_0000, Xflags::PROJINHERIT),
];

pub(super) struct Call<'a> {
    pub(super) cmd: u32,
    pub(super) data: &'a [u8],
    pub(super) out_size: usize,
    pub(super) who: Credentials,
}

/// Does the ioctl change attributes of the inode, at least ctime?
pub(super) fn changes_inode(cmd: u32) -> bool {
    matches!(cmd, SETFLAGS | SETFLAGS32 | FSSETXATTR)
}

/// Runs an ioctl. Returns its output.
pub(super) fn run(fs: &Fs, ino: Ino, call: &Call<'_>) -> Result<Vec<u8>> {
    let fail = |error: uxfs::Error| errno(&error);
    match call.cmd {
        GETFLAGS | GETFLAGS32 => {
            let flags = to_flags(fs.get_fsx(ino).map_err(fail)?.xflags);
            Ok(padded(&flags.to_ne_bytes(), call.out_size))
        }
        SETFLAGS | SETFLAGS32 => {
            let flags = u32::from_ne_bytes(*call.data.first_chunk().ok_or(Errno::INVAL)?);
            set_flags(fs, ino, flags, call.who)?;
            Ok(Vec::new())
        }
        GETVERSION => {
            let generation = fs.stat(ino).map_err(fail)?.generation;
            Ok(padded(&generation.to_ne_bytes(), call.out_size))
        }
        FSGETXATTR => Ok(padded(&to_bytes(&fs.get_fsx(ino).map_err(fail)?), call.out_size)),
        FSSETXATTR => {
            let raw = call.data.first_chunk().ok_or(Errno::INVAL)?;
            set_fsx(fs, ino, &from_bytes(raw), call.who)?;
            Ok(Vec::new())
        }
        GETFSLABEL => Ok(padded(&fs.statfs().label, call.out_size)),
        SETFSLABEL => {
            if !call.who.is_root() {
                return Err(Errno::PERM);
            }
            let label = call.data.split(|byte| *byte == 0).next().unwrap_or_default();
            fs.set_label(label).map_err(fail)?;
            Ok(Vec::new())
        }
        _ => Err(Errno::NOTTY),
    }
}

/// Fits the output to the caller's buffer.
fn padded(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(len, 0);
    padded
}

fn to_flags(xflags: Xflags) -> u32 {
    FLAGS.iter().filter(|(_, x)| xflags.contains(*x)).fold(0, |all, (flag, _)| all | flag)
}

fn set_flags(fs: &Fs, ino: Ino, flags: u32, who: Credentials) -> Result<()> {
    let known = FLAGS.iter().fold(0, |all, (flag, _)| all | flag);
    if flags & !known != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let mut fsx = fs.get_fsx(ino).map_err(|error| errno(&error))?;
    for (flag, xflag) in FLAGS {
        fsx.xflags.set(xflag, flags & flag != 0);
    }
    set_fsx(fs, ino, &fsx, who)
}

/// Changes flags, project and hints, if the caller may.
fn set_fsx(fs: &Fs, ino: Ino, to: &Fsx, who: Credentials) -> Result<()> {
    const PROTECTION: Xflags = Xflags::IMMUTABLE.union(Xflags::APPEND);
    let fail = |error: uxfs::Error| errno(&error);
    let changed = fs.get_fsx(ino).map_err(fail)?.xflags.symmetric_difference(to.xflags);
    let stat = fs.stat(ino).map_err(fail)?;
    if !who.may_set_flags(&stat, changed.intersects(PROTECTION)) {
        return Err(Errno::PERM);
    }
    fs.set_fsx(ino, to).map_err(fail)
}

fn to_bytes(fsx: &Fsx) -> [u8; 28] {
    let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let words = [
        fsx.xflags.bits(),
        small(fsx.extsize),
        small(fsx.nextents),
        fsx.projid,
        small(fsx.cowextsize),
    ];
    let mut raw = [0; 28];
    for (to, word) in raw.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    raw
}

fn from_bytes(raw: &[u8; 28]) -> Fsx {
    let mut words = [0_u32; 7];
    for (word, from) in words.iter_mut().zip(raw.chunks_exact(4)) {
        *word = u32::from_ne_bytes(from.try_into().unwrap_or_default());
    }
    Fsx {
        xflags: Xflags::from_bits_truncate(words[0]),
        extsize: words[1].into(),
        nextents: words[2].into(),
        projid: words[3],
        cowextsize: words[4].into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fsxattr_round_trips() {
        let fsx = Fsx {
            xflags: Xflags::IMMUTABLE | Xflags::EXTSIZE,
            extsize: 65536,
            nextents: 7,
            projid: 42,
            cowextsize: 4096,
        };
        assert_eq!(from_bytes(&to_bytes(&fsx)), fsx);
        assert_eq!(to_flags(Xflags::IMMUTABLE | Xflags::NODUMP), 0x50);
    }
}
