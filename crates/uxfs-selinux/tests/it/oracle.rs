//! libselinux as the judge of labels: its lookup, called from Python for many paths at a time.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use uxfs_selinux::{FileContexts, FileKind};

const PYTHON: &str = r#"
import ctypes, sys
class Option(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("value", ctypes.c_char_p)]
lib = ctypes.CDLL("libselinux.so.1", use_errno=True)
lib.selabel_open.restype = ctypes.c_void_p
lib.selabel_lookup_raw.argtypes = [
    ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p), ctypes.c_char_p, ctypes.c_int]
handle = lib.selabel_open(0, (Option * 1)(Option(3, sys.argv[1].encode())), 1)
if not handle:
    sys.exit("selabel_open: error %d" % ctypes.get_errno())
modes = {"-": 0o100000, "d": 0o040000, "l": 0o120000, "c": 0o020000, "b": 0o060000, "p": 0o010000,
         "s": 0o140000}
for query in sys.stdin.buffer.read().split(b"\0")[:-1]:
    label = ctypes.c_char_p()
    found = lib.selabel_lookup_raw(handle, ctypes.byref(label), query[1:], modes[chr(query[0])])
    if found != 0 and ctypes.get_errno() != 2:
        sys.exit("%r: error %d" % (query, ctypes.get_errno()))
    sys.stdout.buffer.write((label.value if found == 0 else b"<<none>>") + b"\0")
"#;

/// Letters of the types of files, as `ls` shows them, with the types.
pub(crate) const KINDS: [(u8, FileKind); 7] = [
    (b'-', FileKind::File),
    (b'd', FileKind::Dir),
    (b'l', FileKind::Symlink),
    (b'c', FileKind::Char),
    (b'b', FileKind::Block),
    (b'p', FileKind::Fifo),
    (b's', FileKind::Socket),
];

/// A file to look up.
pub(crate) type Query = (FileKind, Vec<u8>);

/// A policy in a directory of its own.
pub(crate) struct Policy {
    dir: TempDir,
}

impl Policy {
    /// A policy of these files: the end of each name (`""`, `".subs"`), and the text.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let policy = Self { dir: tempfile::tempdir().unwrap() };
        for (end, text) in files {
            std::fs::write(policy.dir.path().join(format!("file_contexts{end}")), text).unwrap();
        }
        policy
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("file_contexts")
    }

    pub(crate) fn load(&self) -> FileContexts {
        FileContexts::load(&[self.file()]).unwrap()
    }
}

/// The labels that libselinux finds.
pub(crate) fn libselinux(file: &Path, queries: &[Query]) -> Vec<Vec<u8>> {
    let mut child = Command::new("python3")
        .args(["-c", PYTHON])
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = Vec::new();
    for (kind, path) in queries {
        input.push(KINDS.iter().find(|(_, other)| other == kind).unwrap().0);
        input.extend_from_slice(path);
        input.push(0);
    }
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "the oracle failed");
    let labels: Vec<_> = output.stdout.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    assert_eq!(labels.len(), queries.len() + 1);
    labels[..queries.len()].to_vec()
}

/// Compares our labels with libselinux'. Returns how many files have a label.
pub(crate) fn compare(contexts: &FileContexts, file: &Path, queries: &[Query]) -> usize {
    let theirs = libselinux(file, queries);
    let mut lookup = contexts.lookup();
    let (mut wrong, mut labelled) = (Vec::new(), 0);
    for ((kind, path), theirs) in queries.iter().zip(&theirs) {
        let ours = lookup.label(path, *kind).unwrap();
        labelled += usize::from(ours.is_some());
        let ours = ours.unwrap_or(b"<<none>>");
        if ours != theirs {
            let (ours, theirs) = (ours.escape_ascii(), theirs.escape_ascii());
            wrong.push(format!("{kind:?} {}: {ours}, not {theirs}", path.escape_ascii()));
        }
    }
    let shown = &wrong[..wrong.len().min(20)];
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), queries.len(), shown.join("\n"));
    labelled
}
