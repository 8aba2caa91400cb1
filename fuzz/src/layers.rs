//! Trees described by documents: composefs manifests, and OCI layouts with layers and correct digests.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;

use sha2::{Digest, Sha256};
use uxfs::import::{self, ImportOptions, ImportSource};
use uxfs_archive::{DumpSource, OciImage, ProtoOptions, ProtoSource, Time};

use crate::streams::{directory, fill, held, walk};

/// Blobs of a layout at most.
const BLOBS: usize = 6;
/// Volume that layers are imported into.
const BYTES: u64 = 64 << 20;

/// A manifest, whose payloads lie in a directory with one file and a link out of it.
pub fn manifest(data: &[u8]) {
    let base = directory().join("payloads");
    if !base.exists() {
        let made = fs::create_dir(&base)
            .and_then(|()| fs::write(base.join("payload"), [7; 5000]))
            .and_then(|()| std::os::unix::fs::symlink("/", base.join("out")));
        made.unwrap_or_else(|e| panic!("{e}"));
    }
    if let Some(source) = held(data, |path| DumpSource::new(path, &base).ok()) {
        walk(Box::new(source));
    }
}

/// A protofile, read and imported. `@` is the path of a file with content; no other path leads to one,
/// because a slash gets a name before it.
pub fn protofile(data: &[u8]) {
    let Some((how, text)) = data.split_first() else { return };
    let content = directory().join("content");
    if !content.exists() {
        fs::write(&content, [7; 5000]).unwrap_or_else(|e| panic!("{e}"));
    }
    let mut filled = Vec::new();
    for byte in text {
        match byte {
            b'/' => filled.extend_from_slice(b"_/"),
            b'@' => filled.extend_from_slice(content.as_os_str().as_bytes()),
            other => filled.push(*other),
        }
    }
    let mut options = ProtoOptions::at(Time { sec: 1_700_000_000, nsec: 0 });
    options.slashes_are_spaces = how & 1 == 1;
    let source = || held(&filled, |path| ProtoSource::new(path, options).ok());
    let Some(checked) = source() else { return };
    let sound = checked.check().is_ok();
    if let Some(source) = source() {
        walk(Box::new(source));
    }
    if let Some(source) = source() {
        // What the check refuses, the import does too.
        assert!(fill(Box::new(source), filled.len()).is_err() || sound);
    }
}

/// A layout: blobs divided by four bytes `@@@@`, the last of them the index. `@N` in a document is
/// the digest of the blob before it number N, and `#N` its size, so that what leads to a blob can
/// be right.
pub fn oci(data: &[u8]) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(|e| panic!("{e}"));
    let dir = directory().join("layout");
    let blobs = dir.join("blobs/sha256");
    let _ = fs::remove_dir_all(&dir);
    let made = fs::create_dir_all(&blobs)
        .and_then(|()| fs::write(dir.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#));
    made.unwrap_or_else(|e| panic!("{e}"));
    let mut known: Vec<(String, usize)> = Vec::new();
    let parts = divided(data);
    for (number, part) in parts.iter().enumerate() {
        let bytes = filled_in(part, &known);
        if number + 1 == parts.len() {
            fs::write(dir.join("index.json"), &bytes).unwrap_or_else(|e| panic!("{e}"));
        } else {
            let hex: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
            fs::write(blobs.join(&hex), &bytes).unwrap_or_else(|e| panic!("{e}"));
            known.push((hex, bytes.len()));
        }
    }
    if OciImage::open(&dir, None, None).is_ok_and(|image| !image.layers().is_empty()) {
        import(&dir);
    }
}

fn divided(data: &[u8]) -> Vec<&[u8]> {
    let (mut parts, mut rest) = (Vec::new(), data);
    while parts.len() < BLOBS
        && let Some(at) = rest.windows(4).position(|four| four == b"@@@@")
    {
        parts.push(&rest[..at]);
        rest = &rest[at + 4..];
    }
    parts.push(rest);
    parts
}

/// Digests and sizes for the marks in a document; what is no document stays.
fn filled_in(part: &[u8], known: &[(String, usize)]) -> Vec<u8> {
    if part.first() != Some(&b'{') {
        return part.to_vec();
    }
    let mut out = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some((byte, tail)) = rest.split_first() {
        let number = tail.first().map(|digit| usize::from(digit.wrapping_sub(b'0')));
        match (byte, number.and_then(|number| known.get(number))) {
            (b'@', Some((hex, _))) => out.extend_from_slice(format!("sha256:{hex}").as_bytes()),
            (b'#', Some((_, len))) => out.extend_from_slice(len.to_string().as_bytes()),
            _ => {
                out.push(*byte);
                rest = tail;
                continue;
            }
        }
        rest = &tail[1..];
    }
    out
}

/// All layers into a volume, which is sound afterwards.
fn import(layout: &Path) {
    let image = directory().join("volume");
    let source = ImportSource::Oci { layout: layout.to_path_buf(), tag: None, platform: None };
    let mut options = ImportOptions::from_source(source, &image);
    options.force = true;
    options.size = Some(BYTES);
    options.mkfs.unsupported = true;
    options.source_date_epoch = Some(1_700_000_000);
    if import::run(&options, &mut |_| {}).is_ok() {
        let dev = uxfs_disk::FileDev::open(&image, uxfs_disk::OpenMode::Read);
        let dev = dev.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(crate::exercise::examine(&dev, 1), None);
    }
}
