//! The shipping of a mounted volume: mount option `ship=`.
//!
//! 1. What the store refuses is an error of the mount, not of a later write: the store is asked before the
//!    volume is opened.
//! 2. When the mount has ended, the store has its last state, or the mount's record says what is missing.

use std::path::Path;
use std::sync::Arc;

use uxfs::disk::BlockDev;
use uxfs::format::timestamp::Timestamp;
use uxfs_fuse::{Backing, Options};
use uxfs_remote::{Address, At, ShipMode, ShipOptions, Shipper};

use crate::image::Images;
use crate::session::{Failure, Result};
use crate::{remote, time};

/// What ships a mounted volume.
pub(super) struct Shipping {
    shipper: Arc<Shipper>,
    url: String,
    bound: u64,
}

impl Shipping {
    /// Begins to ship the device, if the options say so. Returns the device to open.
    pub(super) fn begin(
        dev: Arc<dyn BlockDev>,
        options: &Options,
        images: &Images,
    ) -> Result<(Arc<dyn BlockDev>, Option<Self>)> {
        let Some(ship) = &options.ship else { return Ok((dev, None)) };
        if options.read_only {
            return Err(Failure::bare("option 'ship': the volume is served read-only"));
        }
        if images.logdev().is_some() || images.rtdev().is_some() {
            let why =
                "option 'ship': a volume with an external log or realtime device cannot be shipped";
            return Err(Failure::bare(why));
        }
        let failed = |error: uxfs_remote::Error| Failure::new(&ship.url, error.to_string());
        let address = address(&ship.url)?;
        let remote = remote::connect(&address, ship.key.as_deref(), true).map_err(failed)?;
        let uuid = remote::uuid(&*dev).map_err(|error| Failure::host("the image", &error))?;
        let mode = if ship.sync { ShipMode::Sync } else { ShipMode::Async };
        let wanted =
            ShipOptions { mode, lag: ship.lag, interval: ship.interval, ..ShipOptions::default() };
        let shipper = Arc::new(Shipper::start(dev, remote, uuid, wanted).map_err(failed)?);
        let shipping = Self {
            shipper: Arc::clone(&shipper),
            url: ship.url.clone(),
            bound: ship.lag.as_secs(),
        };
        Ok((shipper, Some(shipping)))
    }
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
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn catch_up(&self) -> std::result::Result<(), String> {
        let shipped = self.shipper.ship_now();
        shipped.map(drop).map_err(|error| format!("{} is behind: {error}", self.url))
    }

    fn finish(&self) -> std::result::Result<(), String> {
        self.shipper.finish().map_err(|error| {
            format!(
                "the volume is closed, but {} lacks its last state ({error}): `uxfs ship IMAGE {}` sends \
                 it",
                self.url, self.url
            )
        })
    }
}

/// A moment as status shows it.
fn moment(millis: u64) -> String {
    let style = time::Style::Format("%Y-%m-%d %H:%M:%S %z".into(), None);
    let time = Timestamp { sec: i64::try_from(millis / 1000).unwrap_or(0), nsec: 0 };
    style.show(time, time)
}
