//! The counters of a mount, once or again and again.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, json};
use uxfs_fuse::control;

use super::Options;
use crate::cmd::status;
use crate::json;
use crate::session::{Result, Session};

/// Shows the counters of a mount, or how fast they grow.
pub(super) fn run(options: &Options, session: &Session) -> Result<()> {
    match options.watch {
        Some(seconds) => watch(options, Duration::from_secs(seconds), session),
        None => once(options, session),
    }
}

/// Shows the counters.
fn once(options: &Options, session: &Session) -> Result<()> {
    let pairs = status::ask(&options.image, control::STATS)?;
    if options.json {
        let mut map = Map::new();
        map.insert("dir".into(), json!(options.image.display().to_string()));
        map.extend(pairs.into_iter().map(|(name, value)| (name, status::typed(&value))));
        return session.print(json::document("stats", map));
    }
    session.print(pairs.iter().map(|(name, value)| format!("{name} {value}\n")).collect::<String>())
}

/// The counters at one moment.
struct Sample {
    at: Instant,
    counts: HashMap<String, u64>,
}

impl Sample {
    fn take(dir: &Path) -> Result<Self> {
        let pairs = status::ask(dir, control::STATS)?.into_iter();
        let counts = pairs.filter_map(|(name, value)| Some((name, value.parse().ok()?)));
        Ok(Self { at: Instant::now(), counts: counts.collect() })
    }

    fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// The increase per second, since `before`, of the sum of the named counters.
    fn rate(&self, before: &Self, names: &[&str]) -> f64 {
        let more = |name: &&str| self.count(name).saturating_sub(before.count(name)) as f64;
        names.iter().map(more).sum::<f64>() / (self.at - before.at).as_secs_f64().max(1e-9)
    }
}

/// Columns of --watch: the heading and the counters that are summed. Counters of `_MB` columns are in
/// bytes.
const COLUMNS: [(&str, &[&str]); 9] = [
    ("requests", &[control::REQUESTS]),
    ("trans", &["trans_async", "trans_sync"]),
    ("forces", &["log_force"]),
    ("chkpts", &["checkpoints"]),
    ("flushes", &["flushes"]),
    ("log_MB", &["log_bytes"]),
    ("meta_MB", &["metadata_bytes"]),
    ("data_MB", &["data_bytes"]),
    ("pushes", &["push_ail"]),
];

/// Prints the rates of a mount, one line per interval.
fn watch(options: &Options, every: Duration, session: &Session) -> Result<()> {
    let mut before = Sample::take(&options.image)?;
    let mut shown = 0;
    while options.count.is_none_or(|count| shown < count) {
        std::thread::sleep(every);
        let now = Sample::take(&options.image)?;
        let values = COLUMNS.map(|(name, counters)| {
            let rate = now.rate(&before, counters);
            (name, if name.ends_with("_MB") { rate / 1e6 } else { rate })
        });
        let dirty = now.count("dirty_bytes") as f64 / 1e6;
        if options.json {
            let mut map = Map::new();
            map.extend(values.iter().map(|(name, rate)| (format!("{name}_per_s"), json!(rate))));
            map.insert("dirty_MB".into(), json!(dirty));
            session.print(json::document("stats-watch", map))?;
        } else {
            if shown.is_multiple_of(20) {
                let heads: String = COLUMNS.iter().map(|(name, _)| format!("{name:>9}")).collect();
                session.print(format!("{heads}  (all a second)  dirty_MB\n"))?;
            }
            let line: String = values.iter().map(|(_, rate)| format!("{rate:>9.1}")).collect();
            session.print(format!("{line}{:>16}{dirty:>10.1}\n", ""))?;
        }
        session.flush()?;
        (before, shown) = (now, shown + 1);
    }
    Ok(())
}
