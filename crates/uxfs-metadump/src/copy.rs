//! Copies of a volume: the blocks in use, to several targets at once.
//!
//! 1. A copy with another UUID keeps the UUID in metadata as `sb_meta_uuid`, as xfs_admin does; its log is
//!    empty, since log records name the UUID that users see. A copy with the same UUID is the same in
//!    every block that is in use, a dirty log with it.
//! 2. Until all of a target is written its superblock carries `inprogress`, which nothing mounts.
//! 3. The source is read once. A target that fails is left where it is; the others go on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use uxfs_disk::BlockDev;
use uxfs_format::features::Incompat;
use uxfs_format::superblock::{CRC_OFFSET, Superblock, has_magic};
use uxfs_format::{AgNo, Daddr, Geometry, Uuid, crc};
use uxfs_journal::recovery::{Bounds, Log, State};

use crate::clean_log;
use crate::error::CopyError;
use crate::free::Free;

/// Largest sector of a volume in bytes.
const LONGEST_SECTOR: usize = 32768;
/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;
/// Pieces that wait for a target.
const WAITING: usize = 8;
/// Zeroes of this length are not written to a target that reads as zeroes.
const HOLE: usize = 64 << 10;

/// A volume that is to be copied.
pub struct Copier<'a> {
    dev: &'a dyn BlockDev,
    sb: Superblock,
    geo: Geometry,
    sector: Vec<u8>,
    /// The log, if it is not copied as it is.
    log: Option<Bounds>,
}

/// Where a copy goes.
pub struct Target<'a> {
    /// The device.
    pub dev: &'a dyn BlockDev,
    /// Does everything on it read as zeroes?
    pub blank: bool,
    /// The UUID that users see on the copy.
    pub uuid: Uuid,
}

impl Target<'_> {
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), CopyError> {
        self.dev.write_at(at, bytes).map_err(|source| CopyError::Write { at, source })
    }

    fn flush(&self) -> Result<(), CopyError> {
        self.dev.flush().map_err(|source| CopyError::Write { at: 0, source })
    }
}

/// What was copied.
#[derive(Debug)]
#[non_exhaustive]
pub struct CopySummary {
    /// Bytes in use.
    pub bytes: u64,
    /// What became of each target.
    pub targets: Vec<Result<(), CopyError>>,
}

/// Bytes for a target, and where they go.
type Piece = (u64, Arc<[u8]>);

impl<'a> Copier<'a> {
    /// Looks at a volume. With `duplicate` the copies keep its UUID.
    ///
    /// # Errors
    /// If it is not one that can be copied so, or reading fails.
    pub fn new(dev: &'a dyn BlockDev, duplicate: bool) -> Result<Self, CopyError> {
        let len = usize::try_from(dev.len()).unwrap_or(usize::MAX).min(LONGEST_SECTOR);
        let mut sector = vec![0; len];
        let read = |source| CopyError::Read { daddr: Daddr(0), source };
        dev.read_at(0, &mut sector).map_err(read)?;
        if !has_magic(&sector) {
            let magic = Superblock::view(&sector).map_or(0, |sb| sb.magicnum.get());
            return Err(CopyError::NotXfs(magic));
        }
        let sb = *Superblock::verify(&sector)?;
        sector.truncate(sb.sectsize.get().into());
        let geo = Geometry::new(&sb);
        refuse(&sb, &geo, dev.len())?;
        let log = match duplicate {
            true => None,
            false => {
                let log = Log::new(&sb)?;
                match log.state(dev)? {
                    State::Dirty => return Err(CopyError::DirtyLog),
                    State::Clean => Some(log.find(dev)?),
                }
            }
        };
        Ok(Self { dev, sb, geo, sector, log })
    }

    /// Length of the volume in bytes.
    pub fn volume_len(&self) -> u64 {
        self.geo.dblocks << self.geo.block_log
    }

    /// The UUID that users see on the volume.
    pub fn uuid(&self) -> Uuid {
        Uuid(self.sb.uuid)
    }

    /// Copies. `progress` is called with the bytes that are done and with those of the whole volume.
    ///
    /// # Errors
    /// If the source cannot be read, or what says which blocks are in use is damaged.
    pub fn run(
        &self,
        targets: &[Target<'_>],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CopySummary, CopyError> {
        // A damaged group is found before anything is written.
        let free = Free { dev: self.dev, geo: &self.geo };
        (0..self.geo.ag_count).try_for_each(|ag| free.used(AgNo(ag), &mut |_, _| Ok(())))?;
        std::thread::scope(|scope| {
            let mut sends = Vec::new();
            let mut threads = VecDeque::new();
            for target in targets {
                let (send, receive) = sync_channel(WAITING);
                sends.push(Some(send));
                threads.push_back(scope.spawn(move || self.target(target, &receive)));
            }
            let done = self.read(&mut sends, progress);
            // A target whose pieces end too early is not finished.
            let whole = done.is_ok();
            for send in sends.into_iter().flatten() {
                let _ = send.send((u64::from(whole), Arc::new([])));
            }
            let joined = threads.into_iter().map(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            let targets = joined.collect();
            Ok(CopySummary { bytes: done?, targets })
        })
    }

    /// Reads all blocks in use and gives them to the targets that have not failed. Returns their bytes.
    fn read(
        &self,
        sends: &mut [Option<SyncSender<Piece>>],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<u64, CopyError> {
        let free = Free { dev: self.dev, geo: &self.geo };
        let block = self.geo.block_log;
        let len = self.volume_len();
        let log = self.log_range();
        let mut bytes = 0;
        for ag in (0..self.geo.ag_count).map(AgNo) {
            free.used(ag, &mut |first, count| {
                let start = self.geo.ag_daddr(ag, first).bytes();
                let end = start + (u64::from(count) << block);
                bytes += end - start;
                for (from, to) in [(start, end.min(log.start)), (start.max(log.end), end)] {
                    self.range(from.max(start)..to.min(end), sends)?;
                }
                progress(end, len);
                Ok(())
            })?;
        }
        progress(len, len);
        Ok(bytes)
    }

    /// Bytes of the log, if each target has its own; otherwise nothing, behind the volume.
    fn log_range(&self) -> std::ops::Range<u64> {
        let start = self.geo.fsb_daddr(self.geo.log_start).bytes();
        let end = start + (u64::from(self.geo.log_blocks) << self.geo.block_log);
        match self.log {
            Some(_) => start..end,
            None => self.volume_len()..self.volume_len(),
        }
    }

    fn range(
        &self,
        range: std::ops::Range<u64>,
        sends: &mut [Option<SyncSender<Piece>>],
    ) -> Result<(), CopyError> {
        let mut at = range.start;
        while at < range.end {
            // At most a piece.
            let mut bytes = vec![0; (range.end - at).min(PIECE) as usize];
            let daddr = Daddr(at >> 9);
            self.dev.read_at(at, &mut bytes).map_err(|source| CopyError::Read { daddr, source })?;
            let next = at + bytes.len() as u64;
            let piece: Arc<[u8]> = bytes.into();
            for send in sends.iter_mut() {
                let sent = send.as_ref().map(|send| send.send((at, Arc::clone(&piece))));
                // Its thread has ended, with an error that it returns.
                if sent.is_some_and(|sent| sent.is_err()) {
                    *send = None;
                }
            }
            at = next;
        }
        Ok(())
    }

    /// Writes a target from its first byte to its last.
    fn target(&self, target: &Target<'_>, pieces: &Receiver<Piece>) -> Result<(), CopyError> {
        let (wanted, len) = (self.volume_len(), target.dev.len());
        if len < wanted {
            return Err(CopyError::TooSmall { wanted, len });
        }
        let mut marked = self.superblock(&self.sector, target.uuid);
        if let Some(sb) = Superblock::view_mut(&mut marked) {
            sb.inprogress = 1;
        }
        target.write(0, &marked)?;
        target.flush()?;
        loop {
            let whole = match pieces.recv() {
                Ok((at, bytes)) if !bytes.is_empty() => {
                    self.piece(target, &marked, at, &bytes)?;
                    continue;
                }
                Ok((whole, _)) => whole == 1,
                Err(_) => false,
            };
            if !whole {
                // Whoever reads has the error.
                return Ok(());
            }
            break;
        }
        if let Some(bounds) = &self.log {
            let mut sb = self.sb;
            sb.uuid = target.uuid.0;
            let log = Log::new(&sb)?;
            let start = self.log_range().start;
            for (block, bytes) in clean_log::pieces(&log, bounds) {
                target.write(start + (block << 9), &bytes)?;
            }
        }
        target.flush()?;
        target.write(0, &self.superblock(&self.sector, target.uuid))?;
        target.flush()
    }

    /// Writes a piece, in which superblocks are those of the target. Zeroes are left out where the target
    /// reads as zeroes.
    fn piece(
        &self,
        target: &Target<'_>,
        first: &[u8],
        at: u64,
        bytes: &[u8],
    ) -> Result<(), CopyError> {
        let ag_len = u64::from(self.geo.ag_blocks) << self.geo.block_log;
        let sector = self.sector.len();
        // A run in use that begins a group begins a piece.
        let changed = at.is_multiple_of(ag_len).then(|| {
            let mut bytes = bytes.to_vec();
            let own = match at {
                0 => first.to_vec(),
                _ => self.superblock(&bytes[..sector], target.uuid),
            };
            bytes[..sector].copy_from_slice(&own);
            bytes
        });
        let bytes = changed.as_deref().unwrap_or(bytes);
        for (part, at) in bytes.chunks(HOLE).zip((at..).step_by(HOLE)) {
            if !target.blank || part.iter().any(|byte| *byte != 0) {
                target.write(at, part)?;
            }
        }
        Ok(())
    }

    /// A superblock with this UUID. One that is damaged stays as it is.
    fn superblock(&self, sector: &[u8], uuid: Uuid) -> Vec<u8> {
        let mut sector = sector.to_vec();
        if uuid.0 == self.sb.uuid || Superblock::verify(&sector).is_err() {
            return sector;
        }
        let original = self.sb.metadata_uuid();
        if let Some(sb) = Superblock::view_mut(&mut sector) {
            let mut incompat = sb.incompat();
            incompat.set(Incompat::META_UUID, uuid != original);
            sb.features_incompat.set(incompat.bits());
            sb.meta_uuid = if uuid == original { [0; 16] } else { original.0 };
            sb.uuid = uuid.0;
        }
        crc::stamp(&mut sector, CRC_OFFSET);
        sector
    }
}

fn refuse(sb: &Superblock, geo: &Geometry, len: u64) -> Result<(), CopyError> {
    let refused = |what: &str| Err(CopyError::Unsupported(what.into()));
    if sb.is_v4() {
        return refused("a volume of version 4 is not copied: use xfs_copy of xfsprogs");
    }
    if sb.rblocks.get() != 0 {
        return refused("the volume has a realtime section, which is not copied");
    }
    if geo.log_start.0 == 0 {
        return refused("the volume has an external log, which is not copied");
    }
    if sb.inprogress != 0 {
        return refused("the volume is unfinished: what made it was interrupted");
    }
    if sb.incompat().contains(Incompat::NEEDSREPAIR) {
        return refused("the volume is marked as needing repair: run xfs_repair of xfsprogs");
    }
    if geo.dblocks.checked_shl(geo.block_log).is_none_or(|wanted| wanted > len) {
        return refused("the volume is longer than its device");
    }
    Ok(())
}
