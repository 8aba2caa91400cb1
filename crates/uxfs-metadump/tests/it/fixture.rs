//! What the tests share: volumes, dumps of them, and the real tools at work on both.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use uxfs::{Fs, OpenOptions};
use uxfs_disk::{FileDev, OpenMode};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFDIR, S_IFLNK, S_IFMT};
use uxfs_metadump::{DumpOptions, DumpSummary, Event, Names, Restore, Version, dump};
use uxfs_oracle::Xfsprogs;

use crate::volume::{Volume, device, fill};

/// Feature sets that only the newer tools know.
pub(crate) const NEW: [&str; 2] = [
    "-n parent=1 -i nrext64=1,exchange=1 -m rmapbt=1",
    "-b size=1024 -n parent=1 -i exchange=1 -m rmapbt=1",
];

/// A volume with every kind of structure.
pub(crate) fn filled(line: &str) -> Volume {
    let volume = Volume::small(64, line);
    let fs = volume.open();
    fill(&fs);
    fs.close().unwrap();
    volume
}

/// Dumps with other names, with names kept, and with everything kept, in a version.
pub(crate) fn ways(version: Version) -> [(&'static str, DumpOptions); 3] {
    let names = DumpOptions { version, names: Some(Names::new(b"key")), ..DumpOptions::default() };
    let kept = DumpOptions { names: None, ..names.clone() };
    let whole = DumpOptions { whole_blocks: true, ..kept.clone() };
    [("other names", names), ("names kept", kept), ("everything kept", whole)]
}

/// A file beside the volume.
pub(crate) fn beside(volume: &Volume, name: &str) -> PathBuf {
    volume.path.with_file_name(name)
}

/// Dumps a volume, and returns the dump, what it holds, and its warnings.
pub(crate) fn dumped(image: &Path, options: &DumpOptions) -> (Vec<u8>, DumpSummary, Vec<String>) {
    let dev = device(image, OpenMode::Read);
    let (mut out, mut warnings) = (Vec::new(), Vec::new());
    let summary = dump(&dev, options, &mut out, &mut |event| {
        if let Event::Warning(what) = event {
            warnings.push(what);
        }
    });
    (out, summary.unwrap(), warnings)
}

/// Restores a dump with the code under test.
pub(crate) fn restored(dump: &[u8], to: &Path) {
    let restore = Restore::begin(dump).unwrap();
    let dev = FileDev::open(to, OpenMode::Create(restore.volume_len())).unwrap();
    restore.run(&dev, true, &mut |_| {}).unwrap();
}

/// Runs a program of xfsprogs, which must succeed, and returns what it printed.
#[track_caller]
pub(crate) fn run(release: Xfsprogs, name: &str, args: &[&Path]) -> String {
    let mut command = Command::new(release.program(name));
    let out = command.args(args).env("LC_ALL", "C").output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{name} {args:?}: {said}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Are the files the same, byte for byte? Says where not.
pub(crate) fn difference(a: &Path, b: &Path) -> Option<String> {
    let out = Command::new("cmp").arg(a).arg(b).output().unwrap();
    (!out.status.success()).then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// A file of the volume, but for its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    stat: String,
    target: usize,
    /// Entries by their inode and the lengths of their names.
    entries: Vec<(u64, usize)>,
    /// Number of attributes. An ACL under another name is an attribute like others, of another length.
    xattrs: usize,
}

/// Everything about a tree but names, values and data.
pub(crate) fn shape(image: &Path) -> BTreeMap<u64, Node> {
    let dev = Arc::new(FileDev::open(image, OpenMode::Read).unwrap());
    let fs = Fs::open(dev, OpenOptions::read_only()).unwrap();
    let mut nodes = BTreeMap::new();
    let mut left = vec![fs.root()];
    while let Some(ino) = left.pop() {
        if nodes.contains_key(&ino.0) {
            continue;
        }
        let stat = fs.stat(ino).unwrap();
        let mut entries = Vec::new();
        if stat.mode & S_IFMT == S_IFDIR {
            fs.read_dir(ino, 0, &mut |entry| {
                entries.push((entry.ino.0, entry.name.len()));
                ControlFlow::Continue(())
            })
            .unwrap();
        }
        left.extend(entries.iter().map(|(ino, _)| Ino(*ino)));
        entries.sort_unstable();
        let target =
            if stat.mode & S_IFMT == S_IFLNK { fs.readlink(ino).unwrap().len() } else { 0 };
        let xattrs = fs.list_xattrs(ino).unwrap().len();
        let stat = format!("{stat:?}");
        nodes.insert(ino.0, Node { stat, target, entries, xattrs });
    }
    nodes
}

/// Does the file hold these bytes?
pub(crate) fn holds(path: &Path, wanted: &[u8]) -> bool {
    use std::io::Read;
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
