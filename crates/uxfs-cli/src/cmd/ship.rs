//! `uxfs ship`: puts a checkpoint of an image into a store, and looks after old ones.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::{Map, Value, json};
use uxfs::disk::OpenMode;
use uxfs_remote::{
    Address, At, Compacted, Error, Pruned, Published, Retention, compact, prune, ship,
};

use crate::image::Images;
use crate::session::{Failure, Result, Session};
use crate::{address, json, lineage, remote, time};

/// Put a checkpoint of an image into an object store
///
/// The first checkpoint holds the whole image, each later one the blocks that differ from the one before:
/// compressed, chained by hashes, encrypted with --key. `uxfs restore` makes the image of any checkpoint;
/// all commands that read images take the store's address. An image that is mounted is shipped by its mount, with
/// `uxfs mount -o ship=URL`; named by the mounted directory, it is made to ship at once what is synced.
///
/// An image that is older than the last checkpoint, such as a copy from before, is refused without --force.
///
/// The URL is s3://BUCKET/PREFIX, gs://…, az://… or file:///DIR. Each volume has a prefix of its own.
/// Credentials are taken as the clouds' own tools take them, from the environment or the machine.
///
/// --keep and --keep-since remove older checkpoints, and what no other checkpoint needs; one that either
/// keeps stays, and the last one always does. --compact merges what the last checkpoint consists of into one
/// object, so that reading it takes fewer requests. Without IMAGE only these are done.
#[derive(Args)]
#[command(
    allow_missing_positional = true,
    after_help = "Examples:\n  \
    uxfs ship disk.img s3://backups/disk\n  \
    uxfs ship --key disk.key disk.img file:///mnt/nas/disk\n  \
    uxfs ship --compact --keep 100 --keep-since 2026-11-01 s3://backups/disk"
)]
pub(crate) struct Options {
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// File of the key that encrypts the volume: 32 bytes, or 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Ship an image that is older than the last checkpoint
    #[arg(long)]
    force: bool,
    /// Merge the objects of the last checkpoint into one
    #[arg(long)]
    compact: bool,
    /// Keep the last N checkpoints, and remove older ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keep: Option<u64>,
    /// Keep the checkpoints from this time on, and remove older ones
    #[arg(long, value_name = "TIME", value_parser = millis)]
    keep_since: Option<u64>,
    /// The image, or the directory of a mount that ships to URL
    #[arg(value_name = "IMAGE|DIR")]
    image: Option<PathBuf>,
    /// The volume's address in the store
    #[arg(value_name = "URL", required = true)]
    url: PathBuf,
}

/// A time in milliseconds since 1970.
pub(super) fn millis(text: &str) -> std::result::Result<u64, String> {
    let time =
        time::parse(text).ok_or("not a time such as 2026-11-23 14:05 or 2026-11-23T14:05:00Z")?;
    let seconds = u64::try_from(time.sec).map_err(|_| "a time before 1970")?;
    Ok(seconds * 1000 + u64::from(time.nsec / 1_000_000))
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let url = &options.url;
    let failed = |error: Error| Failure::new(url, error.to_string());
    let target = Address::parse(&url.to_string_lossy()).map_err(failed)?;
    if target.at != At::Newest {
        return Err(Failure::new(url, "names one checkpoint: leave out what follows the @"));
    }
    let retention = Retention { last: options.keep, since: options.keep_since };
    let prunes = retention != Retention::default() || options.compact;
    if options.image.is_none() && !prunes {
        session.set_code(2);
        return Err(Failure::bare("IMAGE is missing: uxfs ship [OPTIONS] IMAGE URL"));
    }
    let remote = remote::connect(&target, options.key.as_deref(), options.image.is_some())
        .map_err(failed)?;
    let mut map = Map::new();
    if let Some(dir) = options.image.as_ref().filter(|image| image.is_dir()) {
        let number = ship_mount(dir, url)?;
        let done = (format!("checkpoint {number}\n"), vec![("checkpoint", json!(number))]);
        report(options, session, &mut map, Some(done), "")?;
    } else if let Some(image) = &options.image {
        let dev = open(image, images)?;
        let uuid = remote::shippable(&*dev).map_err(|error| Failure::host(image, &error))?;
        if !options.force {
            lineage::refuse_older(image, &dev, &remote)?;
        }
        let shipped = ship(&*dev, std::sync::Arc::clone(&remote), uuid, now()).map_err(failed)?;
        report(options, session, &mut map, shipped.map(shipped_pairs), "nothing changed\n")?;
    }
    if options.compact {
        let done = compact(&remote).map_err(failed)?;
        report(options, session, &mut map, done.map(compacted_pairs), "nothing to compact\n")?;
    }
    if prunes {
        let done = prune(&remote, retention).map_err(failed)?;
        report(options, session, &mut map, Some(pruned_pairs(done)), "")?;
    }
    if options.json {
        map.insert("requests".into(), json!(remote.requests()));
        session.print(json::document("ship", map))?;
    }
    Ok(())
}

/// Makes a mount ship what is synced. Returns the number of its last checkpoint.
#[cfg(target_os = "linux")]
fn ship_mount(dir: &Path, url: &Path) -> Result<u64> {
    use super::status::failure_cause;
    use uxfs_fuse::control;
    let failed = |error: std::io::Error| Failure::new(dir, failure_cause(dir, &error).0);
    let value = |wanted: &str| -> Result<Option<String>> {
        let pairs = control::ask(dir, control::STATUS).map_err(failed)?;
        Ok(pairs.into_iter().find(|(name, _)| name == wanted).map(|(_, value)| value))
    };
    match value("ship")? {
        Some(there) if Path::new(&there) == url => drop(control::sync(dir).map_err(failed)?),
        Some(there) => return Err(Failure::new(dir, format!("is shipped to {there}"))),
        None => return Err(Failure::new(dir, "is not shipped: mount it with -o ship=URL")),
    }
    let number = value("ship_checkpoint")?.and_then(|number| number.parse().ok());
    number.ok_or_else(|| Failure::new(dir, "its server names no checkpoint"))
}

#[cfg(not(target_os = "linux"))]
fn ship_mount(dir: &Path, _: &Path) -> Result<u64> {
    Err(Failure::new(dir, "is a directory: name an image"))
}

fn open(image: &Path, images: &Images) -> Result<std::sync::Arc<dyn uxfs::disk::BlockDev>> {
    let host = |error: std::io::Error| Failure::host(image, &error);
    let dev = address::open(image, OpenMode::Read, images.location()).map_err(host)?;
    dev.check_present().map_err(host)?;
    Ok(dev)
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// What was done: a sentence, and the pairs of the document.
type Done = (String, Vec<(&'static str, Value)>);

fn report(
    options: &Options,
    session: &Session,
    map: &mut Map<String, Value>,
    done: Option<Done>,
    nothing: &str,
) -> Result<()> {
    let (text, pairs) = done.unwrap_or_else(|| (nothing.to_owned(), Vec::new()));
    map.extend(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)));
    if options.json { Ok(()) } else { session.print(text) }
}

fn shipped_pairs(done: Published) -> Done {
    let text = format!(
        "checkpoint {}: {} bytes changed, {} bytes stored\n",
        done.number, done.changed_bytes, done.stored_bytes
    );
    let pairs = vec![
        ("checkpoint", json!(done.number)),
        ("changed_bytes", json!(done.changed_bytes)),
        ("stored_bytes", json!(done.stored_bytes)),
    ];
    (text, pairs)
}

fn compacted_pairs(done: Compacted) -> Done {
    let text = format!(
        "checkpoint {}: {} objects merged into one of {} bytes\n",
        done.number, done.deltas, done.stored_bytes
    );
    let pairs = vec![
        ("compacted_checkpoint", json!(done.number)),
        ("compacted_objects", json!(done.deltas)),
        ("compacted_bytes", json!(done.stored_bytes)),
    ];
    (text, pairs)
}

fn pruned_pairs(done: Pruned) -> Done {
    let text = format!(
        "{} checkpoints kept, {} removed, {} objects of {} bytes removed\n",
        done.kept, done.checkpoints, done.deltas, done.bytes
    );
    let pairs = vec![
        ("kept_checkpoints", json!(done.kept)),
        ("removed_checkpoints", json!(done.checkpoints)),
        ("removed_objects", json!(done.deltas)),
        ("removed_bytes", json!(done.bytes)),
    ];
    (text, pairs)
}
