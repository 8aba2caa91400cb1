//! `xfs_growfs` of a mount of uxfs.

use std::path::Path;

use uxfs_fuse::growth::{self, Growth};

use crate::cmd::resize::of_mount::cannot_grow;
use crate::names::program::{Line, Stop};
use crate::session::Session;

/// Grows the volume of a mount of uxfs. An image file is lengthened to hold what -D asks for.
pub(super) fn run(
    line: &Line,
    dir: &Path,
    blocks: Option<u64>,
    session: &Session,
) -> Result<(), Stop> {
    let asked = if line.has('n') { growth::show(dir) } else { growth::grow(dir, blocks) };
    let Growth { table, before, blocks: after, grown, .. } =
        asked.map_err(|error| cannot_grow(dir, &error))?;
    let name = format!("meta-data={}", dir.display());
    let lines = table.iter().map(|line| match line.split_once(" isize=") {
        Some((_, rest)) => format!("{name:<32} isize={rest}\n"),
        None => format!("{line}\n"),
    });
    session.print(lines.collect::<String>())?;
    if grown {
        session.print(format!("data blocks changed from {before} to {after}\n"))?;
    } else if blocks.is_some() && !line.has('n') {
        session.say(b"data size unchanged, skipping");
    }
    Ok(())
}
