//! Is an image a later state of its volume than the last checkpoint in a store? A copy from before must not become
//! the newest state unseen.
//!
//! 1. The ends of the two logs decide: each change of a volume moves it on.
//! 2. Where one of them cannot be read, nothing is refused: what is damaged can be shipped too.
//! 3. A volume that a writer from afar holds is refused for that first, whatever the ages are: its holder moves
//!    the volume on all the time.
//!
//! Called by `uxfs ship` and the mount option `ship=`.

use std::path::Path;
use std::sync::Arc;

use uxfs::disk::BlockDev;
use uxfs_remote::{Checkpoint, Error, Remote, RemoteDev};

use crate::cmd::log;
use crate::session::{Failure, Result};

/// Refuses an image that is older than the last checkpoint.
///
/// # Errors
/// If it is older, or the volume is held; those of the store.
pub(crate) fn refuse_older(
    image: &Path,
    dev: &Arc<dyn BlockDev>,
    remote: &Arc<Remote>,
) -> Result<()> {
    let failed = |error: Error| Failure::new(image, error.to_string());
    let Some((newest, _)) = remote.newest().map_err(failed)? else { return Ok(()) };
    Error::if_held(&newest).map_err(failed)?;
    let number = newest.number;
    let checkpoint = Checkpoint::open(Arc::clone(remote), newest).map_err(failed)?;
    let checkpoint: Arc<dyn BlockDev> = Arc::new(RemoteDev::new(checkpoint, Default::default()));
    let (Ok(ours), Ok(theirs)) = (log::end_of(Arc::clone(dev)), log::end_of(checkpoint)) else {
        return Ok(());
    };
    if ours >= theirs {
        return Ok(());
    }
    let text = |(cycle, block): (u32, u32)| format!("{cycle}:{block}");
    Err(Failure::new(
        image,
        format!(
            "is older than checkpoint {number} in the store (its log ends at {}, the checkpoint's at {}): if it \
             is to be the newest state all the same, uxfs ship --force sends it",
            text(ours),
            text(theirs)
        ),
    ))
}
