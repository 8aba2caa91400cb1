//! File data: writing, space, holes, copying.

use uxfs::format::Ino;
use uxfs::format::inode::{Flags, S_IFMT, S_IFREG};
use uxfs::{Error, Fallocate, Fs, SetAttr, Stat};
use uxfs_transport::Errno;

use super::credentials::Credentials;
use super::outcome::Result;
use crate::control::Copied;
use crate::volume::errno;

/// Most bytes copied for one request.
const COPY_MAX: u64 = 8 << 20;
/// Most bytes shared for one request.
const SHARE_MAX: u64 = 1 << 30;
const CAPABILITY: &[u8] = b"security.capability";

/// A change of a file's content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changed {
    pub(super) bytes: u32,
    /// The file has the flag that each change is to be durable (`chattr +S`).
    pub(super) is_sync: bool,
}

impl Changed {
    /// A change of a file that was in this state before.
    fn of(stat: &Stat, bytes: u32) -> Self {
        Self { bytes, is_sync: stat.flags.contains(Flags::SYNC) }
    }
}

/// Writes, and removes set-ID bits and capabilities.
pub(super) fn write(
    fs: &Fs,
    ino: Ino,
    offset: u64,
    data: &[u8],
    who: Credentials,
) -> uxfs::Result<Changed> {
    let before = drop_privileges(fs, ino, who)?;
    fs.write_at(ino, offset, data)?;
    Ok(Changed::of(&before, u32::try_from(data.len()).unwrap_or(u32::MAX)))
}

/// Removes capabilities because the content changes, and set-ID bits unless the caller is
/// privileged. Returns the file's state before.
pub(super) fn drop_privileges(fs: &Fs, ino: Ino, who: Credentials) -> uxfs::Result<Stat> {
    let stat = fs.stat(ino)?;
    if stat.mode & S_IFMT != S_IFREG {
        return Ok(stat);
    }
    let lost = who.set_id_bits_lost_by_write(&stat);
    if lost != 0 {
        let permissions = Some(stat.mode & 0o7777 & !lost);
        fs.set_attr(ino, &SetAttr { permissions, ..SetAttr::default() })?;
    }
    drop_capability(fs, ino)?;
    Ok(stat)
}

/// Removes file capabilities.
pub(super) fn drop_capability(fs: &Fs, ino: Ino) -> uxfs::Result<()> {
    // Checked first, because hardly any file has one, and a removal begins a transaction.
    match fs.get_xattr(ino, CAPABILITY) {
        Ok(_) => fs.remove_xattr(ino, CAPABILITY),
        Err(Error::NoAttr) => Ok(()),
        Err(other) => Err(other),
    }
}

/// The operation of `fallocate`'s mode bits.
pub(super) fn fallocate_mode(mode: i32) -> Result<Fallocate> {
    const KEEP_SIZE: i32 = 1;
    const PUNCH_HOLE: i32 = 2;
    const COLLAPSE: i32 = 8;
    const ZERO: i32 = 0x10;
    const INSERT: i32 = 0x20;
    const UNSHARE: i32 = 0x40;
    let keep_size = mode & KEEP_SIZE != 0;
    match mode & !KEEP_SIZE {
        0 => Ok(Fallocate::Allocate { keep_size }),
        PUNCH_HOLE if keep_size => Ok(Fallocate::PunchHole),
        ZERO => Ok(Fallocate::ZeroRange { keep_size }),
        // Present kernels do not forward these.
        COLLAPSE => Ok(Fallocate::CollapseRange),
        INSERT => Ok(Fallocate::InsertRange),
        UNSHARE => Ok(Fallocate::Unshare { keep_size }),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Changes the space of a range.
pub(super) fn fallocate(
    fs: &Fs,
    ino: Ino,
    mode: Fallocate,
    (offset, len): (u64, u64),
    who: Credentials,
) -> uxfs::Result<Changed> {
    let before = drop_privileges(fs, ino, who)?;
    fs.fallocate(ino, mode, offset, len)?;
    Ok(Changed::of(&before, 0))
}

/// The next data or hole from `offset` on.
pub(super) fn seek(fs: &Fs, ino: Ino, offset: u64, whence: u32) -> Result<u64> {
    const SEEK_DATA: u32 = 3;
    const SEEK_HOLE: u32 = 4;
    if !matches!(whence, SEEK_DATA | SEEK_HOLE) {
        return Err(Errno::INVAL);
    }
    let fail = |error: Error| errno(&error);
    let size = fs.stat(ino).map_err(fail)?.size;
    if offset >= size {
        return Err(Errno::NXIO);
    }
    let wanted = |segment: &uxfs::Segment| segment.device.is_some() == (whence == SEEK_DATA);
    let segments = fs.segments(ino).map_err(fail)?;
    let found = segments
        .iter()
        .find(|segment| segment.offset + segment.len > offset && wanted(segment))
        .map(|segment| segment.offset.max(offset));
    match found {
        Some(at) => Ok(at),
        None if whence == SEEK_HOLE => Ok(size),
        None => Err(Errno::NXIO),
    }
}

/// Copies a range, by sharing blocks where possible. Returns how many bytes were copied, and how.
pub(super) fn copy_range(
    fs: &Fs,
    (from, from_at): (Ino, u64),
    (to, to_at): (Ino, u64),
    len: u64,
    who: Credentials,
) -> uxfs::Result<Copied> {
    let source = fs.stat(from)?;
    let len = len.min(source.size.saturating_sub(from_at)).min(SHARE_MAX);
    if to_at.checked_add(len).is_none() {
        return Err(Error::FileTooBig);
    }
    if len == 0 {
        return Ok(Copied::default());
    }
    let block = u64::from(fs.geo.block_size);
    let aligned = from_at.is_multiple_of(block) && to_at.is_multiple_of(block);
    if aligned && fs.geo.has_reflink() {
        // The last block of a file can be shared where it becomes the last block of the other file.
        let ends = from_at + len == source.size && to_at + len >= fs.stat(to)?.size;
        let whole = if ends { len } else { len - len % block };
        if whole > 0 {
            drop_privileges(fs, to, who)?;
            match fs.share(from, from_at, to, to_at, whole) {
                Ok(()) => return Ok(Copied { shared: whole, written: 0 }),
                Err(Error::Unsupported(_) | Error::NoSpace) => {}
                Err(other) => return Err(other),
            }
        }
    }
    let written = copy_bytes(fs, (from, from_at), (to, to_at), len.min(COPY_MAX), who)?;
    Ok(Copied { shared: 0, written: written.into() })
}

fn copy_bytes(
    fs: &Fs,
    (from, from_at): (Ino, u64),
    (to, to_at): (Ino, u64),
    len: u64,
    who: Credentials,
) -> uxfs::Result<u32> {
    let mut buffer = vec![0; usize::try_from(len.min(1 << 20)).unwrap_or(1 << 20)];
    let mut done = 0;
    while done < len {
        let step = usize::try_from(len - done).unwrap_or(usize::MAX).min(buffer.len());
        let got = fs.read_at(from, from_at + done, &mut buffer[..step])?;
        if got == 0 {
            break;
        }
        match write(fs, to, to_at + done, &buffer[..got], who) {
            Ok(_) => {}
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        done += got as u64;
    }
    Ok(u32::try_from(done).unwrap_or(u32::MAX))
}
