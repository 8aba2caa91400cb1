//! `uxfs status`: what mounts tell of themselves.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};
use uxfs_fuse::{control, mounts};

use crate::json;
use crate::session::{Failure, Result, Session};

/// Show the state of mounts: space, log, what is in memory only, what was recovered
///
/// Needs no more than the right to read the mounted directory.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs status\n  uxfs status --json /mnt | jq .dirty_bytes")]
pub(crate) struct Options {
    /// As a JSON document, one a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Where they are mounted, or anything there; without, all that are mounted
    #[arg(value_name = "DIR")]
    dirs: Vec<PathBuf>,
}

/// Shows it.
pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    let mut dirs = options.dirs.clone();
    if dirs.is_empty() {
        let all = mounts::list().map_err(|error| Failure::bare(error.to_string()))?;
        dirs.extend(all.into_iter().map(|mount| mount.dir));
    }
    for (at, dir) in dirs.iter().enumerate() {
        let Some(pairs) = session.ok(ask(dir, control::STATUS)) else { continue };
        if options.json {
            let mut map = Map::new();
            map.insert("dir".into(), json!(dir.display().to_string()));
            map.extend(pairs.into_iter().map(|(name, value)| (name, typed(&value))));
            session.print(json::document("status", map))?;
            continue;
        }
        let mut text = if at > 0 { "\n".to_owned() } else { String::new() };
        text.push_str(&format!("{}\n", dir.display()));
        for (name, value) in pairs {
            text.push_str(&format!("  {name:<22} {value}\n"));
        }
        session.print(text)?;
    }
    Ok(())
}

/// What a mount tells under a name.
pub(crate) fn ask(dir: &Path, name: &[u8]) -> Result<Vec<(String, String)>> {
    control::ask(dir, name).map_err(|error| Failure::host(dir, &error))
}

/// A number where it is one.
pub(crate) fn typed(value: &str) -> Value {
    value.parse::<u64>().map_or_else(|_| json!(value), |number| json!(number))
}
