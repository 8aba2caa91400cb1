//! The source of an import, and how it is opened.
//!
//! 1. A source of layers is opened layer by layer, the lowest first.
//! 2. An OCI image is checked completely against its digests before its first layer is opened.

use std::path::{Path, PathBuf};

use uxfs_archive::{DumpSource, OciImage, Platform, Source};

use super::error::ImportError;

/// What to import.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportSource {
    /// A tar stream, compressed or not, or a directory; `-` is standard input.
    Tree(PathBuf),
    /// A stack of layers, the lowest first, by the rules of OCI: `.wh.NAME` hides `NAME` of lower
    /// layers, `.wh..wh..opq` hides everything that lower layers have in its directory, and an
    /// entry replaces what lower layers have at its path. Each layer is read twice.
    Layers(Vec<PathBuf>),
    /// An image of an OCI image layout.
    Oci {
        /// The directory that holds `index.json`.
        layout: PathBuf,
        /// The tag of the image.
        tag: Option<String>,
        /// The platform of the image; `None` takes the only image, or the one for this machine.
        platform: Option<Platform>,
    },
    /// The tree that a manifest in the composefs dump format describes; see composefs-dump(5).
    Manifest {
        /// The manifest file.
        manifest: PathBuf,
        /// The directory that holds the files' contents.
        base: PathBuf,
    },
}

enum Layer {
    Tree(PathBuf),
    Manifest(PathBuf, PathBuf),
}

impl Layer {
    fn stream(&self) -> Option<String> {
        let (Self::Tree(path) | Self::Manifest(path, _)) = self;
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
}

impl Origin {
    pub(super) fn new(source: &ImportSource) -> Result<Self, ImportError> {
        let trees = |paths: &[PathBuf]| paths.iter().cloned().map(Layer::Tree).collect();
        let (layers, layered) = match source {
            ImportSource::Tree(path) => (vec![Layer::Tree(path.clone())], false),
            ImportSource::Layers(paths) => (trees(paths), true),
            ImportSource::Oci { layout, tag, platform } => {
                let image = OciImage::open(layout, tag.as_deref(), platform.as_ref())?;
                (trees(image.layers()), true)
            }
            ImportSource::Manifest { manifest, base } => {
                (vec![Layer::Manifest(manifest.clone(), base.clone())], false)
            }
        };
        let origin = Self { layers, layered };
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

    /// Opens each layer once, except streams, to check that it exists.
    pub(super) fn probe(&self) -> Result<(), ImportError> {
        for (number, layer) in self.layers.iter().enumerate() {
            if layer.stream().is_none() {
                self.open(number)?;
            }
        }
        Ok(())
    }

    /// Number of layers.
    pub(super) fn len(&self) -> usize {
        self.layers.len()
    }

    /// Opens a layer.
    pub(super) fn open(&self, number: usize) -> Result<Box<dyn Source>, ImportError> {
        Ok(match &self.layers[number] {
            Layer::Tree(path) => uxfs_archive::open(path)?,
            Layer::Manifest(manifest, base) => Box::new(DumpSource::new(manifest, base)?),
        })
    }
}
