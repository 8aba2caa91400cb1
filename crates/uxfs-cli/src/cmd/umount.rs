//! `uxfs umount`: ends a mount, and waits until the server has closed the volume.
//!
//! 1. The command writes everything before it unmounts. If writing fails, the mount stays and keeps
//!    the data in memory, unless `--force` or `--lazy` is given.
//! 2. A mount that is in use is tried again for [`BUSY_FOR`]: programs that only look at it, such as
//!    `uxfs status` and file managers, hold it for a moment.
//! 3. Success means that the server has closed the volume and written so into the mount's record
//!    ([`uxfs_fuse::record`]). The server's status names the record. The image's path may have
//!    changed, so it does not identify the record.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use uxfs_fuse::holders::{self, Named};
use uxfs_fuse::mounts::{self, Mount};
use uxfs_fuse::record::{self, Liveness, Process, Record, State};
use uxfs_fuse::{control, is_disconnected};

use crate::cmd::status;
use crate::session::{Failure, Result, Session};

/// Unmount a volume that uxfs mounted, and wait until everything is written
///
/// Writes everything first. If that fails, for example because the host's file system is full, the
/// command reports how much is not written and leaves the volume mounted: make space and unmount
/// again, or give --force to lose the unwritten data. Exit status 1 if the volume could not be
/// unmounted, or if it was unmounted but not everything is written.
///
/// If another mount namespace (a container) still has the mount, the volume stays open. The command
/// then names the process that keeps it, and gives up after --timeout.
///
/// umount(8) and fusermount3 -u return before everything is written and cannot report a failure. Use
/// `uxfs status IMAGE` or the system's log to see it.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs umount /mnt\n  uxfs umount --lazy /mnt\n  \
                  uxfs umount --timeout 10 /mnt")]
pub(crate) struct Options {
    /// Detach the mount now even if it is in use; it ends when its last user has gone
    #[arg(short, long)]
    lazy: bool,
    /// Unmount even if not everything can be written; unwritten data is lost
    #[arg(short, long)]
    force: bool,
    /// Longest time to wait for the end of the mount after unmounting; default: 30 seconds while
    /// another namespace keeps the mount, without limit while the server writes
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Mounted directory
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
}

/// Default limit of the wait for a copy of the mount in another namespace.
const OTHER_NAMESPACE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a mount that is in use is tried again.
const BUSY_FOR: Duration = Duration::from_secs(1);
/// Waits longer than this are reported.
const REPORT_AFTER: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    for dir in &options.dirs {
        session.ok(unmount(dir, options, session));
    }
    Ok(())
}

fn unmount(dir: &Path, options: &Options, session: &Session) -> Result<()> {
    let host = |error: std::io::Error| Failure::host(dir, &error);
    let Some(mount) = mounts::on(dir).map_err(host)? else {
        return Err(Failure::new(dir, "no volume is mounted here by uxfs"));
    };
    let server = match control::ask(&mount.dir, control::STATUS) {
        Ok(pairs) => Server::new(pairs),
        Err(error) if is_disconnected(&error) => return unmount_dead(dir, &mount),
        // Root may not access other users' mounts.
        Err(_) => Server::from_record(&mount),
    };
    let stopped = server.stopped.clone();
    if !options.lazy
        && !options.force
        && stopped.is_none()
        && let Err(error) = control::sync(&mount.dir)
        && !matches!(error.kind(), std::io::ErrorKind::PermissionDenied)
    {
        // The server can die during the sync.
        return match is_disconnected(&error) {
            true => unmount_dead(dir, &mount),
            false => Err(not_written(dir, &mount, &error)),
        };
    }
    unmount_used(&mount.dir, options.lazy).map_err(|error| busy(dir, &mount, &error))?;
    if options.lazy {
        return Ok(());
    }
    if mounts::list().map_err(host)?.iter().any(|other| other.is_copy_of(&mount)) {
        // The mount is also bound to another directory, so the server goes on.
        return Ok(());
    }
    server.wait(dir, &mount, options.timeout, session)
}

/// Unmounts, and tries again while the mount is in use.
fn unmount_used(dir: &Path, lazy: bool) -> std::io::Result<()> {
    let begun = Instant::now();
    loop {
        match mounts::unmount(dir, lazy) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                if begun.elapsed() >= BUSY_FOR {
                    return Err(error);
                }
            }
            ended => return ended,
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The error for a mount that is in use. Names the processes that use it.
fn busy(dir: &Path, mount: &Mount, error: &std::io::Error) -> Failure {
    let users = holders::users(mount);
    if users.is_empty() {
        return Failure::host(dir, error);
    }
    Failure::new(dir, format!("in use by {}", Named(&users)))
}

/// The error for a sync that failed: what is not written, and what to do.
fn not_written(dir: &Path, mount: &Mount, error: &std::io::Error) -> Failure {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let (why, pairs) = status::failure_cause(&mount.dir, error);
    let image = mount.source.display();
    if pairs.contains_key("stopped") {
        let text = format!(
            "the volume has stopped: {why}; what was not synced is lost. Unmount again to end it; the \
             next mount of {image} recovers what was synced"
        );
        return Failure::new(dir, text);
    }
    let number = |name: &str| pairs.get(name).cloned().unwrap_or_else(|| "0".into());
    let (bytes, files) = (number("dirty_bytes"), number("dirty_files"));
    let word = if files == "1" { "file" } else { "files" };
    let advice = match error.kind() {
        StorageFull | QuotaExceeded => format!("make room for {image}"),
        FileTooLarge => format!(
            "raise the server's limit on the size of files (prlimit --fsize=unlimited --pid {})",
            number("process")
        ),
        _ => format!("check the device or file system that holds {image}"),
    };
    Failure::new(
        dir,
        format!(
            "not everything could be written: {why}; still mounted, with {bytes} bytes of {files} \
             {word} in memory only; {advice} and unmount again, or lose that data with --force"
        ),
    )
}

/// Unmounts a mount whose server has died. Always an error: unsynced data is lost.
fn unmount_dead(dir: &Path, mount: &Mount) -> Result<()> {
    mounts::unmount(&mount.dir, true).map_err(|error| Failure::host(dir, &error))?;
    let message = record::of_dir(&mount.dir).and_then(|record| record.words.last().cloned());
    let message = message.map_or_else(String::new, |text| format!(" (its last message: {text})"));
    Err(Failure::new(
        dir,
        format!(
            "unmounted, but its server had died{message}: what was not synced is lost; the next \
             mount of {} recovers what was synced",
            mount.source.display()
        ),
    ))
}

/// The server of a mount.
struct Server {
    process: Option<Process>,
    record: Option<PathBuf>,
    stopped: Option<String>,
}

impl Server {
    fn new(pairs: Vec<(String, String)>) -> Self {
        let mut pairs: HashMap<String, String> = pairs.into_iter().collect();
        let number = |name: &str| pairs.get(name).and_then(|value| value.parse::<u64>().ok());
        let process = (|| {
            let id = u32::try_from(number("process")?).ok()?;
            let (started, namespace) = (number("process_started")?, number("process_namespace")?);
            Some(Process { id, started, namespace })
        })();
        let record = pairs.remove("record").map(PathBuf::from);
        Self { process, record, stopped: pairs.remove("stopped") }
    }

    /// Takes what is known from the mount's record, when the server does not answer.
    fn from_record(mount: &Mount) -> Self {
        let record = record::of_dir(&mount.dir).filter(|record| record.image == mount.source);
        let process = record.map(|record| record.process);
        Self { process, record: None, stopped: None }
    }

    /// The record of this mount, if a later mount has not replaced it.
    fn record(&self, mount: &Mount) -> Option<Record> {
        let record = match &self.record {
            Some(file) => record::read(file).ok(),
            None => record::of_dir(&mount.dir),
        };
        record.filter(|record| Some(record.process) == self.process)
    }

    /// Waits until the server has closed the volume.
    fn wait(
        &self,
        dir: &Path,
        mount: &Mount,
        timeout: Option<u64>,
        session: &Session,
    ) -> Result<()> {
        let (begun, mut reported) = (Instant::now(), false);
        loop {
            // Liveness first: the record read after the server's end is its last.
            let liveness = self.process.map_or(Liveness::Unknown, |process| process.liveness());
            let record = self.record(mount);
            match record.as_ref().map(|record| record.state) {
                Some(State::Ended) => return Ok(()),
                Some(State::Failed) => return Err(unmounted_but(dir, record.as_ref())),
                _ if liveness == Liveness::Dead => return Err(unmounted_but(dir, record.as_ref())),
                // A later mount of the image has replaced the record.
                None if liveness == Liveness::Unknown => return Ok(()),
                _ => {}
            }
            let waited = begun.elapsed();
            if waited >= REPORT_AFTER {
                let keepers = holders::elsewhere(mount);
                let closing = record.is_some_and(|record| record.state == State::Closing);
                let limit = match timeout {
                    Some(seconds) => Some(Duration::from_secs(seconds)),
                    None if closing || keepers.is_empty() => None,
                    None => Some(OTHER_NAMESPACE_TIMEOUT),
                };
                let what = match keepers.is_empty() || closing {
                    true => "the server is still writing".to_owned(),
                    false => {
                        format!("another namespace still has it mounted: {}", Named(&keepers))
                    }
                };
                if limit.is_some_and(|limit| waited >= limit) {
                    let seconds = waited.as_secs();
                    let text = format!(
                        "unmounted here, but not ended after {seconds} s: {what}; the image stays \
                         in use until then"
                    );
                    return Err(Failure::new(dir, text));
                }
                if !reported {
                    let line = format!("uxfs: umount: {}: waiting: {what}", dir.display());
                    session.say(line.as_bytes());
                    reported = true;
                }
            } else if timeout == Some(0) {
                return Err(Failure::new(dir, "unmounted here; not waiting for its end"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// The error for a mount that is unmounted but did not close its volume.
fn unmounted_but(dir: &Path, record: Option<&Record>) -> Failure {
    let message = record.and_then(|record| record.words.last());
    let text = match record.map(|record| record.state) {
        Some(State::Failed) => {
            format!("unmounted, but {}", message.map_or("the volume could not be closed", |s| s))
        }
        _ => {
            "unmounted, but its server ended without having closed the volume: what was not synced \
             may be lost; the next mount recovers what was synced"
                .into()
        }
    };
    Failure::new(dir, text)
}
