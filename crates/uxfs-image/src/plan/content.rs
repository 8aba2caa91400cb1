//! What goes into the partitions.

use std::path::PathBuf;

use uxfs::clock::Clock;
use uxfs::format::Uuid;
use uxfs::import::{ImportSource, Owners};
use uxfs::labels::Labels;
use uxfs::mkfs;

use super::{Origin, Partition};
use crate::error::Result;
use crate::fat;
use crate::identity::Identity;
use crate::spec;
use crate::verity::{Params, SALT_MAX};

/// What a partition holds.
#[derive(Debug)]
pub(crate) enum Content {
    /// Zeroes.
    Empty,
    /// The bytes of a file.
    File(PathBuf),
    Xfs(Box<Xfs>),
    Fat(Box<Fat>),
    Verity(Verity),
}

/// An XFS volume.
#[derive(Debug)]
pub(crate) struct Xfs {
    pub(crate) source: Option<ImportSource>,
    pub(crate) owners: Owners,
    pub(crate) mkfs: mkfs::Options,
    pub(crate) labels: Option<Labels>,
}

/// A FAT volume.
#[derive(Debug)]
pub(crate) struct Fat {
    pub(crate) tree: fat::Tree,
    pub(crate) options: fat::Options,
}

/// A hash tree.
#[derive(Debug)]
pub(crate) struct Verity {
    /// Place of the data in the list of partitions.
    pub(crate) data: usize,
    pub(crate) params: Params,
}

/// Plans the content of a partition.
pub(super) fn plan(
    given: &spec::Partition,
    partition: &Partition,
    origin: &Origin<'_>,
    identity: &Identity,
    names: &[String],
) -> Result<Content> {
    let kinds =
        [given.xfs.is_some(), given.fat.is_some(), given.verity.is_some(), given.file.is_some()];
    if kinds.iter().filter(|there| **there).count() > 1 {
        return Err(
            partition.wrong("has more than one content: give one of xfs, fat, verity, file")
        );
    }
    let context = Context { partition, origin, identity };
    if let Some(xfs) = &given.xfs {
        return Ok(Content::Xfs(Box::new(context.xfs(xfs)?)));
    }
    if let Some(fat) = &given.fat {
        return Ok(Content::Fat(Box::new(context.fat(fat)?)));
    }
    if let Some(verity) = &given.verity {
        return Ok(Content::Verity(context.verity(verity, names)?));
    }
    let Some(file) = &given.file else { return Ok(Content::Empty) };
    let path = origin.path(file);
    let meta = context.there(&path)?;
    if !meta.is_file() || meta.len() == 0 {
        let problem = format!("file: {} is not a file with content", path.display());
        return Err(partition.wrong(problem));
    }
    Ok(Content::File(path))
}

/// What all parts of a content need.
struct Context<'a> {
    partition: &'a Partition,
    origin: &'a Origin<'a>,
    identity: &'a Identity,
}

impl Context<'_> {
    fn there(&self, path: &std::path::Path) -> Result<std::fs::Metadata> {
        let at = |error| self.partition.wrong(format!("{}: {error}", path.display()));
        std::fs::metadata(path).map_err(at)
    }

    fn uuid(&self, given: Option<&String>, purpose: &str) -> Result<Uuid> {
        match given {
            Some(text) => text.parse().map_err(|error| self.partition.wrong(error)),
            None => self.identity.uuid(&format!("{purpose} {}", self.partition.number)),
        }
    }

    fn xfs(&self, given: &spec::Xfs) -> Result<Xfs> {
        let wrong = |problem: String| self.partition.wrong(format!("xfs: {problem}"));
        let source = self.source(given)?;
        for path in source.iter().flat_map(ImportSource::paths) {
            let kind = self.there(path)?.file_type();
            if !kind.is_file() && !kind.is_dir() {
                let problem = format!("{} is neither a file nor a directory", path.display());
                return Err(wrong(problem));
            }
        }
        let mut mkfs = mkfs::Options::default();
        mkfs.unsupported = true;
        for option in &given.mkfs {
            let (letter, value) = option.strip_prefix('-').map_or(("", ""), |rest| {
                rest.split_at(rest.char_indices().nth(1).map_or(rest.len(), |(at, _)| at))
            });
            let Some(letter) = letter.chars().next() else {
                return Err(wrong(format!("mkfs: '{option}' is not of the form '-m rmapbt=1'")));
            };
            mkfs.apply(letter, value.trim()).map_err(|e| wrong(format!("mkfs: {option}: {e}")))?;
        }
        if let Some(label) = &given.label {
            mkfs.apply('L', label).map_err(|error| wrong(error.to_string()))?;
        }
        if given.uuid.is_some() || mkfs.uuid.is_none() {
            mkfs.uuid = Some(self.uuid(given.uuid.as_ref(), "xfs")?);
        }
        let mut owners = Owners::default();
        if let Some(owner) = &given.owner {
            let (uid, gid) =
                owner.split_once(':').map_or((owner.as_str(), None), |(uid, gid)| (uid, Some(gid)));
            let number = |text: &str| {
                let problem =
                    || wrong(format!("owner: '{owner}' is not UID or UID:GID, both as numbers"));
                text.parse::<u32>().map_err(|_| problem())
            };
            owners.uid = Some(number(uid)?);
            owners.gid = gid.map(number).transpose()?;
        }
        for (maps, texts) in
            [(&mut owners.uid_maps, &given.map_uid), (&mut owners.gid_maps, &given.map_gid)]
        {
            for text in texts {
                maps.push(text.parse().map_err(|error| wrong(format!("'{text}': {error}")))?);
            }
        }
        let labels = self.labels(given.file_contexts.as_ref(), source.as_ref())?;
        Ok(Xfs { source, owners, mkfs, labels })
    }

    /// The rules for labels. Those of files and of a directory's policy are read now, so that a mistake in them
    /// is found before anything is written; the policy of another source is known when it was imported.
    fn labels(
        &self,
        given: Option<&spec::Contexts>,
        source: Option<&ImportSource>,
    ) -> Result<Option<Labels>> {
        let wrong = |problem: &dyn std::fmt::Display| {
            self.partition.wrong(format!("xfs: file-contexts: {problem}"))
        };
        let labels = match (given, source) {
            (None, _) => return Ok(None),
            (Some(spec::Contexts::Files(files)), _) => {
                let files: Vec<PathBuf> = files.iter().map(|file| self.origin.path(file)).collect();
                Labels::from_files(&files)
            }
            (Some(spec::Contexts::Auto), None) => {
                return Err(wrong(&"\"auto\" is the policy in the source, and there is no source"));
            }
            (Some(spec::Contexts::Auto), Some(ImportSource::Tree(tree))) if tree.is_dir() => {
                Labels::Auto.of_tree(tree).map(Labels::Rules)
            }
            (Some(spec::Contexts::Auto), Some(_)) => Ok(Labels::Auto),
        };
        labels.map(Some).map_err(|error| wrong(&error))
    }

    /// The source of a tree; `None` for an empty volume.
    fn source(&self, given: &spec::Xfs) -> Result<Option<ImportSource>> {
        let wrong = |problem: String| self.partition.wrong(format!("xfs: {problem}"));
        let platform = given.platform.as_ref();
        let platform =
            platform.map(|text| text.parse().map_err(|e| wrong(format!("platform: {e}"))));
        let platform = platform.transpose()?;
        let find = |path: &std::path::Path| self.origin.path(path);
        let source = match (&given.source, &given.layers, &given.manifest) {
            (None, None, None) => None,
            (Some(base), None, Some(manifest)) => {
                Some(ImportSource::Manifest { manifest: find(manifest), base: find(base) })
            }
            (Some(source), None, None) => {
                Some(ImportSource::named(source.as_os_str(), platform.clone(), find))
            }
            (None, Some(layers), None) => {
                Some(ImportSource::Layers(layers.iter().map(|path| find(path)).collect()))
            }
            _ => return Err(wrong("give 'source', 'layers', or 'manifest' with 'source'".into())),
        };
        if platform.is_some() && !matches!(source, Some(ImportSource::Oci { .. })) {
            return Err(wrong("'platform' goes with a source oci:DIR".into()));
        }
        Ok(source)
    }

    fn fat(&self, given: &spec::Fat) -> Result<Fat> {
        let wrong = |error: std::io::Error| self.partition.wrong(format!("fat: {error}"));
        let mut tree = fat::Tree::new();
        if let Some(source) = &given.source {
            tree.add("", &self.origin.path(source)).map_err(wrong)?;
        }
        for (place, path) in &given.files {
            tree.add(place, &self.origin.path(path)).map_err(wrong)?;
        }
        let serial = self.identity.bytes(&format!("fat {}", self.partition.number))?;
        let options = fat::Options {
            label: given.label.clone(),
            serial: u32::from_le_bytes([serial[0], serial[1], serial[2], serial[3]]),
            bits: given.bits,
            hidden_sectors: 0,
            latest: self.origin.epoch.unwrap_or(i64::MAX),
            made: self.origin.epoch.unwrap_or_else(|| Clock::Real.now().sec),
        };
        Ok(Fat { tree, options })
    }

    fn verity(&self, given: &spec::Verity, names: &[String]) -> Result<Verity> {
        let wrong = |problem: String| self.partition.wrong(format!("verity: {problem}"));
        let Some(data) = names.iter().position(|name| *name == given.data) else {
            return Err(wrong(format!("no partition is named '{}'", given.data)));
        };
        let salt = match &given.salt {
            Some(digits) => hex(digits).filter(|salt| salt.len() <= SALT_MAX).ok_or_else(|| {
                wrong(format!("the salt is not up to {SALT_MAX} bytes in hexadecimal digits"))
            })?,
            None => self.identity.bytes(&format!("salt {}", self.partition.number))?.to_vec(),
        };
        let uuid = self.uuid(given.uuid.as_ref(), "verity")?;
        Ok(Verity { data, params: Params { salt, uuid } })
    }
}

/// Decodes hexadecimal digits.
fn hex(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok())
        .collect()
}
