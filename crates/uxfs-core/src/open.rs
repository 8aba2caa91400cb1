//! Opening a volume: examined, recovered if its log is dirty, assembled.
//!
//! 1. A dirty log is recovered first, in memory only if the volume is opened for reading.
//! 2. A log that is not clean after its second recovery is refused: another would not help.

use std::sync::Arc;

use uxfs_disk::BlockDev;
use uxfs_format::superblock::Superblock;
use uxfs_journal::LogPlace;
use uxfs_journal::recovery::{Log, State};

use crate::devices::Devices;
use crate::error::{Error, Result};
use crate::examine::Examined;
use crate::fs::Fs;
use crate::options::OpenOptions;
use crate::recovery::Recovery;
use crate::{clean_log, recovery};

impl Fs {
    /// Opens the volume on `dev`.
    ///
    /// # Errors
    /// [`Error::NotXfs`], [`Error::Corrupt`], [`Error::DirtyLog`], or [`Error::Unsupported`] with
    /// the names of the features that stand in the way.
    pub fn open(dev: Arc<dyn BlockDev>, options: OpenOptions) -> Result<Self> {
        Self::open_devices(Devices::new(dev), options)
    }

    /// Opens a volume that may have a log or a realtime device besides.
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub fn open_devices(devices: Devices, options: OpenOptions) -> Result<Self> {
        let volume = Examined::new(devices, options)?;
        if volume.options.norecovery || volume.options.unfinished {
            return Self::assemble(volume, None);
        }
        let Examined { devices, sector, geo, options, .. } = &volume;
        let sb = Superblock::verify(sector)?;
        if sb.is_v4() || geo.has_external_log() && !devices.joined {
            clean_log::require_clean(devices, geo, sb)?;
            return Self::assemble(volume, None);
        }
        let dev = &devices.data;
        let log = Log::of_volume(sb)?;
        let bounds = log.find(&**dev)?;
        let logs = options.logs();
        let dirty = bounds.state == State::Dirty;
        let torn =
            bounds.torn.is_some() || !dirty && logs && log.is_stale_ahead(&**dev, &bounds)?;
        if options.recovered > 1 && (torn || dirty) {
            return Err(Error::DirtyLog(format!(
                "after its recovery it still holds records behind its head at {}:{}; run \
                 xfs_repair -L",
                bounds.head.cycle(),
                bounds.head.block()
            )));
        }
        if dirty {
            let (devices, recovery) = recovery::recover(devices, sb, options, &log, bounds)?;
            return Self::reopen(devices, options.clone(), recovery);
        }
        if torn {
            let recovery = recovery::torn_at_start(devices, &log, bounds, options)?;
            return Self::reopen(devices.clone(), options.clone(), recovery);
        }
        let place = LogPlace { start: geo.log_daddr(), head: bounds.head };
        Self::assemble(volume, Some(place))
    }

    /// Opens the volume once more: as it is after recovery.
    fn reopen(devices: Devices, options: OpenOptions, recovery: Recovery) -> Result<Self> {
        let norecovery = options.norecovery || options.read_only;
        let recovered = options.recovered + 1;
        let again = OpenOptions { norecovery, recovered, ..options.clone() };
        let mut fs = Self::open_devices(devices, again)?;
        fs.set_recovered(options, recovery);
        Ok(fs)
    }
}
