//! `uxfs log`: shows the state and the content of a volume's log without replaying it, and quiesces
//! the log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use uxfs::disk::{BlockDev, OpenMode};
use uxfs::{Fs, OpenOptions};
use uxfs_format::Lsn;
use uxfs_journal::recovery::{Assembler, Bounds, Log, State, Transaction, Walk, describe};

use crate::address;
use crate::image::Images;
use crate::json;
use crate::session::{Failure, Result, Session};

/// Show the log of a volume, or write what it holds in place
///
/// A log is dirty if it holds changes that are not written in place yet. Opening the volume replays
/// them: in place if the volume is writable, in memory if it is opened for reading.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs log status disk.img\n  uxfs log print disk.img\n  \
                  uxfs log quiesce disk.img\n  \
                  uxfs log status --json disk.img | jq .state")]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show whether the log is clean, its head and its tail
    #[command(after_help = "Examples:\n  uxfs log status disk.img")]
    Status(Image),
    /// List the transactions that recovery would replay
    #[command(after_help = "Examples:\n  uxfs log print disk.img\n  \
                            uxfs log print --json disk.img | jq .transactions[].items[].kind")]
    Print(Image),
    /// Write everything in place and leave a clean log, for readers that do not replay it, such as
    /// boot loaders
    // The command was named `settle` before.
    #[command(
        alias = "settle",
        after_help = "Examples:\n  uxfs log quiesce disk.img\n  \
                            uxfs log quiesce --json disk.img | jq .recovered"
    )]
    Quiesce(Image),
}

#[derive(Args)]
struct Image {
    /// Print a JSON document
    #[arg(long)]
    json: bool,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

impl Options {
    pub(crate) fn json(&self) -> bool {
        let (Verb::Status(image) | Verb::Print(image) | Verb::Quiesce(image)) = &self.verb;
        image.json
    }
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    match &options.verb {
        Verb::Status(image) => status(image, session, images),
        Verb::Print(image) => print(image, session, images),
        Verb::Quiesce(image) => quiesce(image, session, images),
    }
}

fn quiesce(options: &Image, session: &Session, images: &Images) -> Result<()> {
    let image = images.get(&options.image, true)?;
    let quiesced = image.fs.quiesce();
    quiesced.map_err(|error| Failure::volume(options.image.as_os_str(), error))?;
    let replayed = image.fs.recovery().map(|recovery| recovery.replay.transactions);
    if !options.json {
        return session.print(match replayed {
            Some(count) => format!("clean: {count} transactions replayed\n"),
            None => "clean\n".to_owned(),
        });
    }
    let mut map = Map::new();
    map.insert("image".into(), json!(options.image.display().to_string()));
    map.insert("state".into(), json!("clean"));
    map.insert("recovered".into(), json!(replayed.is_some()));
    map.insert("transactions".into(), json!(replayed.unwrap_or(0)));
    // The document keeps the name it had when the command was `settle`: programs read it.
    session.print(json::document("log-settle", map))
}

/// The log's state, head, tail and sizes in bytes, for `uxfs info`.
pub(crate) struct LogBounds {
    pub(crate) state: &'static str,
    pub(crate) head: String,
    pub(crate) tail: String,
    pub(crate) bytes: u64,
    pub(crate) live_bytes: u64,
}

/// Reads the log's state, head and tail.
pub(crate) fn bounds_of(path: &Path, images: &Images) -> core::result::Result<LogBounds, Failure> {
    let Opened { log, bounds, .. } = open(path, images)?;
    Ok(LogBounds {
        state: name(bounds.state),
        head: text(bounds.head),
        tail: text(bounds.tail),
        bytes: 512 * log.blocks(),
        live_bytes: 512 * bounds.live_blocks(&log),
    })
}

/// Where the log of the volume on a device ends: cycle and block. Of two states of a volume, the later one's
/// log ends later.
///
/// # Errors
/// If the device holds no volume whose log can be read.
#[cfg(feature = "remote")]
pub(crate) fn end_of(dev: Arc<dyn BlockDev>) -> core::result::Result<(u32, u32), String> {
    let mut options = OpenOptions::read_only();
    options.norecovery = true;
    let fs = Fs::open(dev, options).map_err(|error| error.to_string())?;
    let log = Log::new(&fs.superblock()).map_err(|error| error.to_string())?;
    let bounds = log.find(&**fs.device()).map_err(|error| error.to_string())?;
    Ok((bounds.head.cycle(), bounds.head.block()))
}

fn name(state: State) -> &'static str {
    match state {
        State::Clean => "clean",
        State::Dirty => "dirty",
    }
}

/// A log with the bounds of its live part, and its device.
struct Opened {
    dev: Arc<dyn BlockDev>,
    log: Log,
    bounds: Bounds,
}

fn open(path: &Path, images: &Images) -> core::result::Result<Opened, Failure> {
    let dev = address::open(path, OpenMode::Read, images.location())
        .map_err(|error| Failure::host(path.as_os_str(), &error))?;
    let mut options = OpenOptions::read_only();
    options.norecovery = true;
    let fs = Fs::open(dev, options).map_err(|error| images.not_a_volume(path, error))?;
    let log = Log::new(&fs.superblock()).map_err(|error| failed(path, &error))?;
    let dev = Arc::clone(fs.device());
    let bounds = log.find(&*dev).map_err(|error| failed(path, &error))?;
    Ok(Opened { dev, log, bounds })
}

fn failed(path: &Path, error: &uxfs_journal::recovery::Error) -> Failure {
    Failure::new(path.as_os_str(), error.to_string())
}

impl Opened {
    /// Calls `f` for every committed transaction from tail to head. Returns the number of records,
    /// and the number of transactions without a commit.
    fn transactions(
        &self,
        mut f: impl FnMut(Transaction) -> uxfs_journal::recovery::Result<()>,
    ) -> uxfs_journal::recovery::Result<(u64, usize)> {
        let (tail, head) = (self.bounds.tail.block(), self.bounds.head.block());
        let mut walk = Walk::new(&self.log, &*self.dev, tail.into(), head.into())?;
        let (mut open, mut records) = (Assembler::default(), 0);
        while let Some(record) = walk.next_record()? {
            records += 1;
            open.feed(&record, &mut f)?;
        }
        Ok((records, open.open()))
    }
}

fn text(lsn: Lsn) -> String {
    format!("{}:{}", lsn.cycle(), lsn.block())
}

fn status(options: &Image, session: &Session, images: &Images) -> Result<()> {
    let opened = open(&options.image, images)?;
    let mut transactions = 0;
    let (records, open) = opened
        .transactions(|_| {
            transactions += 1;
            Ok(())
        })
        .map_err(|error| failed(&options.image, &error))?;
    let (log, bounds) = (&opened.log, &opened.bounds);
    let state = name(bounds.state);
    let numbers: [(&str, &str, u64); 9] = [
        ("log_bytes", "bytes", 512 * log.blocks()),
        ("live_bytes", "bytes live", 512 * bounds.live_blocks(log)),
        ("records", "records", records),
        ("transactions", "transactions", transactions),
        ("transactions_open", "transactions without a commit", open as u64),
        ("cycle", "cycle", bounds.head.cycle().into()),
        ("record_bytes", "bytes in a record at most", bounds.record_size.into()),
        ("stripe_unit_bytes", "bytes that records are padded to", log.unit() as u64),
        ("format_version", "version", 2),
    ];
    let (head, tail) = (text(bounds.head), text(bounds.tail));
    if !options.json {
        let mut out = format!("{state}\nhead {head}\ntail {tail}\n");
        if let Some(torn) = bounds.torn {
            out.push_str(&format!("torn record cut off at {torn}\n"));
        }
        for (_, words, number) in numbers {
            out.push_str(&format!("{number} {words}\n"));
        }
        return session.print(out);
    }
    let mut map = Map::new();
    map.insert("image".into(), json!(options.image.display().to_string()));
    map.insert("state".into(), json!(state));
    map.insert("head".into(), json!(head));
    map.insert("tail".into(), json!(tail));
    map.insert("torn_at_block".into(), json!(bounds.torn));
    for (key, _, number) in numbers {
        map.insert(key.into(), json!(number));
    }
    session.print(json::document("log-status", map))
}

/// The kind and the description of each item.
fn items(transaction: &Transaction) -> Vec<(String, String)> {
    let item = |raw: uxfs_journal::recovery::RawItem<'_>| {
        let kind = match raw.kind() {
            Ok(kind) => kind.name().to_owned(),
            Err(code) => format!("{code:#06x}"),
        };
        let detail = match raw.parse() {
            Ok(item) => describe(&item),
            Err(error) => format!("unreadable: {error}"),
        };
        (kind, detail)
    };
    transaction.items().map(item).collect()
}

fn print(options: &Image, session: &Session, images: &Images) -> Result<()> {
    let opened = open(&options.image, images)?;
    let mut out = String::new();
    let mut list: Vec<Value> = Vec::new();
    let walked = opened.transactions(|transaction| {
        let (start, commit) = (text(transaction.lsn), text(transaction.commit_lsn));
        let (tid, bytes) = (transaction.tid, transaction.bytes());
        let items = items(&transaction);
        if options.json {
            let items: Vec<Value> = items
                .iter()
                .map(|(kind, detail)| json!({ "kind": kind, "detail": detail }))
                .collect();
            list.push(json!({
                "tid": tid, "start": start, "commit": commit, "bytes": bytes, "items": items,
            }));
        } else {
            let count = items.len();
            out.push_str(&format!(
                "transaction {tid:#010x} start {start} commit {commit} items {count} bytes {bytes}\n"
            ));
            for (kind, detail) in items {
                out.push_str(&format!("  {kind} {detail}\n"));
            }
        }
        Ok(())
    });
    // Print the transactions before the damage, then report the damage.
    let shown = match options.json {
        true => {
            let mut map = Map::new();
            map.insert("image".into(), json!(options.image.display().to_string()));
            map.insert("head".into(), json!(text(opened.bounds.head)));
            map.insert("tail".into(), json!(text(opened.bounds.tail)));
            map.insert("transactions".into(), json!(list));
            session.print(json::document("log", map))
        }
        false => session.print(out),
    };
    walked.map_err(|error| failed(&options.image, &error))?;
    shown
}
