//! The shipping of a mounted volume: mount option `ship=`.
//!
//! 1. What the store refuses is an error of the mount, not of a later write: the store is asked before the
//!    volume is opened.
//! 2. A volume that lies in a store is shipped there; it is held while it is served.
//! 3. When the mount has ended, the store has its last state, or the mount's record says what is missing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs::disk::BlockDev;
use uxfs::format::timestamp::Timestamp;
use uxfs_fuse::{Backing, Hold, Options, Ship};
use uxfs_remote::{Address, At, CacheFiles, Error, HoldOptions, ShipMode, ShipOptions, Shipper};

use crate::image::Images;
use crate::session::{Failure, Result};
use crate::{lineage, remote, time};

/// What ships a mounted volume.
pub(super) struct Shipping {
    shipper: Arc<Shipper>,
    url: String,
    bound: u64,
    /// The directory of the write cache, if the volume lies in the store.
    cache: Option<PathBuf>,
}

impl Shipping {
    /// Begins to ship the device, if the options say so. Returns the device to open.
    pub(super) fn begin(
        dev: Arc<dyn BlockDev>,
        options: &Options,
        image: &Path,
        images: &Images,
    ) -> Result<(Arc<dyn BlockDev>, Option<Self>)> {
        let Some(ship) = &options.ship else { return Ok((dev, None)) };
        if options.read_only {
            return Err(Failure::bare("option 'ship': the volume is served read-only"));
        }
        if images.others().any() {
            let why =
                "option 'ship': a volume with an external log or realtime device cannot be shipped";
            return Err(Failure::bare(why));
        }
        let failed = |error: Error| refusal(&ship.url, &error);
        let address = address(&ship.url)?;
        let remote = remote::connect(&address, ship.key.as_deref(), true).map_err(failed)?;
        let uuid = remote::shippable(&*dev).map_err(|error| Failure::host("the image", &error))?;
        lineage::refuse_older(image, &dev, &remote)?;
        let shipper = Shipper::start(dev, remote, uuid, wanted(ship)).map_err(failed)?;
        let (dev, shipping) = Self::of(shipper, ship, None);
        Ok((dev, Some(shipping)))
    }

    /// Takes hold of a volume that lies in a store. Returns the device to open.
    pub(super) fn hold(ship: &Ship, hold: &Hold) -> Result<(Arc<dyn BlockDev>, Self)> {
        let failed = |error: Error| refusal(&ship.url, &error);
        let host = |error: std::io::Error| Failure::host(&ship.url, &error);
        let address = address(&ship.url)?;
        let remote = remote::connect(&address, ship.key.as_deref(), false).map_err(failed)?;
        let dir = remote::write_cache(&address, hold.cache.as_deref()).map_err(host)?;
        let options = HoldOptions {
            name: this_process(),
            takeover: hold.takeover,
            ship: wanted(ship),
            reading: remote::cache(&address).map_err(host)?,
            cache_bytes: hold.cache_bytes,
        };
        let open = |len: u64| CacheFiles::in_dir(&dir, len);
        let shipper = Shipper::hold(remote, &open, &options).map_err(|error| match error {
            Error::Unshipped { .. } | Error::Cache(_) => {
                Failure::new(&ship.url, format!("{error} ({})", dir.display()))
            }
            error => failed(error),
        })?;
        Ok(Self::of(shipper, ship, Some(dir)))
    }

    /// Does it hold a volume that lies in the store?
    pub(super) fn holds(&self) -> bool {
        self.shipper.holds()
    }

    fn of(shipper: Shipper, ship: &Ship, cache: Option<PathBuf>) -> (Arc<dyn BlockDev>, Self) {
        let shipper = Arc::new(shipper);
        let dev = Arc::<Shipper>::clone(&shipper);
        (dev, Self { shipper, url: ship.url.clone(), bound: ship.lag.as_secs(), cache })
    }
}

fn wanted(ship: &Ship) -> ShipOptions {
    let mode = if ship.sync { ShipMode::Sync } else { ShipMode::Async };
    ShipOptions { mode, lag: ship.lag, interval: ship.interval, ..ShipOptions::default() }
}

/// The machine and this process, for those that find the volume held.
fn this_process() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.unwrap_or_else(|_| "an unknown machine".into());
    format!("{}, process {}", host.trim_end(), std::process::id())
}

fn refusal(url: &str, error: &Error) -> Failure {
    let since = match error {
        Error::Held { holder, made_at, .. } => {
            format!(" (since {}, last checkpoint {})", moment(holder.since), moment(*made_at))
        }
        _ => String::new(),
    };
    Failure::new(url, format!("{error}{since}"))
}

/// An address that checkpoints can be shipped to.
fn address(url: &str) -> Result<Address> {
    let address = Address::parse(url).map_err(|error| Failure::bare(error.to_string()))?;
    match address.at {
        At::Newest => Ok(address),
        _ => {
            Err(Failure::new(Path::new(url), "names one checkpoint: leave out what follows the @"))
        }
    }
}

impl Backing for Shipping {
    fn status(&self) -> Vec<(String, String)> {
        let status = self.shipper.status();
        let mode = self.shipper.mode();
        let mut pairs = vec![
            ("ship", self.url.clone()),
            ("ship_mode", if mode == ShipMode::Sync { "sync" } else { "async" }.into()),
            ("ship_checkpoint", status.checkpoint.to_string()),
            ("ship_lag_seconds", status.lag.as_secs().to_string()),
            ("ship_lag_bytes", status.lag_bytes.to_string()),
            ("ship_lag_flushes", status.lag_flushes.to_string()),
            ("ship_checkpoints", status.checkpoints.to_string()),
            ("ship_changed_bytes", status.changed_bytes.to_string()),
            ("ship_merged_bytes", status.merged_bytes.to_string()),
            ("ship_stored_bytes", status.stored_bytes.to_string()),
            ("ship_requests", status.requests.to_string()),
            ("ship_retries", status.tried_again.to_string()),
        ];
        if let Some(cache) = &self.cache {
            pairs.push(("ship_cache", cache.display().to_string()));
        }
        if mode == ShipMode::Async {
            pairs.push(("ship_lag_bound_seconds", self.bound.to_string()));
            pairs.push(("ship_slowed_writes", status.slowed_writes.to_string()));
        }
        if let Some(made_at) = status.made_at {
            pairs.push(("ship_checkpoint_time", moment(made_at)));
        }
        if let Some(error) = status.error {
            pairs.push(("ship_error", error));
        }
        if let Some(pause) = status.next_try {
            pairs.push(("ship_next_try_seconds", pause.as_secs().to_string()));
        }
        if status.stopped {
            pairs.push(("ship_stopped", "yes".into()));
        }
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn catch_up(&self) -> std::result::Result<(), String> {
        let shipped = self.shipper.ship_now();
        shipped.map(drop).map_err(|error| format!("{} is behind: {error}", self.url))
    }

    fn finish(&self) -> std::result::Result<(), String> {
        self.shipper.finish().map_err(|error| match &self.cache {
            Some(cache) => format!(
                "the volume is closed, but {} is not given up ({error}): mount it again on this machine; what \
                 was not shipped is in {}",
                self.url,
                cache.display()
            ),
            None => format!(
                "the volume is closed, but {} lacks its last state ({error}): `uxfs ship IMAGE {}` sends \
                 it",
                self.url, self.url
            ),
        })
    }
}

/// A moment as status shows it.
fn moment(millis: u64) -> String {
    let style = time::Style::Format("%Y-%m-%d %H:%M:%S %z".into(), None);
    let time = Timestamp { sec: i64::try_from(millis / 1000).unwrap_or(0), nsec: 0 };
    style.show(time, time)
}
