//! `uxfs crash-test`: pulls the power on a program.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use regex::bytes::{Regex, RegexBuilder};
use uxfs::disk::{BlockDev, MemDev, OpenMode};
use uxfs::volume::{self, Location};
use uxfs_crashtest::{
    self as crashtest, Failure as Failed, KernelFs, KernelLeg, Leg, Machine, Outcome, Plan,
    Progress, READY, Ready, Run, State, UxfsLeg,
};

use crate::json;
use crate::number;
use crate::session::{Failure, Result, Session};

/// The defaults of --timeout, --limit and --size.
const TIMEOUT: u64 = 60;
const LIMIT: u64 = 1 << 30;
const SIZE: u64 = 512 << 20;

/// Pull the power on a program: find what it acknowledges and a crash loses, and the missing fsync
///
/// CMD runs in the root directory of a new volume. The volume's disk records every write and flush, in
/// one order with what the program acknowledges: lines that it writes to the descriptor whose number is
/// in UXFS_ACK, or `uxfs ack TEXT`, or lines of its output that match --ack. Then the power is cut at
/// every moment that matters: first at each flush and each acknowledgement and with each single write
/// lost, alone or torn, then at random from the seed. Each time the file system recovers, and the check
/// runs in the recovered directory; UXFS_ACKED names a file with the acknowledgements made before the
/// cut. The check fails by an exit status, a signal or a time-out. CMD runs three times: with nothing
/// written in the background (late), with each change of names and lengths written at once (names), and
/// with all data written at once (data), because a file system promises none of these.
///
/// The first failure is made as small as it can be, and explained: which fsync, fdatasync, msync or fsync
/// of a directory is missing, and what it would keep. The check is asked for that too, in directories of
/// the host: it must depend on the files and UXFS_ACKED alone. UXFS_FROM names the directory from which
/// the test was started.
///
/// With --fs xfs, ext4, btrfs or f2fs, CMD and the check run on a Linux kernel's own file system, in a
/// virtual machine that needs no root (User Mode Linux, package user-mode-linux). The host's files are its
/// read-only root, so CMD runs as it is.
///
/// To explore crashes of uxfs itself, use `uxfs crash`. docs/CRASH-TEST.md teaches to write a test.
///
/// Exit status: 0 if every state passed, 1 if one failed, 2 if the test could not run.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs crash-test --check 'python3 ~/check.py' -- python3 ~/app.py\n  \
    uxfs crash-test --count 10000 --seed 7 --ack '^stored' --check ~/check.sh -- ~/bin/store\n  \
    uxfs crash-test --run sqlite-wal\n  \
    uxfs crash-test --fs ext4 --check ~/check.sh -- ~/bin/store\n  \
    uxfs crash-test --keep failed --html report.html --check ~/check.sh -- ~/bin/store")]
pub(crate) struct Options {
    /// File system to test on; a kernel's runs in a virtual machine, without root
    #[arg(long, value_name = "FS", default_value = "uxfs")]
    fs: FileSystem,
    /// How a kernel runs: as User Mode Linux, or in QEMU [default: the first that comes up]
    #[arg(long, value_name = "MACHINE")]
    machine: Option<MachineName>,
    /// Number of states to try
    #[arg(long, default_value_t = 1000, value_name = "N")]
    count: usize,
    /// Seed of the random states
    #[arg(long, default_value_t = 0, value_name = "S")]
    seed: u64,
    /// Command line that prepares the volume, before anything is recorded
    #[arg(long, value_name = "CMD")]
    setup: Option<String>,
    /// Command line that judges a recovered volume; without it only the volume's integrity is checked
    #[arg(long, value_name = "CMD")]
    check: Option<String>,
    /// Take lines of CMD's output that match as acknowledgements
    #[arg(long, value_name = "REGEX", value_parser = regex)]
    ack: Option<Regex>,
    /// Seconds that CMD, and each check, may take
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT)]
    timeout: u64,
    /// Most bytes that CMD may write to the disk, which is in memory
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = size)]
    limit: u64,
    /// Size of the new volume
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = size)]
    size: u64,
    /// Start with a copy of this image instead of a new volume
    #[arg(long, value_name = "IMAGE")]
    image: Option<PathBuf>,
    /// Options of the mount: as of `uxfs mount -o`, or those of the kernel's file system
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    mount_options: String,
    /// Try only this state, as a failure prints it
    #[arg(long, value_name = "STATE")]
    state: Option<State>,
    /// Threads that try states; the result does not depend on their number [default: one per processor]
    #[arg(long, value_name = "J")]
    jobs: Option<NonZeroUsize>,
    /// List the ready-made tests
    #[arg(long, exclusive = true)]
    list: bool,
    /// Run a ready-made test, which has its own CMD and check (needs python3)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["setup", "check", "ack", "image", "command"])]
    run: Option<String>,
    /// Use a run that --keep left, instead of running CMD: its states repeat exactly
    #[arg(long, value_name = "DIR", conflicts_with_all = ["setup", "ack", "image", "command"])]
    recording: Option<PathBuf>,
    /// Leave the failed state in this directory, as an image before recovery, and the recorded run
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the result as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the result as a page of HTML
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show no progress bar
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(value_name = "CMD", required_unless_present_any = ["recording", "run", "list"], last = true)]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FileSystem {
    /// uxfs, mounted through FUSE
    Uxfs,
    /// XFS of a Linux kernel
    Xfs,
    /// ext4 of a Linux kernel
    Ext4,
    /// btrfs of a Linux kernel
    Btrfs,
    /// F2FS of a Linux kernel
    F2fs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MachineName {
    Uml,
    Qemu,
}

impl From<MachineName> for Machine {
    fn from(name: MachineName) -> Self {
        match name {
            MachineName::Uml => Self::Uml,
            MachineName::Qemu => Self::Qemu,
        }
    }
}

impl FileSystem {
    /// The leg for volumes of this size.
    fn leg(self, size: u64, chosen: &Options, session: &Session) -> Result<Box<dyn Leg>> {
        let (options, machine) = (&*chosen.mount_options, chosen.machine);
        let fs = match self {
            Self::Uxfs if machine.is_some() => {
                return Err(Failure::bare(
                    "--machine is for a kernel's file system: say --fs xfs, ext4, btrfs or f2fs",
                ));
            }
            Self::Uxfs => {
                return Ok(Box::new(UxfsLeg::new(size, options).map_err(said)?));
            }
            Self::Xfs => KernelFs::Xfs,
            Self::Ext4 => KernelFs::Ext4,
            Self::Btrfs => KernelFs::Btrfs,
            Self::F2fs => KernelFs::F2fs,
        };
        let own = std::env::current_exe().map_err(|error| Failure::bare(error.to_string()))?;
        let agent = vec![own.into(), "crash-test-agent".into()];
        let machines = machine.map_or(vec![Machine::Uml, Machine::Qemu], |name| vec![name.into()]);
        let leg = KernelLeg::new(fs, size, options, &machines, agent).map_err(said)?;
        if machine.is_none() && leg.machine() == Machine::Qemu {
            session.say(
                b"uxfs: crash-test: no kernel comes up as User Mode Linux: it is emulated by QEMU, which takes longer",
            );
        }
        Ok(Box::new(leg))
    }

    /// Its name, as after --fs.
    fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }
}

fn size(text: &str) -> std::result::Result<u64, String> {
    number::size(text).ok_or_else(|| "not a number of bytes such as 1048576 or 1M".into())
}

fn regex(text: &str) -> std::result::Result<Regex, String> {
    // Output is bytes of any encoding.
    RegexBuilder::new(text).unicode(false).build().map_err(|error| error.to_string())
}

pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    // Whatever stops the test from running is no verdict on the program.
    let ended = tested(options, session);
    if ended.is_err() {
        session.set_code(2);
    }
    ended
}

fn tested(options: &Options, session: &Session) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::bare(error.to_string()))?;
    }
    if options.list {
        let lines = READY.iter().map(|ready| format!("{:<16} {}\n", ready.name, ready.what));
        return session.print(lines.collect::<String>());
    }
    let scripts = tempfile::tempdir().map_err(|error| Failure::bare(error.to_string()))?;
    let plan = options.plan(Arc::clone(&stop), scripts.path())?;
    let size = plan.volume.as_ref().map_or(options.size, BlockDev::len);
    let leg = options.fs.leg(size, options, session)?;
    let bar = options.bar();
    let outcome = crashtest::run(&plan, &*leg, &|progress| bar.show(progress));
    bar.clear();
    let outcome = outcome.map_err(said)?;
    let repeat = outcome.failure.as_ref().map(|failed| options.repeat(failed)).unwrap_or_default();
    if let (Some(dir), Some(failed)) = (&options.keep, &outcome.failure) {
        keep(dir, failed).map_err(|error| Failure::host(dir, &error))?;
    }
    let name = options.name();
    for (file, text) in [
        (&options.junit, crashtest::junit(&outcome, &name)),
        (&options.html, crashtest::html(&outcome, &name, &repeat)),
    ] {
        if let Some(file) = file {
            fs::write(file, text).map_err(|error| Failure::host(file, &error))?;
        }
    }
    options.report(&outcome, &repeat, session)?;
    if outcome.interrupted {
        session.set_code(128 + 2);
    } else if outcome.failure.is_some() {
        session.set_code(1);
    }
    Ok(())
}

impl Options {
    fn plan(&self, stop: Arc<AtomicBool>, scripts: &Path) -> Result<Plan> {
        let (command, setup, check) = match &self.run {
            None => (self.command.clone(), self.setup.clone(), self.check.clone()),
            Some(name) => {
                let ready = Ready::of(name).ok_or_else(|| {
                    Failure::bare(format!("--run {name}: there is no such test: --list shows them"))
                })?;
                let made = ready.prepare(scripts);
                let made = made.map_err(|error| Failure::host(scripts, &error))?;
                (made.command, made.setup, Some(made.check))
            }
        };
        let one = NonZeroUsize::MIN;
        let processors = || std::thread::available_parallelism().unwrap_or(one);
        Ok(Plan {
            command,
            setup,
            check,
            ack: self.ack.clone(),
            timeout: Duration::from_secs(self.timeout),
            limit: self.limit,
            count: self.count,
            seed: self.seed,
            jobs: self.jobs.unwrap_or_else(processors),
            volume: self.image.as_deref().map(copied).transpose()?,
            recorded: self
                .recording
                .as_deref()
                .map(Run::load)
                .transpose()
                .map_err(said)?
                .map(Arc::new),
            state: self.state.clone(),
            stop,
        })
    }

    /// The command as one line.
    fn name(&self) -> String {
        if let Some(name) = &self.run {
            return name.clone();
        }
        if let Some(recording) = &self.recording {
            return recording.display().to_string();
        }
        let words = self.command.iter().map(|word| quoted(&word.to_string_lossy()));
        words.collect::<Vec<_>>().join(" ")
    }

    /// The line that repeats a failure.
    fn repeat(&self, failed: &Failed) -> String {
        let mut line = format!("uxfs crash-test --state {}", quoted(&failed.state.to_string()));
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                line.push_str(&format!(" --{name} {}", quoted(&value)));
            }
        };
        let path = |path: &PathBuf| path.display().to_string();
        let kept = self.keep.as_ref().map(|dir| dir.join(RECORDING));
        let recording = kept.as_ref().or(self.recording.as_ref());
        add("fs", (self.fs != FileSystem::Uxfs).then(|| self.fs.name()));
        let machine = self.machine.and_then(|name| name.to_possible_value());
        add("machine", machine.map(|value| value.get_name().to_owned()));
        add("recording", recording.map(path));
        add("run", self.run.clone());
        add("check", self.check.clone());
        add("mount-options", Some(self.mount_options.clone()).filter(|text| !text.is_empty()));
        add("timeout", (self.timeout != TIMEOUT).then(|| self.timeout.to_string()));
        if recording.is_some() {
            return line;
        }
        add("setup", self.setup.clone());
        add("ack", self.ack.as_ref().map(ToString::to_string));
        add("image", self.image.as_ref().map(path));
        add("size", (self.size != SIZE).then(|| self.size.to_string()));
        add("limit", (self.limit != LIMIT).then(|| self.limit.to_string()));
        match self.run {
            Some(_) => line,
            None => format!("{line} -- {}", self.name()),
        }
    }

    fn report(&self, outcome: &Outcome, repeat: &str, session: &Session) -> Result<()> {
        if outcome.acknowledged_nothing() && !outcome.runs.is_empty() {
            session.say(
                b"uxfs: crash-test: CMD acknowledged nothing, so a state may lack all that it did",
            );
        }
        if self.json {
            let mut map = outcome.to_json();
            if outcome.failure.is_some() {
                map.insert("repeat".into(), repeat.into());
            }
            return session.print(json::document("crash-test", map));
        }
        if let Some(failed) = &outcome.failure {
            session.print(format!("{failed}\nrepeat: {repeat}\n"))?;
            if let Some(dir) = &self.keep {
                let image = dir.join(IMAGE);
                session.print(format!("kept: {}\n", image.display()))?;
            }
        }
        session.print(format!("{outcome}\n"))?;
        let rate = outcome.states_per_second();
        session
            .say(format!("uxfs: crash-test: {rate:.0} states a second and processor").as_bytes());
        Ok(())
    }

    fn bar(&self) -> Bar {
        let shown = !self.quiet && io::stderr().is_terminal();
        Bar(shown.then(|| {
            let style = ProgressStyle::with_template("{bar:40} {pos}/{len} states, {msg}");
            let target = ProgressDrawTarget::stderr_with_hz(5);
            let bar = ProgressBar::with_draw_target(Some(self.count as u64), target);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        }))
    }
}

/// The name of a kept image.
const IMAGE: &str = "state.img";
/// The name of a kept run.
const RECORDING: &str = "recording";

fn said(error: crashtest::Error) -> Failure {
    Failure::bare(error.to_string())
}

fn keep(dir: &Path, failed: &Failed) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    crashtest::save(&failed.disk, &dir.join(IMAGE))?;
    failed.run.save(&dir.join(RECORDING))
}

/// A copy of an image in memory.
fn copied(image: &Path) -> Result<MemDev> {
    let host = |error: io::Error| Failure::host(image, &error);
    let dev = volume::open(image, OpenMode::Read, &Location::whole())
        .map_err(|error| Failure::new(image, error.to_string()))?;
    const PIECE: u64 = 1 << 20;
    let copy = MemDev::new(dev.len());
    let mut at = 0;
    while at < dev.len() {
        let len = (dev.len() - at).min(PIECE);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        dev.read_at(at, &mut bytes).map_err(host)?;
        if bytes.iter().any(|byte| *byte != 0) {
            copy.write_at(at, &bytes).map_err(host)?;
        }
        at += len;
    }
    Ok(copy)
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-+=:,./%@".contains(letter);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The progress on a terminal.
struct Bar(Option<ProgressBar>);

impl Bar {
    fn show(&self, progress: Progress) {
        let Some(bar) = &self.0 else { return };
        match progress {
            Progress::Running { pace } => bar.set_message(format!("the program runs ({pace})")),
            Progress::Trying { pace, .. } => bar.set_message(pace),
            Progress::Tried => bar.inc(1),
            Progress::Shrinking => bar.set_message("a state failed; looking for the least loss"),
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
