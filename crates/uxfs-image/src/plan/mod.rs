//! What is to be built: a description whose values were checked, one against the other and against the
//! files that it names.
//!
//! 1. A plan is made before anything is written. What remains to fail is reading the sources and room
//!    on the host or in a volume.
//! 2. Lengths that depend on content ([`Length::Content`]) become known while the disk is built;
//!    [`Plan::place`] then puts the partitions in their places.

mod content;
mod place;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use uxfs::format::Uuid;

use crate::error::{ImageError, Result};
use crate::gpt::{NAME_UNITS, attribute};
use crate::identity::Identity;
use crate::spec::{self, Size, Spec};
use crate::types;
use crate::verity::BLOCK;

pub(crate) use content::{Content, Verity, Xfs};
pub(crate) use place::Placed;

/// Alignment of partitions in bytes.
pub(crate) const ALIGN: u64 = 1 << 20;
/// Lengths are multiples of this many bytes.
pub(crate) const UNIT: u64 = 4096;
/// Most partitions: the entries of a GPT.
const PARTITIONS_MAX: usize = 128;

/// A disk to be built.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) uuid: Uuid,
    pub(crate) size: Option<u64>,
    pub(crate) partitions: Vec<Partition>,
    pub(crate) identity: Identity,
}

/// A partition to be built.
#[derive(Debug)]
pub(crate) struct Partition {
    /// Line of the description.
    pub(crate) line: usize,
    pub(crate) number: usize,
    pub(crate) kind: Uuid,
    pub(crate) name: String,
    /// `None` if it follows from a root hash.
    pub(crate) uuid: Option<Uuid>,
    pub(crate) start: Option<u64>,
    pub(crate) length: Length,
    pub(crate) attributes: u64,
    pub(crate) content: Content,
}

/// How the length of a partition is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// This many bytes.
    Bytes(u64),
    /// As the content needs: known when it was made.
    Content,
    /// As the data that is hashed needs.
    HashOf(usize),
    /// To the end of the disk.
    Rest,
}

/// Where the description comes from.
pub(crate) struct Origin<'a> {
    /// The text of the description.
    pub(crate) text: &'a str,
    /// The directory that its paths are relative to.
    pub(crate) dir: &'a Path,
    /// `SOURCE_DATE_EPOCH`.
    pub(crate) epoch: Option<i64>,
}

impl Origin<'_> {
    fn path(&self, path: &Path) -> PathBuf {
        self.dir.join(path)
    }
}

impl Partition {
    /// An error at this partition of the description.
    pub(crate) fn wrong(&self, problem: impl std::fmt::Display) -> ImageError {
        let problem = format!("partition {} '{}': {problem}", self.number, self.name);
        ImageError::Spec { line: self.line, problem }
    }
}

impl Plan {
    /// Checks a description.
    ///
    /// # Errors
    /// [`ImageError::Spec`] with the line of the partition.
    pub(crate) fn new(origin: &Origin<'_>) -> Result<Self> {
        let spec = Spec::parse(origin.text)?;
        let bare = |problem: &str| ImageError::Spec { line: 1, problem: problem.into() };
        let identity =
            Identity::new(spec.disk.seed.as_deref(), origin.text, origin.epoch.is_some());
        let uuid = match &spec.disk.uuid {
            Some(text) => text.parse().map_err(|e| bare(&format!("disk.uuid: {e}")))?,
            None => identity.uuid("disk")?,
        };
        if spec.partitions.is_empty() || spec.partitions.len() > PARTITIONS_MAX {
            return Err(bare(&format!(
                "a disk has 1 to {PARTITIONS_MAX} partitions: write a [[partition]] table for each"
            )));
        }
        let names = names(&spec, origin.text)?;
        let mut partitions = Vec::new();
        for (at, given) in spec.partitions.iter().enumerate() {
            let line = spec::line_of(origin.text, given.span().start);
            let given = given.get_ref();
            let mut partition = Partition {
                line,
                number: at + 1,
                kind: Uuid::default(),
                name: names[at].clone(),
                uuid: None,
                start: given.start.map(|bytes| bytes.0),
                length: Length::Content,
                attributes: attributes(given),
                content: Content::Empty,
            };
            partition.kind = types::parse(&given.kind).ok_or_else(|| {
                let known: Vec<&str> = types::names().collect();
                let known = known.join(", ");
                partition.wrong(format!(
                    "'{}' is neither a GUID nor a type known by name: {known}",
                    given.kind
                ))
            })?;
            partition.content = content::plan(given, &partition, origin, &identity, &names)?;
            partition.length = length(given, &partition)?;
            if let Some(text) = &given.uuid {
                let uuid = text.parse().map_err(|error| partition.wrong(error))?;
                partition.uuid = Some(uuid);
            }
            partitions.push(partition);
        }
        let size = spec.disk.size.map(|bytes| bytes.0);
        let mut plan = Self { uuid, size, partitions, identity };
        plan.check_verity()?;
        plan.size_sectors()?;
        plan.name_partitions()?;
        plan.check_unique()?;
        plan.check_lengths()?;
        Ok(plan)
    }

    /// Checks that each hash tree has data of its own.
    fn check_verity(&self) -> Result<()> {
        let mut hashed = HashMap::new();
        for partition in &self.partitions {
            let Content::Verity(Verity { data, .. }) = &partition.content else { continue };
            if let Content::Verity(_) = self.partitions[*data].content {
                return Err(partition.wrong("the data of a hash tree is a hash tree itself"));
            }
            if let Some(other) = hashed.insert(*data, partition.number) {
                let problem = format!("partition {other} holds the hash tree of the same data");
                return Err(partition.wrong(problem));
            }
        }
        Ok(())
    }

    /// Gives volumes under hash trees sectors that a kernel mounts from dm-verity.
    fn size_sectors(&mut self) -> Result<()> {
        for (hash, data) in self.hash_trees().collect::<Vec<_>>() {
            let tree = self.partitions[hash].number;
            let volume = &mut self.partitions[data];
            let Content::Xfs(xfs) = &mut volume.content else { continue };
            let mkfs = &mut xfs.mkfs;
            let named = [
                ("blocks", mkfs.block_size, "-b size"),
                ("sectors", mkfs.sector_size, "-s size"),
                ("sectors of the log", mkfs.log.sector_size, "-l sectsize"),
            ];
            let small = named.into_iter().find_map(|(what, size, option)| {
                size.filter(|size| u64::from(*size) < BLOCK).map(|size| (what, size, option))
            });
            if let Some((what, size, option)) = small {
                return Err(volume.wrong(format!(
                    "xfs: mkfs: {what} of {size} bytes, but partition {tree} is its hash tree: a kernel does not \
                     mount a volume with less than {BLOCK} from dm-verity; leave out {option}"
                )));
            }
            mkfs.sector_size = mkfs.sector_size.or(Some(BLOCK as u32));
        }
        Ok(())
    }

    /// Gives UUIDs to partitions that have none and whose UUID does not follow from a root hash.
    fn name_partitions(&mut self) -> Result<()> {
        let hashed: Vec<usize> = self.hash_trees().flat_map(|(hash, data)| [hash, data]).collect();
        for at in 0..self.partitions.len() {
            if self.partitions[at].uuid.is_none() && !hashed.contains(&at) {
                self.partitions[at].uuid =
                    Some(self.identity.uuid(&format!("partition {}", at + 1))?);
            }
        }
        Ok(())
    }

    /// Places of hash trees and of their data in the list of partitions.
    pub(crate) fn hash_trees(&self) -> impl Iterator<Item = (usize, usize)> {
        self.partitions.iter().enumerate().filter_map(|(at, partition)| match &partition.content {
            Content::Verity(verity) => Some((at, verity.data)),
            _ => None,
        })
    }

    /// Refuses two partitions, or two volumes, that a system could not tell apart.
    fn check_unique(&self) -> Result<()> {
        let mut seen: HashMap<(&str, String), usize> = HashMap::new();
        for partition in &self.partitions {
            let mut keys = vec![("the name", partition.name.clone())];
            keys.extend(partition.uuid.map(|uuid| ("the UUID", uuid.to_string())));
            if let Content::Xfs(xfs) = &partition.content {
                keys.extend(xfs.mkfs.uuid.map(|uuid| ("the volume UUID", uuid.to_string())));
                let label = &xfs.mkfs.label;
                keys.extend((!label.is_empty()).then(|| ("the volume label", label.clone())));
            }
            // A system looks for one partition of these types, and takes the first that it finds.
            let kind = types::name(&partition.kind.to_string()).unwrap_or_default();
            let single = kind == "esp" || kind.starts_with("root-") || kind.starts_with("usr-");
            if single && partition.attributes & attribute::NO_AUTO == 0 {
                keys.push(("the type", kind.to_owned()));
            }
            for (what, value) in keys {
                if let Some(other) = seen.insert((what, value.clone()), partition.number) {
                    let advice = match what {
                        "the type" => ": give one of them 'no-auto = true'",
                        _ => "",
                    };
                    let problem = format!("has {what} {value} of partition {other}{advice}");
                    return Err(partition.wrong(problem));
                }
            }
        }
        Ok(())
    }
}

/// The names of all partitions.
fn names(spec: &Spec, text: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for (at, given) in spec.partitions.iter().enumerate() {
        let line = spec::line_of(text, given.span().start);
        let name = given.get_ref().name.clone().unwrap_or_else(|| given.get_ref().kind.clone());
        let units = name.encode_utf16().count();
        if units > NAME_UNITS || name.contains('\0') || name.is_empty() {
            let problem = format!(
                "partition {}: a partition's name has 1 to {NAME_UNITS} characters (UTF-16), not {units}: \
                 '{name}'",
                at + 1
            );
            return Err(ImageError::Spec { line, problem });
        }
        names.push(name);
    }
    Ok(names)
}

fn attributes(given: &spec::Partition) -> u64 {
    // As in systemd-repart, nothing but a hash tree is read-only by itself.
    let read_only = given.read_only.unwrap_or(given.verity.is_some());
    let bit = |on: bool, bit: u64| if on { bit } else { 0 };
    bit(read_only, attribute::READ_ONLY)
        | bit(given.no_auto, attribute::NO_AUTO)
        | bit(given.grow_fs, attribute::GROW_FS)
}

/// The length that is asked for, if the content can have it.
fn length(given: &spec::Partition, partition: &Partition) -> Result<Length> {
    match (given.size, &partition.content) {
        (Some(Size::Bytes(bytes)), _) => {
            if bytes == 0 || !bytes.is_multiple_of(UNIT) {
                let problem = format!("the size {bytes} is not a multiple of {UNIT} bytes");
                return Err(partition.wrong(problem));
            }
            Ok(Length::Bytes(bytes))
        }
        (Some(Size::Rest), _) => Ok(Length::Rest),
        (_, Content::Empty) => Err(partition.wrong("has no content: give its size")),
        (None | Some(Size::Minimize), Content::Verity(verity)) => Ok(Length::HashOf(verity.data)),
        (None | Some(Size::Minimize), Content::File(_)) | (Some(Size::Minimize), _) => {
            Ok(Length::Content)
        }
        (None, Content::Xfs(_) | Content::Fat(_)) => Err(partition
            .wrong("give its size: a number of bytes as \"2G\", \"minimize\", or \"rest\"")),
    }
}
