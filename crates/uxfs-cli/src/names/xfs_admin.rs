//! `xfs_admin`: shows and sets label and UUID of a volume that is not mounted, and adds features.
//!
//! -O checks the volume first, as that of xfsprogs does by xfs_repair: a feature is added to no damaged
//! volume.
//!
//! Options are carried out in their order, so that `-l` behind `-L` shows the new label. That of xfsprogs
//! reports success without setting anything if both are given, and for a wrong UUID; this one does not.

use std::path::Path;

use uxfs::Error;
use uxfs::disk::OpenMode;
use uxfs::format::Uuid;
use uxfs::identity::{Identity, LABEL_MAX, Upgrade};
use uxfs::mkfs::random_uuid;
use uxfs_check::{CheckOptions, Verdict, check};
use uxfs_host::OsStrExt;

use super::program::{Given, Line, Program, Stop, refused};
use super::volume::{identity_of, refuse_directory, whole};
use crate::session::{Failure, Session};

pub(super) const PROGRAM: Program = Program {
    name: "xfs_admin",
    letters: "c:C:efjlL:O:pr:uU:V",
    long: &[],
    script: true,
    usage: "[-efjlpuV] [-c 0|1] [-C file] [-L label] [-O features] [-r rtdev] [-U uuid] device \
            [logdev]",
    usage_code: 2,
    run,
};

fn run(line: &Line, session: &Session) -> Result<(), Stop> {
    let (path, log) = match line.operands.as_slice() {
        [path] => (Path::new(path), None),
        [path, log] => (Path::new(path), Some(Path::new(log))),
        _ => return Err(Stop::Usage("give a device or image".into())),
    };
    for given in &line.options {
        refuse(given.letter)?;
    }
    let does = |letters: &str| line.options.iter().any(|given| letters.contains(given.letter));
    if !does("luLUO") {
        // Nothing to do, and xfsprogs does not look at the device either.
        return Ok(());
    }
    if line.options.iter().any(|given| "LUO".contains(given.letter) && given.value.is_empty()) {
        return Err(Stop::Usage("an empty value; -L -- clears the label".into()));
    }
    refuse_directory(path)?;
    // Every word is looked at before anything is changed.
    for given in line.options.iter().filter(|given| given.letter == 'O') {
        upgrades(given)?;
    }
    if does("O") {
        refuse_damage(path, log, session)?;
    }
    let mode = if does("LUO") { OpenMode::Write } else { OpenMode::Read };
    let mut identity = identity_of(path, log, mode)?;
    for given in &line.options {
        carry_out(given, path, &mut identity, session)?;
    }
    Ok(())
}

fn refuse(letter: char) -> Result<(), Stop> {
    let instead = match letter {
        'e' | 'j' | 'p' | 'c' => "it changes volumes of version 4, which uxfs only reads",
        'C' => "use xfs_admin of xfsprogs",
        'r' => "uxfs changes no volumes with a realtime device",
        _ => return Ok(()),
    };
    Err(refused(&format!("-{letter}"), instead))
}

fn carry_out(
    given: &Given,
    path: &Path,
    identity: &mut Identity,
    session: &Session,
) -> Result<(), Stop> {
    let failed = |error: Error| Failure::volume(path, error);
    match given.letter {
        'l' => session.print(quoted("label", identity.label()))?,
        'u' => session.print(format!("UUID = {}\n", identity.uuid()))?,
        'L' => {
            let word = given.value.as_bytes();
            let label = label(word);
            identity.set_label(label).map_err(failed)?;
            session.print("writing all SBs\n")?;
            if word.len() > LABEL_MAX {
                let (from, to) = (word.len(), LABEL_MAX);
                session
                    .print(format!("xfs_admin: truncating label length from {from} to {to}\n"))?;
            }
            session.print(quoted("new label", label))?;
        }
        'U' => {
            let word = given.value.to_str().unwrap_or_default();
            let uuid = wanted(word, identity)?;
            identity.set_uuid(uuid).map_err(failed)?;
            session.print(format!(
                "Clearing log and setting UUID\nwriting all SBs\nnew UUID = {uuid}\n"
            ))?;
        }
        'O' => {
            for upgrade in upgrades(given)? {
                let added = identity.upgrade(upgrade).map_err(failed)?;
                session.print(if added { adding(upgrade) } else { present(upgrade) })?;
            }
        }
        // -f says that it is a file, which shows.
        _ => {}
    }
    Ok(())
}

/// The features that a value of -O names: `bigtime=1,inobtcount=1`.
fn upgrades(given: &Given) -> Result<Vec<Upgrade>, Stop> {
    let words = given.value.to_string_lossy();
    let upgrade = |word: &str| {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let why = match (Upgrade::from_name(name), value) {
            (Some(upgrade), Some("1")) => return Ok(upgrade),
            (Some(_), Some(_)) => format!("-O {name} only supports upgrades: {name}=1"),
            (Some(_), None) => format!("-O {name} requires a parameter: {name}=1"),
            (None, _) => {
                let known = Upgrade::ALL.map(Upgrade::name).join(", ");
                format!("-O {word}: no feature that can be added; those are {known}")
            }
        };
        Err(Failure::bare(why).into())
    };
    words.split(',').map(upgrade).collect()
}

/// Fails if the volume is damaged, or its log dirty.
fn refuse_damage(path: &Path, log: Option<&Path>, session: &Session) -> Result<(), Stop> {
    let dev = whole(path, log, OpenMode::Read)?;
    let report = check(&*dev, &CheckOptions::default(), &|_| {})
        .map_err(|error| Failure::new(path, error.to_string()))?;
    if report.verdict() == Verdict::Damaged || report.incomplete {
        session.say(report.to_string().as_bytes());
        return Err(Failure::new(path, "the volume is damaged: run uxfs repair first").into());
    }
    Ok(())
}

fn adding(upgrade: Upgrade) -> &'static str {
    match upgrade {
        Upgrade::Bigtime => "Adding large timestamp support to filesystem.\n",
        Upgrade::Inobtcount => "Adding inode btree counts to filesystem.\n",
        Upgrade::Nrext64 => "Adding nrext64 to filesystem.\n",
        Upgrade::Exchange => "Adding file exchange-range support to filesystem.\n",
    }
}

fn present(upgrade: Upgrade) -> &'static str {
    match upgrade {
        Upgrade::Bigtime => "Filesystem already supports large timestamps.\n",
        Upgrade::Inobtcount => "Filesystem already has inode btree counts.\n",
        Upgrade::Nrext64 => "Filesystem already supports nrext64.\n",
        Upgrade::Exchange => "Filesystem already supports exchange-range.\n",
    }
}

fn quoted(what: &str, label: &[u8]) -> Vec<u8> {
    [what.as_bytes(), b" = \"", label, b"\"\n"].concat()
}

/// The label that a word stands for: cut to its longest length, or none for `--`.
fn label(word: &[u8]) -> &[u8] {
    match word {
        b"--" => b"",
        _ => &word[..word.len().min(LABEL_MAX)],
    }
}

/// The UUID that a word stands for.
fn wanted(word: &str, identity: &Identity) -> Result<Uuid, Stop> {
    match word {
        "nil" => Ok(Uuid([0; 16])),
        "generate" => Ok(random_uuid().map_err(|error| Failure::bare(error.to_string()))?),
        "restore" => Ok(identity.superblock().metadata_uuid()),
        other => Ok(other.parse().map_err(|why| Failure::bare(format!("-U {other}: {why}")))?),
    }
}
