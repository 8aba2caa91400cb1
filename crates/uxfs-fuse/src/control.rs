//! The control channel of a running mount: the server's side of `uxfs status`, `uxfs stats` and
//! `uxfs sync`.
//!
//! The channel is the mount itself. The state is the value of extended attributes whose names are
//! in no namespace of Linux ([`STATUS`], [`STATS`]). The kernel checks that the caller may read the
//! directory, and forwards such names. So the channel needs no root and no socket that has to be
//! found and protected, and is open to exactly those who may use the mount. Listings do not show
//! the names. `uxfs sync` is fsync of the root directory. Blocks are shared by `copy_file_range`,
//! for which the kernel checks permissions; whether they were shared is asked afterwards
//! ([`COPIED`]).
//!
//! 1. A value consists of lines of a name, a space and the rest. A name occurs once.
//! 2. Reading a value changes nothing and waits for nothing, except for [`remount`], [`DURABLE`], [`freeze`],
//!    [`thaw`], [`crate::defrag`], [`crate::growth`] and [`crate::scrub`].

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use uxfs::format::Ino;
use uxfs::{Fs, Histogram, SyncMode};
use uxfs_transport::Transport;

use crate::current_options::CurrentOptions;
use crate::mounts;
use crate::options::ordered_words;
use crate::record::{Process, without_errno};
use crate::volume::Volume;

/// The state of the mount.
pub const STATUS: &[u8] = b"uxfs.status";
/// The engine's counters since the mount, and the requests that came: [`REQUESTS`] of all kinds, and
/// of each kind under that name, `_` and the protocol's. The request that reads them is one of them.
pub const STATS: &[u8] = b"uxfs.stats";

/// The name of the requests in [`STATS`].
pub const REQUESTS: &str = "requests";

/// The prefix of options to change: reading this value changes them. Reading a value is the only
/// request that reaches the server of a read-only mount.
pub(crate) const REMOUNT: &[u8] = b"uxfs.remount=";

/// Reading this value makes everything done so far durable, in every mode of the mount.
pub const DURABLE: &[u8] = b"uxfs.durable";

/// Reading this value freezes the volume.
pub(crate) const FREEZE: &[u8] = b"uxfs.freeze";

/// Reading this value thaws the volume.
pub(crate) const THAW: &[u8] = b"uxfs.thaw";

/// How many bytes that `copy_file_range` copied into a file are shared, since this was last read.
pub const COPIED: &[u8] = b"uxfs.copied";

/// Number of files for which this is kept.
const COPIES: usize = 1024;

const EBUSY: i32 = 16;
const ERANGE: i32 = 34;
const NAME_MAX: usize = 255;

/// Most bytes of a value.
const VALUE_MAX: usize = 64 << 10;

/// The state of a mount apart from its volume.
pub(crate) struct Control {
    begun: Instant,
    options: Arc<CurrentOptions>,
    /// Idle processors are kept from halting.
    awake: bool,
    copies: Mutex<HashMap<u64, Copied>>,
}

/// How bytes were copied into a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes whose blocks are shared.
    pub shared: u64,
    /// Bytes that were written.
    pub written: u64,
}

impl Control {
    /// The state of a mount that starts now.
    pub(crate) fn new(options: Arc<CurrentOptions>, awake: bool) -> Self {
        Self { begun: Instant::now(), options, awake, copies: Mutex::default() }
    }

    /// Records how bytes were copied into a file.
    pub(crate) fn note_copy(&self, ino: Ino, now: Copied) {
        let mut copies = self.copies.lock();
        if copies.len() >= COPIES && !copies.contains_key(&ino.0) {
            copies.clear();
        }
        let copied = copies.entry(ino.0).or_default();
        copied.shared += now.shared;
        copied.written += now.written;
    }

    fn copied(&self, ino: Ino) -> Vec<u8> {
        let copied = self.copies.lock().remove(&ino.0).unwrap_or_default();
        let mut lines = Lines::default();
        lines.add("shared", copied.shared);
        lines.add("written", copied.written);
        lines.bytes()
    }

    /// The value of a name of a file; `None` for a name that this module does not have.
    pub(crate) fn value(&self, volume: &Volume, fs: &Fs, ino: Ino, name: &[u8]) -> Option<Vec<u8>> {
        match name {
            COPIED => Some(self.copied(ino)),
            STATUS => Some(self.status(volume, fs)),
            STATS => Some(stats(volume, fs)),
            _ => None,
        }
    }

    fn status(&self, volume: &Volume, fs: &Fs) -> Vec<u8> {
        let mut lines = Lines::default();
        let (space, options) = (fs.statfs(), self.options.all());
        volume.report_state(fs);
        let stopped = fs.stopped_by();
        lines.add("state", if stopped.is_some() { "stopped" } else { "mounted" });
        if let Some(why) = stopped {
            lines.add("stopped", why);
        }
        lines.add("label", String::from_utf8_lossy(&space.label));
        lines.add("uuid", space.uuid);
        let Process { id, started, namespace } = Process::current();
        lines.add("process", id);
        lines.add("process_started", started);
        lines.add("process_namespace", namespace);
        if let Some(file) = volume.recorder().and_then(|recorder| recorder.file()) {
            lines.add("record", file.display());
        }
        lines.add("uptime_seconds", self.begun.elapsed().as_secs());
        let is_frozen = volume.freeze.requests.is_closed();
        lines.add("frozen", if is_frozen { "yes" } else { "no" });
        lines.add("mode", if options.read_only { "ro" } else { "rw" });
        match options.mode {
            SyncMode::Durable => lines.add("sync", "durable"),
            SyncMode::Ordered { loss } => {
                lines.add("sync", "ordered");
                lines.add("loss_seconds", loss.as_secs());
                lines.add("loss", ordered_words(loss));
            }
        }
        if let Some(rate) = options.autodefrag {
            lines.add("autodefrag_bytes_per_second", rate);
        }
        lines.add("awake", if self.awake { "on" } else { "off" });
        if let Some(transport) = volume.transport() {
            lines.add("transport", transport);
            if let Transport::Device(why) = transport {
                lines.add("transport_reason", why);
            }
        }
        lines.add("block_size", space.block_size);
        lines.add("blocks", space.blocks);
        lines.add("blocks_free", space.free_blocks);
        lines.add("files", space.files - space.free_files);
        lines.add("files_without_name", fs.unlinked());
        let cached = fs.cached();
        lines.add("cached_buffer_bytes", cached.buffer_bytes);
        lines.add("cached_buffer_bytes_dirty", cached.dirty_buffer_bytes);
        lines.add("cached_inodes", cached.inodes);
        lines.add("cached_inodes_dirty", cached.dirty_inodes);
        if let Some(journal) = fs.journal_options() {
            let load = fs.log_load();
            lines.add("log_bytes", load.bytes);
            lines.add("log_live_bytes", load.live);
            lines.add("ail_objects", load.objects);
            lines.add("barrier", if journal.barrier { "on" } else { "off" });
            lines.add("commit_seconds", journal.pipeline.age_max.as_secs());
            lines.add("fsync_policy", journal.pipeline.fsync);
            lines.add("dirty_bytes", fs.dirty_bytes());
            let limit = options.writeback.map_or(0, |limits| limits.dirty_bytes);
            lines.add("dirty_bytes_limit", limit);
            lines.add("dirty_files", fs.unwritten().files);
        }
        for (name, value) in volume.backing().map(|backing| backing.status()).unwrap_or_default() {
            lines.add(&name, value);
        }
        if let Some(why) = volume.sync_error() {
            lines.add("sync_error", why);
        }
        if let Some(cause) = fs.retrying() {
            lines.add("retrying", cause);
        }
        if let Some(warning) = fs.device_warning() {
            lines.add("warning", warning);
        }
        if let Some(recovery) = fs.recovery() {
            lines.add("recovered_transactions", recovery.replay.transactions);
            lines.add("recovered_steps", recovery.intents);
            lines.add("recovered_files_freed", recovery.unlinked);
        }
        lines.bytes()
    }
}

fn stats(volume: &Volume, fs: &Fs) -> Vec<u8> {
    let mut lines = Lines::default();
    if let Some(why) = fs.stopped_by() {
        lines.add("stopped", why);
    }
    let stats = fs.stats();
    for (name, count) in stats.counters() {
        lines.add(name, count);
    }
    let times = [
        ("force_wait", &stats.force_wait),
        ("flush_time", &stats.flush_time),
        ("freeze_time", &stats.freeze_time),
    ];
    for (name, times) in times {
        lines.times(name, times);
    }
    lines.add("dirty_bytes", fs.dirty_bytes());
    let requests = volume.requests();
    lines.add(REQUESTS, requests.iter().map(|(_, count)| count).sum::<u64>());
    for (kind, count) in requests {
        lines.add(&format!("{REQUESTS}_{kind}"), count);
    }
    lines.bytes()
}

/// The lines of a value.
#[derive(Default)]
pub(crate) struct Lines(String);

impl Lines {
    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }

    pub(crate) fn add(&mut self, name: &str, value: impl core::fmt::Display) {
        // A label may hold any byte.
        let value = without_errno(&value.to_string()).replace('\n', "?");
        self.0.push_str(&format!("{name} {value}\n"));
    }

    fn times(&mut self, name: &str, times: &Histogram) {
        self.add(&format!("{name}_count"), times.count());
        self.add(&format!("{name}_mean_us"), times.mean_ns() / 1000);
        self.add(&format!("{name}_half_below_us"), times.percentile_us(50));
        self.add(&format!("{name}_99_below_us"), times.percentile_us(99));
    }
}

/// Reads a value of a mount: pairs of a name and a value, in order. `path` is the mount's directory
/// or anything in it.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] if `path` lies in no mount of uxfs; [`is_disconnected`](crate::is_disconnected)
/// recognises the error if the mount's server has died; another error of the system.
pub fn ask(path: &Path, name: &[u8]) -> io::Result<Vec<(String, String)>> {
    let root = root_of(path)?;
    read_value(&root, name).map_err(|error| match crate::server_has_died(&root) {
        // Until the kernel ends the connection, requests fail in other ways.
        true => rustix::io::Errno::NOTCONN.into(),
        false => error,
    })
}

/// As [`ask`], of a file itself.
pub(crate) fn read_value(path: &Path, name: &[u8]) -> io::Result<Vec<(String, String)>> {
    let bytes = read_bytes(path, name)?;
    let text = String::from_utf8_lossy(&bytes);
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// A value of a mount that does not consist of lines; `path` as for [`ask`].
pub(crate) fn ask_bytes(path: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
    read_bytes(&root_of(path)?, name)
}

fn read_bytes(path: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
    let mut room = vec![0; VALUE_MAX];
    let name = String::from_utf8_lossy(name);
    let len = rustix::fs::getxattr(path, &*name, &mut room)?;
    room.truncate(len);
    Ok(room)
}

/// The answer to a remount.
pub(crate) fn remounted(result: Result<(), String>) -> Vec<u8> {
    let mut lines = Lines::default();
    match result {
        Ok(()) => lines.add("remounted", "yes"),
        Err(why) => lines.add("refused", why),
    }
    lines.bytes()
}

/// Changes options of a mount: `words` as after `-o`, `path` as for [`ask`]. The caller handles the
/// options of the kernel (`nosuid` and others, and that a read-only mount is not written to).
///
/// # Errors
/// As [`ask`]; which option cannot change, and why.
pub fn remount(path: &Path, words: &str) -> io::Result<()> {
    let name = [REMOUNT, words.as_bytes()].concat();
    let pairs = ask(path, &name).map_err(|error| match error.raw_os_error() {
        // A name is longer than a name may be.
        Some(ERANGE) if name.len() > NAME_MAX => io::Error::other("too many options at once"),
        _ => error,
    })?;
    match pairs.into_iter().find(|(name, _)| name == "refused") {
        Some((_, why)) => Err(io::Error::other(why)),
        None => Ok(()),
    }
}

/// Makes everything done on a mount durable; `path` as for [`ask`]. Returns how long it took.
///
/// # Errors
/// As [`ask`]; what prevents durability.
pub fn sync(path: &Path) -> io::Result<Duration> {
    let begun = Instant::now();
    // The kernel does not pass on the fsync of an ordered mount.
    ask(path, DURABLE)?;
    Ok(begun.elapsed())
}

/// Sees to the order of everything done on a mount: at once with `sync=ordered`, otherwise by making it
/// durable. `path` as for [`ask`].
///
/// # Errors
/// As [`sync`].
pub fn order(path: &Path) -> io::Result<Duration> {
    let begun = Instant::now();
    File::open(root_of(path)?)?.sync_all()?;
    Ok(begun.elapsed())
}

/// Freezes a mount: changes wait until [`thaw`], and a copy of the image is sound. `path` as for [`ask`].
///
/// # Errors
/// As [`ask`]; EBUSY if it is frozen already, EPERM for other users than root and the mount's owner,
/// EOPNOTSUPP if requests come over io_uring; what cannot be written.
pub fn freeze(path: &Path) -> io::Result<()> {
    // What is written of a frozen mount's mapped files waits for the thaw, and so would the next step.
    if ask(path, STATUS)?.iter().any(|(name, value)| name == "frozen" && value == "yes") {
        return Err(io::Error::from_raw_os_error(EBUSY));
    }
    // What programs changed in mapped files is still with the kernel.
    rustix::fs::syncfs(File::open(root_of(path)?)?)?;
    ask(path, FREEZE).map(drop)
}

/// Thaws a mount. `path` as for [`ask`].
///
/// # Errors
/// As [`ask`]; EINVAL if it is not frozen, EBUSY while it is being frozen, grown or remounted, EPERM as for
/// [`freeze`].
pub fn thaw(path: &Path) -> io::Result<()> {
    ask(path, THAW).map(drop)
}

/// The answer to [`FREEZE`] and [`THAW`].
pub(crate) fn froze(freezes: bool) -> Vec<u8> {
    let mut lines = Lines::default();
    lines.add(if freezes { "frozen" } else { "thawed" }, "yes");
    lines.bytes()
}

/// The answer to [`DURABLE`].
pub(crate) fn made_durable() -> Vec<u8> {
    let mut lines = Lines::default();
    lines.add("durable", "yes");
    lines.bytes()
}

/// Copies a file inside a mount by sharing its blocks, and replaces the file that has the new name.
/// Unless `always`, bytes whose blocks cannot be shared are copied.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] if blocks cannot be shared and must be, or if the two files are
/// not in one mount of uxfs; another error of the system. The file with the new name is then unchanged.
pub fn clone(from: &Path, to: &Path, always: bool) -> io::Result<Copied> {
    let refuse = |why| io::Error::new(io::ErrorKind::Unsupported, why);
    let (Some(name), Some(dir)) = (to.file_name(), to.parent()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a name for a file"));
    };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    if root_of(from)? != root_of(dir)? {
        return Err(refuse("blocks are shared within one mount only"));
    }
    let source = File::open(from)?;
    let meta = source.metadata()?;
    if !meta.is_file() {
        return Err(refuse("only the blocks of regular files are shared"));
    }
    let mut new = OsString::from(".");
    new.push(name);
    new.push(format!(".uxfs-{}", std::process::id()));
    let new = dir.join(new);
    let copied = clone_to(&source, &new, meta.mode() & 0o777).and_then(|copied| {
        if always && copied.written > 0 {
            return Err(refuse("the volume cannot share these blocks"));
        }
        std::fs::rename(&new, to)?;
        Ok(copied)
    });
    if copied.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&new);
    }
    copied
}

fn clone_to(source: &File, new: &Path, mode: u32) -> io::Result<Copied> {
    /// A multiple of every block.
    const STEP: usize = 1 << 30;
    let target = File::options().write(true).create_new(true).mode(mode).open(new)?;
    let (mut from, mut to) = (0, 0);
    while rustix::fs::copy_file_range(source, Some(&mut from), &target, Some(&mut to), STEP)? > 0 {}
    let pairs = read_value(new, COPIED)?;
    let number = |wanted: &str| {
        let found = pairs.iter().find(|(name, _)| name == wanted);
        found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
    };
    Ok(Copied { shared: number("shared"), written: number("written") })
}

/// The mount's directory.
fn root_of(path: &Path) -> io::Result<PathBuf> {
    let path = path.canonicalize()?;
    let within = |mount: &mounts::Mount| path.starts_with(&mount.dir);
    // The last of the deepest ones, because mounts cover each other.
    let found = mounts::list()?.into_iter().filter(within);
    let found = found.max_by_key(|mount| mount.dir.components().count());
    found.map(|mount| mount.dir).ok_or_else(|| {
        io::Error::new(io::ErrorKind::Unsupported, "no volume is mounted here by uxfs")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_consists_of_lines() {
        let mut lines = Lines::default();
        lines.add("label", "a\nb c");
        lines.times("wait", &Histogram::default());
        assert!(lines.0.starts_with("label a?b c\nwait_count 0\n"));
        assert!(lines.0.lines().all(|line| line.split_once(' ').is_some()));
    }
}
