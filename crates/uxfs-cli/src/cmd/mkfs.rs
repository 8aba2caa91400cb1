//! `uxfs mkfs`: makes a new volume with the options of `mkfs.xfs`.

mod log_device;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use uxfs::Devices;
use uxfs::clock::Clock;
use uxfs::disk::OpenMode;
use uxfs::format::timestamp::Timestamp;
use uxfs::import::Population;
use uxfs::mkfs::{self, Layout, MkfsError, Preset, WriteOptions};
use uxfs::new_file::NewFile;
use uxfs::volume::{self, Location};

use self::log_device::LogDevice;
use super::population::{self, PopulationOptions};
use crate::image::Images;
use crate::session::{Failure, Result, Session};
use crate::users::{self, Owner};
use crate::{address, interrupt, time};

/// Make an XFS file system in a file or on a block device, with mkfs.xfs' options
///
/// Prints the geometry to standard output in mkfs.xfs' format. If the file does not exist, mkfs
/// creates it as a sparse file of the size that -d size= gives, or as a qcow2 image if its name ends
/// in .qcow2. With -l size=, mkfs creates the file of an external log (-l logdev=) too. The root
/// directory belongs to root, as with mkfs.xfs, unless --owner is given. With SOURCE_DATE_EPOCH in the
/// environment and -m uuid=, the same options make the same volume, byte for byte.
#[derive(Args)]
#[command(
    version,
    after_help = "Examples:\n  \
    uxfs mkfs -d size=4g disk.img\n  \
    uxfs mkfs -f -m rmapbt=1 -d agcount=16 -l size=128m disk.img\n  \
    uxfs mkfs --owner $(id -u):$(id -g) -d size=4g disk.img\n  \
    uxfs mkfs --preset lts-6.12 -d size=4g disk.img\n  \
    uxfs mkfs -c options=site.conf -d size=4g disk.img\n  \
    uxfs mkfs -p ./rootfs -d size=4g disk.img\n  \
    uxfs mkfs -p slashes_are_spaces=1,rootfs.proto -d size=4g disk.img\n  \
    uxfs mkfs -d size=4g -l logdev=disk.log,size=128m disk.img\n  \
    uxfs mkfs -N -d size=1t none.img      (only show the geometry)"
)]
pub(crate) struct Options {
    #[command(flatten)]
    geometry: Geometry,
    /// Overwrite any existing content
    #[arg(short)]
    force: bool,
    /// Label, at most 12 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<String>,
    /// Owner, and group if given, of the root directory: names or numbers
    #[arg(long, value_name = "USER[:GROUP]", value_parser = users::owner, conflicts_with = "proto")]
    owner: Option<Owner>,
    #[command(flatten)]
    population: PopulationOptions,
    /// Do not discard the blocks of the device
    #[arg(short = 'K')]
    keep: bool,
    /// Show the geometry and write nothing
    #[arg(short = 'N')]
    no_write: bool,
    /// Do not show the geometry
    #[arg(short)]
    quiet: bool,
    /// Realtime section: refused, because uxfs cannot make volumes with one
    #[arg(short = 'r', value_name = "OPTIONS")]
    realtime: Vec<String>,
    /// Allow volumes below 300 MiB and other geometry that mkfs.xfs does not support
    #[arg(long)]
    unsupported: bool,
    /// The file or block device
    #[arg(value_name = "DEVICE")]
    device: Option<PathBuf>,
}

/// The options for the geometry, shared with `uxfs import`.
#[derive(Args, Default)]
pub(crate) struct Geometry {
    /// Block size: size=BYTES
    #[arg(short = 'b', value_name = "OPTIONS")]
    block: Vec<String>,
    /// Option files: options=FILE adds to the other options; defaults=FILE applies where no other
    /// option does
    #[arg(short = 'c', value_name = "OPTIONS")]
    config: Vec<String>,
    /// Data section: agcount=, agsize=, size=, su=, sw=, sunit=, swidth=, noalign, file, name=
    #[arg(short = 'd', value_name = "OPTIONS")]
    data: Vec<String>,
    /// Inodes: size=, perblock=, maxpct=, sparse=, nrext64=
    #[arg(short = 'i', value_name = "OPTIONS")]
    inode: Vec<String>,
    /// Log: size=, agnum=, internal, logdev=, version=, su=, sunit=, sectsize=, lazy-count=
    #[arg(short = 'l', value_name = "OPTIONS")]
    log: Vec<String>,
    /// Features: crc=, finobt=, rmapbt=, reflink=, inobtcount=, bigtime=, uuid=
    #[arg(short = 'm', value_name = "OPTIONS")]
    meta: Vec<String>,
    /// Directories: size=, version=, ftype=, parent=
    #[arg(short = 'n', value_name = "OPTIONS")]
    naming: Vec<String>,
    /// Sectors: size=BYTES
    #[arg(short = 's', value_name = "OPTIONS")]
    sector: Vec<String>,
    /// Default features of mkfs.xfs for a kernel release, where no other option applies
    #[arg(long, value_name = "NAME", value_parser = preset_names())]
    preset: Option<Preset>,
}

fn preset_names() -> impl TypedValueParser<Value = Preset> {
    PossibleValuesParser::new(
        mkfs::PRESETS
            .map(|preset| PossibleValue::new(preset.name).alias(preset.file).help(preset.about)),
    )
    .try_map(|name| Preset::named(&name))
}

impl Geometry {
    /// Converts the options to the library's.
    pub(crate) fn options(&self) -> std::result::Result<mkfs::Options, MkfsError> {
        let mut options = mkfs::Options::default();
        let mut defaults = mkfs::Options::default();
        for (what, file) in self.files()? {
            let text = read_config(file)?;
            let into = if what == "options" { &mut options } else { &mut defaults };
            into.apply_file(file, &text)?;
        }
        if let Some(preset) = self.preset {
            defaults = defaults.or(&preset.options());
        }
        let groups = [
            ('b', &self.block),
            ('s', &self.sector),
            ('d', &self.data),
            ('i', &self.inode),
            ('l', &self.log),
            ('m', &self.meta),
            ('n', &self.naming),
        ];
        for (letter, texts) in groups {
            for text in texts {
                options.apply(letter, text)?;
            }
        }
        Ok(options.or(&defaults))
    }

    /// The option files that `-c` names. `options` and `defaults` may occur once each.
    fn files(&self) -> std::result::Result<Vec<(&str, &str)>, MkfsError> {
        let wrong = |why: String| Err(MkfsError::Usage(why));
        let mut files: Vec<(&str, &str)> = Vec::new();
        for part in self.config.iter().flat_map(|text| text.split(',')) {
            let Some((what @ ("options" | "defaults"), file)) = part.split_once('=') else {
                return wrong(format!("unknown option -c {part}"));
            };
            if file.is_empty() {
                return wrong(format!("-c {what} option requires a value"));
            }
            if files.iter().any(|(other, _)| *other == what) {
                return wrong(format!("-c {what} option respecified"));
            }
            files.push((what, file));
        }
        Ok(files)
    }
}

fn read_config(path: &str) -> std::result::Result<String, MkfsError> {
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(mkfs::MAX_CONFIG_BYTES).read_to_string(&mut text));
    match read {
        Ok(len) if len as u64 == mkfs::MAX_CONFIG_BYTES => {
            Err(MkfsError::Usage(format!("{path}: too long for an option file")))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(MkfsError::Usage(format!("{path}: option file: {error}"))),
    }
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let refused = |error: MkfsError| Failure::bare(error.to_string());
    if let Some(text) = options.realtime.first() {
        return Err(Failure::bare(format!(
            "-r {text}: uxfs reads volumes with a realtime section, but cannot make them: leave -r \
             out, or make the volume with mkfs.xfs"
        )));
    }
    let mut wanted = options.geometry.options().map_err(refused)?;
    wanted.unsupported = options.unsupported;
    if let Some(label) = &options.label {
        wanted.apply('L', label).map_err(refused)?;
    }
    let named = wanted.data.name.as_ref().map(PathBuf::from);
    let path = match (&options.device, named) {
        (Some(_), Some(_)) => {
            return Err(Failure::bare("extra arguments: the device is named twice"));
        }
        (Some(path), None) => path.clone(),
        (None, Some(path)) => path,
        (None, None) => return Err(Failure::bare("no device name given in argument list")),
    };
    let length = length(&path, images.location())?;
    let asked = wanted.data.size.is_some();
    if length.is_none() && !asked {
        return Err(Failure::new(&path, "no such file: give its size as -d size=SIZE"));
    }
    // A file can grow to the wanted size; a device cannot.
    let room = match length {
        Some(Length::Device(bytes)) => bytes,
        Some(Length::File(_)) | None if asked => u64::MAX,
        Some(Length::File(bytes)) => bytes,
        None => 0,
    };
    let log = LogDevice::of(&mut wanted, &path)?;
    let layout = Layout::new(&wanted, room).map_err(refused)?;
    let epoch = time::source_date_epoch().map_err(Failure::bare)?;
    let clock = epoch.map_or(Clock::Real, |sec| Clock::Fixed(Timestamp { sec, nsec: 0 }));
    let population = match options.no_write {
        true => None,
        false => options.population.population(&wanted, &layout, clock)?,
    };
    if !options.force && length.is_some() {
        refuse_existing(&path, images.location())?;
    }
    if let Some(log) = &log {
        log.check(options.force, options.no_write)?;
    }
    if !options.no_write {
        check_writable(&path, images.location(), length.is_some())?;
    }
    if !options.quiet || options.no_write {
        let name = path.display().to_string();
        // A preset is of mkfs.xfs 7, whose table has more lines.
        session.print(match options.geometry.preset {
            Some(_) => mkfs::table_7(&layout, &name),
            None => mkfs::table(&layout, &name),
        })?;
        session.flush()?;
    }
    if options.no_write {
        return Ok(());
    }
    let content = Content { clock, population };
    let place = Place { path: &path, location: images.location(), length, log };
    write(options, place, &layout, &content, session)?;
    if options.owner.is_none()
        && content.population.is_none()
        && !options.quiet
        && cfg!(unix)
        && !uxfs_host::User::current().is_root()
    {
        let uxfs_host::User { uid, gid } = uxfs_host::User::current();
        let hint = format!(
            "uxfs: mkfs: the root directory belongs to root, as with mkfs.xfs; give --owner \
             {uid}:{gid} to own it when you mount the volume"
        );
        session.say(hint.as_bytes());
    }
    Ok(())
}

/// Checks, before anything is printed or changed, that the name is allowed, that the file can be
/// written, and that it is not in use.
fn check_writable(path: &Path, location: &Location, there: bool) -> Result<()> {
    let host = |error: std::io::Error| Failure::host(path, &error);
    if there {
        address::open(path, OpenMode::Write, location).map_err(host)?;
    }
    if !address::is(path) {
        volume::wants_qcow2(path, location).map_err(host)?;
    }
    Ok(())
}

/// Size in bytes of the existing file or device.
enum Length {
    File(u64),
    Device(u64),
}

fn length(path: &Path, location: &Location) -> Result<Option<Length>> {
    let host = |error: std::io::Error| Failure::host(path, &error);
    if address::is(path) {
        let device = address::open(path, OpenMode::Read, location).map_err(host)?;
        return Ok(Some(Length::Device(device.len())));
    }
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && location.is_whole() => {
            Ok(None)
        }
        Err(error) => Err(host(error)),
        Ok(meta) if meta.is_file() || uxfs_host::is_block_device(meta.file_type()) => {
            let fixed = volume::fixed_len(path, location).map_err(host)?;
            Ok(Some(fixed.map_or(Length::File(meta.len()), Length::Device)))
        }
        Ok(_) => Err(Failure::new(path, "neither a file nor a block device")),
    }
}

fn refuse_existing(path: &Path, location: &Location) -> Result<()> {
    let host = |error: std::io::Error| Failure::host(path, &error);
    let device = address::open(path, OpenMode::Read, location).map_err(host)?;
    match mkfs::signature::existing(&*device).map_err(host)? {
        Some(what) => Err(Failure::bare(format!(
            "{} appears to contain an existing filesystem ({what}).\n\
             uxfs: mkfs: Use the -f option to force overwrite.",
            path.display()
        ))),
        None => match mkfs::signature::content(&*device).map_err(host)? {
            None => Ok(()),
            Some(content) => Err(Failure::bare(format!(
                "{} holds {}.\nuxfs: mkfs: Use the -f option to force overwrite.",
                path.display(),
                content.words
            ))),
        },
    }
}

/// What a new volume holds.
struct Content {
    clock: Clock,
    /// `None` for an empty volume.
    population: Option<Population>,
}

/// Where a new volume comes.
struct Place<'a> {
    path: &'a Path,
    location: &'a Location,
    /// `None` if there is no file yet.
    length: Option<Length>,
    /// For an external log.
    log: Option<LogDevice>,
}

fn write(
    options: &Options,
    place: Place<'_>,
    layout: &Layout,
    content: &Content,
    session: &Session,
) -> Result<()> {
    let Place { path, location, length, log } = place;
    let host = |error: std::io::Error| Failure::host(path, &error);
    let size = layout.size_bytes();
    // Creating a file anew truncates it, which replaces a discard. With -K the content is kept.
    let (mode, zero) = match length {
        None => (OpenMode::Create(size), true),
        Some(Length::File(bytes)) if !options.keep => (OpenMode::Create(size.max(bytes)), true),
        Some(Length::File(bytes)) => {
            if bytes < size {
                let file = std::fs::OpenOptions::new().write(true).open(path).map_err(host)?;
                file.set_len(size).map_err(host)?;
            }
            (OpenMode::Write, false)
        }
        Some(Length::Device(_)) => (OpenMode::Write, false),
    };
    interrupt::watch("mkfs", path).map_err(host)?;
    let mut new_file =
        (!address::is(path)).then(|| NewFile::create_image(path)).transpose().map_err(host)?;
    if matches!(mode, OpenMode::Create(_)) {
        volume::prepare(path, size, location).map_err(host)?;
    }
    let open = || address::open(path, mode, location);
    let device = match &mut new_file {
        Some(new_file) => new_file.open(open),
        None => open(),
    };
    let device = device.map_err(host)?;
    if !options.keep && mode == OpenMode::Write {
        device.discard(0, device.len());
    }
    let mut how = WriteOptions::default();
    how.zero_log = zero;
    how.in_progress = content.population.is_some();
    let (uid, gid) = options.owner.unwrap_or_default();
    how.owner = (uid.unwrap_or(0), gid.unwrap_or(0));
    how.now = Some(content.clock.now());
    let mut log = log.map(|log| log.open(layout, options.keep)).transpose()?;
    let made = match &log {
        Some(log) => mkfs::write_with_log(layout, &*device, &*log.device, &how),
        None => mkfs::write(layout, &*device, &how),
    };
    made.map_err(|error| Failure::new(path, error.to_string()))?;
    let mut devices = Devices::new(device);
    devices.log = log.as_ref().map(|log| Arc::clone(&log.device));
    if let Some(population) = &content.population {
        population::run(devices, population, options.quiet, session)?;
    }
    if let Some(log) = log.take() {
        log.keep()?;
    }
    new_file.into_iter().try_for_each(NewFile::keep_durably).map_err(host)
}
