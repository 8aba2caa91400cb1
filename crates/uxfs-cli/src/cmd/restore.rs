//! `uxfs restore`: makes the image of a checkpoint in a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::{Map, Value, json};
use uxfs::disk::{BlockDev, FileDev, OpenMode};
use uxfs::format::Uuid;
use uxfs::format::timestamp::Timestamp;
use uxfs::new_file::WorkDir;
use uxfs::{Fs, OpenOptions};
use uxfs_remote::{Address, At, Checkpoint, Error, Manifest, Remote, Restored, restore};

use super::ship::millis;
use crate::session::{Failure, Result, Session};
use crate::{address, interrupt, json, progress, remote, time};

/// Make the image of a checkpoint that was shipped to an object store
///
/// Any checkpoint that is kept can be restored: the last one, the one that was current at a time, or one by
/// its number. Every byte is verified before it is written. The image appears when it is whole; an existing
/// file is replaced then. A checkpoint of a mounted volume has a short log, which is replayed in the new image;
/// with --raw it stays, and the image is that of the checkpoint to the byte.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs restore s3://backups/disk disk.img\n  \
    uxfs restore --at 2026-11-23T14:05:00Z s3://backups/disk then.img\n  \
    uxfs restore --list s3://backups/disk")]
pub(crate) struct Options {
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// The checkpoint: its number, or a time at which it was the last one
    #[arg(long, value_name = "TIME|CHECKPOINT", value_parser = moment)]
    at: Option<Wanted>,
    /// List the checkpoints
    #[arg(long, conflicts_with_all = ["at", "image"])]
    list: bool,
    /// File of the key that the volume is encrypted with
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Keep the log as it was, and replay nothing
    #[arg(long)]
    raw: bool,
    /// Show no progress bar
    #[arg(short, long)]
    quiet: bool,
    /// The volume's address in the store; @NUMBER behind it names a checkpoint too
    #[arg(value_name = "URL")]
    url: PathBuf,
    /// The image to make; a block device is overwritten
    #[arg(value_name = "IMAGE", required_unless_present = "list")]
    image: Option<PathBuf>,
}

#[derive(Clone, Copy)]
struct Wanted(At);

/// A number is a checkpoint, everything else a time.
fn moment(text: &str) -> std::result::Result<Wanted, String> {
    match text.parse() {
        Ok(number) => Ok(Wanted(At::Number(number))),
        Err(_) => millis(text).map(|time| Wanted(At::Time(time))),
    }
}

pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    let failed = |error: Error| Failure::new(&options.url, error.to_string());
    let source = Address::parse(&options.url.to_string_lossy()).map_err(failed)?;
    let remote = remote::connect(&source, options.key.as_deref(), false).map_err(failed)?;
    let Some(image) = &options.image else { return list(options, session, &remote) };
    address::refuse(image, "restore into a file, then copy it there by qemu-img convert -n")?;
    let at = options.at.map_or(source.at, |wanted| wanted.0);
    let (manifest, _) = remote.at(&Address { at, ..source }).map_err(failed)?;
    let checkpoint = Checkpoint::open(remote, manifest).map_err(failed)?;
    let restored = write(options, session, &checkpoint, image)?;
    if options.json {
        let mut map = described(checkpoint.manifest());
        map.insert("image".into(), json!(image.display().to_string()));
        map.insert("restored_bytes".into(), json!(restored.bytes));
        map.insert("fetched_bytes".into(), json!(restored.fetched_bytes));
        session.print(json::document("restore", map))?;
    }
    Ok(())
}

/// Writes the image, and gives it its name when it is whole.
fn write(
    options: &Options,
    session: &Session,
    checkpoint: &Checkpoint,
    image: &Path,
) -> Result<Restored> {
    let host = |error: std::io::Error| Failure::host(image, &error);
    let failed = |error: Error| Failure::new(&options.url, error.to_string());
    let len = checkpoint.manifest().image_len;
    // Also the lock of an image in use.
    let existing = match std::fs::metadata(image) {
        Ok(_) => Some(FileDev::open(image, OpenMode::Write).map_err(host)?),
        Err(_) => None,
    };
    interrupt::watch("restore", image).map_err(host)?;
    let fill = |dev: &FileDev, blank| {
        progress::Bytes::during(options.quiet, |bar| {
            restore(checkpoint, dev, blank, &|done, total| bar.show_of(done, total))
        })
    };
    if existing.as_ref().is_some_and(|device| !device.is_regular())
        && let Some(device) = existing
    {
        let restored = fill(&device, false).map_err(failed)?;
        device.flush().map_err(host)?;
        replay(options, session, device, image);
        return Ok(restored);
    }
    let work = WorkDir::beside(image).map_err(host)?;
    let new = work.path().join("image");
    let dev = FileDev::open(&new, OpenMode::Create(len)).map_err(host)?;
    let restored = fill(&dev, true).map_err(failed)?;
    replay(options, session, dev, image);
    work.release(&new, image).map_err(host)?;
    Ok(restored)
}

/// Replays the log of a restored volume. If that cannot be done, the log stays for the next mount.
fn replay(options: &Options, session: &Session, dev: FileDev, image: &Path) {
    let dev: Arc<dyn BlockDev> = Arc::new(dev);
    let replayed = || {
        let mut read_only = OpenOptions::default();
        read_only.read_only = true;
        if Fs::open(Arc::clone(&dev), read_only)?.recovery().is_none() {
            return Ok(());
        }
        Fs::open(Arc::clone(&dev), OpenOptions::default())?.close()
    };
    if !options.raw
        && let Err(error) = replayed()
    {
        let text = format!("{}: its log is not replayed: {error}", image.display());
        session.say(format!("uxfs: restore: {text}").as_bytes());
    }
}

fn list(options: &Options, session: &Session, remote: &Remote) -> Result<()> {
    let failed = |error: Error| Failure::new(&options.url, error.to_string());
    let manifests = remote.manifests().map_err(failed)?;
    if manifests.is_empty() {
        return Err(failed(Error::NoVolume));
    }
    if options.json {
        let all: Vec<Value> = manifests.iter().map(|one| Value::Object(described(one))).collect();
        let mut map = Map::new();
        map.insert("checkpoints".into(), json!(all));
        return session.print(json::document("restore-list", map));
    }
    let mut text = format!(
        "{:>12}  {:<25}  {:>15}  {:>15}  {:>7}\n",
        "checkpoint", "time", "changed bytes", "stored bytes", "objects"
    );
    for one in &manifests {
        let (changed, stored, objects) = (one.changed_bytes, one.stored_bytes, one.layers.len());
        let time = shown(one.made_at);
        text +=
            &format!("{:>12}  {time:<25}  {changed:>15}  {stored:>15}  {objects:>7}\n", one.number);
    }
    session.print(text)
}

fn shown(millis: u64) -> String {
    let time = Timestamp { sec: i64::try_from(millis / 1000).unwrap_or(0), nsec: 0 };
    time::Style::Format("%Y-%m-%d %H:%M:%S %z".into(), None).show(time, time)
}

fn described(manifest: &Manifest) -> Map<String, Value> {
    let mut map = Map::new();
    let mut put = |name: &str, value: Value| map.insert(name.to_owned(), value);
    put("checkpoint", json!(manifest.number));
    put("time_ms", json!(manifest.made_at));
    put("uuid", json!(Uuid(manifest.uuid).to_string()));
    put("volume_bytes", json!(manifest.image_len));
    put("changed_bytes", json!(manifest.changed_bytes));
    put("stored_bytes", json!(manifest.stored_bytes));
    put("objects", json!(manifest.layers.len()));
    put("epoch", json!(manifest.epoch));
    map
}
