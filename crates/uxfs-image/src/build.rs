//! Builds a disk.
//!
//! 1. The disk grows as a sparse raw file in a work directory beside the output, is converted there, and
//!    is renamed to the output when all of it is on stable storage. Nothing else is left, whatever
//!    happens.
//! 2. A partition is filled in its place on the disk, except volumes that are to be minimized: these
//!    are made in a file of their own, because only then their length is known.
//! 3. Hash trees come last, and the partition table after them: UUIDs may follow from root hashes.
//! 4. With `SOURCE_DATE_EPOCH` the same description and the same files give the same bytes.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs::clock::Clock;
use uxfs::disk::{BlockDev, FileDev, OpenMode, Slice};
use uxfs::format::Uuid;
use uxfs::format::timestamp::Timestamp;
use uxfs::import::{self, Headroom, ImportOptions, ImportSource, ImportSummary, Progress};
use uxfs::new_file::WorkDir;
use uxfs::resize::{self, ResizeOptions, Target};
use uxfs::volume::Location;

use crate::error::{ImageError, Result};
use crate::gpt::{Entry, Gpt};
use crate::identity::Identity;
use crate::output::{self, Format, Label};
use crate::plan::{ALIGN, Content, Length, Origin, Partition, Placed, Plan, Xfs};
use crate::verity::{self, RootHash};
use crate::{fat, sparse};

/// What to build.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BuildOptions {
    /// The file that describes the disk. Paths in it are relative to its directory.
    pub spec: PathBuf,
    /// The image to make.
    pub output: PathBuf,
    /// Its format.
    pub format: Format,
    /// Replace an image that exists.
    pub force: bool,
    /// As in the variable `SOURCE_DATE_EPOCH`: for images that are identical byte for byte.
    pub source_date_epoch: Option<i64>,
}

impl BuildOptions {
    /// Builds what `spec` describes as `output`.
    pub fn new(spec: impl Into<PathBuf>, output: impl Into<PathBuf>, format: Format) -> Self {
        let (spec, output) = (spec.into(), output.into());
        Self { spec, output, format, force: false, source_date_epoch: None }
    }
}

/// A partition that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltPartition {
    /// Number in the table.
    pub number: usize,
    /// Type.
    pub kind: Uuid,
    /// Name in the table.
    pub name: String,
    /// PARTUUID.
    pub uuid: Uuid,
    /// First byte.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// UUID of an XFS volume.
    pub volume_uuid: Option<Uuid>,
    /// Root hash of a hash tree.
    pub root_hash: Option<RootHash>,
}

/// How UUIDs were found that the description does not give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UuidSource {
    /// Derived from the seed, or with `SOURCE_DATE_EPOCH` from the description's text.
    Derived,
    /// Random.
    Random,
}

/// A disk that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildSummary {
    /// Length of the disk in bytes.
    pub len: u64,
    /// GUID of the disk.
    pub uuid: Uuid,
    /// How UUIDs were found.
    pub uuids: UuidSource,
    /// The partitions, in the order of their numbers.
    pub partitions: Vec<BuiltPartition>,
    /// Texts about what could not be kept exactly.
    pub warnings: Vec<String>,
}

/// Builds a disk and calls `progress` from time to time.
///
/// # Errors
/// [`ImageError`]; nothing is left then, and an existing output is unchanged.
pub fn run(
    options: &BuildOptions,
    progress: &mut dyn FnMut(Progress),
) -> std::result::Result<BuildSummary, ImageError> {
    let text = std::fs::read_to_string(&options.spec).map_err(ImageError::host(&options.spec))?;
    let dir = options.spec.parent().unwrap_or(Path::new(""));
    let origin = Origin { text: &text, dir, epoch: options.source_date_epoch };
    let plan = Plan::new(&origin)?;
    output::check_target(&options.output, options.force)?;
    let work = WorkDir::beside(&options.output).map_err(ImageError::host(&options.output))?;
    let mut build = Build {
        plan: &plan,
        work: &work,
        output: &options.output,
        epoch: options.source_date_epoch,
        disk: work.path().join("disk"),
        warnings: Vec::new(),
        progress,
    };
    let (placed, roots) = build.disk()?;
    let warnings = std::mem::take(&mut build.warnings);
    let disk = build.disk.clone();
    let time = options.source_date_epoch.unwrap_or_else(|| Clock::Real.now().sec);
    let label = Label { uuid: plan.identity.uuid("image")?, time };
    let image = output::convert(&disk, &work, options.format, &label)?;
    work.release(&image, &options.output).map_err(ImageError::host(&options.output))?;
    let entries = entries(&plan, &placed, &roots)?;
    let built = |(partition, entry): (&Partition, &Entry)| BuiltPartition {
        number: partition.number,
        kind: entry.kind,
        name: entry.name.clone(),
        uuid: entry.uuid,
        start: entry.start,
        len: entry.len,
        volume_uuid: match &partition.content {
            Content::Xfs(xfs) => xfs.mkfs.uuid,
            _ => None,
        },
        root_hash: roots[partition.number - 1],
    };
    let uuids = match plan.identity {
        Identity::Seed(_) => UuidSource::Derived,
        Identity::Random => UuidSource::Random,
    };
    let partitions = plan.partitions.iter().zip(&entries).map(built).collect();
    Ok(BuildSummary { len: placed.len, uuid: plan.uuid, uuids, partitions, warnings })
}

/// A disk that is being built.
struct Build<'a> {
    plan: &'a Plan,
    work: &'a WorkDir,
    output: &'a Path,
    epoch: Option<i64>,
    disk: PathBuf,
    warnings: Vec<String>,
    progress: &'a mut dyn FnMut(Progress),
}

impl Build<'_> {
    /// Builds the raw disk. Returns the places of the partitions and the root hashes of hash trees.
    fn disk(&mut self) -> Result<(Placed, Vec<Option<RootHash>>)> {
        let plan = self.plan;
        let mut contents = Vec::new();
        for partition in &plan.partitions {
            let len = self.content_len(partition);
            contents.push(len.map_err(|error| in_partition(partition, error))?);
        }
        let placed = plan.place(&contents)?;
        let disk = File::create_new(&self.disk).map_err(ImageError::host(&self.disk))?;
        disk.set_len(placed.len).map_err(ImageError::host(&self.disk))?;
        drop(disk);
        let mut roots = vec![None; plan.partitions.len()];
        // Imports find their partition by the table. It is written again when root hashes are known.
        self.write_table(&placed, &vec![Some(RootHash([0; 32])); roots.len()])?;
        for (partition, range) in plan.partitions.iter().zip(&placed.ranges) {
            let filled = self.fill(partition, *range);
            filled.map_err(|error| in_partition(partition, error))?;
        }
        for (hash, data) in plan.hash_trees() {
            let root = self.hash(hash, placed.ranges[hash], placed.ranges[data]);
            let root = root.map_err(|error| in_partition(&plan.partitions[hash], error))?;
            roots[hash] = Some(root);
        }
        self.write_table(&placed, &roots)?;
        Ok((placed, roots))
    }

    fn open(&self) -> Result<Arc<dyn BlockDev>> {
        let dev = FileDev::open(&self.disk, OpenMode::Write);
        Ok(Arc::new(dev.map_err(ImageError::host(&self.disk))?))
    }

    fn slice(&self, (start, len): (u64, u64)) -> Result<Slice> {
        Slice::new(self.open()?, start, len).map_err(ImageError::host(&self.disk))
    }

    fn write_table(&self, placed: &Placed, roots: &[Option<RootHash>]) -> Result<()> {
        let table = Gpt::new(self.plan.uuid, &entries(self.plan, placed, roots)?);
        table.write(&*self.open()?, placed.len).map_err(ImageError::host(&self.disk))
    }

    /// The length of a partition whose length depends on its content; 0 for others. Makes the volumes
    /// that are to be minimized.
    fn content_len(&mut self, partition: &Partition) -> Result<u64> {
        if partition.length != Length::Content {
            return Ok(0);
        }
        match &partition.content {
            Content::File(path) => {
                let len = std::fs::metadata(path).map_err(ImageError::host(path))?.len();
                Ok(len.next_multiple_of(ALIGN))
            }
            Content::Fat(fat) => fat::Layout::smallest(&fat.tree, &fat.options)
                .map_err(|error| partition.wrong(error)),
            Content::Xfs(xfs) => {
                let path = self.part(partition);
                self.import(xfs, &path, Location::whole(), None)?;
                let mut wanted = ResizeOptions::new(&path, Target::Minimize);
                self.fix(&mut wanted.open, xfs);
                resize::run(&wanted)?;
                let len = std::fs::metadata(&path).map_err(ImageError::host(&path))?.len();
                Ok(len.next_multiple_of(ALIGN))
            }
            Content::Empty | Content::Verity(_) => Ok(0),
        }
    }

    /// The file of a volume that is made outside of the disk.
    fn part(&self, partition: &Partition) -> PathBuf {
        self.work.path().join(format!("part{}", partition.number))
    }

    /// Stops the clock and fixes random numbers, for bytes that can be repeated.
    fn fix(&self, open: &mut uxfs::OpenOptions, xfs: &Xfs) {
        if let Some(sec) = self.epoch {
            open.clock = Clock::Fixed(Timestamp { sec, nsec: 0 });
            let uuid = xfs.mkfs.uuid.unwrap_or_default().0;
            open.seed = uuid.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        }
    }

    fn import(
        &mut self,
        xfs: &Xfs,
        image: &Path,
        location: Location,
        size: Option<u64>,
    ) -> Result<ImportSummary> {
        let empty = self.work.path().join("empty");
        let source = match &xfs.source {
            Some(source) => source.clone(),
            None => {
                if !empty.exists() {
                    std::fs::create_dir(&empty).map_err(ImageError::host(&empty))?;
                }
                ImportSource::Tree(empty)
            }
        };
        let mut wanted = ImportOptions::from_source(source, image);
        wanted.location = location;
        wanted.size = size;
        wanted.headroom = Headroom::Percent(5);
        wanted.mkfs = xfs.mkfs.clone();
        wanted.owners = xfs.owners.clone();
        wanted.labels = xfs.labels.clone();
        wanted.source_date_epoch = self.epoch;
        wanted.force = true;
        wanted.left_out = vec![self.output.to_owned(), self.work.path().to_owned()];
        let mut summary = import::run(&wanted, self.progress)?;
        self.warnings.append(&mut summary.warnings);
        Ok(summary)
    }

    /// Fills a partition, except with a hash tree.
    fn fill(&mut self, partition: &Partition, range: (u64, u64)) -> Result<()> {
        match &partition.content {
            Content::Empty | Content::Verity(_) => Ok(()),
            Content::File(path) => {
                let len = std::fs::metadata(path).map_err(ImageError::host(path))?.len();
                self.copy(path, range.0, len.min(range.1))
            }
            Content::Fat(fat) => {
                let mut options = fat.options.clone();
                options.hidden_sectors = u32::try_from(range.0 / 512).unwrap_or(0);
                let layout = fat::Layout::new(range.1, &fat.tree, &options)?;
                Ok(fat::write(&self.slice(range)?, &layout, &fat.tree, &options)?)
            }
            Content::Xfs(_) if partition.length == Length::Content => {
                let path = self.part(partition);
                let len = std::fs::metadata(&path).map_err(ImageError::host(&path))?.len();
                self.copy(&path, range.0, len)?;
                std::fs::remove_file(&path).map_err(ImageError::host(&path))
            }
            Content::Xfs(xfs) => {
                let location = Location::partition(partition.number.to_string());
                let disk = self.disk.clone();
                self.import(xfs, &disk, location, Some(range.1)).map(|_| ())
            }
        }
    }

    fn copy(&self, from: &Path, at: u64, len: u64) -> Result<()> {
        let source = File::open(from).map_err(ImageError::host(from))?;
        let disk = OpenOptions::new().write(true).open(&self.disk);
        let disk = disk.map_err(ImageError::host(&self.disk))?;
        sparse::copy((&source, 0), (&disk, at), len).map_err(ImageError::host(from))
    }

    /// Makes a hash tree.
    fn hash(&self, hash: usize, place: (u64, u64), data: (u64, u64)) -> Result<RootHash> {
        let Content::Verity(tree) = &self.plan.partitions[hash].content else {
            return Err(ImageError::Usage("not a hash tree".into()));
        };
        let needed = verity::hash_len(data.1);
        if needed > place.1 {
            let problem =
                format!("the hash tree has {needed} bytes, but the partition {}", place.1);
            return Err(ImageError::Usage(problem));
        }
        let disk = File::open(&self.disk).map_err(ImageError::host(&self.disk))?;
        let target = self.slice(place)?;
        verity::format(&disk, data, &target, &tree.params).map_err(ImageError::host(&self.disk))
    }
}

fn in_partition(partition: &Partition, error: ImageError) -> ImageError {
    match error {
        ImageError::Spec { .. } => error,
        error => ImageError::Partition {
            number: partition.number,
            name: partition.name.clone(),
            source: Box::new(error),
        },
    }
}

/// The entries of the table.
fn entries(plan: &Plan, placed: &Placed, roots: &[Option<RootHash>]) -> Result<Vec<Entry>> {
    let mut derived = vec![None; plan.partitions.len()];
    for (hash, data) in plan.hash_trees() {
        if let Some(root) = roots[hash] {
            let (first, last) = root.partition_uuids();
            (derived[data], derived[hash]) = (Some(first), Some(last));
        }
    }
    let all = plan.partitions.iter().zip(&placed.ranges).zip(derived);
    all.map(|((partition, (start, len)), derived)| {
        let uuid = partition.uuid.or(derived);
        Ok(Entry {
            kind: partition.kind,
            uuid: uuid.ok_or_else(|| partition.wrong("has no UUID"))?,
            start: *start,
            len: *len,
            attributes: partition.attributes,
            name: partition.name.clone(),
        })
    })
    .collect()
}
