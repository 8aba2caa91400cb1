//! What is imported, and how it is opened.
//!
//! 1. A tree that is made of layers is opened layer by layer, the lowest first.
//! 2. Everything of an OCI image has been checked against its digests before the first layer is
//!    opened.

use std::path::{Path, PathBuf};

use uxfs_archive::{DumpSource, OciImage, Platform, Source};

use super::ImportError;

/// What to import.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportSource {
    /// A tar stream, compressed or not, or a directory; `-` for standard input.
    Tree(PathBuf),
    /// Trees that are laid over one another, the lowest first, by the rules of OCI's layers:
    /// `.wh.NAME` takes away what lower ones have as `NAME`, `.wh..wh..opq` all that they have in
    /// the directory, and what an upper one has replaces what was there. Each is read twice.
    Layers(Vec<PathBuf>),
    /// An image in an OCI image layout.
    Oci {
        /// The directory with `index.json`.
        layout: PathBuf,
        /// Which of its images.
        tag: Option<String>,
        /// For what machine; if not given, the only image is taken, or that for this machine.
        platform: Option<Platform>,
    },
    /// The tree that a manifest in composefs' dump format describes; see composefs-dump(5).
    Manifest {
        /// The manifest.
        manifest: PathBuf,
        /// The directory that payloads lie in.
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

/// The layers of a source; most have one.
pub(super) struct Origin {
    layers: Vec<Layer>,
    /// Are there whiteouts, that is, is this to be treated as layers?
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
            let problem = format!("a layer is read twice: {name} can not be one");
            return Err(ImportError::Usage(problem));
        }
        Ok(origin)
    }

    /// What of it can be read only once, if anything: standard input, a FIFO, a device.
    pub(super) fn stream(&self) -> Option<String> {
        self.layers.iter().find_map(Layer::stream)
    }

    /// Is everything there that is to be imported?
    pub(super) fn probe(&self) -> Result<(), ImportError> {
        for (number, layer) in self.layers.iter().enumerate() {
            if layer.stream().is_none() {
                self.open(number)?;
            }
        }
        Ok(())
    }

    /// How many layers there are.
    pub(super) fn len(&self) -> usize {
        self.layers.len()
    }

    /// Opens one of them.
    pub(super) fn open(&self, number: usize) -> Result<Box<dyn Source>, ImportError> {
        Ok(match &self.layers[number] {
            Layer::Tree(path) => uxfs_archive::open(path)?,
            Layer::Manifest(manifest, base) => Box::new(DumpSource::new(manifest, base)?),
        })
    }
}
