//! `uxfs stats`: what the engine counts about itself, and the state of the log.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};
use uxfs::Histogram;

use crate::cmd::log;
use crate::image::Images;
use crate::json;
use crate::session::{Result, Session};

/// Show the log's state, and what the engine counts about itself
///
/// The counters are those of a program that has the volume open (the library's `Fs::stats`), by the
/// names of /proc/fs/xfs/stat where that has them; here they begin when this command opens the image.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  uxfs stats disk.img\n  uxfs stats --json disk.img | jq .log_bytes"
)]
pub(crate) struct Options {
    /// As a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

/// What is said of a volume that is used without barriers.
pub(crate) const UNSAFE: &str = "off (nobarrier): unsafe on a volatile write cache";

/// Shows them.
pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let log = log::ends(&options.image, images)?;
    let image = images.get(&options.image, false)?;
    let stats = image.fs.stats();
    let barrier = image.fs.journal_options().is_none_or(|journal| journal.barrier);
    let times = [("force_wait", &stats.force_wait), ("flush_time", &stats.flush_time)];
    if !options.json {
        let mut out = format!(
            "log {}, head {}, tail {}, {} of {} bytes live\nbarriers {}\n",
            log.state,
            log.head,
            log.tail,
            log.live_bytes,
            log.bytes,
            if barrier { "on" } else { UNSAFE }
        );
        for (name, count) in stats.counters() {
            out.push_str(&format!("{name} {count}\n"));
        }
        for (name, times) in times {
            out.push_str(&line(name, times));
        }
        return session.print(out);
    }
    let mut map = Map::new();
    map.insert("image".into(), json!(options.image.display().to_string()));
    map.insert("log_state".into(), json!(log.state));
    map.insert("log_head".into(), json!(log.head));
    map.insert("log_tail".into(), json!(log.tail));
    map.insert("log_live_bytes".into(), json!(log.live_bytes));
    map.insert("log_size_bytes".into(), json!(log.bytes));
    map.insert("barrier".into(), json!(barrier));
    for (name, count) in stats.counters() {
        map.insert(name.into(), json!(count));
    }
    for (name, times) in times {
        map.insert(name.into(), histogram(times));
    }
    session.print(json::document("stats", map))
}

fn line(name: &str, times: &Histogram) -> String {
    format!(
        "{name} {} times, {} us on average, half below {} us, 99% below {} us\n",
        times.count(),
        times.mean_ns() / 1000,
        times.percentile_us(50),
        times.percentile_us(99)
    )
}

/// The buckets that are not empty.
fn histogram(times: &Histogram) -> Value {
    let buckets = times.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
    let buckets: Vec<Value> = buckets
        .map(|(power, count)| json!({ "below_us": 1u64 << power, "count": count }))
        .collect();
    json!({ "count": times.count(), "total_ns": times.total_ns, "buckets": buckets })
}
