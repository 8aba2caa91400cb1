//! `uxfs stats`: shows the engine's counters, the state of the log, and a mount's requests by kind.

#[cfg(target_os = "linux")]
mod of_mount;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};
use uxfs::Histogram;

use crate::cmd::log;
use crate::image::Images;
use crate::json;
use crate::session::{Failure, Result, Session};

/// Show the log's state and the engine's counters
///
/// The counters belong to the process that has the volume open (the library's `Fs::stats`). They have
/// the names of /proc/fs/xfs/stat where it counts the same. For an image they start when this command
/// opens it; for a mounted directory, with the mount. A mount also counts the kernel's requests: all of
/// them (requests) and each kind (requests_LOOKUP, for example). The request that reads the counters is
/// one of them. With --watch, stats prints a line every few seconds until the mount ends: the rates in
/// that interval, and the dirty bytes.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  uxfs stats disk.img\n  uxfs stats --json disk.img | jq .log_bytes\n  \
                  uxfs stats /mnt --watch"
)]
pub(crate) struct Options {
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the rates per second, again after each interval of SECONDS
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
    /// Number of lines of --watch; default: no limit
    #[arg(long, value_name = "N", requires = "watch")]
    count: Option<u64>,
    /// Image, or mounted directory
    #[arg(value_name = "IMAGE|DIR")]
    image: PathBuf,
}

/// The warning for a volume that is used without barriers.
pub(crate) const UNSAFE: &str = "off (nobarrier): unsafe on a volatile write cache";

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    if options.image.is_dir() {
        #[cfg(target_os = "linux")]
        return of_mount::run(options, session);
        #[cfg(not(target_os = "linux"))]
        return Err(super::absent::failure());
    }
    if options.watch.is_some() {
        let why = "--watch needs a mounted directory: nothing changes an image that is not mounted";
        return Err(Failure::new(&options.image, why));
    }
    let log = log::bounds_of(&options.image, images)?;
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

/// A histogram as JSON, without its empty buckets.
fn histogram(times: &Histogram) -> Value {
    let buckets = times.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
    let buckets: Vec<Value> = buckets
        .map(|(power, count)| json!({ "below_us": 1u64 << power, "count": count }))
        .collect();
    json!({ "count": times.count(), "total_ns": times.total_ns, "buckets": buckets })
}
