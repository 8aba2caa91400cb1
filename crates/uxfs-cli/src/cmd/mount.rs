//! `uxfs mount`: mounts a volume through FUSE.
//!
//! 1. For a mount in the background the command starts itself as a second process. That process
//!    writes a line to its standard output when the mount answers requests. The command returns when
//!    it has read this line, or when the second process has failed.
//! 2. Whether umount or a signal ends the mount, the process closes the volume before it exits.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use signal_hook::consts::{SIGABRT, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use uxfs::disk::OpenMode;
use uxfs::{Fs, forks};
use uxfs_fuse::record::ImageId;
use uxfs_fuse::{Trimming, mounts, server_has_died};

use crate::address;
use crate::cli::OPTIONS_ID;
use crate::cmd::opening::{self, Opened};
use crate::cmd::{fork, remount};
use crate::image::Images;
use crate::readiness;
use crate::session::{Failure, Result, Session};

/// Mount a volume through FUSE, without root
///
/// Needs /dev/fuse and, for ordinary users, fusermount3 (Debian's package fuse3). The command
/// returns when the mount answers requests. `uxfs umount`, umount(8), fusermount3 -u or a SIGTERM to
/// the server's process ends the mount: the server writes everything and leaves a clean log. If the
/// process is killed instead, the next mount replays the log; everything that fsync confirmed is
/// there. A server in the background writes its messages to the system's log. `uxfs status` shows
/// them too, also after the mount has ended.
///
/// As `mount.fuse.uxfs` in /sbin (a link to uxfs) it serves `mount -t fuse.uxfs` and /etc/fstab. For root
/// such a mount is suid,dev unless the options say otherwise, as with mount(8); `uxfs mount` itself makes
/// mounts nosuid,nodev.
///
/// `uxfs mount -o remount,OPTIONS DIR`, or mount(8), changes the options of a mount: ro and rw (root),
/// commit=, dirty_*=, cache_bytes=, quotas, discard, sync (nosync turns it off), the access times and how fsyncs
/// share flushes. sync=, threads=, strict_open, allow_other, fuseblk, io_uring, awake, autodefrag and ship= cannot
/// change. Changing to ro fails while a file is open for writing.
///
/// Options, as for XFS and mount(8): ro, rw, norecovery (with ro), noatime, relatime, strictatime,
/// nodiratime, lazytime, discard, nodiscard, delaylog, nodelaylog, logbufs=2..8, logbsize=16k..256k,
/// barrier, nobarrier, uquota, gquota, pquota, uqnoenforce, gqnoenforce, pqnoenforce, noquota, inode64, wsync, sync, dirsync, nosuid, suid, nodev, dev, noexec,
/// allow_other, default_permissions (always on). Other options of XFS, such as sunit= or allocsize=,
/// are refused with the reason. uxfs' own: commit=SECONDS, dirty_bytes=, dirty_background_bytes=,
/// dirty_expire_centisecs=, dirty_writeback_centisecs=, cache_bytes=, threads=N, strict_open, fuseblk,
/// io_uring, noio_uring, awake, noawake, sync=durable, sync=ordered, loss=SECONDS, autodefrag[=RATE],
/// noautodefrag, fsync_policy=, flush_elision=, ship=.
///
/// With sync=ordered, fsync and its kin return at once, and after a crash the whole volume, file contents
/// included, is that of one earlier moment, at most loss= seconds old (5). `uxfs sync DIR`, and writes with
/// O_DIRECT and O_DSYNC, still mean the disk. docs/ORDERED.md says what a program may rely on.
/// autodefrag moves files that such writes split together again in the background, 8m bytes in a second
/// unless RATE says otherwise; `uxfs defrag` does it at once.
///
/// With ship=URL the volume's checkpoints go to an object store: s3://BUCKET/PREFIX, gs://…, az://… or
/// file:///DIR. ship_mode=async (the default) ships what was synced within seconds; with ship_mode=sync an
/// fsync waits for the store. ship_key=FILE encrypts; ship_interval=SECONDS (1) and ship_lag=SECONDS (30)
/// say how often, and how far behind before writers are slowed. docs/REMOTE.md explains it.
///
/// IMAGE can be the address of such a store. With -o ro, or URL@CHECKPOINT, it is read in place, by any
/// number of machines. Otherwise this mount is the volume's one writer: it holds the volume until it is
/// unmounted, and another mount is refused. The options are those behind ship=. Changes wait for the store in a
/// cache on this machine's disk, ~/.local/state/uxfs or ship_cache=DIR; what the store has leaves it when there
/// are more than ship_cache_bytes=BYTES (10g). If the server is killed, the next mount on this machine goes on
/// from the cache. On another machine, --takeover moves the volume there.
///
/// Callers that call fsync at the same time share flushes. fsync_policy= chooses how: auto (measures the
/// disk and the callers, and waits while that pays; the default), greedy, gather, gather:EIGHTHS,
/// overlap:N, journal, average, fixed:MICROSECONDS or own. flush_elision=both (the default), covered,
/// clean or none chooses which flushes are left out because they would change nothing. Neither option
/// changes what is durable when fsync returns. docs/FSYNC.md explains both options.
///
/// Durability: fsync, fdatasync, O_SYNC and O_DSYNC make their own file durable; other requests do not wait
/// for them. sync(2) and syncfs(2) never reach a FUSE server and succeed without effect: do not rely on them.
/// `uxfs sync DIR`, or an fsync of the mounted root directory as in coreutils' `sync DIR`, writes everything
/// to stable storage. With -o fuseblk, for root on Linux 6.18 or later, sync(2) and syncfs(2) reach the
/// server, and umount(8) returns only when everything is written. Such a mount has the kernel's type
/// fuseblk.uxfs and a loop device as its source. Without any sync, the server writes data after 3 to 4
/// seconds in memory (dirty_expire_centisecs, dirty_writeback_centisecs), and logs a metadata change within 1
/// second (commit).
///
/// Speed: requests come over io_uring where the kernel has it (Linux 6.14 or later), root has switched it on
/// (echo Y >/sys/module/fuse/parameters/enable_uring) and io_uring is allowed; otherwise over /dev/fuse. With
/// -o io_uring the mount fails where it is not possible, with -o noio_uring it is never used. `uxfs status`
/// shows the way, and why it is not io_uring. With -o awake the idle processors of the whole machine do not
/// halt while there are more than two requests per millisecond. This shortens each call over /dev/fuse: on a
/// virtual machine with a single caller, calls are two to three times as fast. Meanwhile the processors use
/// more power, and a virtual machine's host sees them as busy. The option needs write access to
/// /dev/cpu_dma_latency, which root has; the mount fails without it. Off by default (noawake). `uxfs status`
/// shows it.
///
/// Memory: at most dirty_bytes (64m, with sync=ordered 256m; 0 writes at once) of written data waits in memory. Metadata is cached
/// in cache_bytes (64m). Under heavy change, up to five times cache_bytes of metadata may wait to be
/// written in place; writeback in the background begins at half of that. Data that could not be written
/// stays in memory and is written again later; fsync fails until that succeeds. With strict_open each
/// open file reports a write error once, otherwise only the first caller that asks gets it.
///
/// Under a service manager: with -f the command reports that the mount serves requests as sd_notify(3)
/// does (Type=notify in a systemd unit).
///
/// Not available through FUSE: FICLONE and FICLONERANGE (EOPNOTSUPP; cp --reflink=auto still shares blocks
/// through copy_file_range, and `uxfs cp --reflink=always` always shares them), collapse and insert range
/// (EOPNOTSUPP), FIEMAP (EOPNOTSUPP), quotas. For ranges, use `uxfs fallocate` on the unmounted image.
/// Without strict_open, protected files (chattr +i, +a) fail on write and truncate, not on open. Reads from
/// the page cache do not update the access time. O_DIRECT needs no alignment. sync_file_range has no effect.
///
/// `uxfs status` and `uxfs stats --watch` show the activity of a mount. fstrim(8), run by root or the
/// mount's owner, returns free space to the host. On a terminal, the command reports a recovery that takes
/// more than a second, and with -f the progress of trimming.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs mount disk.img /mnt\n  \
    uxfs mount -o ro,noatime disk.img ~/mnt\n  \
    uxfs mount -o discard,dirty_bytes=256m disk.img /mnt\n  \
    uxfs mount base.img --delta child /mnt\n  \
    uxfs mount -o ship_mode=sync s3://backups/disk /mnt\n  \
    uxfs mount --partition 2 -f vm.qcow2 mnt")]
pub(crate) struct Options {
    /// Mount options, separated by commas; can be given several times
    #[arg(short, long, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Takes the id of other commands' `-o`; here the log options are among the mount options
    #[arg(long = "log-options", id = OPTIONS_ID, hide = true, value_delimiter = ',')]
    _log_options: Vec<String>,
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,
    /// The second process of a mount in the background
    #[arg(long, hide = true, conflicts_with = "foreground")]
    background: bool,
    /// Mount read-only, as -o ro does
    #[arg(short = 'r', long)]
    read_only: bool,
    /// Leave IMAGE, or the checkpoint of a volume in a store, as it is, and write changes to FILE, which is made if
    /// it does not exist (as by uxfs fork)
    #[arg(long, value_name = "FILE")]
    delta: Option<PathBuf>,
    /// A volume in a store: take it over from the writer that holds it, which may not write any more
    #[arg(long)]
    takeover: bool,
    /// Called by mount(8)
    #[arg(long, hide = true)]
    helper: bool,
    /// The image; with -o remount it may be left out
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Directory to mount on
    #[arg(value_name = "DIR", required_unless_present = "options")]
    dir: Option<PathBuf>,
}

/// The line that the second process writes when the mount answers requests.
const READY: &str = "mounted";

/// Translates mount(8)'s call `mount.fuse.uxfs SOURCE DIR [-sfnv] [-o OPTIONS] [-N NAMESPACE]
/// [-t TYPE]` into a command line of `uxfs mount`. `None` if there is nothing to do (`-f`).
pub(crate) fn helper_args(args: &[OsString], root: bool) -> Option<Vec<OsString>> {
    let mut line: Vec<OsString> = vec!["uxfs".into(), "mount".into(), "--helper".into()];
    if root {
        // mount(8) implies these for root and does not pass them. Options it passes follow and win.
        line.extend(["-o".into(), "suid,dev".into()]);
    }
    let mut rest = args.iter().skip(1);
    while let Some(arg) = rest.next() {
        match arg.to_str() {
            Some("-o") => {
                line.push("-o".into());
                line.extend(rest.next().cloned());
            }
            Some("-N" | "-t") => {
                rest.next();
            }
            Some(flags) if flags.len() > 1 && flags.starts_with('-') => {
                if flags.contains('f') {
                    return None;
                }
            }
            _ => line.push(arg.clone()),
        }
    }
    Some(line)
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let mut text = options.options.join(",");
    if options.read_only {
        text.push_str(",ro");
    }
    if images.norecovery() {
        text.push_str(",norecovery");
    }
    if remount::is_asked_for(&text) {
        let dir = options.dir.as_ref().unwrap_or(&options.image);
        // The prefix comes from `helper_args`, not from the user: it asks for no change.
        let text = text.strip_prefix("suid,dev,").filter(|_| options.helper).unwrap_or(&text);
        return remount::run(dir, text, options.helper);
    }
    let Some(dir) = &options.dir else {
        session.set_code(2);
        return Err(Failure::bare("DIR is missing: uxfs mount [OPTIONS] IMAGE DIR"));
    };
    let image = options.delta.as_ref().unwrap_or(&options.image);
    let parsed = opening::options(image, &text, options.takeover)?;
    if !options.foreground && !options.background {
        return in_background(options, dir, session, images);
    }
    let ended = serve(options, dir, &parsed, session, images)?;
    if let Some(line) = ended {
        session.say(format!("uxfs: mount: {line}").as_bytes());
    }
    Ok(())
}

/// Runs this command again in a second process, and waits until that process has mounted.
fn in_background(options: &Options, dir: &Path, session: &Session, images: &Images) -> Result<()> {
    let host = |error: std::io::Error| Failure::host(dir, &error);
    let mut command = Command::new("/proc/self/exe");
    command.arg0("uxfs").arg("mount").arg("--background").args(images.global_args());
    for given in &options.options {
        command.arg("-o").arg(given);
    }
    if options.read_only {
        command.arg("-r");
    }
    if options.takeover {
        command.arg("--takeover");
    }
    if let Some(delta) = &options.delta {
        command.arg("--delta").arg(delta);
    }
    command.arg("--").arg(&options.image).arg(dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(host)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(host)?;
    }
    if line.trim_end() == READY {
        return Ok(());
    }
    let status = child.wait().map_err(host)?;
    let Some(signal) = status.signal() else {
        // The second process has reported the error itself.
        session.set_code(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1).max(1));
        return Ok(());
    };
    if let Ok(Some(mount)) = mounts::on(dir)
        && server_has_died(&mount.dir)
    {
        // Remove the dead mount if possible.
        let _ = mounts::unmount(&mount.dir, true);
    }
    let hint = if signal == SIGABRT { " (out of memory, or a bug)" } else { "" };
    let text = format!("signal {signal}{hint} ended the server before it served requests");
    Err(Failure::new(dir, text))
}

/// Mounts the volume and serves it until the mount ends. Returns a closing message, if there is one.
fn serve(
    options: &Options,
    given: &Path,
    parsed: &uxfs_fuse::Options,
    session: &Session,
    images: &Images,
) -> Result<Option<String>> {
    let say = |line: &str| session.say(format!("uxfs: mount: {line}").as_bytes());
    let host = |path: &Path, error: std::io::Error| Failure::host(path, &error);
    let image = match &options.delta {
        None => &options.image,
        Some(delta) => {
            fork_of(&options.image, delta)?;
            delta
        }
    };
    let image = address::absolute(image).map_err(|error| host(image, error))?;
    remove_dead_mount(given, &say)?;
    let dir = given.canonicalize().map_err(|error| host(given, error))?;
    if !dir.is_dir() {
        return Err(host(given, rustix::io::Errno::NOTDIR.into()));
    }
    let mut parsed = parsed.clone();
    if let Some(key) = parsed.ship.as_mut().and_then(|ship| ship.key.as_mut()) {
        *key = std::path::absolute(&*key).map_err(|error| host(key, error))?;
    }
    let hold = parsed.ship.as_mut().and_then(|ship| ship.hold.as_mut());
    if let Some(cache) = hold.and_then(|hold| hold.cache.as_mut()) {
        *cache = std::path::absolute(&*cache).map_err(|error| host(cache, error))?;
    }
    // From here on a signal ends the mount, not the process.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|error| host(&dir, error))?;
    if options.background {
        // Fails only if the process is a session leader already.
        let _ = rustix::process::setsid();
        let _ = rustix::process::chdir("/");
    }
    let reopen = opener(&image, images)?;
    let Opened { fs, shipping } = opening::open("mount", &image, &mut parsed, images, &say)?;
    let mounted = uxfs_fuse::mount(fs, &image, &dir, &parsed);
    let mounted = mounted.map_err(|error| host(&dir, explain(error)));
    let mounted = opening::or_give_up(mounted, shipping.as_ref(), &say)?;
    if !parsed.read_only
        && let Some(hint) = owner_hint(&dir, options.delta.as_ref().unwrap_or(&options.image))
    {
        say(&hint);
    }
    if options.foreground && std::io::stderr().is_terminal() {
        let name = image.display().to_string();
        mounted.on_trim(move |trimming| {
            // Trimming goes on without a terminal.
            let _ = std::io::stderr().write_all(trim_line(&name, &trimming).as_bytes());
        });
    }
    mounted.reopen_with(reopen);
    if let Some(shipping) = shipping {
        mounted.set_backing(std::sync::Arc::new(shipping));
    }
    let ender = mounted.ender();
    std::thread::spawn(move || {
        for _ in signals.forever() {
            // The server reports it if the mount cannot end.
            let _ = ender.end();
        }
    });
    let announced = match options.background {
        true => announce(session).and_then(|()| {
            mounted.to_background();
            leave_terminal().map_err(|error| host(&dir, error))
        }),
        false => readiness::notify("READY=1").map_err(|error| host(&dir, error)),
    };
    if let Err(failure) = announced {
        // The parent was not notified, so the mount is removed. The first error is reported.
        let _ = mounted.ender().end();
        let _ = mounted.wait();
        return Err(failure);
    }
    let ended = mounted.wait().map_err(|error| host(&image, error))?;
    Ok(ended.map(|detached| detached.to_string()))
}

/// Makes `delta` a fork of `image`, unless it is one.
fn fork_of(image: &Path, delta: &Path) -> Result<()> {
    address::refuse_as_base(image)?;
    let host = |error: std::io::Error| Failure::host(delta, &error);
    if !delta.exists() {
        return fork::make(image, delta, false);
    }
    if !forks::is_fork(delta).map_err(host)? {
        return Err(Failure::new(delta, "is not a fork: name a new file, or one of uxfs fork"));
    }
    let base = forks::base_of(delta).map_err(host)?;
    let is_base = match address::store_of(image) {
        // Any checkpoint of the volume will do.
        Some(url) => base.to_string_lossy().strip_prefix(url).is_some_and(|at| at.starts_with('@')),
        None => {
            let whole = |path: &Path| match address::is(path) {
                true => address::pinned(path),
                false => path.canonicalize(),
            };
            let whole = |path: &Path| whole(path).map_err(|error| Failure::host(path, &error));
            whole(&base)? == whole(image)?
        }
    };
    match is_base {
        true => Ok(()),
        false => Err(Failure::new(delta, format!("is a fork of {}", base.display()))),
    }
}

/// Reports to the first process that the mount answers requests.
fn announce(session: &Session) -> Result<()> {
    session.print(format!("{READY}\n"))?;
    session.flush()
}

/// Progress of trimming for a terminal; empty during the first second.
fn trim_line(name: &str, trimming: &Trimming) -> String {
    let Trimming { done, groups, bytes, elapsed, ended } = trimming;
    if elapsed.as_secs() < 1 {
        return String::new();
    }
    let end = if *ended { "\n" } else { "" };
    let (mib, seconds) = (bytes >> 20, elapsed.as_secs());
    format!(
        "\ruxfs: mount: {name}: discarding free space, {done} of {groups} groups, {mib} MiB, \
         {seconds} s{end}"
    )
}

/// A hint for a user without write permission in the root directory, which belongs to root in a new
/// volume.
fn owner_hint(dir: &Path, image: &Path) -> Option<String> {
    let user = rustix::process::geteuid();
    if user.is_root() || rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok() {
        return None;
    }
    let (uid, gid) = (user.as_raw(), rustix::process::getegid().as_raw());
    let image = image.display();
    Some(format!(
        "you may not write to the volume's root directory; to change that, unmount it and run \
         `uxfs chown {uid}:{gid} {image}:/` (for a new volume: `uxfs mkfs --owner {uid}:{gid}`)"
    ))
}

/// Returns the function that opens the same image again for a remount.
fn opener(
    image: &Path,
    images: &Images,
) -> Result<impl Fn(&uxfs_fuse::Options) -> std::result::Result<Fs, String> + Send + Sync + 'static>
{
    let file = !address::is(image);
    let id = file.then(|| ImageId::of(image)).transpose();
    let id = id.map_err(|error| Failure::host(image, &error))?;
    let (image, location) = (image.to_owned(), images.location().clone());
    let others = images.others().clone();
    Ok(move |options: &uxfs_fuse::Options| {
        if id.is_some() && ImageId::of(&image).ok() != id {
            return Err(format!("the image is no longer at {}", image.display()));
        }
        let mode = if options.read_only { OpenMode::Read } else { OpenMode::Write };
        let name = image.display();
        let opened =
            address::open(&image, mode, &location).map_err(|error| format!("{name}: {error}"))?;
        let devices = others.beside(opened, mode).map_err(|failure| failure.to_string())?;
        Fs::open_devices(devices, options.open_options()).map_err(|error| error.to_string())
    })
}

/// Unmounts the mount of a server that was killed: such a mount answers no requests.
fn remove_dead_mount(dir: &Path, say: &dyn Fn(&str)) -> Result<()> {
    if server_has_died(dir) {
        say(&format!("{}: unmounting a mount whose server has died", dir.display()));
        let dir = std::path::absolute(dir).map_err(|error| Failure::host(dir, &error))?;
        mounts::unmount(&dir, true).map_err(|error| Failure::host(&dir, &error))?;
    }
    Ok(())
}

fn explain(error: std::io::Error) -> std::io::Error {
    let missing = match error.kind() {
        std::io::ErrorKind::NotFound => missing_of_fuse(),
        _ => None,
    };
    match missing {
        Some(what) => std::io::Error::other(format!("there is no FUSE here: {what}")),
        None => error,
    }
}

/// What FUSE needs and the system lacks.
fn missing_of_fuse() -> Option<&'static str> {
    if !Path::new("/dev/fuse").exists() {
        return Some("/dev/fuse is missing (modprobe fuse)");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join("fusermount3").exists());
    (!found).then_some("fusermount3 is missing (install fuse3)")
}

/// Closes the pipe and the terminal, so that the process that started this one stops reading.
fn leave_terminal() -> std::io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn trimming_is_reported_after_a_second() {
        let line = |done, millis, ended| {
            let elapsed = Duration::from_millis(millis);
            trim_line("a.img", &Trimming { done, groups: 16, bytes: 5 << 20, elapsed, ended })
        };
        assert_eq!((line(3, 900, false), line(16, 900, true)), (String::new(), String::new()));
        let said = "\ruxfs: mount: a.img: discarding free space, 3 of 16 groups, 5 MiB, 2 s";
        assert_eq!(line(3, 2100, false), said);
        assert!(line(16, 2100, true).ends_with(" 2 s\n"));
    }

    #[test]
    fn arguments_of_mount_8_become_a_command_line() {
        let args = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let helped =
            helper_args(&args("mount.fuse.uxfs /a.img /mnt -n -o rw,noatime -t fuse.uxfs"), false);
        assert_eq!(helped, Some(args("uxfs mount --helper /a.img /mnt -o rw,noatime")));
        let helped = helper_args(&args("mount.fuse.uxfs /a.img /mnt -o rw,nodev"), true);
        let line = "uxfs mount --helper -o suid,dev /a.img /mnt -o rw,nodev";
        assert_eq!(helped, Some(args(line)));
        assert_eq!(helper_args(&args("mount.fuse.uxfs /a.img /mnt -fv"), true), None);
    }
}
