//! Mounts through FUSE against an empty server on the same crate and settings (the limit), a server
//! that forwards to files of the host, and the kernel's XFS on a loop device.
//!
//! Servers run in processes of their own. The mount does too: it is the command `uxfs mount`.

mod bare;
mod directory;
mod empty;
mod marks;
mod memory;
mod options;
mod served;
mod streams;
mod through;

pub use empty::serve as serve_empty;
pub use options::{Options, Part};
pub use through::serve as serve_through;

use crate::host::{self, Scratch, is_root};
use crate::{BenchError, Report, Result, Table};

pub enum Outcome {
    /// Several settings at several numbers of threads.
    Table(Table),
    Report(Report),
}

/// Runs the measurement.
///
/// # Errors
/// If a step fails, or without root and its tools.
pub fn run_all(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Vec<Outcome>> {
    let tools = ["fs_mark", "mkfs.xfs", "findmnt"];
    if !is_root() || !tools.iter().all(|tool| host::has(tool)) {
        let why = "needs root, fs_mark and mkfs.xfs: the kernel's XFS is mounted beside";
        return Err(BenchError::new("mounts", why));
    }
    let scratch = Scratch::new(&options.dir)?;
    let mut outcomes = Vec::new();
    for part in &options.parts {
        match part {
            Part::Creates => outcomes.push(Outcome::Table(marks::creates(options, &scratch, say)?)),
            Part::Durable => outcomes.push(Outcome::Table(marks::durable(options, &scratch, say)?)),
            Part::Streams => {
                let reports = streams::run_all(options, &scratch, say)?;
                outcomes.extend(reports.into_iter().map(Outcome::Report));
            }
            Part::Directory => {
                let reports = directory::run_all(options, &scratch, say)?;
                outcomes.extend(reports.into_iter().map(Outcome::Report));
            }
            Part::Memory => {
                let reports = memory::run_all(options, &scratch, say)?;
                outcomes.extend(reports.into_iter().map(Outcome::Report));
            }
        }
    }
    Ok(outcomes)
}
