//! Free runs of blocks, looked up but not taken: where data that is to lie together would find room.
//!
//! 1. What is found is idle ([`crate::busy`]): data may be written there at once.
//! 2. It is a hint: once the group is unlocked, another transaction may take the blocks.
//!
//! Called by operations that choose a place for more data than one transaction allocates.

use uxfs_format::{AgBlock, AgNo};

use super::extent::{Want, find_by_len};
use crate::btree::{BnoTree, Cursor, Env};
use crate::error::Result;
use crate::tx::Tx;

/// The shortest run of `blocks` in a locked group, else the longest run that it has.
pub(crate) fn run_for(tx: &mut Tx<'_>, ag: AgNo, blocks: u32) -> Result<Option<(AgBlock, u32)>> {
    tx.expire_busy(ag);
    let want = Want { max: blocks, idle: true, ..Want::default() };
    Ok(find_by_len(tx, ag, &want)?.map(|(_, start, len)| (start, len)))
}

/// How many free blocks follow each other from `start` on, in a locked group.
pub(crate) fn blocks_from(tx: &mut Tx<'_>, ag: AgNo, start: AgBlock) -> Result<u32> {
    tx.expire_busy(ag);
    let (env, tree) = (Env::Tx(tx), BnoTree::new(ag));
    let Some(cursor) = Cursor::<BnoTree>::seek_le(env, &tree, &(start.0, u32::MAX))? else {
        return Ok(0);
    };
    let end = cursor.rec(env, &tree).map_or(0, |free| free.start.0.saturating_add(free.len));
    if end <= start.0 {
        return Ok(0);
    }
    let idle = tx.ag(ag).busy.idle(start.0..end);
    Ok(idle.first().filter(|run| run.start == start.0).map_or(0, |run| run.end - run.start))
}
