//! `uxfs disk`: builds, lists and resizes whole disk images, and serves modelled disks.

#[cfg(target_os = "linux")]
mod power;
#[cfg(target_os = "linux")]
mod serve;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use uxfs::disk::OpenMode;
use uxfs::import::ImportError;
use uxfs::resize::ResizeError;
use uxfs::volume::Location;
use uxfs_image::build::{self, BuildOptions, BuildSummary, UuidSource};
use uxfs_image::output::Format;
use uxfs_image::resize::DiskResize;
use uxfs_image::{ImageError, info, resize, types};

use crate::progress::Bar;
use crate::session::{Failure, Result, Session};
use crate::{address, interrupt, json, number, time};

/// Build, list and resize whole disk images; serve modelled disks
///
/// A disk has a partition table (GPT) and any of: an EFI system partition, XFS volumes filled from
/// directories, archives or container images, dm-verity hash trees, and the content of files.
///
/// A modelled disk takes as long as a real one of its kind, and loses what a real one loses when its power is cut.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs disk build disk.toml -o disk.qcow2\n  \
    uxfs disk info disk.qcow2\n  \
    uxfs disk resize disk.img 20G\n  \
    uxfs disk serve hdd-7200 --image disk.img --nbd /run/disk.sock")]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Build(Build),
    Info(Info),
    Resize(Resize),
    #[cfg(target_os = "linux")]
    Serve(Box<serve::Serve>),
    #[cfg(target_os = "linux")]
    Power(power::Power),
}

/// Build a disk image as a TOML file describes it
///
/// docs/IMAGES.md describes the file. The image appears when it is complete; if the build fails or is
/// interrupted, nothing is left. A sparse raw image lies beside the output meanwhile.
///
/// The key 'file-contexts' of a volume gives its files SELinux labels, as the option of uxfs import does. A volume
/// under a dm-verity hash tree has sectors of 4096 bytes.
///
/// With SOURCE_DATE_EPOCH in the environment, the same description and the same files make the same image,
/// byte for byte. UUIDs that the description does not give are derived from its 'seed', or without one from
/// its text; without SOURCE_DATE_EPOCH and seed they are random.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs disk build disk.toml -o disk.img\n  \
    uxfs disk build disk.toml -o disk.qcow2 --compress\n  \
    SOURCE_DATE_EPOCH=1700000000 uxfs disk build disk.toml -o disk.raw.zst\n  \
    uxfs disk build disk.toml -o disk.img --json | jq -r '.partitions[].root_hash'")]
struct Build {
    /// The description of the disk
    #[arg(value_name = "SPEC")]
    spec: PathBuf,
    /// The image to make
    #[arg(short, long, value_name = "IMAGE")]
    output: PathBuf,
    /// Format of the image: raw, raw.zst, qcow2, vhd; default: as the name ends, else raw
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    format: Option<Format>,
    /// Compress the clusters of a qcow2 image
    #[arg(long)]
    compress: bool,
    /// Replace an image that exists
    #[arg(short, long)]
    force: bool,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
    /// Show no progress bar and no table
    #[arg(short, long)]
    quiet: bool,
}

/// List the partitions of a disk and what they hold
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs disk info disk.img\n  \
    uxfs disk info --json disk.qcow2 | jq '.partitions[].partition_uuid'")]
struct Info {
    /// Print a JSON document
    #[arg(long)]
    json: bool,
    /// The disk
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

/// Make a disk image larger or smaller: raw, qcow2, or VHD of fixed length
///
/// Growing moves the backup of the partition table to the new end, extends the last partition to it, and
/// grows an XFS volume in it. Shrinking cuts what is free behind the last partition, which keeps its size.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs disk resize disk.img 20G\n  \
    uxfs disk resize disk.qcow2 20G")]
struct Resize {
    /// Print a JSON document
    #[arg(long)]
    json: bool,
    /// Do not report what was done
    #[arg(short, long)]
    quiet: bool,
    /// The disk
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The new size, as in 20G
    #[arg(value_name = "SIZE", value_parser = parse_size)]
    size: u64,
}

/// Parses the name of a format.
pub(crate) fn parse_format(text: &str) -> std::result::Result<Format, String> {
    Format::parse(text).ok_or_else(|| "not one of raw, raw.zst, qcow2, vhd".into())
}

fn parse_size(text: &str) -> std::result::Result<u64, String> {
    number::size(text).ok_or_else(|| "not a size such as 20G".into())
}

impl Options {
    /// The name of the command, for messages.
    pub(crate) fn command(&self) -> &'static str {
        match &self.verb {
            Verb::Build(_) => "disk build",
            Verb::Info(_) => "disk info",
            Verb::Resize(_) => "disk resize",
            #[cfg(target_os = "linux")]
            Verb::Serve(_) => "disk serve",
            #[cfg(target_os = "linux")]
            Verb::Power(_) => "disk power",
        }
    }

    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            Verb::Build(options) => options.json,
            Verb::Info(options) => options.json,
            Verb::Resize(options) => options.json,
            #[cfg(target_os = "linux")]
            Verb::Serve(_) => false,
            #[cfg(target_os = "linux")]
            Verb::Power(options) => options.json,
        }
    }
}

pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    match &options.verb {
        Verb::Build(options) => run_build(options, session),
        Verb::Info(options) => run_info(options, session),
        Verb::Resize(options) => run_resize(options, session),
        #[cfg(target_os = "linux")]
        Verb::Serve(options) => serve::run(options, session),
        #[cfg(target_os = "linux")]
        Verb::Power(options) => power::run(options, session),
    }
}

/// The failure for an error. An error of the description names its file and line.
pub(crate) fn failure(spec: Option<&Path>, error: ImageError) -> Failure {
    match error {
        ImageError::Spec { line, problem } => {
            let file = spec.map_or_else(String::new, |spec| format!("{}:", spec.display()));
            Failure::bare(format!("{file}{line}: {problem}"))
        }
        ImageError::Host { path, source }
        | ImageError::Import(ImportError::Host { path, source })
        | ImageError::Resize(ResizeError::Host { path, source }) => Failure::host(path, &source),
        other => Failure::bare(other.to_string()),
    }
}

fn run_build(options: &Build, session: &Session) -> Result<()> {
    let wrong = |error| failure(None, error);
    let format = options.format.map_or_else(|| Format::of_name(&options.output), Ok);
    let mut format = format.map_err(wrong)?;
    if options.compress {
        format = format.compressed().map_err(wrong)?;
    }
    let mut wanted = BuildOptions::new(&options.spec, &options.output, format);
    wanted.force = options.force;
    wanted.source_date_epoch = time::source_date_epoch().map_err(Failure::bare)?;
    interrupt::watch("disk build", &options.output).map_err(|e| Failure::bare(e.to_string()))?;
    let quiet = options.quiet || options.json;
    let summary = Bar::during(quiet, |progress| build::run(&wanted, progress))
        .map_err(|error| failure(Some(&options.spec), error))?;
    for warning in &summary.warnings {
        session.say(format!("uxfs: disk build: {warning}").as_bytes());
    }
    if options.json {
        return session.print(build_document(options, &wanted, &summary));
    }
    if options.quiet {
        return Ok(());
    }
    let uuids = match summary.uuids {
        UuidSource::Derived => "derived from the description",
        UuidSource::Random => "random",
    };
    session.print(format!(
        "{} made: {} bytes, {}; UUIDs that were not given are {uuids}\n",
        options.output.display(),
        summary.len,
        wanted.format.name()
    ))?;
    for partition in &summary.partitions {
        session.print(format!(
            "{} {} {} start {} size {} PARTUUID {}\n",
            partition.number,
            type_name(&partition.kind.to_string()),
            partition.name.escape_debug(),
            partition.start,
            partition.len,
            partition.uuid
        ))?;
        if let Some(root) = partition.root_hash {
            session.print(format!("  root hash {root}\n"))?;
        }
    }
    Ok(())
}

/// The name of a type, or its GUID.
fn type_name(kind: &str) -> &str {
    types::name(kind).unwrap_or(kind)
}

fn build_document(options: &Build, wanted: &BuildOptions, summary: &BuildSummary) -> Vec<u8> {
    let partitions: Vec<Value> = summary
        .partitions
        .iter()
        .map(|partition| {
            json!({
                "number": partition.number,
                "type": type_name(&partition.kind.to_string()),
                "type_uuid": partition.kind.to_string(),
                "name": partition.name,
                "partition_uuid": partition.uuid.to_string(),
                "start_bytes": partition.start,
                "size_bytes": partition.len,
                "volume_uuid": partition.volume_uuid.map(|uuid| uuid.to_string()),
                "root_hash": partition.root_hash.map(|root| root.to_string()),
            })
        })
        .collect();
    let mut map = Map::new();
    map.insert("image".into(), json!(options.output.display().to_string()));
    map.insert("format".into(), json!(wanted.format.name()));
    map.insert("size_bytes".into(), json!(summary.len));
    map.insert("disk_uuid".into(), json!(summary.uuid.to_string()));
    map.insert("uuids_derived".into(), json!(summary.uuids == UuidSource::Derived));
    map.insert("partitions".into(), json!(partitions));
    json::document("disk-build", map)
}

fn run_info(options: &Info, session: &Session) -> Result<()> {
    let host = |error: std::io::Error| Failure::host(&options.image, &error);
    let disk = address::open(&options.image, OpenMode::Read, &Location::whole()).map_err(host)?;
    let found = info::info(&disk).map_err(host)?;
    let table = found.table.map(|kind| kind.to_string().to_lowercase());
    if options.json {
        let partitions: Vec<Value> = found
            .partitions
            .iter()
            .map(|partition| {
                let entry = &partition.entry;
                json!({
                    "number": entry.number,
                    "type": type_name(&entry.kind),
                    "type_uuid": entry.kind,
                    "name": entry.label,
                    "partition_uuid": entry.uuid,
                    "start_bytes": entry.start,
                    "size_bytes": entry.len,
                    "content": partition.content,
                })
            })
            .collect();
        let mut map = Map::new();
        map.insert("image".into(), json!(options.image.display().to_string()));
        map.insert("size_bytes".into(), json!(found.len));
        map.insert("table".into(), json!(table));
        map.insert("partitions".into(), json!(partitions));
        return session.print(json::document("disk-info", map));
    }
    let Some(table) = table else {
        return Err(Failure::new(&options.image, "has no partition table"));
    };
    let name = options.image.display();
    session.print(format!("{name}: {table}, {} bytes\n", found.len))?;
    let mut rows =
        vec![["NR", "TYPE", "NAME", "START", "SIZE", "CONTENT", "PARTUUID"].map(str::to_owned)];
    rows.extend(found.partitions.iter().map(|partition| {
        let entry = &partition.entry;
        [
            entry.number.to_string(),
            type_name(&entry.kind).to_owned(),
            entry.label.escape_debug().to_string(),
            entry.start.to_string(),
            number::human(entry.len),
            partition.content.unwrap_or("-").to_owned(),
            entry.uuid.clone(),
        ]
    }));
    let widths: [usize; 7] = core::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        session.print(format!("{}\n", cells.join("  ").trim_end()))?;
    }
    Ok(())
}

fn run_resize(options: &Resize, session: &Session) -> Result<()> {
    let done = resize::run(&options.image, options.size).map_err(|error| failure(None, error))?;
    if options.json {
        return session.print(resize_document(options, &done));
    }
    if options.quiet {
        return Ok(());
    }
    let name = options.image.display();
    session.print(format!("{name}: from {} to {} bytes\n", done.disk.0, done.disk.1))?;
    if let Some((number, before, after)) = done.partition.filter(|(_, one, two)| one != two) {
        session.print(format!("partition {number}: from {before} to {after} bytes\n"))?;
    }
    if let Some((before, after)) = done.volume {
        session.print(format!("XFS volume: from {before} to {after} bytes\n"))?;
    }
    Ok(())
}

fn resize_document(options: &Resize, done: &DiskResize) -> Vec<u8> {
    let mut map = Map::new();
    map.insert("image".into(), json!(options.image.display().to_string()));
    map.insert("before_bytes".into(), json!(done.disk.0));
    map.insert("after_bytes".into(), json!(done.disk.1));
    let partition = done.partition.map(|(number, before, after)| {
        json!({ "number": number, "before_bytes": before, "after_bytes": after })
    });
    map.insert("partition".into(), json!(partition));
    let volume =
        done.volume.map(|(before, after)| json!({ "before_bytes": before, "after_bytes": after }));
    map.insert("volume".into(), json!(volume));
    json::document("disk-resize", map)
}
