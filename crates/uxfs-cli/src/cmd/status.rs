//! `uxfs status`: shows the state of mounts, and how past mounts ended.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};
use uxfs::format::timestamp::Timestamp;
use uxfs_fuse::record::{self, Record, State};
use uxfs_fuse::{control, is_disconnected, mounts};

use crate::image::text_of;
use crate::json;
use crate::session::{Failure, Result, Session};
use crate::time;

/// Show the state of mounts: space, log, unwritten data, recovery
///
/// Needs only permission to read the mounted directory. For a mount that has ended, named by its
/// directory or its image, status shows how it ended: whether everything was written, and the
/// server's messages. `state` is mounted, stopped (by an error, which `stopped` shows), dead (the
/// server died and the mount is still there), ended, failed (not everything was written) or died.
///
/// Exit status: 0 if everything named is mounted and works, 3 if something is not mounted and ended
/// well, 1 for everything else.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs status\n  uxfs status --json /mnt | jq .dirty_bytes\n  \
                  uxfs status disk.img")]
pub(crate) struct Options {
    /// Print JSON documents, one per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Mounted directories or any paths in them, or images; without, all mounts
    #[arg(value_name = "DIR|IMAGE")]
    dirs: Vec<PathBuf>,
}

/// Exit code for a mount that ended well; service managers use 3 for a stopped service.
const NOT_MOUNTED: u8 = 3;

type Pairs = Vec<(String, String)>;

pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    let mut shown = false;
    let mut show = |dir: &Path, pairs: Pairs| {
        let before = std::mem::replace(&mut shown, true);
        show(dir, pairs, options.json, before, session)
    };
    if options.dirs.is_empty() {
        let all = mounts::list().map_err(|error| Failure::bare(error.to_string()))?;
        for mount in all {
            let error = match control::ask(&mount.dir, control::STATUS) {
                Ok(pairs) => {
                    show(&mount.dir, pairs)?;
                    continue;
                }
                Err(error) => error,
            };
            // Root may not access other users' mounts.
            let closed = error.kind() == ErrorKind::PermissionDenied;
            let record = if closed { record::of_dir(&mount.dir) } else { None };
            if is_disconnected(&error) {
                show(&mount.dir, of_dead(&mount.dir))?;
            } else if let Some(record) = record {
                show(&mount.dir, of_record(&record, record.state.word()))?;
            } else if mounts::on(&mount.dir).is_ok_and(|mount| mount.is_some()) {
                // Without this test, a mount that ended meanwhile would be reported as an error.
                session.fail(Failure::host(&mount.dir, &error));
            }
        }
        return Ok(());
    }
    for dir in &options.dirs {
        if let Some((dir, pairs)) = session.ok(status_of(dir)) {
            show(&dir, pairs)?;
        }
    }
    Ok(())
}

fn show(dir: &Path, pairs: Pairs, as_json: bool, gap: bool, session: &Session) -> Result<()> {
    let state = pairs.iter().find(|(name, _)| name == "state").map(|(_, state)| &**state);
    session.set_code(match state {
        Some("mounted") => 0,
        Some("ended") => NOT_MOUNTED,
        _ => 1,
    });
    if as_json {
        let mut map = Map::new();
        map.insert("dir".into(), json!(dir.display().to_string()));
        for (name, value) in pairs {
            match (name.as_str(), map.get_mut("said")) {
                ("said", Some(Value::Array(said))) => said.push(json!(value)),
                ("said", _) => drop(map.insert(name, json!([value]))),
                _ => drop(map.insert(name, typed(&value))),
            }
        }
        return session.print(json::document("status", map));
    }
    let mut text = if gap { "\n".to_owned() } else { String::new() };
    text.push_str(&format!("{}\n", dir.display()));
    for (name, value) in pairs {
        let value = crate::quote::message(value.as_bytes());
        text.push_str(&format!("  {name:<22} {}\n", String::from_utf8_lossy(&value)));
    }
    session.print(text)
}

/// The directory and the status of the mount that a directory or an image names.
fn status_of(path: &Path) -> Result<(PathBuf, Pairs)> {
    let failure = match control::ask(path, control::STATUS) {
        Ok(pairs) => return Ok((path.to_owned(), pairs)),
        Err(error) if is_disconnected(&error) => return Ok((path.to_owned(), of_dead(path))),
        Err(error) => Failure::host(path, &error),
    };
    let known = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    let Some(record) = record::of_image(path).or_else(|| record::of_dir(&known.ok()?)) else {
        return Err(failure);
    };
    if matches!(record.state, State::Mounted | State::Closing)
        && let Ok(pairs) = control::ask(&record.dir, control::STATUS)
        && pairs.contains(&("process".into(), record.process.id.to_string()))
    {
        return Ok((record.dir, pairs));
    }
    let state = if record.died() { "died" } else { record.state.word() };
    Ok((record.dir.clone(), of_record(&record, state)))
}

fn of_dead(dir: &Path) -> Pairs {
    let known = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let mut pairs = match record::of_dir(&known) {
        Some(record) => of_record(&record, "dead"),
        None => vec![("state".into(), "dead".into())],
    };
    let advice = "the server died: run uxfs umount to remove the mount; the next mount recovers";
    pairs.push(("advice".into(), advice.into()));
    pairs
}

fn of_record(record: &Record, state: &str) -> Pairs {
    let style = time::Style::Format("%Y-%m-%d %H:%M:%S %z".into(), None);
    let moment = |seconds: u64| {
        let time = Timestamp { sec: i64::try_from(seconds).unwrap_or(0), nsec: 0 };
        style.show(time, time)
    };
    let mut pairs: Pairs = vec![
        ("state".into(), state.into()),
        ("image".into(), record.image.display().to_string()),
        ("process".into(), record.process.id.to_string()),
        ("mounted_at".into(), moment(record.since)),
        ("changed_at".into(), moment(record.changed)),
    ];
    pairs.extend(record.words.iter().map(|line| ("said".to_owned(), line.clone())));
    pairs
}

/// Why an operation on a mount failed: the server's message if it has one, otherwise the kernel's
/// error. Also returns the server's status.
pub(crate) fn failure_cause(
    dir: &Path,
    error: &std::io::Error,
) -> (String, HashMap<String, String>) {
    let pairs = control::ask(dir, control::STATUS).unwrap_or_default();
    let pairs: HashMap<String, String> = pairs.into_iter().collect();
    let known = ["stopped", "retrying", "sync_error"].iter().find_map(|name| pairs.get(*name));
    (known.cloned().unwrap_or_else(|| text_of(error)), pairs)
}

/// Asks a mount's server for the values under a name.
pub(crate) fn ask(dir: &Path, name: &[u8]) -> Result<Pairs> {
    control::ask(dir, name).map_err(|error| Failure::host(dir, &error))
}

/// A JSON number if the text is a number, otherwise a string.
pub(crate) fn typed(value: &str) -> Value {
    value.parse::<u64>().map_or_else(|_| json!(value), |number| json!(number))
}
