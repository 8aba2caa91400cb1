//! Opens a volume for the commands that serve it, and reports what that takes.
//!
//! Called by `uxfs mount` and `uxfs serve`.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use uxfs::Fs;
use uxfs::disk::{BlockDev, OpenMode};
use uxfs::volume;
use uxfs_fuse::Backing;

use super::shipping::Shipping;
use crate::address;
use crate::image::Images;
use crate::session::{Failure, Result};

/// An open volume, and what ships it.
pub(super) struct Opened {
    pub(super) fs: Fs,
    pub(super) shipping: Option<Shipping>,
}

/// The options of a served volume. One that lies in a store, and is not served read-only, is held there.
pub(super) fn options(image: &Path, text: &str, takeover: bool) -> Result<uxfs_fuse::Options> {
    let parsed = uxfs_fuse::Options::parse(text);
    let url = match &parsed {
        Ok(options) if options.read_only => None,
        _ => address::store_of(image),
    };
    let parsed = match url {
        Some(url) => uxfs_fuse::Options::parse_held(url, text, takeover),
        None if takeover => Err("--takeover: goes with a volume in a store that is written".into()),
        None => parsed,
    };
    parsed.map_err(Failure::bare)
}

/// Opens the volume with the given options, and reports a recovery, what is wrong with the device, and what
/// the options cost. Read-only if the user may not write the image.
pub(super) fn open(
    command: &'static str,
    image: &Path,
    parsed: &mut uxfs_fuse::Options,
    images: &Images,
    say: &dyn Fn(&str),
) -> Result<Opened> {
    let opening = Opening::begin(command, image);
    let opened = open_quietly(image, parsed, images, say)?;
    drop(opening);
    let fs = &opened.fs;
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
    Ok(opened)
}

/// Opens the volume with the given options; read-only if the user may not write the image.
fn open_quietly(
    image: &Path,
    parsed: &mut uxfs_fuse::Options,
    images: &Images,
    say: &dyn Fn(&str),
) -> Result<Opened> {
    let mode = if parsed.read_only { OpenMode::Read } else { OpenMode::Write };
    if let Some((ship, hold)) =
        parsed.ship.as_ref().and_then(|ship| Some((ship, ship.hold.as_ref()?)))
    {
        let (dev, shipping) = Shipping::hold(ship, hold)?;
        let part = volume::part(dev, images.location());
        let dev = part.map_err(|error| Failure::host(image, &error));
        let fs = dev.and_then(|dev| open_on(dev, image, parsed, images));
        let shipping = Some(shipping);
        let fs = or_give_up(fs, shipping.as_ref(), say)?;
        return Ok(Opened { fs, shipping });
    }
    let dev = match address::open(image, mode, images.location()) {
        Err(error) if !parsed.read_only && is_write_protected(&error) => {
            say(&format!("{} cannot be written: it is served read-only", image.display()));
            parsed.read_only = true;
            address::open(image, OpenMode::Read, images.location())
        }
        other => other,
    };
    let dev = dev.map_err(|error| Failure::host(image, &error))?;
    let (dev, shipping) = Shipping::begin(dev, parsed, image, images)?;
    Ok(Opened { fs: open_on(dev, image, parsed, images)?, shipping })
}

/// Gives a volume in a store up if what it is held for has failed: until then no other machine can
/// write it. The device must not be used any more then.
pub(super) fn or_give_up<T>(
    done: Result<T>,
    shipping: Option<&Shipping>,
    say: &dyn Fn(&str),
) -> Result<T> {
    if done.is_err()
        && let Some(shipping) = shipping.filter(|shipping| shipping.holds())
        && let Err(why) = shipping.finish()
    {
        say(&why);
    }
    done
}

fn open_on(
    dev: Arc<dyn BlockDev>,
    image: &Path,
    parsed: &uxfs_fuse::Options,
    images: &Images,
) -> Result<Fs> {
    let mode = if parsed.read_only { OpenMode::Read } else { OpenMode::Write };
    let fs = Fs::open_devices(images.others().beside(dev, mode)?, parsed.open_options());
    fs.map_err(|error| images.not_a_volume(image, error))
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
