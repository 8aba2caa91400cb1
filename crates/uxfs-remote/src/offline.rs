//! An image that nothing writes to, shipped as one checkpoint.

use std::sync::Arc;

use uxfs_disk::BlockDev;

use crate::compare::narrow;
use crate::publisher::{BLOCK, Published, Publisher};
use crate::shipper::new_writer;
use crate::tracker::Tracker;
use crate::{Remote, Result, ShipOptions};

/// Ships an image: whole if the store has no checkpoint of it, otherwise what differs from the last one.
/// `now` is the time in milliseconds since 1970. Returns `None` if nothing differs.
///
/// The caller holds the image's lock. `uuid` is that of the volume.
///
/// # Errors
/// [`crate::Error::OtherVolume`]; those of the image and of the store. No checkpoint is then made.
pub fn ship(
    dev: &dyn BlockDev,
    remote: Arc<Remote>,
    uuid: [u8; 16],
    now: u64,
) -> Result<Option<Published>> {
    let inside_max = ShipOptions::default().inside_bytes;
    let (mut publisher, last) =
        Publisher::begin(remote, new_writer()?, uuid, dev.len(), inside_max)?;
    // Nothing is copied aside, because nothing is written.
    let tracker = Tracker::new(dev.len(), BLOCK, 1);
    let all = tracker.all_blocks();
    tracker.mark(all.0, all.1);
    if let Some(last) = &last {
        narrow(&tracker, dev, last, &[all])?;
    }
    if last.is_some() && !tracker.is_dirty() {
        return Ok(None);
    }
    let changed = tracker.pending();
    tracker.freeze(&publisher.merged());
    publisher.publish(&tracker, dev, changed, now).map(Some)
}
