//! uxfs: the volume mounted through FUSE in this process, and recovered by the engine.
//!
//! 1. A mount of a run has a watcher, so the program's operations are known.
//! 2. There, an fsync of the root directory is that of a directory. On other mounts of uxfs it makes
//!    everything durable, which would hide what a program lacks.
//! 3. Whatever happens, nothing stays mounted: a mount in use is detached, and its connection ends before the
//!    disk is looked at.

use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use twox_hash::XxHash64;
use uxfs::disk::{BlockDev, MemDev};
use uxfs::format::Ino;
use uxfs::format::timestamp::Timestamp;
use uxfs::{Fs, OpenOptions, mkfs};
use uxfs_check::{CheckOptions, check};
use uxfs_fuse::watcher::{Change, Watcher};
use uxfs_fuse::{Mounted, Options, mount_watched};

use crate::error::{Error, Result};
use crate::job::{Ended, Job};
use crate::leg::{Leg, Place, Places, Recovered, Recovery};
use crate::operations::{Action, Operation};
use crate::problem::{Class, Problem};
use crate::recorder::{Recorder, SECTOR};
use crate::tree::{BYTES_MAX, Kind, Node, Tree};

/// Always the same, so that a run repeats as far as the program does.
const UUID: &str = "75786673-0000-4000-8000-000000000002";
const MADE: Timestamp = Timestamp { sec: 1_600_000_000, nsec: 0 };

/// Nothing is written before it must be.
const LAZY: &str = "commit=300,dirty_expire_centisecs=30000,dirty_writeback_centisecs=30000";

/// The paces: nothing in the background; each change of metadata at once; all data at once.
const PACES: [(&str, &str); 3] = [("late", ""), ("names", "wsync"), ("data", "dirty_bytes=0")];

pub struct UxfsLeg {
    size: u64,
    options: String,
}

impl UxfsLeg {
    /// Volumes of `size` bytes, mounted with these options beside its own.
    ///
    /// # Errors
    /// An option that a mount does not take.
    pub fn new(size: u64, options: &str) -> Result<Self> {
        let leg = Self { size, options: options.to_owned() };
        for pace in leg.paces() {
            leg.mount_options(pace)?;
        }
        Ok(leg)
    }

    fn mount_options(&self, pace: &str) -> Result<Options> {
        let own = PACES.iter().find(|(name, _)| *name == pace).map_or("", |(_, own)| own);
        let text = format!("noio_uring,threads=2,{LAZY},{own},{}", self.options);
        Options::parse(&text).map_err(|error| Error::host("--mount-options", error))
    }

    /// The owner of the root directory: the user who runs the test.
    fn owner() -> (u32, u32) {
        (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    }
}

impl Leg for UxfsLeg {
    fn name(&self) -> &str {
        "uxfs"
    }

    fn sector(&self) -> usize {
        SECTOR
    }

    fn paces(&self) -> Vec<&'static str> {
        // In ordered mode the mount decides what is written when, and a wait for metadata is refused.
        let ordered = self.options.contains("sync=ordered");
        PACES.iter().map(|(name, _)| *name).take(if ordered { 1 } else { PACES.len() }).collect()
    }

    fn make(&self) -> Result<MemDev> {
        let failed = |error: &dyn std::fmt::Display| Error::host("cannot make a volume", error);
        let mut options = mkfs::Options::default();
        (options.unsupported, options.uuid) = (true, UUID.parse().ok());
        let layout = mkfs::Layout::new(&options, self.size).map_err(|error| failed(&error))?;
        let disk = MemDev::new(self.size);
        let mut how = mkfs::WriteOptions::default();
        (how.zero_log, how.owner, how.now) = (true, Self::owner(), Some(MADE));
        mkfs::write(&layout, &disk, &how).map_err(|error| failed(&error))?;
        Ok(disk)
    }

    fn record(&self, recorder: &Arc<Recorder>, pace: &str, job: &Job) -> Result<Ended> {
        let options = self.mount_options(pace)?;
        let dev = Arc::clone(recorder) as Arc<dyn BlockDev>;
        let fs = Fs::open(dev, options.open_options())
            .map_err(|error| Error::host("cannot open the volume", error))?;
        let watcher = Arc::new(OperationWatcher { recorder: Arc::clone(recorder) });
        on_mount(fs, &options, Some(watcher), |dir| job.run_in(dir, Some(recorder)))
    }

    fn recover(&self, disk: Arc<MemDev>) -> Result<Recovery<'_>> {
        // As a mount of everyday opens it, so that the check sees what users would.
        let options = self.mount_options("")?;
        let mut open = options.open_options();
        open.seed = Some(0);
        Ok(match Fs::open(Arc::clone(&disk) as Arc<dyn BlockDev>, open) {
            Ok(fs) => Ok(Box::new(Volume { fs, disk, options })),
            Err(error) => Err(Problem::new(Class::Recovery, format!("recovery failed: {error}"))),
        })
    }

    fn places(&self, disk: Arc<MemDev>) -> Places {
        let mut places = Places::default();
        let Ok(fs) = Fs::open(disk, OpenOptions::default()) else { return places };
        let start = fs.geo.fsb_daddr(fs.geo.log_start).bytes();
        let len = u64::from(fs.geo.log_blocks) * u64::from(fs.geo.block_size);
        places.add(start..start + len, Place::Log);
        let Ok(Some(tree)) = read_tree(&fs) else { return places };
        for (ino, path) in tree.paths() {
            for segment in fs.segments(Ino(ino)).unwrap_or_default() {
                if let Some(at) = segment.device {
                    let path = path.display().to_string();
                    let place = Place::File { path, offset: segment.offset };
                    places.add(at..at + segment.len, place);
                }
            }
        }
        places
    }
}

struct Volume {
    fs: Fs,
    disk: Arc<MemDev>,
    options: Options,
}

impl Recovered for Volume {
    fn tree(&self) -> std::result::Result<Option<Tree>, Problem> {
        let damaged = |error| format!("the recovered volume is damaged: {error}");
        read_tree(&self.fs).map_err(|error| Problem::new(Class::Damage, damaged(error)))
    }

    fn run(self: Box<Self>, job: &Job) -> Result<Ended> {
        on_mount(self.fs, &self.options, None, |dir| job.run_in(dir, None))
    }

    fn damage(self: Box<Self>) -> Option<Problem> {
        let damage = |text| Some(Problem::new(Class::Damage, text));
        if let Err(error) = self.fs.close() {
            return damage(format!("the recovered volume cannot be closed: {error}"));
        }
        match check(&*self.disk, &CheckOptions::default(), &|_| {}) {
            Ok(report) if report.is_clean() => None,
            Ok(report) => {
                let first = report.findings.first().map(ToString::to_string).unwrap_or_default();
                damage(format!(
                    "uxfs check: {} findings, the first: {first}",
                    report.findings.len()
                ))
            }
            Err(error) => damage(format!("uxfs check: {error}")),
        }
    }
}

/// Passes what programs do to a recorder.
struct OperationWatcher {
    recorder: Arc<Recorder>,
}

impl Watcher for OperationWatcher {
    fn saw(&self, pid: u32, change: &Change<'_>) {
        let name = |(dir, name): &uxfs_fuse::watcher::Name<'_>| (dir.0, name.to_vec());
        let what = match change {
            Change::Made { name: at, ino, generation, mode } => {
                Action::Made { name: name(at), ino: ino.0, generation: *generation, mode: *mode }
            }
            Change::Symlink { name: at, ino, generation, target } => Action::Symlink {
                name: name(at),
                ino: ino.0,
                generation: *generation,
                target: target.to_vec(),
            },
            Change::Linked { name: at, ino } => Action::Linked { name: name(at), ino: ino.0 },
            Change::Removed { name: at } => Action::Removed { name: name(at) },
            Change::Renamed { from, to, exchanged } => {
                Action::Renamed { from: name(from), to: name(to), exchanged: *exchanged }
            }
            Change::Written { ino, offset, data, mapped } => {
                let data = Arc::from(*data);
                Action::Written { ino: ino.0, offset: *offset, data, mapped: *mapped }
            }
            Change::Resized { ino, size } => Action::Resized { ino: ino.0, size: *size },
            Change::Zeroed { ino, offset, len } => {
                Action::Zeroed { ino: ino.0, offset: *offset, len: *len }
            }
            Change::Copied { from, to, len } => {
                Action::Copied { from: (from.0.0, from.1), to: (to.0.0, to.1), len: *len }
            }
            Change::Synced { ino, data_only } => {
                Action::Synced { ino: ino.0, data_only: *data_only }
            }
            Change::SyncedAll => Action::SyncedAll,
        };
        self.recorder.record_operation(Operation { pid, what });
    }
}

/// Mounts a volume, calls `f` with the directory, and unmounts.
fn on_mount(
    fs: Fs,
    options: &Options,
    watcher: Option<Arc<OperationWatcher>>,
    f: impl FnOnce(&Path) -> Result<Ended>,
) -> Result<Ended> {
    let dir = tempfile::Builder::new().prefix("uxfs-crash-test-").tempdir();
    let dir = dir.map_err(|error| Error::host("cannot make a directory to mount on", error))?;
    let watcher = watcher.map(|watcher| watcher as Arc<dyn Watcher>);
    // The kernel reuses device numbers. The source tells mounts with the same number apart.
    let mounted = mount_watched(fs, dir.path(), dir.path(), options, watcher);
    let mounted: Mounted = mounted.map_err(|error| {
        Error::new(format!(
            "cannot mount through FUSE: {error}; a program needs /dev/fuse and fusermount3 (package \
             fuse3) for --fs uxfs, and Rust code can be tested without (InProcess of the \
             crate uxfs-crashtest)"
        ))
    })?;
    let result = f(dir.path());
    let ended = mounted.ender().end().and_then(|()| mounted.wait());
    let ended = ended.map_err(|error| Error::host("cannot close the volume", error));
    match (result, ended) {
        (Ok(ended), Ok(None)) => Ok(ended),
        // A container of someone else that started meanwhile has a copy of the mount. It is no process of the
        // program, and its copy is as dead as the mount.
        (Ok(ended), Ok(Some(detached))) => {
            Ok(Ended { left_processes: ended.left_processes || detached.has_users(), ..ended })
        }
        // The volume could not be closed because its writes were over the limit.
        (Ok(ended), Err(_)) if ended.how == crate::job::How::OverLimit => Ok(ended),
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
    }
}

/// The files of a volume.
fn read_tree(fs: &Fs) -> uxfs::Result<Option<Tree>> {
    let root = fs.root();
    let mut tree = Tree { root: root.0, nodes: Default::default() };
    let (mut left, mut bytes) = (vec![root], 0);
    while let Some(ino) = left.pop() {
        if tree.nodes.contains_key(&ino.0) {
            continue;
        }
        let stat = fs.stat(ino)?;
        let kind = match stat.mode & 0o170_000 {
            0o040_000 => {
                let mut names = std::collections::BTreeMap::new();
                fs.read_dir(ino, 0, &mut |entry| {
                    if entry.name != b"." && entry.name != b".." {
                        names.insert(entry.name.to_vec(), entry.ino.0);
                    }
                    ControlFlow::Continue(())
                })?;
                left.extend(names.values().map(|ino| Ino(*ino)));
                Kind::Dir(names)
            }
            0o100_000 => {
                bytes += stat.size;
                if bytes > BYTES_MAX {
                    return Ok(None);
                }
                Kind::File(Arc::new(read_file(fs, ino, stat.size)?))
            }
            0o120_000 => Kind::Symlink(fs.readlink(ino)?),
            _ => Kind::Other,
        };
        let mut hasher = XxHash64::with_seed(0);
        (stat.uid, stat.gid, stat.nlink, stat.rdev).hash(&mut hasher);
        (stat.mtime.sec, stat.mtime.nsec).hash(&mut hasher);
        for name in fs.list_xattrs(ino)? {
            (fs.get_xattr(ino, &name)?, name).hash(&mut hasher);
        }
        let (generation, attributes) = (stat.generation.into(), hasher.finish());
        tree.nodes.insert(ino.0, Node { kind, mode: stat.mode, generation, attributes });
    }
    Ok(Some(tree))
}

fn read_file(fs: &Fs, ino: Ino, size: u64) -> uxfs::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    let mut have = 0;
    while have < bytes.len() {
        match fs.read_at(ino, have as u64, &mut bytes[have..])? {
            0 => break,
            got => have += got,
        }
    }
    Ok(bytes)
}
