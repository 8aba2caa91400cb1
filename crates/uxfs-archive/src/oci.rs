//! Finds the layers of an OCI image on disk: which tar archives, in which order.
//!
//! Reads the directory that `skopeo copy … oci:DIR`, `buildah push … oci:DIR` and `umoci` make:
//! `oci-layout`, `index.json`, and `blobs/ALGORITHM/DIGEST`.
//!
//! Invariants:
//! 1. Every document and layer that is used (indexes, manifest, configuration, layers) has the size
//!    and digest in the descriptor that refers to it. All are checked before a layer is returned.
//! 2. A digest is used as a path only if it consists of the right number of hexadecimal digits.
//! 3. Documents have at most [`JSON_MAX`] bytes; indexes nest at most [`NESTED_MAX`] levels.
//! 4. Exactly one image is used: if tag and platform fit several, the error lists them.
//!
//! Used by the importers of trees.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde_json::Value;
use sha2::{Digest, Sha256, Sha512};

use crate::error::ArchiveError;

/// Maximum length of an index, manifest or configuration in bytes.
const JSON_MAX: u64 = 4 << 20;
/// Maximum nesting of indexes.
const NESTED_MAX: u32 = 4;
/// Bytes to hash per read.
const STEP: usize = 1 << 20;

const INDEX: &[&str] = &[
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];
const MANIFEST: &[&str] = &[
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];
const LAYER: &[&str] = &[
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.foreign.diff.tar",
];
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Platform of an image, with OCI's (Go's) names: `linux/amd64`, `linux/arm/v7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Operating system.
    pub os: String,
    /// Processor architecture.
    pub architecture: String,
    /// Variant of the architecture; `None` matches any.
    pub variant: Option<String>,
}

impl Platform {
    /// Linux on this machine's processor.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "x86" => "386",
            "aarch64" => "arm64",
            "loongarch64" => "loong64",
            "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
            "powerpc64" => "ppc64",
            other => other,
        };
        Self { os: "linux".into(), architecture: architecture.into(), variant: None }
    }

    fn of_json(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            os: text("os")?,
            architecture: text("architecture")?,
            variant: text("variant").filter(|variant| !variant.is_empty()),
        })
    }

    /// Does an image for `self` fit the requested platform `wanted`?
    fn serves(&self, wanted: &Self) -> bool {
        // Images for 64-bit ARM may omit the only variant.
        let variant = |platform: &Self| match (&*platform.architecture, &platform.variant) {
            ("arm64", None) => Some("v8".to_owned()),
            (_, variant) => variant.clone(),
        };
        self.os == wanted.os
            && self.architecture == wanted.architecture
            && (wanted.variant.is_none() || variant(self) == wanted.variant)
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let (os, architecture, variant) = match parts.as_slice() {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(*variant)),
            _ => return Err("not of the form OS/ARCH or OS/ARCH/VARIANT".into()),
        };
        if parts.iter().any(|part| part.is_empty()) {
            return Err("an empty part".into());
        }
        let (os, architecture) = ((*os).to_owned(), (*architecture).to_owned());
        Ok(Self { os, architecture, variant: variant.map(str::to_owned) })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
    }
}

/// One image in a layout.
#[derive(Clone, Debug)]
pub struct OciImage {
    layers: Vec<PathBuf>,
}

/// A document's reference to another blob.
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
    tag: Option<String>,
    platform: Option<Platform>,
}

/// What the indexes refer to.
#[derive(Default)]
struct Found {
    images: Vec<Descriptor>,
    /// Digests of the indexes that were read. One that is named again is not read again: indexes that name
    /// each other many times would multiply.
    indexes: HashSet<String>,
}

struct Layout<'a> {
    dir: &'a Path,
    platform: Option<&'a Platform>,
}

impl OciImage {
    /// Finds the image in the layout at `dir`: the one with tag `tag`, if given, for `platform`.
    /// Without a platform, chooses the only image, or the image for this machine.
    ///
    /// # Errors
    /// If there is no such image, or more than one; or if a part of it is missing or damaged.
    pub fn open(
        dir: &Path,
        tag: Option<&str>,
        platform: Option<&Platform>,
    ) -> Result<Self, ArchiveError> {
        let layout = Layout { dir, platform };
        layout.check_version()?;
        let path = dir.join("index.json");
        let index = json(&path, &read_all(&path)?)?;
        let mut found = Found::default();
        for descriptor in descriptors(&path, &index, "manifests")? {
            let named = tag.is_none_or(|tag| descriptor.tag.as_deref() == Some(tag));
            if named {
                layout.images(descriptor, 0, &mut found)?;
            }
        }
        let image = layout.choose(tag, &path, &index, found.images)?;
        Ok(Self { layers: layout.layers(&image)? })
    }

    /// The tar archives of the layers, lowest first.
    pub fn layers(&self) -> &[PathBuf] {
        &self.layers
    }
}

fn bad(path: &Path, what: impl Into<String>) -> ArchiveError {
    ArchiveError::Layout { path: path.display().to_string(), what: what.into() }
}

fn open(path: &Path) -> Result<(File, u64), ArchiveError> {
    let failed = |error| ArchiveError::io(format!("opening {}", path.display()), error);
    // Check the type first: opening a pipe would block.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(bad(path, "not a regular file"));
    }
    let file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    Ok((file, size))
}

fn read_all(path: &Path) -> Result<Vec<u8>, ArchiveError> {
    let (file, _) = open(path)?;
    let mut bytes = Vec::new();
    let count = file.take(JSON_MAX + 1).read_to_end(&mut bytes);
    let count = count.map_err(|e| ArchiveError::io(format!("reading {}", path.display()), e))?;
    if count as u64 > JSON_MAX {
        return Err(bad(path, format!("longer than {JSON_MAX} bytes")));
    }
    Ok(bytes)
}

fn json(path: &Path, bytes: &[u8]) -> Result<Value, ArchiveError> {
    serde_json::from_slice(bytes).map_err(|error| bad(path, format!("not JSON: {error}")))
}

/// The descriptors in an array of a document.
fn descriptors(path: &Path, document: &Value, key: &str) -> Result<Vec<Descriptor>, ArchiveError> {
    let list = document.get(key).and_then(Value::as_array);
    let list = list.ok_or_else(|| bad(path, format!("no list '{key}'")))?;
    list.iter().map(|value| descriptor(path, key, value)).collect()
}

fn descriptor(path: &Path, key: &str, value: &Value) -> Result<Descriptor, ArchiveError> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let missing = |name: &str| bad(path, format!("'{key}' without '{name}'"));
    let tag = value.get("annotations").and_then(|all| all.get(REF_NAME)).and_then(Value::as_str);
    Ok(Descriptor {
        media_type: text("mediaType").ok_or_else(|| missing("mediaType"))?,
        digest: text("digest").ok_or_else(|| missing("digest"))?,
        size: value.get("size").and_then(Value::as_u64).ok_or_else(|| missing("size"))?,
        tag: tag.map(str::to_owned),
        platform: value.get("platform").and_then(Platform::of_json),
    })
}

/// A hash in progress.
enum Hash {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hash {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hash) => hash.update(bytes),
            Self::Sha512(hash) => hash.update(bytes),
        }
    }

    fn hex(self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Self::Sha256(hash) => hex(&hash.finalize()),
            Self::Sha512(hash) => hex(&hash.finalize()),
        }
    }
}

impl Layout<'_> {
    fn check_version(&self) -> Result<(), ArchiveError> {
        let path = self.dir.join("oci-layout");
        let bytes = match read_all(&path) {
            Ok(bytes) => bytes,
            Err(ArchiveError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                let what = "not an OCI image layout: there is no file 'oci-layout' in it";
                return Err(bad(self.dir, what));
            }
            Err(other) => return Err(other),
        };
        let version = json(&path, &bytes)?;
        match version.get("imageLayoutVersion").and_then(Value::as_str) {
            Some(version) if version.starts_with("1.") => Ok(()),
            other => Err(bad(&path, format!("layout version {other:?}; supported is 1.0.0"))),
        }
    }

    /// The path of a blob (invariant 2), and the hash to compute over it.
    fn blob(&self, digest: &str) -> Result<(PathBuf, Hash), ArchiveError> {
        let split = digest.split_once(':');
        let (algorithm, hex, hash, len) = match split {
            Some((name @ "sha256", hex)) => (name, hex, Hash::Sha256(Sha256::new()), 64),
            Some((name @ "sha512", hex)) => (name, hex, Hash::Sha512(Sha512::new()), 128),
            _ => return Err(bad(self.dir, format!("digest '{}'", digest.escape_debug()))),
        };
        let digits = hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if hex.len() != len || !digits {
            return Err(bad(self.dir, format!("digest '{}'", digest.escape_debug())));
        }
        Ok((self.dir.join("blobs").join(algorithm).join(hex), hash))
    }

    /// Checks a blob's size and digest and returns its path.
    fn verified(&self, descriptor: &Descriptor) -> Result<PathBuf, ArchiveError> {
        let (path, mut hash) = self.blob(&descriptor.digest)?;
        let (mut file, size) = open(&path)?;
        if size != descriptor.size {
            let what = format!("{size} bytes, but its descriptor says {}", descriptor.size);
            return Err(bad(&path, what));
        }
        let mut buf = vec![0; STEP];
        loop {
            let count = file.read(&mut buf);
            match count.map_err(|e| ArchiveError::io(format!("reading {}", path.display()), e))? {
                0 => break,
                count => hash.update(&buf[..count]),
            }
        }
        self.compare(&path, descriptor, hash)?;
        Ok(path)
    }

    fn compare(&self, path: &Path, want: &Descriptor, hash: Hash) -> Result<(), ArchiveError> {
        let found = hash.hex();
        if want.digest.ends_with(&format!(":{found}")) {
            return Ok(());
        }
        Err(bad(path, format!("damaged: its digest is {found}")))
    }

    /// Reads a blob as a JSON document.
    fn document(&self, descriptor: &Descriptor) -> Result<(PathBuf, Value), ArchiveError> {
        let (path, mut hash) = self.blob(&descriptor.digest)?;
        let bytes = read_all(&path)?;
        if bytes.len() as u64 != descriptor.size {
            let what =
                format!("{} bytes, but its descriptor says {}", bytes.len(), descriptor.size);
            return Err(bad(&path, what));
        }
        hash.update(&bytes);
        self.compare(&path, descriptor, hash)?;
        let value = json(&path, &bytes)?;
        Ok((path, value))
    }

    /// Adds the images that a descriptor refers to.
    fn images(
        &self,
        descriptor: Descriptor,
        depth: u32,
        found: &mut Found,
    ) -> Result<(), ArchiveError> {
        let media = descriptor.media_type.as_str();
        if MANIFEST.contains(&media) {
            found.images.push(descriptor);
            return Ok(());
        }
        if !INDEX.contains(&media) || !found.indexes.insert(descriptor.digest.clone()) {
            return Ok(());
        }
        let (path, index) = self.document(&descriptor)?;
        if depth >= NESTED_MAX {
            return Err(bad(&path, "indexes nested too deep"));
        }
        for inner in descriptors(&path, &index, "manifests")? {
            self.images(inner, depth + 1, found)?;
        }
        Ok(())
    }

    /// The platform of an image, from its descriptor or else from its configuration.
    fn platform_of(&self, image: &Descriptor) -> Result<Option<Platform>, ArchiveError> {
        if image.platform.is_some() {
            return Ok(image.platform.clone());
        }
        let (path, manifest) = self.document(image)?;
        let Some(config) = manifest.get("config") else { return Ok(None) };
        let config = descriptor(&path, "config", config)?;
        if !config.media_type.ends_with("+json") {
            return Ok(None);
        }
        Ok(Platform::of_json(&self.document(&config)?.1))
    }

    /// Chooses one image (invariant 4).
    fn choose(
        &self,
        tag: Option<&str>,
        path: &Path,
        index: &Value,
        found: Vec<Descriptor>,
    ) -> Result<Descriptor, ArchiveError> {
        let host = Platform::host();
        let wanted = match self.platform {
            Some(platform) => platform,
            None if found.len() <= 1 => {
                let known = || known_tags(path, index);
                return found.into_iter().next().ok_or_else(|| match tag {
                    Some(tag) => bad(self.dir, format!("no image '{tag}'; there is {}", known())),
                    None => bad(self.dir, "no image in it"),
                });
            }
            None => &host,
        };
        let mut fitting: Vec<Descriptor> = Vec::new();
        let mut others = Vec::new();
        for image in found {
            let Some(platform) = self.platform_of(&image)? else { continue };
            if !platform.serves(wanted) {
                others.push(platform.to_string());
            } else if fitting.iter().all(|other| other.digest != image.digest) {
                // The same image with two tags counts once.
                fitting.push(image);
            }
        }
        let count = fitting.len();
        match (count, fitting.pop()) {
            (1, Some(image)) => Ok(image),
            (0, _) if others.is_empty() => {
                let known = known_tags(path, index);
                Err(bad(self.dir, format!("no such image for {wanted}; there is {known}")))
            }
            (0, _) => {
                let others = others.join(", ");
                Err(bad(self.dir, format!("no image for {wanted}, only for {others}")))
            }
            _ => {
                let known = known_tags(path, index);
                let what = format!("{count} images for {wanted}; name one of the tags {known}");
                Err(bad(self.dir, what))
            }
        }
    }

    /// The layers of an image, after all were checked.
    fn layers(&self, image: &Descriptor) -> Result<Vec<PathBuf>, ArchiveError> {
        let (path, manifest) = self.document(image)?;
        let layers = descriptors(&path, &manifest, "layers")?;
        let config = manifest.get("config").ok_or_else(|| bad(&path, "no configuration"))?;
        let config = descriptor(&path, "config", config)?;
        let mut paths = Vec::with_capacity(layers.len());
        for layer in &layers {
            let media = layer.media_type.as_str();
            let plain =
                media.rsplit_once(['+', '.']).filter(|(_, tail)| matches!(*tail, "gzip" | "zstd"));
            if !LAYER.contains(&plain.map_or(media, |(plain, _)| plain)) {
                let what = format!("a layer of type '{}', not a tar archive", media.escape_debug());
                return Err(bad(&path, what));
            }
            paths.push(self.verified(layer)?);
        }
        let (config_path, config) = self.document(&config)?;
        let ids = config.get("rootfs").and_then(|r| r.get("diff_ids")).and_then(Value::as_array);
        if ids.is_some_and(|ids| ids.len() != layers.len()) {
            let what =
                format!("lists another number of layers than the manifest's {}", layers.len());
            return Err(bad(&config_path, what));
        }
        Ok(paths)
    }
}

/// The tags of an index, for messages.
fn known_tags(path: &Path, index: &Value) -> String {
    let all = descriptors(path, index, "manifests").unwrap_or_default();
    let tags: Vec<String> = all
        .iter()
        .filter_map(|descriptor| descriptor.tag.as_ref())
        .take(20)
        .map(|tag| format!("'{}'", tag.escape_debug()))
        .collect();
    if tags.is_empty() { "none with a tag".into() } else { tags.join(", ") }
}
