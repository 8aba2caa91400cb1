//! `uxfs disk serve`: a modelled disk as a real one, for virtual machines and NBD clients.
//!
//! 1. The command writes `ready` to standard error when clients can connect.
//! 2. What the disk holds is durable in the image only when the modelled disk says so. A signal ends the command
//!    as if the disk were switched off in good order: its cache is written.
//! 3. All servers of the command show the same disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use uxfs::disk::{BlockDev, MemDev, OpenMode};
use uxfs::volume::Location;
use uxfs_models::{Description, DeviceFault, RealTimeDev, SwitchedDev};
use uxfs_vhost_blk::{Access, Host, Socket};

use super::parse_size;
use super::power::Switch;
use crate::session::{Failure, Result, Session};
use crate::{address, readiness};

/// Serve a modelled disk to virtual machines or NBD clients, without root
///
/// The disk takes as long for each request as the model says, in real time, has a volatile cache, and can have
/// faults. MODEL is a description in TOML (docs/LAB.md) or one of: array-bbu, cloud, hdd-7200, mirror-2008, nvme,
/// nvme-plp, sas-15k, ssd-2010, ssd-2015.
///
/// The disk's content is an image, or with --size zeroes in memory. With --control the power can be cut: `uxfs
/// disk power`. What was flushed is then there, and of the rest what the seed leaves.
///
/// --vhost-user is for the disks of virtual machines (QEMU: vhost-user-blk-pci; User Mode Linux:
/// virtio_uml.device=SOCKET:2); it does one request after the other. --nbd is for clients of network block
/// devices, which can have many requests under way; nbdfuse of libnbd makes a file of one.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs disk serve hdd-7200 --image disk.img --nbd /run/disk.sock\n  \
    uxfs disk serve model.toml --size 10G --vhost-user /run/disk.sock --control /run/power.sock\n  \
    uxfs disk serve nvme --no-delay --fault flush-dropped --size 1G --nbd /run/disk.sock")]
pub(crate) struct Serve {
    /// The image that holds the content
    #[arg(long, value_name = "IMAGE", required_unless_present = "size", conflicts_with = "size")]
    image: Option<PathBuf>,
    /// Hold so many bytes in memory in place of an image, as in 10G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// Serve as a virtual machine's disk on this socket
    #[arg(long, value_name = "SOCKET", required_unless_present = "nbd")]
    vhost_user: Option<PathBuf>,
    /// Serve as a network block device on this socket
    #[arg(long, value_name = "SOCKET")]
    nbd: Option<PathBuf>,
    /// Take orders of `uxfs disk power` on this socket
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Bytes of the volatile cache; when it is full, the disk writes it by itself
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    cache: u64,
    /// A fault of the disk: flush-dropped, fua-dropped, some-flushes-dropped, write-lost, write-torn,
    /// write-misplaced
    #[arg(long, value_name = "FAULT")]
    fault: Option<DeviceFault>,
    /// Answer at once; the model's times do not count
    #[arg(long)]
    no_delay: bool,
    /// Seed of the model's chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The model
    #[arg(value_name = "MODEL")]
    model: PathBuf,
}

/// The description that a file holds, or that has a name.
fn describe(model: &Path) -> Result<Description> {
    let wrong = |problem: uxfs_models::Problem| Failure::new(model, problem.to_string());
    match std::fs::read_to_string(model) {
        Ok(text) => Description::parse(&text).map_err(wrong),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Description::named(&model.to_string_lossy())
                .map_err(|problem| Failure::bare(problem.to_string()))
        }
        Err(error) => Err(Failure::host(model, &error)),
    }
}

/// A thread that serves, and what stops it.
struct Serving {
    stop: Box<dyn Fn() + Send>,
    thread: JoinHandle<io::Result<()>>,
}

fn start(
    name: &str,
    stop: impl Fn() + Send + 'static,
    body: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<Serving> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(body)?;
    Ok(Serving { stop: Box::new(stop), thread })
}

fn vhost_user(dev: &Arc<dyn BlockDev>, path: &Path) -> io::Result<Serving> {
    let socket = Socket::bind(path, Access::default())?;
    let host = Host::new(Arc::clone(dev), "uxfs-model", socket)?;
    let stopper = host.stopper();
    start(
        "vhost-user",
        move || stopper.stop(),
        move || {
            // A guest that breaks the protocol is disconnected; the disk is there for the next one.
            while host.serve_one().unwrap_or(true) {}
            Ok(())
        },
    )
}

#[cfg(feature = "nbd")]
fn nbd(dev: &Arc<dyn BlockDev>, path: &Path) -> io::Result<Serving> {
    use uxfs_nbd::{Listener, Server, ServerOptions};
    let listener = Listener::unix(path, uxfs_nbd::Access::default())?;
    let server = Server::new(listener, Arc::clone(dev), ServerOptions::default())?;
    let stopper = server.stopper();
    start("nbd", move || stopper.stop(), move || server.run())
}

#[cfg(not(feature = "nbd"))]
fn nbd(_: &Arc<dyn BlockDev>, _: &Path) -> io::Result<Serving> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this uxfs was built without NBD"))
}

/// Serves the disk until a signal comes.
pub(super) fn run(options: &Serve, session: &Session) -> Result<()> {
    let bare = |error: io::Error| Failure::bare(error.to_string());
    let description = describe(&options.model)?;
    // From here on a signal ends the service, not the process.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(bare)?;
    let stable: Arc<dyn BlockDev> = match (&options.image, options.size) {
        (Some(image), _) => address::open(image, OpenMode::Write, &Location::default())
            .map_err(|error| Failure::host(image, &error))?,
        (None, size) => Arc::new(MemDev::new(size.unwrap_or_default())),
    };
    let room = usize::try_from(options.cache).unwrap_or(usize::MAX);
    let disk = Arc::new(SwitchedDev::new(stable, room, options.fault));
    let dev: Arc<dyn BlockDev> = match options.no_delay {
        true => Arc::clone(&disk) as Arc<dyn BlockDev>,
        false => {
            let model = description
                .build(options.seed)
                .map_err(|error| Failure::bare(error.to_string()))?;
            Arc::new(RealTimeDev::new(Arc::clone(&disk), model))
        }
    };
    let mut servings = Vec::new();
    if let Some(path) = &options.vhost_user {
        servings.push(vhost_user(&dev, path).map_err(|error| Failure::host(path, &error))?);
    }
    if let Some(path) = &options.nbd {
        servings.push(nbd(&dev, path).map_err(|error| Failure::host(path, &error))?);
    }
    let control = options
        .control
        .as_deref()
        .map(|path| Switch::start(path, &disk).map_err(|error| Failure::host(path, &error)));
    let control = control.transpose()?;
    session.say(b"ready");
    readiness::notify("READY=1").map_err(bare)?;
    signals.forever().next();
    servings.iter().for_each(|serving| (serving.stop)());
    for serving in servings {
        let ended = serving.thread.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("a server panicked"))).map_err(bare)?;
    }
    drop(control);
    disk.end().map_err(bare)
}
