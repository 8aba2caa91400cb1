//! Reads the tables of a checkpoint's deltas.
//!
//! 1. Each table has the hash by which the manifest names its delta, wherever it was read.
//! 2. The end of the newest delta is read first. It may be followed by copies of the tables below, and names the
//!    delta whose object has the rest. Only tables that were not copied cost a request each, many at once.
//!
//! Called by [`crate::Checkpoint::open`].

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;
use uxfs_delta::{COPIES_MAX, Copies, Hash, Index, Layer, Manifest, TRAILER_LEN, Trailer};

use crate::fault::{Fault, planted};
use crate::remote::name_of;
use crate::{Error, Remote, Result, parallel};

/// Requests for tables at once.
const REQUESTS: usize = 16;

/// The table of a delta.
#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) index: Index,
    /// The table and the trailer, as they are in the object.
    pub(crate) end: Bytes,
    /// Does its object have copies of the tables below?
    pub(crate) covers: bool,
}

/// What was read of the end of an object.
struct End {
    table: Table,
    /// The bytes behind the delta.
    behind: Bytes,
}

/// Reads the table of each delta.
///
/// # Errors
/// Those of the store; what is wrong with a delta.
pub(crate) fn read(remote: &Remote, manifest: &Manifest) -> Result<Vec<Table>> {
    let layers = &manifest.layers;
    let mut found: Vec<Option<Table>> = vec![None; layers.len()];
    // The layer whose copies are read. Those above it are not covered by copies any more.
    let mut from = layers.len().saturating_sub(1);
    loop {
        let absent: Vec<usize> = (from..layers.len()).filter(|at| found[*at].is_none()).collect();
        let ends = Mutex::new(Vec::new());
        parallel::for_each(REQUESTS, &absent, |_, at| {
            let end = read_end(remote, manifest, &layers[*at], *at == from)?;
            ends.lock().push((*at, end));
            Ok::<(), Error>(())
        })?;
        let mut rest = None;
        for (at, End { mut table, behind }) in ends.into_inner() {
            if let Some(copies) = Copies::parse(&behind) {
                table.covers = !copies.ends.is_empty();
                rest = rest.or(copies.rest);
                take_copies(remote, manifest, &behind, &copies, &mut found);
            }
            found[at] = Some(table);
        }
        if found.iter().all(Option::is_some) {
            return Ok(found.into_iter().flatten().collect());
        }
        let below = layers[..from].iter().rposition(|layer| Some(layer.id) == rest);
        from = below.filter(|at| found[*at].is_none()).unwrap_or(0);
    }
}

/// Takes the copies of tables that are missing. One that is damaged is read from its own object later.
fn take_copies(
    remote: &Remote,
    manifest: &Manifest,
    behind: &Bytes,
    copies: &Copies<'_>,
    found: &mut [Option<Table>],
) {
    let ends: HashMap<Hash, &[u8]> = copies.ends.iter().copied().collect();
    for (layer, table) in manifest.layers.iter().zip(found) {
        if let (None, Some(end)) = (&table, ends.get(&layer.id)) {
            *table = parse(remote, manifest, layer, behind.slice_ref(end)).ok();
        }
    }
}

fn read_end(remote: &Remote, manifest: &Manifest, layer: &Layer, copies: bool) -> Result<End> {
    let failed = |what| Error::object(&name_of(layer))(uxfs_delta::Error::Damaged(what));
    if layer.table_at >= layer.object_len {
        return Err(failed("the manifest gives it an impossible table"));
    }
    let more = if copies { COPIES_MAX } else { 0 };
    let to = layer.object_len.saturating_add(more);
    let mut end = remote.read(layer, layer.table_at..to)?;
    let len = usize::try_from(layer.object_len - layer.table_at).unwrap_or(usize::MAX);
    let behind = if len < end.len() { end.split_off(len) } else { Bytes::new() };
    Ok(End { table: parse(remote, manifest, layer, end)?, behind })
}

fn parse(remote: &Remote, manifest: &Manifest, layer: &Layer, end: Bytes) -> Result<Table> {
    let name = name_of(layer);
    let failed = |what| Error::object(&name)(uxfs_delta::Error::Damaged(what));
    let Some(at) = end.len().checked_sub(TRAILER_LEN) else {
        return Err(failed("it is cut short"));
    };
    let (table, trailer) = end.split_at(at);
    let trailer = Trailer::parse(trailer, layer.object_len).map_err(Error::object(&name))?;
    if trailer.id() != layer.id && !planted(Fault::CopyTrusted) {
        return Err(failed("it is not the one that the manifest names"));
    }
    let head = trailer.head();
    if (head.uuid, head.block_size) != (manifest.uuid, manifest.block_size) {
        return Err(failed("it belongs to another volume"));
    }
    let index = Index::parse(&trailer, table, remote.key()).map_err(Error::object(&name))?;
    Ok(Table { index, end, covers: false })
}
