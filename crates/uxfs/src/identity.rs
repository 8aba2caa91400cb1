//! Label, UUID and features of a volume, read and changed in its superblocks without opening the volume, as
//! xfs_admin does.
//!
//! 1. A change needs a clean log: a replay would bring back the superblock of before.
//! 2. The copies are written first and the primary superblock, one sector, last. A cut between leaves
//!    the old label or UUID; the next change makes all superblocks equal again.
//! 3. Metadata keeps the UUID it was made with, which the superblocks then hold as `sb_meta_uuid`. The
//!    log's records carry the new one: an unmount record with it is written before the superblocks.
//!    A kernel refuses a volume whose last record has another UUID, so a cut between the two leaves a
//!    volume that must be given a UUID once more.

mod upgrade;

use uxfs_core::{Device, Error, Result, read_superblock};
use uxfs_format::features::Incompat;
use uxfs_format::superblock::{CRC_OFFSET, Superblock, has_magic};
use uxfs_format::{Check, Corrupt, Daddr, Geometry, Place, Uuid, crc};
use uxfs_journal::recovery::{Log, State, mark_clean};

pub use upgrade::Upgrade;

/// Longest label in bytes.
pub const LABEL_MAX: usize = 12;

/// The superblocks of a volume.
pub struct Identity {
    dev: Device,
    sb: Superblock,
}

impl Identity {
    /// Reads and verifies the primary superblock of the volume on `dev`. The log and everything else
    /// may be damaged. For changes to a volume with an external log `dev` has that, too
    /// ([`Devices::whole`](uxfs_core::Devices::whole)).
    ///
    /// # Errors
    /// [`Error::NotXfs`], [`Error::Corrupt`], or those of the device.
    pub fn read(dev: Device) -> Result<Self> {
        let sector = read_superblock(&*dev)?;
        let sb = *Superblock::verify(&sector)?;
        Ok(Self { dev, sb })
    }

    /// The primary superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// The label without its padding.
    pub fn label(&self) -> &[u8] {
        self.sb.label()
    }

    /// The UUID that users see.
    pub fn uuid(&self) -> Uuid {
        Uuid(self.sb.uuid)
    }

    /// Does the log hold changes that are not in place?
    ///
    /// # Errors
    /// If the log is on a device that was not given, is damaged, or cannot be read.
    pub fn has_dirty_log(&self) -> Result<bool> {
        if !Geometry::new(&self.sb).log_is_within(self.dev.len()) {
            return Err(Error::Unsupported("the log is on another device: name it".into()));
        }
        Ok(Log::of_volume(&self.sb)?.state(&*self.dev)? == State::Dirty)
    }

    /// Sets the label; an empty one clears it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it has more than [`LABEL_MAX`] bytes, [`Error::DirtyLog`],
    /// [`Error::Unsupported`] for version 4 and logs on devices that were not given, or those of the device.
    pub fn set_label(&mut self, label: &[u8]) -> Result<()> {
        if label.len() > LABEL_MAX || label.contains(&0) {
            return Err(Error::Invalid("a label has at most 12 bytes"));
        }
        self.check_changeable()?;
        let mut fname = [0; LABEL_MAX];
        fname[..label.len()].copy_from_slice(label);
        self.change(&|sb| sb.fname = fname)
    }

    /// Sets the UUID that users see. The UUID that the volume was made with removes the feature which
    /// another one needs, and which kernels before 4.3 do not know.
    ///
    /// # Errors
    /// As [`Identity::set_label`].
    pub fn set_uuid(&mut self, uuid: Uuid) -> Result<()> {
        self.check_changeable()?;
        let original = self.sb.metadata_uuid();
        let changed = move |sb: &mut Superblock| {
            let mut incompat = sb.incompat();
            incompat.set(Incompat::META_UUID, uuid != original);
            sb.features_incompat.set(incompat.bits());
            sb.meta_uuid = if uuid == original { [0; 16] } else { original.0 };
            sb.uuid = uuid.0;
        };
        let bounds = Log::of_volume(&self.sb)?.find(&*self.dev)?;
        let mut new = self.sb;
        changed(&mut new);
        let log = Log::of_volume(&new)?;
        self.check_copies()?;
        mark_clean::clear_stale(&log, &*self.dev, &bounds)?;
        mark_clean::write_unmount(&log, &*self.dev, &bounds)?;
        self.change(&changed)
    }

    /// Restores the UUID that the volume was made with.
    ///
    /// # Errors
    /// As [`Identity::set_label`].
    pub fn restore_uuid(&mut self) -> Result<()> {
        self.set_uuid(self.sb.metadata_uuid())
    }

    fn check_changeable(&self) -> Result<()> {
        let refused = |why: &str| Err(Error::Unsupported(why.into()));
        if self.sb.is_v4() {
            return refused("a volume of version 4 is only read");
        }
        if self.sb.incompat().contains(Incompat::NEEDSREPAIR) {
            return refused("the volume is marked as needing repair: run xfs_repair");
        }
        if self.sb.incompat().intersects(Incompat::METADIR | Incompat::ZONED) {
            return refused("a volume with metadata directories is not changed");
        }
        match self.has_dirty_log()? {
            true => Err(Error::DirtyLog("mount the volume, or run uxfs log quiesce".into())),
            false => Ok(()),
        }
    }

    /// Changes all superblocks: first the copies, then the primary.
    fn change(&mut self, change: &dyn Fn(&mut Superblock)) -> Result<()> {
        self.check_copies()?;
        for ag in 1..u64::from(self.sb.agcount.get()) {
            self.rewrite(ag, change)?;
        }
        self.flush()?;
        self.rewrite(0, change)?;
        self.flush()?;
        change(&mut self.sb);
        Ok(())
    }

    /// Nothing is written before all copies are known to be there.
    fn check_copies(&self) -> Result<()> {
        (1..u64::from(self.sb.agcount.get())).try_for_each(|ag| self.sector(ag).map(drop))
    }

    fn rewrite(&self, ag: u64, change: &dyn Fn(&mut Superblock)) -> Result<()> {
        let mut sector = self.sector(ag)?;
        if let Some(sb) = Superblock::view_mut(&mut sector) {
            // As the kernel and xfs_db write them where mkfs.xfs left zeroes.
            let quota = [&mut sb.uquotino, &mut sb.gquotino, &mut sb.pquotino];
            quota.into_iter().filter(|ino| ino.get() == 0).for_each(|ino| ino.set(u64::MAX));
            change(sb);
        }
        crc::stamp(&mut sector, CRC_OFFSET);
        let daddr = self.daddr(ag);
        let failed = |source| Error::Io { what: "writing a superblock", daddr, source };
        self.dev.write_at(daddr.bytes(), &sector).map_err(failed)
    }

    /// The superblock of a group, whose magic number must be right.
    fn sector(&self, ag: u64) -> Result<Vec<u8>> {
        let daddr = self.daddr(ag);
        let mut sector = vec![0; usize::from(self.sb.sectsize.get())];
        let failed = |source| Error::Io { what: "reading a superblock", daddr, source };
        self.dev.read_at(daddr.bytes(), &mut sector).map_err(failed)?;
        if has_magic(&sector) {
            return Ok(sector);
        }
        let place = Place::Device(daddr);
        let problem = "wrong magic number: run xfs_repair".to_owned();
        Err(Corrupt::new("superblock copy", place, Check::Magic, problem).into())
    }

    fn daddr(&self, ag: u64) -> Daddr {
        let group = u64::from(self.sb.agblocks.get()) * u64::from(self.sb.blocksize.get());
        Daddr(ag * group / 512)
    }

    fn flush(&self) -> Result<()> {
        let failed = |source| Error::Io { what: "flushing", daddr: Daddr(0), source };
        self.dev.flush().map_err(failed)
    }
}
