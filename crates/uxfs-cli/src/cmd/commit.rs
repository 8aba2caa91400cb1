//! `uxfs commit`: writes what a child changed into its base.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, json};
use uxfs::forks;

use crate::json;
use crate::session::{Failure, Result, Session};

/// Write what a fork changed into its base
///
/// Afterwards the base is as the fork was, and the fork has no changes. Other forks of the same base are
/// useless then, and refused when they are used: the command does not find them. It is refused while the
/// base or the fork is in use.
///
/// If the command is interrupted, the base is marked as unfinished, and the fork as being committed: run the
/// command again.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs commit child\n  uxfs commit --json child | jq .bytes")]
pub(crate) struct Options {
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not report what was done
    #[arg(short, long)]
    quiet: bool,
    /// The fork
    #[arg(value_name = "FORK")]
    fork: PathBuf,
}

pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    let failed = |error: std::io::Error| Failure::host(&options.fork, &error);
    let base = forks::is_fork(&options.fork)
        .and_then(|is| if is { forks::base_of(&options.fork).map(Some) } else { Ok(None) });
    let committed = forks::commit(&options.fork).map_err(failed)?;
    let base = base.ok().flatten().unwrap_or_default().display().to_string();
    if options.json {
        let mut map = Map::new();
        map.insert("fork".into(), json!(options.fork.display().to_string()));
        map.insert("base".into(), json!(base));
        map.insert("bytes".into(), json!(committed.bytes));
        return session.print(json::document("commit", map));
    }
    if options.quiet {
        return Ok(());
    }
    session.print(format!("{base}: {} bytes written\n", committed.bytes))
}
