//! `mkfs.xfs`: `uxfs mkfs` with the defaults of mkfs.xfs 7; those of 6.1 where a link of the name stands in the place
//! of an older one.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use uxfs::mkfs;
use uxfs_host::{OsStrExt, OsStringExt};

use super::installed;
use super::program::{Given, Line, Program, Stop, as_operand};
use crate::session::{Failure, Session};

/// The oldest xfsprogs that knows all features of the defaults of 7.2: parent pointers and exchange-range came last.
const KNOWS_DEFAULTS: (u32, u32) = (6, 10);

/// Stands for `--unsupported`, which mkfs.xfs takes and does not document.
const UNSUPPORTED: char = 'U';

pub(super) const PROGRAM: Program = Program {
    name: "mkfs.xfs",
    letters: "b:c:d:fi:Kl:L:m:n:Np:qr:s:V",
    long: &[("--unsupported", UNSUPPORTED)],
    script: false,
    usage: "[-fKNqV] [-b options] [-c options] [-d options] [-i options] [-l options] [-L label] \
            [-m options] [-n options] [-p directory|protofile] [-r options] [-s options] device",
    usage_code: 1,
    run,
};

fn run(line: &Line, session: &Session) -> Result<(), Stop> {
    if let [path] = line.operands.as_slice()
        && !makes_file(line)
    {
        check_room(line, Path::new(path))?;
    }
    if let [_, more, ..] = line.operands.as_slice() {
        return Err(Stop::Usage(format!("extra argument {}", more.display())));
    }
    if line.operands.is_empty() && !line.options.iter().any(names_device) {
        return Err(Stop::Usage("no device name given in argument list".into()));
    }
    for what in ["defaults", "options"] {
        announce_file(line, what, session)?;
    }
    if line.has(UNSUPPORTED) {
        session.print("Filesystems formatted with --unsupported are not supported!!\n")?;
        session.flush()?;
    }
    let mut args: Vec<OsString> = ["uxfs", "mkfs"].map(OsString::from).into();
    if !stands_for_older(line) {
        args.extend(["--preset".into(), "default".into()]);
    }
    // The hint that the root directory belongs to root is not for programs. With -p the root directory
    // belongs to whom the source says.
    if !line.has('p') {
        args.extend(["--owner".into(), "0:0".into()]);
    }
    for given in &line.options {
        let word = option(given);
        // Flags may be repeated.
        if !(given.value.is_empty() && args.contains(&word)) {
            args.push(word);
        }
    }
    args.extend(line.operands.iter().map(|path| as_operand(Path::new(path))));
    Err(Stop::Uxfs(args))
}

/// Does a link stand in the place of a mkfs.xfs whose xfs_repair could not check and repair what 7.2 makes by default?
fn stands_for_older(line: &Line) -> bool {
    line.by_link && installed::release().is_some_and(|release| release < KNOWS_DEFAULTS)
}

/// Refuses a file that is missing or too short, which mkfs.xfs makes and lengthens only with `-d file`;
/// `uxfs mkfs` always does.
fn check_room(line: &Line, path: &Path) -> Result<(), Stop> {
    let meta = std::fs::metadata(path).map_err(|error| {
        let why = Failure::host(path, &error);
        Stop::Usage(format!("error accessing specified device {why}"))
    })?;
    let mut options = mkfs::Options::default();
    for given in line.options.iter().filter(|given| "bsd".contains(given.letter)) {
        // `uxfs mkfs` reports a wrong option.
        let Some(Ok(())) = given.value.to_str().map(|text| options.apply(given.letter, text))
        else {
            return Ok(());
        };
    }
    if let Some(log) = log_device(line) {
        std::fs::metadata(&log).map_err(|error| {
            let why = Failure::host(Path::new(&log), &error);
            Stop::Usage(format!("Error accessing specified device {why}"))
        })?;
    }
    // A size in sectors is rare, and `uxfs mkfs` knows the device's.
    let block = options.block_size.unwrap_or(4096);
    let wanted = options.data.size.and_then(|size| size.bytes(block, 512).ok());
    match wanted {
        Some(wanted) if meta.is_file() && wanted > meta.len() => Err(Stop::Usage(format!(
            "size {wanted} specified for data subvolume is too large, maximum is {} bytes; -d file \
             lengthens the file",
            meta.len()
        ))),
        _ => Ok(()),
    }
}

/// An option as one argument for `uxfs mkfs`. Flags have no value; of the other options none may have an
/// empty one but `-L`.
fn option(given: &Given) -> OsString {
    if given.letter == UNSUPPORTED {
        return "--unsupported".into();
    }
    let mut word = OsString::from(format!("-{}", given.letter));
    if !"fKNq".contains(given.letter) {
        word.push("=");
        word.push(&given.value);
    }
    word
}

/// Says, as mkfs.xfs does, that an option file was read: one of `-c defaults=` or `-c options=`.
/// `uxfs mkfs` reports a wrong one.
fn announce_file(line: &Line, what: &str, session: &Session) -> Result<(), Stop> {
    let values = line.options.iter().filter(|given| given.letter == 'c');
    let words = values.filter_map(|given| given.value.to_str()).flat_map(|value| value.split(','));
    let mut files = words.filter_map(|word| word.strip_prefix(what)?.strip_prefix('='));
    let Some(file) = files.next() else { return Ok(()) };
    let mut text = String::new();
    let read = File::open(file)
        .and_then(|file| file.take(mkfs::MAX_CONFIG_BYTES).read_to_string(&mut text));
    if read.is_ok() && mkfs::Options::default().apply_file(file, &text).is_ok() {
        let kind = if what == "defaults" { "defaults config file" } else { "config file" };
        session.print(format!("Parameters parsed from {kind} {file} successfully\n"))?;
        session.flush()?;
    }
    Ok(())
}

/// The words of the values of the option `letter`.
fn words(given: &Given, letter: char) -> impl Iterator<Item = &[u8]> {
    let value = if given.letter == letter { given.value.as_bytes() } else { &[] };
    value.split(|byte| *byte == b',')
}

/// The device of an external log, which must be there.
fn log_device(line: &Line) -> Option<OsString> {
    let mut all = line.options.iter().flat_map(|given| words(given, 'l'));
    let names = |word: &'_ [u8]| {
        word.strip_prefix(b"logdev=").or(word.strip_prefix(b"name=")).map(<[u8]>::to_vec)
    };
    all.find_map(names).map(OsString::from_vec)
}

/// Does `-d` say that a file is to be made?
fn makes_file(line: &Line) -> bool {
    line.options
        .iter()
        .flat_map(|given| words(given, 'd'))
        .any(|word| matches!(word, b"file" | b"file=1"))
}

/// Does `-d` name the device?
fn names_device(given: &Given) -> bool {
    words(given, 'd').any(|word| word.starts_with(b"name="))
}
