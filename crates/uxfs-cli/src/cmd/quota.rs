//! `uxfs quota`: shows what users, groups and projects use and may use, as xfs_quota's `report` and `state`
//! do, and sets limits, as its `limit` does.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use uxfs::Fs;
use uxfs::quota::{Dquot, Limits, QuotaFlags, QuotaState, QuotaType, Resource};
use uxfs_host::OsStrExt;

use crate::image::Images;
use crate::session::{Failure, Result, Session};
use crate::{json, number, users};

/// Show and set quotas of users, groups and projects
///
/// A volume that accounts quotas knows what each owner uses. Limits bind while they are enforced.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs quota on disk.img\n  \
    uxfs quota report -u disk.img\n  \
    uxfs quota limit -u disk.img bsoft=1g bhard=2g 1001\n  \
    uxfs quota state disk.img")]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show usage and limits, as xfs_quota's report does
    Report(Report),
    /// Show what is accounted and enforced, as xfs_quota's state does
    State(State),
    /// Set limits, as xfs_quota's limit does
    Limit(Limit),
    /// Account and enforce quotas from now on; what is used is counted first
    On(On),
    /// Stop accounting quotas. Limits are kept
    Off(Off),
}

#[derive(Args)]
struct Types {
    /// Users
    #[arg(short, long)]
    user: bool,
    /// Groups
    #[arg(short, long)]
    group: bool,
    /// Projects
    #[arg(short, long)]
    project: bool,
}

impl Types {
    /// The types that are named; all if none is.
    fn all(&self) -> Vec<QuotaType> {
        let named = self.named();
        if named.is_empty() { QuotaType::ALL.to_vec() } else { named }
    }

    fn named(&self) -> Vec<QuotaType> {
        let named = [self.user, self.group, self.project];
        let pairs = QuotaType::ALL.into_iter().zip(named);
        pairs.filter(|(_, named)| *named).map(|(kind, _)| kind).collect()
    }
}

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs quota report disk.img\n  uxfs quota report -u -b -i -h disk.img\n  \
    uxfs quota report --json disk.img")]
struct Report {
    #[command(flatten)]
    types: Types,
    /// Show blocks, the default
    #[arg(short, long)]
    blocks: bool,
    /// Show inodes
    #[arg(short, long)]
    inodes: bool,
    /// Print sizes such as 1.5G
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Print no headers
    #[arg(short = 'N', long)]
    no_headers: bool,
    /// Print numbers, not names
    #[arg(short = 'n', long)]
    numeric: bool,
    /// Print a JSON document
    #[arg(long, conflicts_with_all = ["human_readable", "no_headers", "blocks", "inodes"])]
    json: bool,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs quota state disk.img\n  uxfs quota state -u disk.img")]
struct State {
    #[command(flatten)]
    types: Types,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs quota limit -u disk.img bsoft=1g bhard=2g 1001\n  \
    uxfs quota limit -p disk.img ihard=100000 42\n  \
    uxfs quota limit -u -d disk.img bhard=10g")]
struct Limit {
    #[command(flatten)]
    types: Types,
    /// Set the default of owners that have no limit of their own
    #[arg(short, long)]
    defaults: bool,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// bsoft=SIZE, bhard=SIZE, isoft=N, ihard=N (0 for none), and the owner: a name or a number
    #[arg(value_name = "LIMIT|OWNER", required = true)]
    words: Vec<String>,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs quota on disk.img\n  uxfs quota on -p disk.img")]
struct On {
    #[command(flatten)]
    types: Types,
    /// Leave limits without effect
    #[arg(long)]
    noenforce: bool,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs quota off disk.img\n  uxfs quota off -p disk.img")]
struct Off {
    #[command(flatten)]
    types: Types,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

impl Options {
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            Verb::Report(report) => report.json,
            Verb::State(state) => state.json,
            _ => false,
        }
    }
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    match &options.verb {
        Verb::Report(options) => report(options, session, images),
        Verb::State(options) => state(options, session, images),
        Verb::Limit(options) => limit(options, images),
        Verb::On(On { types, noenforce, image }) => {
            let enforced = if *noenforce { QuotaFlags::empty() } else { QuotaFlags::ENFD };
            switch(image, types, images, QuotaFlags::ACCT | enforced)
        }
        Verb::Off(Off { types, image }) => switch(image, types, images, QuotaFlags::empty()),
    }
}

fn failed(path: &Path) -> impl Fn(uxfs::Error) -> Failure + '_ {
    |error| Failure::volume(path.as_os_str(), error)
}

/// A type's name at the start of a line.
fn title(kind: QuotaType) -> &'static str {
    match kind {
        QuotaType::User => "User",
        QuotaType::Group => "Group",
        QuotaType::Project => "Project",
    }
}

fn name(kind: QuotaType, id: u32, numeric: bool) -> String {
    let name = match kind {
        _ if numeric => None,
        QuotaType::User => users::user_name(id),
        QuotaType::Group => users::group_name(id),
        QuotaType::Project => None,
    };
    name.map_or_else(|| format!("#{id}"), str::to_owned)
}

fn report(options: &Report, session: &Session, images: &Images) -> Result<()> {
    let path = &options.image;
    let image = images.get(path, false)?;
    let mut documents = Vec::new();
    for kind in options.types.all() {
        let records = image.fs.dquots(kind).map_err(failed(path))?;
        if options.json {
            documents.extend(records.iter().map(|record| document(record, image.fs.geo.block_log)));
        } else if !records.is_empty() {
            session.print(table(options, kind, &records, &image.fs))?;
        }
    }
    if options.json {
        let mut map = Map::new();
        json::put_bytes(&mut map, "image", path.as_os_str().as_bytes());
        map.insert("quotas".into(), Value::Array(documents));
        return session.print(json::document("quota", map));
    }
    Ok(())
}

fn document(record: &Dquot, block_log: u32) -> Value {
    let resource = |of: &Resource, unit: &str, log: u32| {
        let mut map = Map::new();
        let mut put =
            |key: &str, value: u64| map.insert(format!("{key}{unit}"), json!(value << log));
        put("used", of.used);
        put("soft", of.soft);
        put("hard", of.hard);
        map.insert("grace_ends_s".into(), json!(of.timer));
        Value::Object(map)
    };
    json!({
        "type": record.kind.name(),
        "id": record.id,
        "blocks": resource(&record.blocks, "_bytes", block_log),
        "inodes": resource(&record.inodes, "", 0),
    })
}

/// The widths of xfs_quota's tables.
struct Widths {
    number: usize,
    /// On both sides of a resource's name.
    beside: usize,
    dashes: usize,
    /// What comes between the numbers and the warnings.
    gap: &'static str,
    none: &'static str,
}

const WIDE: Widths = Widths { number: 10, beside: 21, dashes: 50, gap: "    ", none: "[--------]" };
const NARROW: Widths = Widths { number: 6, beside: 14, dashes: 33, gap: " ", none: "[------]" };

/// The table of xfs_quota's report.
fn table(options: &Report, kind: QuotaType, records: &[Dquot], fs: &Fs) -> String {
    let human = options.human_readable;
    let Widths { number, beside, dashes, gap, none } = if human { NARROW } else { WIDE };
    let (blocks, inodes) = (options.blocks || !options.inodes, options.inodes);
    let mut text = String::new();
    if !options.no_headers {
        let image = options.image.display();
        let id = format!("{} ID", title(kind));
        let (mut names, mut heads, mut lines) = (String::new(), String::new(), String::new());
        let shown = [(blocks, "Blocks", "Warn/Grace"), (inodes, "Inodes", "Warn/ Grace")];
        for (_, name, grace) in shown.into_iter().filter(|(shown, ..)| *shown) {
            names += &format!("{:beside$}{name}{:beside$}", "", "");
            let grace = if human { "Warn/Grace " } else { grace };
            let [used, soft, hard] = ["Used", "Soft", "Hard"];
            heads += &format!(" {used:>number$} {soft:>number$} {hard:>number$}{gap}{grace}{gap}");
            lines += &format!(" {:-<dashes$}", "");
        }
        let end = if human { "" } else { " " };
        text += &format!("{} quota on {image} ({image})\n{:10}{names}\n", title(kind), "");
        text += &format!("{id:10}{heads}{end}\n{:-<10}{lines} \n", "");
    }
    let now = uxfs::clock::Clock::Real.now().sec.max(0) as u64;
    for record in records {
        let row = |of: &Resource, show: &dyn Fn(u64) -> String| {
            let [used, soft, hard] = [of.used, of.soft, of.hard].map(show);
            let grace = match of.timer {
                0 => none.to_owned(),
                _ if record.id == 0 => none.to_owned(),
                ends => left(ends, now),
            };
            let width = if human { 8 } else { 9 };
            format!(" {used:>number$} {soft:>number$} {hard:>number$}{gap} 00 {grace:>width$}")
        };
        let kibibytes = |count: u64| match human {
            true => short(count << fs.geo.block_log),
            false => ((count << fs.geo.block_log) / 1024).to_string(),
        };
        text += &format!("{:<10}", name(kind, record.id, options.numeric));
        if blocks {
            text += &row(&record.blocks, &kibibytes);
        }
        if inodes {
            text += &row(&record.inodes, &|count: u64| count.to_string());
        }
        text.push('\n');
    }
    text.push('\n');
    text
}

/// A size with a letter, and a decimal where it is needed.
fn short(bytes: u64) -> String {
    let letters = ["", "K", "M", "G", "T", "P", "E"];
    let unit = (1..letters.len()).take_while(|unit| bytes >> (10 * unit) > 0).count();
    let scale = 1u64 << (10 * unit);
    match bytes % scale {
        0 => format!("{}{}", bytes / scale, letters[unit]),
        _ => format!("{:.1}{}", bytes as f64 / scale as f64, letters[unit]),
    }
}

/// What is left of a grace period: whole days, and the rest only of the last one.
fn left(ends: u64, now: u64) -> String {
    const DAY: u64 = 24 * 60 * 60;
    match ends.saturating_sub(now) {
        0 => "[-none-]".to_owned(),
        left if left >= 2 * DAY => format!("[{} days]", left / DAY),
        left if left >= DAY => "[1 day]".to_owned(),
        left => format!("[{:02}:{:02}:{:02}]", left / 3600, left / 60 % 60, left % 60),
    }
}

fn state(options: &State, session: &Session, images: &Images) -> Result<()> {
    let path = &options.image;
    let image = images.get(path, false)?;
    let states = image.fs.quota_states().map_err(failed(path))?;
    let kinds = options.types.all();
    let shown = states.iter().filter(|state| kinds.contains(&state.kind));
    if options.json {
        let mut map = Map::new();
        json::put_bytes(&mut map, "image", path.as_os_str().as_bytes());
        map.insert("types".into(), shown.map(state_document).collect());
        return session.print(json::document("quota-state", map));
    }
    for state in shown {
        let on = |on: bool| if on { "ON" } else { "OFF" };
        let inode = match state.inode {
            Some(ino) => {
                format!("#{ino} ({} blocks, {} extents)", state.blocks, state.extents)
            }
            None => "N/A".to_owned(),
        };
        let days = |seconds: u64| left(seconds, 0);
        session.print(format!(
            "{} quota state on {}\n  Accounting: {}\n  Enforcement: {}\n  Inode: {inode}\n\
             Blocks grace time: {}\nInodes grace time: {}\nRealtime Blocks grace time: {}\n",
            title(state.kind),
            path.display(),
            on(state.accounted),
            on(state.enforced),
            days(state.blocks_grace),
            days(state.inodes_grace),
            days(state.rt_blocks_grace),
        ))?;
    }
    Ok(())
}

fn state_document(state: &QuotaState) -> Value {
    json!({
        "type": state.kind.name(),
        "accounted": state.accounted,
        "enforced": state.enforced,
        "counted": state.checked,
        "inode": state.inode.map(|ino| ino.0),
        "blocks_grace_s": state.blocks_grace,
        "inodes_grace_s": state.inodes_grace,
    })
}

fn limit(options: &Limit, images: &Images) -> Result<()> {
    let [kind] = options.types.named()[..] else {
        return Err(Failure::bare("say whose limits: one of -u, -g and -p"));
    };
    let path = &options.image;
    let image = images.get(path, true)?;
    let (limits, owners) = parse(&options.words, image.fs.geo.block_log).map_err(Failure::bare)?;
    let id = match (&owners[..], options.defaults) {
        ([], true) => 0,
        ([owner], false) => id_of(kind, owner).map_err(Failure::bare)?,
        _ => return Err(Failure::bare("give one owner, or -d for the defaults")),
    };
    if limits == Limits::default() {
        return Err(Failure::bare("give a limit: bsoft=, bhard=, isoft= or ihard="));
    }
    image.fs.set_limits(kind, id, &limits).map_err(failed(path))
}

/// The limits and the other words of a command line.
fn parse(words: &[String], block_log: u32) -> std::result::Result<(Limits, Vec<&str>), String> {
    let (mut limits, mut others) = (Limits::default(), Vec::new());
    for word in words {
        let Some((name, value)) = word.split_once('=') else {
            others.push(word.as_str());
            continue;
        };
        let wrong = || format!("{word}: not a number such as 100 or 1g");
        let size = || number::size(value).ok_or_else(wrong);
        let blocks = || Ok::<_, String>(Some(size()?.div_ceil(1 << block_log)));
        match name {
            "bsoft" => limits.blocks_soft = blocks()?,
            "bhard" => limits.blocks_hard = blocks()?,
            "isoft" => limits.inodes_soft = Some(size()?),
            "ihard" => limits.inodes_hard = Some(size()?),
            _ => return Err(format!("{word}: say bsoft=, bhard=, isoft= or ihard=")),
        }
    }
    Ok((limits, others))
}

fn id_of(kind: QuotaType, owner: &str) -> std::result::Result<u32, String> {
    let id = match kind {
        QuotaType::User => users::user(owner),
        QuotaType::Group => users::group(owner),
        QuotaType::Project => owner.parse().ok(),
    };
    id.ok_or_else(|| format!("{owner}: no such {}", kind.name()))
}

/// Sets which of the named types are accounted and enforced; the others stay as they are.
fn switch(path: &Path, types: &Types, images: &Images, wanted: QuotaFlags) -> Result<()> {
    let reading = images.again(None);
    let now = reading.get(path, false)?.fs.quota_states().map_err(failed(path))?;
    reading.close()?;
    let kinds = types.all();
    let flags = now.iter().fold(QuotaFlags::empty(), |mut flags, state| {
        let named = kinds.contains(&state.kind);
        let (accounted, enforced) = (state.kind.acct(), state.kind.enfd());
        flags.set(accounted, if named { wanted.contains(accounted) } else { state.accounted });
        flags.set(enforced, if named { wanted.contains(enforced) } else { state.enforced });
        flags
    });
    let writing = images.again(Some(flags));
    writing.get(path, true)?;
    writing.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_parse_as_in_xfs_quota() {
        let words = ["bsoft=1m", "bhard=4097", "ihard=7", "joe"].map(String::from);
        let (limits, owners) = parse(&words, 12).unwrap();
        assert_eq!((limits.blocks_soft, limits.blocks_hard), (Some(256), Some(2)));
        assert_eq!((limits.inodes_soft, limits.inodes_hard), (None, Some(7)));
        assert_eq!(owners, ["joe"]);
        assert!(
            parse(&["rtbhard=1".into()], 12).is_err() && parse(&["bsoft=x".into()], 12).is_err()
        );
    }

    #[test]
    fn grace_periods_print_as_in_xfs_quota() {
        // What xfs_quota 6.1 prints.
        for (seconds, text) in [
            (604_800, "[7 days]"),
            (172_801, "[2 days]"),
            (172_700, "[1 day]"),
            (86_400, "[1 day]"),
            (86_300, "[23:58:20]"),
            (3700, "[01:01:40]"),
            (0, "[-none-]"),
        ] {
            assert_eq!(left(1000 + seconds, 1000), text, "{seconds}");
        }
        assert_eq!(left(5, 1000), "[-none-]");
    }

    #[test]
    fn sizes_have_a_decimal_where_they_need_one() {
        let shown = [0, 4096, 5 << 30, 1536].map(short);
        assert_eq!(shown, ["0", "4K", "5G", "1.5K"]);
    }
}
