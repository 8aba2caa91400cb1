//! Opens a volume for the commands that serve it, and reports what that takes.
//!
//! Called by `uxfs mount` and `uxfs serve`.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use uxfs::disk::OpenMode;
use uxfs::{Devices, Fs};

use crate::address;
use crate::image::{Images, optional_device};
use crate::session::{Failure, Result};

/// Opens the volume with the given options, and reports a recovery, what is wrong with the device, and what
/// the options cost. Read-only if the user may not write the image.
pub(super) fn open(
    command: &'static str,
    image: &Path,
    parsed: &mut uxfs_fuse::Options,
    images: &Images,
    say: &dyn Fn(&str),
) -> Result<Fs> {
    let opening = Opening::begin(command, image);
    let fs = open_quietly(image, parsed, images, say)?;
    drop(opening);
    if let Some(warning) = fs.device_warning() {
        say(&format!("{}: {warning}", image.display()));
    }
    if let Some(recovery) = fs.recovery() {
        let what = if recovery.in_memory { "replayed in memory" } else { "recovered" };
        say(&format!(
            "{}: the log was dirty: {what}: {} transactions, {} intents finished, {} unlinked \
             files freed",
            image.display(),
            recovery.replay.transactions,
            recovery.intents,
            recovery.unlinked
        ));
    }
    for note in parsed.notes() {
        say(&note);
    }
    Ok(fs)
}

/// Opens the volume with the given options; read-only if the user may not write the image.
fn open_quietly(
    image: &Path,
    parsed: &mut uxfs_fuse::Options,
    images: &Images,
    say: &dyn Fn(&str),
) -> Result<Fs> {
    let mode = if parsed.read_only { OpenMode::Read } else { OpenMode::Write };
    let dev = match address::open(image, mode, images.location()) {
        Err(error) if !parsed.read_only && is_write_protected(&error) => {
            say(&format!("{} cannot be written: it is served read-only", image.display()));
            parsed.read_only = true;
            address::open(image, OpenMode::Read, images.location())
        }
        other => other,
    };
    let dev = dev.map_err(|error| Failure::host(image, &error))?;
    let mut devices = Devices::new(dev);
    devices.log = optional_device(images.logdev())?;
    devices.realtime = optional_device(images.rtdev())?;
    Fs::open_devices(devices, parsed.open_options())
        .map_err(|error| images.not_a_volume(image, error))
}

fn is_write_protected(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

/// Reports on a terminal, once a second, that opening the volume takes long. Recovery of a long log
/// is the usual reason.
struct Opening(Option<Sender<()>>, Option<JoinHandle<()>>);

impl Opening {
    fn begin(command: &'static str, image: &Path) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None, None);
        }
        let name = image.display().to_string();
        let (open, opened) = channel::<()>();
        let reporter = std::thread::spawn(move || {
            let mut seconds = 0;
            while opened.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                seconds += 1;
                eprint!("\ruxfs: {command}: {name}: recovering the log, {seconds} s");
            }
            if seconds > 0 {
                eprintln!();
            }
        });
        Self(Some(open), Some(reporter))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        drop(self.0.take());
        if let Some(reporter) = self.1.take() {
            // The thread only prints, so a panic in it is ignored.
            let _ = reporter.join();
        }
    }
}
