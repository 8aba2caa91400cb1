//! `uxfs df`: shows the free space of volumes.

use std::ffi::OsString;

use clap::Args;
use serde_json::{Map, Value, json};
use uxfs_host::OsStrExt;

use crate::image::Images;
use crate::place::Inside;
use crate::session::{Result, Session};
use crate::{json, number, quote};

/// Show the free space of volumes
///
/// The default unit is 1024 bytes, as in df(1). The size does not include the log.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs df -h disk.img\n  uxfs df -i a.img b.img")]
pub(crate) struct Options {
    /// Print sizes such as 1.5G
    #[arg(short = 'h', long, overrides_with = "kibibytes")]
    human_readable: bool,
    /// Show inodes instead of blocks
    #[arg(short, long)]
    inodes: bool,
    /// Show blocks of 1024 bytes, the default
    #[arg(short = 'k', id = "kibibytes", overrides_with = "human_readable")]
    _kibibytes: bool,
    /// Print a JSON document
    #[arg(long, conflicts_with_all = ["human_readable", "inodes"])]
    pub(crate) json: bool,
    /// The images
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<OsString>,
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let mut rows = Vec::new();
    let mut documents = Vec::new();
    for argument in &options.images {
        let place = Inside::parse(argument);
        let Some(image) = session.ok(images.get(&place.image, false)) else { continue };
        let stat = image.fs.statfs();
        let block = u64::from(stat.block_size);
        let (all, free) = match options.inodes {
            true => (stat.files, stat.free_files),
            false => (stat.blocks * block, stat.free_blocks * block),
        };
        let used = all - free.min(all);
        if options.json {
            let mut map = Map::new();
            json::put_bytes(&mut map, "image", place.image.as_os_str().as_bytes());
            map.insert("size_bytes".into(), json!(all));
            map.insert("used_bytes".into(), json!(used));
            map.insert("free_bytes".into(), json!(free));
            map.insert("inodes".into(), json!(stat.files));
            map.insert("inodes_free".into(), json!(stat.free_files));
            documents.push(Value::Object(map));
            continue;
        }
        let show = |count: u64| match (options.human_readable, options.inodes) {
            (true, _) => number::human(count),
            (false, true) => count.to_string(),
            (false, false) => count.div_ceil(1024).to_string(),
        };
        let percent = match used + free {
            0 => "-".to_owned(),
            sum => format!("{}%", (u128::from(used) * 100).div_ceil(u128::from(sum))),
        };
        let name = quote::message(place.image.as_os_str().as_bytes());
        let name = String::from_utf8_lossy(&name).into_owned();
        rows.push([name, show(all), show(used), show(free), percent]);
    }
    if options.json {
        let mut map = Map::new();
        map.insert("volumes".into(), Value::Array(documents));
        return session.print(json::document("df", map));
    }
    if rows.is_empty() {
        return Ok(());
    }
    let size = if options.human_readable { "Size" } else { "1K-blocks" };
    let free = if options.human_readable { "Avail" } else { "Available" };
    let head = match options.inodes {
        true => ["Filesystem", "Inodes", "IUsed", "IFree", "IUse%"],
        false => ["Filesystem", size, "Used", free, "Use%"],
    };
    rows.insert(0, head.map(str::to_owned));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
    for row in &rows {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for column in 1..5 {
            line += &format!(" {:>1$}", row[column], widths[column]);
        }
        session.print(line + "\n")?;
    }
    Ok(())
}
