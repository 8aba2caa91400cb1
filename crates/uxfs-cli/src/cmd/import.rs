//! `uxfs import`: puts trees into an image: tar streams, directories, container images, manifests.

use std::path::{Path, PathBuf};

use clap::Args;
use uxfs::archive::Platform;
use uxfs::import::{self, Headroom, IdMap, ImportError, ImportOptions, ImportSource, Owners};
use uxfs_host::OsStrExt;
use uxfs_image::ImageError;
use uxfs_image::output::Format;

use super::mkfs::Geometry;
use crate::address;
use crate::contexts::LabelOptions;
use crate::image::Images;
use crate::interrupt;
use crate::progress::Bar;
use crate::session::{Failure, Result, Session};
use crate::users::{self, Owner};
use crate::{number, time};

/// Put a tar archive, a directory, a dump or a container image into an image, new or existing
///
/// SOURCE is a tar archive (plain, gzip, xz or zstd; - for standard input), a dump of xfsdump of level 0, a
/// directory, or `oci:DIR[:TAG]`, an image in an OCI image layout, whose layers are applied in order. If IMAGE does
/// not exist, import creates it, with the given size or as large as the tree needs, and in the format that
/// its name ends in (.qcow2, .raw.zst, .vhd). If IMAGE holds XFS, import adds to it; a file of zeroes keeps
/// its size; other data is overwritten only with -f. Everything is on stable storage when the command ends.
/// An image that lies in the directory that is imported is left out. If an import fails or Ctrl-C
/// interrupts it, no new image stays behind. With --durable, or when import adds to an image, the files
/// imported until then stay in a consistent volume.
///
/// With SOURCE_DATE_EPOCH in the environment and --uuid, the same input and the same options make the
/// same new image, byte for byte. (A qcow2 image that --force overwrites keeps its clusters where they
/// are; the disk in it is the same.) Modification times later than SOURCE_DATE_EPOCH are set to it; access,
/// change and birth times equal the modification time; entries without a time get SOURCE_DATE_EPOCH.
/// Users and groups that are names only (in ACLs of archives, in --owner) get the numbers that this machine
/// knows them by: where machines differ in these, so do the images.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs import linux-6.1.tar.xz disk.img --size 4G\n  \
    curl -s https://example.org/root.tar.zst | uxfs import - disk.img --size 8G\n  \
    uxfs import root.xfsdump disk.img\n  \
    uxfs import ./rootfs disk.img --headroom 20% -m rmapbt=1\n  \
    uxfs import ./rootfs disk.img --owner root:root\n  \
    uxfs import ./rootfs disk.qcow2 --compress\n  \
    uxfs import ./rootfs disk.raw.zst\n  \
    uxfs import ./rootfs disk.img --map-uid 1000:0 --map-gid 1000:0\n  \
    uxfs import --manifest tree.dump ./objects disk.img\n  \
    skopeo copy docker://debian:12 oci:debian:12 && uxfs import oci:debian:12 disk.img\n  \
    uxfs import ./rootfs disk.img --file-contexts auto\n  \
    uxfs import --durable linux-6.1.tar disk.img\n  \
    uxfs import --layers base.tar app.tar.zst disk.img\n  \
    SOURCE_DATE_EPOCH=1700000000 uxfs import ./rootfs disk.img \\\n    \
    --uuid 12341234-a4ec-4304-a70f-c549ea829da9")]
pub(crate) struct Options {
    /// The archive, the directory, - for standard input, or `oci:DIR[:TAG]`; several with --layers
    #[arg(value_name = "SOURCE", required = true, num_args = 1..)]
    sources: Vec<PathBuf>,
    /// The image
    #[arg(value_name = "IMAGE", required = true)]
    image: PathBuf,
    /// Size of a new image, as in 4G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// Free space in a new image of computed size: a size, or a percentage of the tree
    #[arg(long, value_name = "SIZE|PERCENT%", value_parser = parse_headroom)]
    headroom: Option<Headroom>,
    /// Apply the SOURCEs in order as layers: .wh.NAME removes NAME, .wh..wh..opq removes everything in
    /// its directory, and new entries replace existing ones
    #[arg(long, conflicts_with = "manifest")]
    layers: bool,
    /// Platform of the image to take from an OCI image layout with several; default: this machine's
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    platform: Option<Platform>,
    /// Make the tree that FILE (- for standard input) describes in composefs' dump format
    /// (composefs-dump(5)); SOURCE is the directory of the payloads
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Owner, and group if given, of all files and of a new image's root directory
    #[arg(long, value_name = "USER[:GROUP]", value_parser = users::owner)]
    owner: Option<Owner>,
    /// Group of all files
    #[arg(long, value_name = "GROUP", value_parser = parse_group)]
    group: Option<u32>,
    /// Change owner FROM to TO, and the COUNT - 1 user IDs that follow FROM to those that follow TO
    #[arg(long, value_name = "FROM:TO[:COUNT]", value_parser = parse_map)]
    map_uid: Vec<IdMap>,
    /// Change groups, as --map-uid changes owners
    #[arg(long, value_name = "FROM:TO[:COUNT]", value_parser = parse_map)]
    map_gid: Vec<IdMap>,
    #[command(flatten)]
    labels: LabelOptions,
    #[command(flatten)]
    geometry: Geometry,
    /// Label of a new image, at most 12 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<String>,
    /// UUID of a new image; same as -m uuid=
    #[arg(long, value_name = "UUID")]
    uuid: Option<String>,
    /// Create the image anew even if it has content
    #[arg(short, long)]
    force: bool,
    /// Journal the import into a new image from the first file on; files reach stable storage in
    /// order, so that after a power cut the image is consistent and holds the files imported until
    /// then
    #[arg(long)]
    durable: bool,
    /// Format of a new image: raw, raw.zst, qcow2, vhd; default: as the name ends, else raw. For raw.zst,
    /// vhd and --compress a sparse raw image lies beside IMAGE until the import ends
    #[arg(long, value_name = "FORMAT", value_parser = super::disk::parse_format)]
    output: Option<Format>,
    /// Compress the clusters of a new qcow2 image
    #[arg(long)]
    compress: bool,
    /// Allow a new volume below 300 MiB and other geometry that mkfs.xfs does not support
    #[arg(long)]
    unsupported: bool,
    /// Show no progress bar and no summary
    #[arg(short, long)]
    quiet: bool,
}

fn parse_group(text: &str) -> std::result::Result<u32, String> {
    users::group(text).ok_or_else(|| format!("invalid group: '{text}'"))
}

fn parse_map(text: &str) -> std::result::Result<IdMap, &'static str> {
    text.parse()
}

fn parse_size(text: &str) -> std::result::Result<u64, String> {
    number::size(text).ok_or_else(|| "not a size such as 4G".into())
}

fn parse_headroom(text: &str) -> std::result::Result<Headroom, String> {
    if let Some(percent) = text.strip_suffix('%') {
        return percent.parse().map(Headroom::Percent).map_err(|_| "not a percentage".into());
    }
    number::size(text).map(Headroom::Bytes).ok_or_else(|| "neither a size nor a percentage".into())
}

impl Options {
    fn source(&self) -> Result<ImportSource> {
        let oci = |path: &PathBuf| path.as_os_str().as_bytes().starts_with(b"oci:");
        if self.platform.is_some() && (self.manifest.is_some() || !self.sources.iter().any(oci)) {
            return Err(Failure::bare("--platform goes with oci:DIR"));
        }
        if self.layers {
            return Ok(ImportSource::Layers(self.sources.clone()));
        }
        let [source] = self.sources.as_slice() else {
            let text = "several sources: give --layers to apply them in order";
            return Err(Failure::bare(text));
        };
        if let Some(manifest) = &self.manifest {
            let (manifest, base) = (manifest.clone(), source.clone());
            return Ok(ImportSource::Manifest { manifest, base });
        }
        let platform = self.platform.clone();
        Ok(ImportSource::named(source.as_os_str(), platform, Path::to_owned))
    }

    /// The format of an image whose name does not say that import fills it, or that is converted.
    fn converted(&self) -> Result<Option<Format>> {
        let failure = |error| super::disk::failure(None, error);
        // What exists is added to, or refused by what it holds.
        let there = std::fs::metadata(&self.image).is_ok_and(|meta| meta.len() > 0);
        if there && !self.force && self.output.is_none() && !self.compress {
            return Ok(None);
        }
        let by_name = Format::of_name(&self.image);
        let format = match self.output {
            Some(format) => format,
            // The library refuses names of formats that are not written.
            None => by_name.as_ref().copied().unwrap_or(Format::Raw),
        };
        let format = if self.compress { format.compressed().map_err(failure)? } else { format };
        let direct = matches!(format, Format::Raw | Format::Qcow2 { compress: false })
            && (self.output.is_none() || by_name.is_ok_and(|named| named == format));
        Ok((!direct).then_some(format))
    }

    fn owners(&self) -> Owners {
        let mut owners = Owners::default();
        let (uid, gid) = self.owner.unwrap_or_default();
        owners.uid = uid;
        owners.gid = self.group.or(gid);
        owners.uid_maps.clone_from(&self.map_uid);
        owners.gid_maps.clone_from(&self.map_gid);
        owners
    }
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    address::refuse(
        &options.image,
        "make a volume there by uxfs mkfs, then fill it by uxfs cp -a",
    )?;
    let mut wanted = ImportOptions::from_source(options.source()?, &options.image);
    wanted.owners = options.owners();
    wanted.labels = options.labels.labels()?;
    wanted.source_date_epoch = time::source_date_epoch().map_err(Failure::bare)?;
    wanted.mkfs = options.geometry.options().map_err(|e| Failure::bare(e.to_string()))?;
    if let Some(uuid) = &options.uuid {
        let sub = format!("uuid={uuid}");
        wanted.mkfs.apply('m', &sub).map_err(|e| Failure::bare(e.to_string()))?;
    }
    wanted.mkfs.unsupported = options.unsupported;
    if let Some(label) = &options.label {
        wanted.mkfs.apply('L', label).map_err(|e| Failure::bare(e.to_string()))?;
    }
    wanted.location = images.location().clone();
    wanted.size = options.size;
    wanted.headroom = options.headroom.unwrap_or_default();
    wanted.force = options.force;
    wanted.durable = options.durable;
    wanted.open.journal = images.journal();
    interrupt::watch("import", &options.image).map_err(|e| Failure::bare(e.to_string()))?;
    let failed = |error: ImportError| match error {
        ImportError::Host { path, source } => Failure::host(path, &source),
        ImportError::Volume(error) => images.not_a_volume(&options.image, error),
        other => Failure::bare(other.to_string()),
    };
    let converted = options.converted()?;
    let summary = Bar::during(options.quiet, |progress| match converted {
        None => import::run(&wanted, progress).map_err(failed),
        Some(format) => {
            uxfs_image::import::run(wanted, format, progress).map_err(|error| match error {
                ImageError::Import(error) => failed(error),
                other => super::disk::failure(None, other),
            })
        }
    })?;
    for warning in &summary.warnings {
        session.say(format!("uxfs: import: {warning}").as_bytes());
    }
    if !options.quiet {
        let made = if summary.created { "made" } else { "added to" };
        session.print(format!(
            "{} {made}: {} entries, {} bytes of data, volume of {} bytes\n",
            options.image.display(),
            summary.entries,
            summary.bytes,
            summary.size
        ))?;
    }
    Ok(())
}
