//! Mounts through FUSE against an empty server on the same crate and settings (the limit), a server
//! that forwards to files of the host, and the kernel's XFS on a loop device.
//!
//! Servers run in processes of their own. The mount does too: it is the command `uxfs mount`.

mod bare;
mod beside;
mod dbench;
mod directory;
mod empty;
mod marks;
mod memory;
mod options;
mod programs;
mod random;
mod requests;
mod served;
mod streams;
mod subject;
mod through;
mod tree;
mod unsynced;

pub use empty::serve as serve_empty;
pub use options::{Options, Part};
pub use requests::RequestTable;
pub use through::serve as serve_through;

use unsynced::Unsynced;

use crate::host::{self, Scratch, is_root};
use crate::{BenchError, Report, Result, Table};

pub enum Outcome {
    /// Several settings at several numbers of threads.
    Table(Table),
    Report(Report),
    Requests(RequestTable),
}

impl From<Table> for Outcome {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

impl From<Report> for Outcome {
    fn from(report: Report) -> Self {
        Self::Report(report)
    }
}

/// Runs the measurement.
///
/// # Errors
/// If a step fails, or without root and its tools.
pub fn run_all(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Vec<Outcome>> {
    check_tools(&options.parts)?;
    let unsynced = Unsynced::new(options)?;
    let scratch = Scratch::new(&options.dir)?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    for part in &options.parts {
        match part {
            Part::Creates => {
                outcomes.push(marks::creates(options, unsynced, &scratch, say)?.into())
            }
            Part::Durable => {
                outcomes.push(marks::durable(options, unsynced, &scratch, say)?.into())
            }
            Part::Streams => add(&mut outcomes, streams::run_all(options, &scratch, say)?),
            Part::Random => add(&mut outcomes, random::run_all(options, &scratch, say)?),
            Part::Programs => {
                let (reports, requests) = programs::run_all(options, unsynced, &scratch, say)?;
                add(&mut outcomes, reports);
                outcomes.push(Outcome::Requests(requests));
            }
            Part::Dbench => {
                outcomes.push(dbench::run_all(options, unsynced, &scratch, say)?.into())
            }
            Part::Beside => add(&mut outcomes, beside::run_all(options, unsynced, &scratch, say)?),
            Part::Directory => {
                add(&mut outcomes, directory::run_all(options, unsynced, &scratch, say)?)
            }
            Part::Memory => add(&mut outcomes, memory::run_all(options, unsynced, &scratch, say)?),
        }
    }
    Ok(outcomes)
}

fn add<T: Into<Outcome>>(outcomes: &mut Vec<Outcome>, more: impl IntoIterator<Item = T>) {
    outcomes.extend(more.into_iter().map(Into::into));
}

/// The programs that a part runs, with Debian's packages of those that a small system lacks.
fn tools(part: Part) -> &'static [(&'static str, &'static str)] {
    match part {
        Part::Creates | Part::Durable => &[("fs_mark", "fsmark")],
        Part::Programs => &[("tar", "tar"), ("find", "findutils"), ("git", "git")],
        Part::Dbench => &[("dbench", "dbench")],
        Part::Streams | Part::Random | Part::Beside | Part::Directory | Part::Memory => &[],
    }
}

/// Reports what is missing before anything is measured.
fn check_tools(parts: &[Part]) -> Result<()> {
    let all = [("mkfs.xfs", "xfsprogs"), ("findmnt", "util-linux")];
    let wanted = all.iter().chain(parts.iter().flat_map(|part| tools(*part)));
    let mut missing = Vec::new();
    if !is_root() {
        missing.push("root (the kernel's XFS is mounted beside)".to_owned());
    }
    for (tool, package) in wanted.filter(|(tool, _)| !host::has(tool)) {
        let words = format!("{tool} (package {package})");
        if !missing.contains(&words) {
            missing.push(words);
        }
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(BenchError::new("mounts", format!("needs {}", missing.join(", ")))),
    }
}
