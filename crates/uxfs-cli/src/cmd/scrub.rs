//! `uxfs scrub`: checks the metadata of a mount while it is used.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value, json};
use uxfs_fuse::scrub::{self, Status};

use crate::cmd::check::OPERATIONAL;
use crate::cmd::status;
use crate::session::{Failure, Result, Session};
use crate::{interrupt, json};

const EPERM: i32 = 1;
const EBUSY: i32 = 16;
const EOPNOTSUPP: i32 = 95;
const ESTALE: i32 = 116;
/// How often the mount is asked how far it is.
const EVERY: Duration = Duration::from_millis(50);

/// Check all metadata of a mount while it is used
///
/// Checks what `uxfs check` checks, of the volume as it is when the scrub begins. Changes wait until
/// everything is in place, and go on while the check runs; the old content of what they overwrite is kept in
/// memory. One thread reads. Nothing is repaired. Only root and the user who mounted the volume may do this.
///
/// Exit status: 0 sound; 1 damage found; 8 no verdict, or only part of the volume was checked (added to the
/// others). There is no verdict if old content takes more memory than --kept-bytes, or the mount ends.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs scrub /mnt\n  uxfs scrub --json /mnt")]
pub(crate) struct Options {
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Most bytes of memory for old content, in the mount's process
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20)]
    kept_bytes: u64,
    /// Mounted directory, or any path in it
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    let dir = &options.dir;
    let ended = match follow(options) {
        Ok(ended) => ended,
        Err(error) => {
            session.fail_with(OPERATIONAL, failure(dir, &error));
            return Ok(());
        }
    };
    let Some(code) = ended.code else {
        let why = ended.why.unwrap_or_else(|| "another scrub has begun meanwhile".into());
        session.fail_with(OPERATIONAL, Failure::new(dir, format!("no verdict: {why}")));
        return Ok(());
    };
    let report = match options.json {
        true => scrub::json(dir, ended.number).and_then(|report| document(dir, &report)),
        false => scrub::text(dir, ended.number).map(|report| [&*report, b"\n"].concat()),
    };
    match report {
        Ok(report) => {
            session.set_code(code);
            session.print(report)
        }
        Err(error) => {
            session.fail_with(OPERATIONAL, failure(dir, &error));
            Ok(())
        }
    }
}

/// The JSON document with the members of a report.
fn document(dir: &Path, report: &[u8]) -> io::Result<Vec<u8>> {
    let members: Map<String, Value> = serde_json::from_slice(report)?;
    let mut map = Map::new();
    map.insert("dir".into(), json!(dir.display().to_string()));
    map.extend(members);
    Ok(json::document("scrub", map))
}

/// Begins a scrub, and returns when it has ended.
fn follow(options: &Options) -> io::Result<Status> {
    let dir = &options.dir;
    let number = scrub::begin(dir, Some(options.kept_bytes))?;
    let of = dir.clone();
    interrupt::ending(move || drop(scrub::end(&of)))?;
    let bar = (!options.quiet && io::stderr().is_terminal()).then(|| {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    });
    loop {
        let now = scrub::status(dir)?;
        if now.number != number {
            return Ok(Status::default());
        }
        if now.code.is_some() || now.why.is_some() {
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
            return Ok(now);
        }
        if let Some(bar) = &bar {
            bar.set_length(now.total);
            bar.set_position(now.done);
            bar.set_message(format!("{}, {} KiB kept", now.phase, now.kept_bytes >> 10));
        }
        std::thread::sleep(EVERY);
    }
}

fn failure(dir: &Path, error: &io::Error) -> Failure {
    let why = match error.raw_os_error() {
        Some(EPERM) => "only root and the user who mounted the volume can scrub it".into(),
        Some(EBUSY) => {
            "the volume is frozen, its options are being changed, or a scrub is under way".into()
        }
        Some(EOPNOTSUPP) => {
            "the volume is mounted without the changes that its log holds (norecovery): what is missing \
             would look like damage; mount it without norecovery"
                .into()
        }
        Some(ESTALE) => "no verdict: another scrub has begun meanwhile".into(),
        _ => status::failure_cause(dir, error).0,
    };
    Failure::new(dir, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_report_is_an_error() {
        let good = document(Path::new("m"), br#"{"verdict":"clean"}"#);
        assert!(good.is_ok_and(|text| text.ends_with(b"\"verdict\":\"clean\"}\n")));
        for bad in ["", "[]", "{\"verdict\":\"cle"] {
            assert!(document(Path::new("m"), bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
