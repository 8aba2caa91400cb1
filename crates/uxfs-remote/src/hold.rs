//! Who may write a volume in a store from afar.
//!
//! A writer *claims* the volume by a manifest of its own: the last checkpoint again, with the next number, the
//! next epoch and a holder. Each of its checkpoints names the holder, and its last one does not any more.
//!
//! 1. The fence is the conditional put of numbers, and nothing else. A writer that was overtaken finds its next
//!    number taken, whatever it believes, whenever it looks. No clock decides anything.
//! 2. The holder is for politeness: a writer that finds one does not claim, unless it is asked to take over, or
//!    the holder is a predecessor that used the same cache. A hold does not expire, because an idle holder
//!    asks the store nothing and cannot be told from a dead one.
//! 3. A writer enters its identity into its cache before it claims. So its successor on this machine knows
//!    the claim for its own, however the writer died.
//! 4. Changes in a cache whose writer was overtaken belong to no history. They are never shipped, and
//!    never removed without being asked for.
//!
//! Used by [`crate::Shipper::hold`].

use std::io;
use std::sync::Arc;

use uxfs_delta::{Hash, Holder, Manifest};

use crate::cache_head::CacheHead;
use crate::fault::{Fault, planted};
use crate::publisher::{BLOCK, Publisher};
use crate::remote::Put;
use crate::shipper::now;
use crate::write_cache::{self, WriteCache};
use crate::{CacheFiles, CacheOptions, Checkpoint, Error, Remote, Result, ShipOptions};

/// How often a claim is tried against a holder that ships meanwhile.
const CLAIMS: usize = 100;

/// How a volume is held.
#[derive(Clone, Debug)]
pub struct HoldOptions {
    /// The machine and process, for those that find the volume held.
    pub name: String,
    /// Take the volume over from its holder.
    pub takeover: bool,
    /// How changes are shipped.
    pub ship: ShipOptions,
    /// Where chunks that were read are kept.
    pub reading: CacheOptions,
    /// Bytes of blocks in the write cache from which on room is given back. What is not in the store
    /// yet stays.
    pub cache_bytes: u64,
}

/// A volume that is held.
pub(crate) struct Hold {
    pub(crate) cache: Arc<WriteCache>,
    pub(crate) publisher: Publisher,
    /// The claimed checkpoint.
    pub(crate) checkpoint: Arc<Checkpoint>,
}

/// Opens the files of the cache for an image of so many bytes.
pub(crate) type OpenFiles<'a> = &'a dyn Fn(u64) -> io::Result<CacheFiles>;

/// Claims the volume for `writer`.
///
/// # Errors
/// [`Error::Held`], [`Error::Unshipped`], [`Error::NoVolume`]; those of the store and of the cache.
pub(crate) fn begin(
    remote: &Arc<Remote>,
    open: OpenFiles<'_>,
    options: &HoldOptions,
    writer: [u8; 16],
) -> Result<Hold> {
    let Some((last, hash)) = remote.newest()? else { return Err(Error::NoVolume) };
    if last.block_size != BLOCK {
        return Err(Error::OtherVolume("another size of a block"));
    }
    let files = open(last.image_len).map_err(Error::Cache)?;
    let head = CacheHead::read(&*files.map).map_err(Error::Cache)?;
    let fresh = CacheHead::new(last.uuid, last.image_len);
    let mut head = head.unwrap_or(fresh);
    if (head.uuid, head.image_len) != (last.uuid, last.image_len) {
        return Err(Error::OtherVolume("the cache is that of another one"));
    }
    let may_claim = |last: &Manifest, head: &CacheHead| {
        if head.has(last.writer) || options.takeover || planted(Fault::HolderIgnored) {
            return Ok(());
        }
        Error::if_held(last)
    };
    may_claim(&last, &head)?;
    let present = write_cache::bits_of(&files).map_err(Error::Cache)?;
    let is_own = head.has(last.writer);
    if is_own && last.holder.is_none() {
        // It was released: the store has what the cache holds.
        write_cache::empty(&files).map_err(Error::Cache)?;
        present.take();
    }
    if !is_own && present.count() > 0 && !planted(Fault::LostShipped) {
        return Err(Error::Unshipped { number: last.number, epoch: last.epoch });
    }
    write_cache::enter(&files, &mut head, writer).map_err(Error::Cache)?;
    let holder = Holder { name: options.name.clone(), since: now() };
    let claimed = claim(remote, (last, hash), (writer, holder), &|last| {
        may_claim(last, &head)?;
        // Another writer's checkpoint does not go under blocks of this cache.
        if present.count() > 0 && !head.has(last.writer) && !planted(Fault::LostShipped) {
            return Err(Error::Unshipped { number: last.number, epoch: last.epoch });
        }
        Ok(())
    })?;
    let checkpoint = Arc::new(Checkpoint::open(Arc::clone(remote), claimed.0.clone())?);
    let (base, reading) = (Arc::clone(&checkpoint), (options.reading.clone(), options.cache_bytes));
    let cache = WriteCache::new(files, present, Arc::clone(remote), writer, base, reading);
    let publisher =
        Publisher::holding(Arc::clone(remote), claimed, &checkpoint, options.ship.inside_bytes);
    Ok(Hold { cache: Arc::new(cache), publisher, checkpoint })
}

/// Puts a claim behind the last checkpoint, whichever that is by then.
fn claim(
    remote: &Remote,
    (mut last, mut hash): (Manifest, Hash),
    (writer, holder): ([u8; 16], Holder),
    may_claim: &dyn Fn(&Manifest) -> Result<()>,
) -> Result<(Manifest, Hash)> {
    for _ in 0..CLAIMS {
        may_claim(&last)?;
        let number = last.number + 1;
        let claim = Manifest {
            number,
            parent: Some(hash),
            writer,
            epoch: last.epoch + 1,
            made_at: now().max(last.made_at),
            changed_bytes: 0,
            stored_bytes: 0,
            holder: Some(holder.clone()),
            ..last
        };
        match remote.publish(&claim, &[])? {
            Put::Made(hash) => {
                // The number may have been taken and removed since the last one was read.
                if remote.numbers()?.last().is_none_or(|newest| *newest <= number) {
                    return Ok((claim, hash));
                }
                remote.remove_manifest(number)?;
            }
            Put::Lost(theirs, of_theirs) => {
                (last, hash) = (*theirs, of_theirs);
                continue;
            }
            Put::Removed => {}
        }
        (last, hash) = remote.newest()?.ok_or(Error::NoVolume)?;
    }
    Err(Error::Fenced { number: last.number, epoch: last.epoch })
}
