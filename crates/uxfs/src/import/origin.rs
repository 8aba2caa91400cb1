//! The source of an import, and how it is opened.
//!
//! 1. A source of layers is opened layer by layer, the lowest first.
//! 2. An OCI image is checked completely against its digests before its first layer is opened.

#[cfg(feature = "oci")]
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

#[cfg(feature = "oci")]
use uxfs_archive::{DumpSource, OciImage, Platform};
use uxfs_archive::{ProtoOptions, ProtoSource, Source};
#[cfg(feature = "oci")]
use uxfs_host::{OsStrExt, os_str};

use super::error::ImportError;
use super::without::Without;

/// What to import.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportSource {
    /// A tar stream, compressed or not, or a directory; `-` is standard input.
    Tree(PathBuf),
    /// The tree that a protofile of mkfs.xfs describes.
    Protofile(PathBuf, ProtoOptions),
    /// A stack of layers, the lowest first, by the rules of OCI: `.wh.NAME` hides `NAME` of lower
    /// layers, `.wh..wh..opq` hides everything that lower layers have in its directory, and an
    /// entry replaces what lower layers have at its path. A layer is read for the size of a new image
    /// unless that is given, then for its whiteouts unless the first pass found none, then for its files.
    Layers(Vec<PathBuf>),
    /// An image of an OCI image layout.
    #[cfg(feature = "oci")]
    Oci {
        /// The directory that holds `index.json`.
        layout: PathBuf,
        /// The tag of the image.
        tag: Option<String>,
        /// The platform of the image; `None` takes the only image, or the one for this machine.
        platform: Option<Platform>,
    },
    /// The tree that a manifest in the composefs dump format describes; see composefs-dump(5).
    #[cfg(feature = "oci")]
    Manifest {
        /// The manifest file.
        manifest: PathBuf,
        /// The directory that holds the files' contents.
        base: PathBuf,
    },
}

impl ImportSource {
    /// The source that a name means: `oci:DIR[:TAG]`, or the path of a tar archive or directory. As
    /// with skopeo the first colon ends DIR, unless a file with the whole name exists. `find` turns
    /// a path in the name into one that can be opened.
    #[cfg(feature = "oci")]
    pub fn named(
        name: &OsStr,
        platform: Option<Platform>,
        find: impl Fn(&Path) -> PathBuf,
    ) -> Self {
        let path = |bytes: &[u8]| find(Path::new(&os_str(bytes)));
        let Some(image) = name.as_bytes().strip_prefix(b"oci:") else {
            return Self::Tree(path(name.as_bytes()));
        };
        let colon = image.iter().position(|byte| *byte == b':');
        let (layout, tag) = match colon {
            Some(at) if !path(image).exists() => {
                (path(&image[..at]), Some(String::from_utf8_lossy(&image[at + 1..]).into_owned()))
            }
            _ => (path(image), None),
        };
        Self::Oci { layout, tag, platform }
    }

    /// The files and directories that the source names, which must exist.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            Self::Tree(path) | Self::Protofile(path, _) => vec![path],
            Self::Layers(paths) => paths.iter().map(PathBuf::as_path).collect(),
            #[cfg(feature = "oci")]
            Self::Oci { layout, .. } => vec![layout],
            #[cfg(feature = "oci")]
            Self::Manifest { manifest, base } => vec![manifest, base],
        }
    }
}

enum Layer {
    Tree(PathBuf),
    Protofile(PathBuf, ProtoOptions),
    #[cfg(feature = "oci")]
    Manifest(PathBuf, PathBuf),
}

impl Layer {
    fn stream(&self) -> Option<String> {
        let path = match self {
            Self::Tree(path) | Self::Protofile(path, _) => path,
            #[cfg(feature = "oci")]
            Self::Manifest(path, _) => path,
        };
        if path == Path::new("-") {
            return Some("standard input".into());
        }
        let kind = std::fs::metadata(path).ok()?.file_type();
        let stream = !kind.is_file() && !kind.is_dir();
        stream.then(|| format!("{}, a stream,", path.display()))
    }
}

/// The layers of a source; most sources have one.
pub(super) struct Origin {
    layers: Vec<Layer>,
    /// True if the layers may have whiteouts.
    pub(super) layered: bool,
    /// Numbers of layers that were read and have none.
    without_whiteouts: Vec<usize>,
    /// Files of the host that are no part of a directory's tree.
    left_out: Vec<PathBuf>,
}

impl Origin {
    pub(super) fn new(source: &ImportSource) -> Result<Self, ImportError> {
        let trees = |paths: &[PathBuf]| paths.iter().cloned().map(Layer::Tree).collect();
        let (layers, layered) = match source {
            ImportSource::Tree(path) => (vec![Layer::Tree(path.clone())], false),
            ImportSource::Protofile(path, options) => {
                (vec![Layer::Protofile(path.clone(), *options)], false)
            }
            ImportSource::Layers(paths) => (trees(paths), true),
            #[cfg(feature = "oci")]
            ImportSource::Oci { layout, tag, platform } => {
                let image = OciImage::open(layout, tag.as_deref(), platform.as_ref())?;
                (trees(image.layers()), true)
            }
            #[cfg(feature = "oci")]
            ImportSource::Manifest { manifest, base } => {
                (vec![Layer::Manifest(manifest.clone(), base.clone())], false)
            }
        };
        let origin = Self { layers, layered, without_whiteouts: Vec::new(), left_out: Vec::new() };
        if let Some(name) = origin.stream().filter(|_| layered) {
            let problem = format!("a layer is read twice: {name} cannot be one");
            return Err(ImportError::Usage(problem));
        }
        Ok(origin)
    }

    /// The name of a layer that can be read only once, if there is one: standard input, a FIFO, a
    /// device.
    pub(super) fn stream(&self) -> Option<String> {
        self.layers.iter().find_map(Layer::stream)
    }

    /// Opens each layer once, except streams, to check that it exists; of a protofile, checks all.
    pub(super) fn probe(&self) -> Result<(), ImportError> {
        for (number, layer) in self.layers.iter().enumerate() {
            match layer {
                _ if layer.stream().is_some() => {}
                Layer::Protofile(path, options) => ProtoSource::new(path, *options)?.check()?,
                _ => drop(self.open(number)?),
            }
        }
        Ok(())
    }

    /// Number of layers.
    pub(super) fn len(&self) -> usize {
        self.layers.len()
    }

    /// Notes that a layer has no whiteouts: it need not be read for them.
    pub(super) fn note_no_whiteouts(&mut self, number: usize) {
        self.without_whiteouts.push(number);
    }

    /// May this layer have whiteouts?
    pub(super) fn may_have_whiteouts(&self, number: usize) -> bool {
        self.layered && !self.without_whiteouts.contains(&number)
    }

    /// Leaves this file or directory of the host out of the directories that are imported.
    pub(super) fn leave_out(&mut self, path: &Path) {
        self.left_out.push(path.to_owned());
    }

    /// Opens a layer.
    pub(super) fn open(&self, number: usize) -> Result<Box<dyn Source>, ImportError> {
        Ok(match &self.layers[number] {
            Layer::Tree(path) => Without::wrap(uxfs_archive::open(path)?, path, &self.left_out),
            Layer::Protofile(path, options) => Box::new(ProtoSource::new(path, *options)?),
            #[cfg(feature = "oci")]
            Layer::Manifest(manifest, base) => Box::new(DumpSource::new(manifest, base)?),
        })
    }
}
