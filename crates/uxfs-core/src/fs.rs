//! The file system: an open volume's files, on the engine that changes them.
//!
//! Operations are methods of [`Fs`], one file each under [`crate::ops`]. What they share with
//! transactions below is in [`Engine`] and [`crate::mount::Mount`], which a [`Fs`] dereferences to.

use std::ops::Deref;
use std::sync::Arc;

use uxfs_disk::BlockDev;
use uxfs_format::superblock::Superblock;
use uxfs_journal::{LogGeometry, LogPlace};
use uxfs_sync::{Mutex, Rank};

use crate::clock::Clock;
use crate::defer;
use crate::delalloc::Delalloc;
use crate::devices::Devices;
use crate::engine::Engine;
use crate::error::Result;
use crate::examine::Examined;
use crate::freeze::FreezeLevels;
use crate::iolock::IoLocks;
use crate::journal::Journal;
use crate::mount::{Mount, Parts};
use crate::open_refs::OpenRefs;
use crate::options::OpenOptions;
use crate::quota;
use crate::recovery::Recovery;
use crate::split_files::SplitFiles;
use crate::streams::Streams;

/// An open volume: its files, on the engine that changes them.
pub struct Fs {
    engine: Engine,
    /// Data that is not on the device yet.
    pub(crate) delalloc: Option<Delalloc>,
    /// What recovery did when the volume was opened, if its log was dirty.
    pub(crate) recovery: Option<Recovery>,
    /// Held while an inode is removed from its unlinked list.
    pub(crate) inactivation: Mutex<()>,
    /// Content locks of files.
    pub(crate) iolocks: IoLocks,
    /// Open references: unlinked files that are still in use.
    pub(crate) open_refs: OpenRefs,
    /// Held while a directory moves to another parent.
    pub(crate) moves: Mutex<()>,
    /// What a freeze holds back.
    pub(crate) freeze_levels: FreezeLevels,
    /// Held while an epoch is cut.
    pub(crate) epochs: Mutex<()>,
    /// Files that write-back has split, if they are remembered.
    pub(crate) split_files: Option<SplitFiles>,
    /// Files that are read in sequence.
    pub(crate) streams: Streams,
}

impl Deref for Fs {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Fs {
    /// Assembles the file system of a volume that needs no recovery. If changes are logged, `place`
    /// is the position of the next log record.
    ///
    /// # Errors
    /// [`Error::Invalid`] if options of the journal do not fit the volume.
    pub(crate) fn assemble(volume: Examined, place: Option<LogPlace>) -> Result<Self> {
        let Examined { devices, sector, geo, options, log_without_room } = volume;
        let sb = Superblock::verify(&sector)?;
        let dev = devices.data.clone();
        let realtime = devices.realtime_of(&geo)?;
        let seed = options.seed.unwrap_or_else(|| {
            let now = Clock::Real.now();
            (now.sec as u64).rotate_left(30) ^ u64::from(now.nsec)
        });
        let logs = place.is_some() && options.logs();
        let options = if logs { options.settled()? } else { options };
        let journal = match place.filter(|_| logs) {
            Some(place) => {
                let journal = options.journal;
                let geometry = LogGeometry {
                    length: u64::from(geo.log_blocks) << geo.block_log,
                    unit: sb.logsunit.get().max(1),
                    buffer: journal.buffer_for(sb.logsunit.get())?,
                    uuid: sb.uuid,
                };
                let journal = journal.with_fua(dev.has_fua());
                Some(Journal::new(place, geometry, journal, seed))
            }
            None => None,
        };
        let logged = journal.is_some();
        let writeback = options.writeback.filter(|_| logged);
        let mount = Mount::new(Parts {
            geo,
            dev,
            realtime,
            sector,
            options,
            seed,
            logged,
            log_without_room,
        });
        let floor = || Arc::clone(&mount.reserve_floor);
        let split_files = mount.options.defrag.then(SplitFiles::default);
        let delalloc = writeback.map(|options| Delalloc::new(options, floor()));
        let mut fs = Self {
            engine: Engine::new(mount, journal, defer::finish),
            delalloc,
            recovery: None,
            inactivation: Mutex::ranked(Rank::Inactivation, ()),
            iolocks: IoLocks::default(),
            open_refs: OpenRefs::default(),
            moves: Mutex::ranked(Rank::Moves, ()),
            freeze_levels: FreezeLevels::default(),
            epochs: Mutex::ranked(Rank::Epoch, ()),
            split_files,
            streams: Streams::default(),
        };
        fs.check_log_for_epochs()?;
        quota::start(&mut fs.engine)?;
        if let Some(delalloc) = &fs.delalloc {
            fs.fill_pool(delalloc);
        }
        Ok(fs)
    }

    /// Opens a volume that is being made, which has no other readers. Does not read its log.
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub(crate) fn open_unfinished(dev: Arc<dyn BlockDev>, options: OpenOptions) -> Result<Self> {
        debug_assert!(options.unfinished);
        Self::assemble(Examined::new(Devices::new(dev), options)?, None)
    }

    /// The engine, for a method of its own that [`Fs`] has too.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Stops logging changes. The log is clean.
    pub(crate) fn drop_journal(&mut self) {
        self.engine.drop_journal();
    }

    /// Records that the volume was recovered when it was opened with `options`.
    pub(crate) fn set_recovered(&mut self, options: OpenOptions, recovery: Recovery) {
        self.engine.set_options(options);
        self.recovery = Some(recovery);
    }

    /// What recovery did when the volume was opened; `None` if its log was clean.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }
}
