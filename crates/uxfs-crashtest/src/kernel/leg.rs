//! File systems of the kernel: programs run in a virtual machine, and recovery is a mount there.
//!
//! 1. Machines are kept for the next state. One whose kernel stopped or hangs is thrown away, and the state
//!    in which it did has failed.
//! 2. A machine has one volume mounted at a time. Between two mounts the last user of the disk is gone, so the
//!    kernel keeps nothing of it.
//! 3. Disks write blocks of 4096 bytes whole, as they say to the kernel: kernels rely on that for metadata.
//! 4. Programs run as the user who runs the test, with the environment and the paths of the host.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;
use uxfs_disk::{BlockDev, MemDev};

use super::file_system::KernelFs;
use super::guest::{Guest, Lost};
use super::machine::{self, Kernel, Machine};
use super::mailbox::Listener;
use super::message::{Order, Pace, Program, Report};
use crate::error::{Error, Result};
use crate::job::{Ended, How, Job, pipe};
use crate::leg::{Leg, Places, Recovered, Recovery};
use crate::lines::Lines;
use crate::operations::Operation;
use crate::problem::{Class, Problem};
use crate::recorder::Recorder;
use crate::tree::Tree;

/// Bytes that the disk writes whole.
const BLOCK: usize = 4096;
/// How long the machine may take for an order beside the program's own time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tests a file system of the kernel.
pub struct KernelLeg {
    fs: KernelFs,
    size: u64,
    options: String,
    /// The program that is the first in a machine, and its arguments.
    agent: Vec<OsString>,
    kernel: Kernel,
    idle: Mutex<Vec<Guest>>,
    /// The directory on which volumes are mounted, in the machines.
    at: TempDir,
}

impl KernelLeg {
    /// Volumes of `size` bytes, mounted with these options beside the leg's own, by a kernel of the first of these
    /// machines that comes up. `agent` is the command that calls [`serve_as_init`](crate::serve_as_init).
    ///
    /// # Errors
    /// No kernel comes up here, or none has the file system.
    pub fn new(
        fs: KernelFs,
        size: u64,
        options: &str,
        machines: &[Machine],
        agent: Vec<OsString>,
    ) -> Result<Self> {
        let at = tempfile::Builder::new().prefix("uxfs-crash-test-").tempdir();
        let at = at.map_err(|error| Error::host("cannot make a directory to mount on", error))?;
        let (kernel, guest) = found(fs, size, machines, &agent)?;
        let idle = Mutex::new(vec![guest]);
        Ok(Self { fs, size, options: options.to_owned(), agent, kernel, idle, at })
    }

    /// The machine in which programs run.
    pub fn machine(&self) -> Machine {
        self.kernel.machine
    }

    fn guest(&self) -> Result<Guest> {
        if let Some(guest) = self.idle.lock().pop() {
            return Ok(guest);
        }
        let disk = Arc::new(MemDev::new(self.size));
        let booted = Guest::boot(&self.kernel, &self.agent, disk);
        booted.map(|(guest, _)| guest).map_err(|why| Error::host("a kernel does not come up", why))
    }

    fn mount(&self) -> Order {
        let both = [self.fs.lazy_options(), &self.options];
        let options: Vec<&str> = both.into_iter().filter(|text| !text.is_empty()).collect();
        Order::Mount {
            fs: self.fs.name().into(),
            options: options.join(","),
            at: self.at.path().as_os_str().as_bytes().to_vec(),
        }
    }

    /// Puts a disk into a machine and mounts it.
    fn mounted(
        &self,
        disk: Arc<dyn BlockDev>,
    ) -> Result<std::result::Result<Mounted<'_>, Problem>> {
        let guest = self.guest()?;
        guest.put(disk);
        Ok(match guest.ask(&self.mount(), self.kernel.machine.patience(PATIENCE), &|| false) {
            Ok(Report::Done) => Ok(Mounted { leg: self, guest: Mutex::new(Some(guest)) }),
            Ok(Report::Refused(why)) => {
                let words = guest.last_words();
                self.idle.lock().push(guest);
                let text = format!("the volume cannot be mounted: {why}\n{words}");
                Err(Problem::new(Class::Recovery, text))
            }
            Ok(other) => return Err(unexpected(&other)),
            Err(lost) => Err(of_lost(Class::Recovery, "the volume cannot be mounted", &lost)),
        })
    }
}

/// The first kernel that comes up and has the file system.
fn found(
    fs: KernelFs,
    size: u64,
    machines: &[Machine],
    agent: &[OsString],
) -> Result<(Kernel, Guest)> {
    let mut why = String::new();
    for kernel in machines.iter().flat_map(|machine| machine.kernels()) {
        let tried = kernel.path.display();
        match Guest::boot(&kernel, agent, Arc::new(MemDev::new(size))) {
            Ok((guest, known)) if known.iter().any(|name| name == fs.name()) => {
                return Ok((kernel, guest));
            }
            Ok(_) => why.push_str(&format!("; {tried} has no {}", fs.name())),
            Err(reason) => why.push_str(&format!("; {tried}: {}", shortened(&reason))),
        }
    }
    let advice: Vec<&str> = machines.iter().map(|machine| machine.advice()).collect();
    let (name, advice) = (fs.name(), advice.join("; "));
    Err(Error::new(format!("--fs {name} needs a kernel in a virtual machine: {advice}{why}")))
}

/// The line of a console that says most.
fn shortened(console: &str) -> &str {
    let panic = console.lines().find(|line| line.contains("Kernel panic"));
    panic.or_else(|| console.lines().next_back()).unwrap_or("it said nothing")
}

fn unexpected(report: &Report) -> Error {
    Error::new(format!("the agent in the virtual machine said: {report:?}"))
}

impl Leg for KernelLeg {
    fn name(&self) -> &str {
        self.fs.name()
    }

    fn sector(&self) -> usize {
        BLOCK
    }

    fn paces(&self) -> Vec<&'static str> {
        KernelFs::paces().map(|(name, _)| name).to_vec()
    }

    fn make(&self) -> Result<MemDev> {
        let disk = Arc::new(self.fs.make(self.size)?);
        let mounted = self.mounted(Arc::clone(&disk) as Arc<dyn BlockDev>)?;
        let mounted = mounted.map_err(|problem| Error::host("the new volume", problem.text))?;
        let (user, group) = owner();
        mounted.done(&Order::Own { user, group })?;
        mounted.unmount()?;
        Ok(MemDev::clone(&disk))
    }

    fn record(&self, recorder: &Arc<Recorder>, pace: &str, job: &Job) -> Result<Ended> {
        let disk = Arc::clone(recorder) as Arc<dyn BlockDev>;
        let mounted =
            self.mounted(disk)?.map_err(|problem| Error::host("the volume", problem.text))?;
        let known = KernelFs::paces().into_iter().find(|(name, _)| *name == pace);
        let pace = known.map_or(Pace::Late, |(_, pace)| pace);
        let listener = RecordingListener::new(recorder, job)
            .map_err(|error| Error::host("cannot listen to the program", error))?;
        mounted.set_listener(Some(Arc::new(listener)));
        let over = || recorder.is_over() || job.stop.load(Ordering::Relaxed);
        let ended = mounted.run(&Order::Trace(program(job), pace), job, &over);
        mounted.set_listener(None);
        let output = recorder.ended();
        let mut ended = ended?;
        match ended.how {
            How::KernelStopped => {}
            _ => ended.output = output,
        }
        if recorder.is_over() {
            ended.how = How::OverLimit;
            return Ok(ended);
        }
        if ended.how != How::Stopped && ended.how != How::KernelStopped {
            mounted.unmount()?;
        }
        Ok(ended)
    }

    fn recover(&self, disk: Arc<MemDev>) -> Result<Recovery<'_>> {
        let mounted = self.mounted(disk)?;
        Ok(mounted.map(|mounted| Box::new(mounted) as Box<dyn Recovered>))
    }

    fn places(&self, _: Arc<MemDev>) -> Places {
        Places::default()
    }
}

/// A machine with a mounted volume. Unless its kernel was lost, it is unmounted and kept when this is dropped.
struct Mounted<'a> {
    leg: &'a KernelLeg,
    guest: Mutex<Option<Guest>>,
}

impl Mounted<'_> {
    fn patience(&self) -> Duration {
        self.leg.kernel.machine.patience(PATIENCE)
    }

    /// Gives an order. A guest that is lost is dropped.
    fn ask(
        &self,
        order: &Order,
        longest: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> std::result::Result<Report, Lost> {
        let mut place = self.guest.lock();
        let guest = place.as_ref().ok_or_else(|| Lost::Stopped("before".into()))?;
        let answer = guest.ask(order, longest, cancelled);
        if answer.is_err() {
            *place = None;
        }
        answer
    }

    fn done(&self, order: &Order) -> Result<()> {
        match self.ask(order, self.patience(), &|| false) {
            Ok(Report::Done) => Ok(()),
            Ok(Report::Refused(why)) => Err(Error::new(why)),
            Ok(other) => Err(unexpected(&other)),
            Err(lost) => Err(Error::new(lost.to_string())),
        }
    }

    fn set_listener(&self, listener: Option<Arc<dyn Listener>>) {
        if let Some(guest) = &*self.guest.lock() {
            guest.set_listener(listener);
        }
    }

    /// Runs a program.
    fn run(&self, order: &Order, job: &Job, cancelled: &dyn Fn() -> bool) -> Result<Ended> {
        let lost = |how, output| Ok(Ended { how, output, left_processes: false });
        match self.ask(order, job.timeout.saturating_add(self.patience()), cancelled) {
            Ok(Report::Ended(ended)) => Ok(ended),
            Ok(Report::Refused(why)) => Err(Error::new(why)),
            Ok(other) => Err(unexpected(&other)),
            Err(Lost::Cancelled) => lost(How::Stopped, String::new()),
            Err(Lost::Stopped(console)) => lost(How::KernelStopped, console),
            Err(Lost::Hangs(_)) => lost(How::TimedOut, String::new()),
        }
    }

    /// Unmounts the volume.
    fn unmount(&self) -> Result<()> {
        let unmounted = self.done(&Order::Unmount);
        if let (Ok(()), Some(guest)) = (&unmounted, self.guest.lock().take()) {
            self.leg.idle.lock().push(guest);
        }
        unmounted
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.guest.get_mut().is_some() {
            // A machine that does not unmount is not used again.
            let _ = self.unmount();
        }
    }
}

impl Recovered for Mounted<'_> {
    fn tree(&self) -> std::result::Result<Option<Tree>, Problem> {
        match self.ask(&Order::Tree, self.patience(), &|| false) {
            Ok(Report::Tree(tree)) => Ok(tree),
            Ok(Report::Refused(why)) => {
                let text = format!("the recovered volume is damaged: {why}");
                Err(Problem::new(Class::Damage, text))
            }
            Ok(other) => Err(Problem::new(Class::Damage, unexpected(&other).to_string())),
            Err(lost) => Err(of_lost(Class::Damage, "the recovered volume cannot be read", &lost)),
        }
    }

    fn run(self: Box<Self>, job: &Job) -> Result<Ended> {
        let stopped = || job.stop.load(Ordering::Relaxed);
        let ended = Mounted::run(&self, &Order::Run(program(job)), job, &stopped)?;
        // What the program wrote counts only if the volume could be closed.
        if self.guest.lock().is_some() {
            let unmounted = self.unmount();
            unmounted.map_err(|error| Error::host("the volume cannot be unmounted", error))?;
        }
        Ok(ended)
    }

    fn damage(self: Box<Self>) -> Option<Problem> {
        let damage = |text| Some(Problem::new(Class::Damage, text));
        match self.ask(&Order::Unmount, self.patience(), &|| false) {
            Ok(Report::Done) => {}
            Ok(Report::Refused(why)) => {
                return damage(format!("the recovered volume cannot be unmounted: {why}"));
            }
            Ok(other) => return damage(unexpected(&other).to_string()),
            Err(lost) => {
                let what = "the recovered volume cannot be unmounted";
                return Some(of_lost(Class::Damage, what, &lost));
            }
        }
        let guest = self.guest.lock().take()?;
        let words = self.leg.fs.inspection().iter().map(OsString::from).collect();
        let job = Job { words, ..Job::shell("", self.patience(), Arc::default()) };
        let program = Program { user: 0, group: 0, ..program(&job) };
        let tool = self.leg.fs.inspection()[0];
        match guest.ask(&Order::Inspect(program), self.patience(), &|| false) {
            Ok(Report::Ended(ended)) => {
                self.leg.idle.lock().push(guest);
                let class = match ended.how {
                    How::Success => return None,
                    How::TimedOut => Class::TimedOut,
                    _ => Class::Damage,
                };
                Some(Problem::new(class, format!("{tool}: {}: {}", ended.how, ended.output)))
            }
            Ok(other) => damage(unexpected(&other).to_string()),
            Err(lost) => Some(of_lost(Class::Damage, tool, &lost)),
        }
    }
}

/// What a lost machine says of a state. One that gave no answer may have had too little time.
fn of_lost(class: Class, what: &str, lost: &Lost) -> Problem {
    let class = if matches!(lost, Lost::Hangs(_)) { Class::TimedOut } else { class };
    Problem::new(class, format!("{what}: {lost}"))
}

/// The user and the group who run the test.
fn owner() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// A job for the machine, with the environment of this process.
fn program(job: &Job) -> Program {
    let mut env: Vec<(Vec<u8>, Vec<u8>)> = std::env::vars_os()
        .map(|(name, value)| (name.into_vec(), value.into_vec()))
        .filter(|(name, _)| !["TMPDIR", "PATH"].contains(&&*String::from_utf8_lossy(name)))
        .collect();
    // A place in memory; the host's are read-only there.
    env.push((b"TMPDIR".to_vec(), b"/dev/shm".to_vec()));
    env.push((b"PATH".to_vec(), machine::path_with_sbin().into_vec()));
    env.extend(
        job.env.iter().map(|(name, value)| (name.clone().into_vec(), value.clone().into_vec())),
    );
    let words = job.words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let (user, group) = owner();
    Program { words, env, timeout: job.timeout, user, group }
}

/// Passes what a program says and does to a recorder, through pipes of this process.
struct RecordingListener {
    recorder: Arc<Recorder>,
    pipes: Mutex<[File; 2]>,
}

impl RecordingListener {
    fn new(recorder: &Arc<Recorder>, job: &Job) -> std::io::Result<Self> {
        let ((acks, acks_end), (output, output_end)) = (pipe()?, pipe()?);
        recorder.listen(Lines::new(acks)?, Lines::new(output)?, job.ack.clone());
        let pipes = Mutex::new([File::from(acks_end), File::from(output_end)]);
        Ok(Self { recorder: Arc::clone(recorder), pipes })
    }
}

impl Listener for RecordingListener {
    fn heard(&self, acks: &[u8], output: &[u8]) {
        // Less than a pipe holds, so that no write waits.
        const PIECE: usize = 4096;
        let mut pipes = self.pipes.lock();
        for (pipe, bytes) in pipes.iter_mut().zip([acks, output]) {
            for piece in bytes.chunks(PIECE) {
                // The recorder has the other end.
                let _ = pipe.write_all(piece);
                self.recorder.drain();
            }
        }
    }

    fn did(&self, operation: Operation) {
        self.recorder.record_operation(operation);
    }
}
