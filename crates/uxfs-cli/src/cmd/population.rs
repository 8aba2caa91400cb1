//! The option `-p` of `uxfs mkfs`: fills the new volume from a directory or by a protofile.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::Args;
use uxfs::Devices;
use uxfs::clock::Clock;
use uxfs::import::{self, ImportError, Population};
use uxfs::mkfs::{self, Layout};
use uxfs_host::{OsStrExt, OsStringExt};

use crate::contexts::LabelOptions;
use crate::progress::Bar;
use crate::session::{Failure, Result, Session};

/// The variable by which mkfs.xfs derives everything random from a fixed seed.
const DETERMINISTIC_SEED: &str = "DETERMINISTIC_SEED";

/// The options, for `uxfs mkfs`.
#[derive(Args)]
pub(crate) struct PopulationOptions {
    /// Fill the volume: [file=]DIR with the content of a directory, [file=]PROTOFILE as a protofile
    /// says; atime=0|1 (keep access times of a directory's files), slashes_are_spaces=0|1 (in the names
    /// of a protofile)
    #[arg(short = 'p', value_name = "OPTIONS")]
    proto: Vec<OsString>,
    #[command(flatten)]
    labels: LabelOptions,
}

impl PopulationOptions {
    /// What is to fill the volume of this layout, if anything is. `given` has the options of option
    /// files. Mistakes in a protofile are found here.
    pub(crate) fn population(
        &self,
        given: &mkfs::Options,
        layout: &Layout,
        clock: Clock,
    ) -> Result<Option<Population>> {
        let labels = self.labels.labels()?;
        let mut wanted = mkfs::Options::default();
        let mut named = None;
        for text in &self.proto {
            for part in parts(text) {
                match part {
                    Part::File(path) if named.is_none() => named = Some(path),
                    Part::File(_) => return Err(Failure::bare("-p file option respecified")),
                    Part::Option(text) => {
                        let applied = wanted.apply('p', &text);
                        applied.map_err(|error| Failure::bare(error.to_string()))?;
                    }
                }
            }
        }
        let chosen = wanted.or(given).population;
        let path = match (named, chosen.file) {
            (Some(path), _) => path,
            (None, Some(path)) => PathBuf::from(path),
            (None, None) if labels.is_some() => {
                let text = "--file-contexts labels what -p brings: give -p, or label the volume later with \
                            uxfs relabel";
                return Err(Failure::bare(text));
            }
            (None, None) => return Ok(None),
        };
        let slashes = chosen.slashes_are_spaces.unwrap_or(false);
        let mut population = Population::named(&path, slashes, layout, clock).map_err(failure)?;
        population.atime = chosen.atime.unwrap_or(false);
        population.labels = labels;
        let repeatable = given.uuid.is_some() || matches!(clock, Clock::Fixed(_));
        if repeatable || std::env::var_os(DETERMINISTIC_SEED).is_some_and(|text| !text.is_empty()) {
            population.repeat(&given.uuid.map_or([0; 16], |uuid| uuid.0));
        }
        population.check().map_err(failure)?;
        Ok(Some(population))
    }
}

enum Part {
    File(PathBuf),
    Option(String),
}

/// The suboptions in a text. A comma can be part of a path: what follows it is taken for a suboption only
/// if it has the name of one.
fn parts(text: &OsStr) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut path: Option<Vec<u8>> = None;
    for piece in text.as_bytes().split(|byte| *byte == b',') {
        let option = [&b"atime"[..], b"slashes_are_spaces"].into_iter().any(|name| {
            piece.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest[0] == b'=')
        });
        if option {
            parts.push(Part::Option(String::from_utf8_lossy(piece).into_owned()));
        } else if let Some(path) = &mut path {
            path.push(b',');
            path.extend_from_slice(piece);
        } else {
            path = Some(piece.strip_prefix(b"file=").unwrap_or(piece).to_vec());
        }
    }
    parts.extend(
        path.filter(|path| !path.is_empty())
            .map(|path| Part::File(PathBuf::from(OsString::from_vec(path)))),
    );
    parts
}

/// Fills the volume that mkfs left unfinished on `devices`.
pub(crate) fn run(
    devices: Devices,
    population: &Population,
    quiet: bool,
    session: &Session,
) -> Result<()> {
    let summary = Bar::during(quiet, |progress| import::populate(devices, population, progress));
    for warning in summary.map_err(failure)?.warnings {
        session.say(format!("uxfs: mkfs: {warning}").as_bytes());
    }
    Ok(())
}

fn failure(error: ImportError) -> Failure {
    match error {
        ImportError::Host { path, source } => Failure::host(path, &source),
        other => Failure::bare(other.to_string()),
    }
}
