//! Stands in for the shipping of mounted volumes in a build without the feature `remote`.

use std::path::Path;
use std::sync::Arc;

use uxfs::disk::BlockDev;
use uxfs_fuse::{Backing, Hold, Options, Ship};

use crate::image::Images;
use crate::session::{Failure, Result};

/// There is none.
pub(super) enum Shipping {}

impl Shipping {
    /// Refuses the option `ship=`.
    pub(super) fn begin(
        dev: Arc<dyn BlockDev>,
        options: &Options,
        _: &Path,
        _: &Images,
    ) -> Result<(Arc<dyn BlockDev>, Option<Self>)> {
        match &options.ship {
            None => Ok((dev, None)),
            Some(_) => Err(Failure::bare(
                "option 'ship': this build does not ship: build uxfs with the feature 'remote'",
            )),
        }
    }

    /// Refuses a volume in a store.
    pub(super) fn hold(ship: &Ship, _: &Hold) -> Result<(Arc<dyn BlockDev>, Self)> {
        let why = "this build knows no stores: build uxfs with the feature 'remote'";
        Err(Failure::new(&ship.url, why))
    }

    /// Does it hold a volume that lies in the store?
    pub(super) fn holds(&self) -> bool {
        match *self {}
    }
}

impl Backing for Shipping {
    fn status(&self) -> Vec<(String, String)> {
        match *self {}
    }

    fn catch_up(&self) -> std::result::Result<(), String> {
        match *self {}
    }

    fn finish(&self) -> std::result::Result<(), String> {
        match *self {}
    }
}
