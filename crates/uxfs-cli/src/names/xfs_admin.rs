//! `xfs_admin`: shows and sets label and UUID of a volume that is not mounted.
//!
//! Options are carried out in their order, so that `-l` behind `-L` shows the new label. That of xfsprogs
//! reports success without setting anything if both are given, and for a wrong UUID; this one does not.

use std::path::Path;

use uxfs::Error;
use uxfs::disk::OpenMode;
use uxfs::format::Uuid;
use uxfs::identity::{Identity, LABEL_MAX};
use uxfs::mkfs::random_uuid;
use uxfs_host::OsStrExt;

use super::program::{Given, Line, Program, Stop, refused};
use super::volume::{identity, refuse_directory};
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
    let path = match line.operands.as_slice() {
        [path] => Path::new(path),
        [_, logdev] => {
            let what = format!("an external log ({})", logdev.display());
            return Err(refused(&what, "use xfs_admin of xfsprogs"));
        }
        _ => return Err(Stop::Usage("give a device or image".into())),
    };
    for given in &line.options {
        refuse(given.letter)?;
    }
    let does = |letters: &str| line.options.iter().any(|given| letters.contains(given.letter));
    if !does("luLU") {
        // Nothing to do, and xfsprogs does not look at the device either.
        return Ok(());
    }
    if line.options.iter().any(|given| "LU".contains(given.letter) && given.value.is_empty()) {
        return Err(Stop::Usage("an empty value; -L -- clears the label".into()));
    }
    refuse_directory(path)?;
    let mode = if does("LU") { OpenMode::Write } else { OpenMode::Read };
    let mut identity = identity(path, mode)?;
    for given in &line.options {
        carry_out(given, path, &mut identity, session)?;
    }
    Ok(())
}

fn refuse(letter: char) -> Result<(), Stop> {
    let instead = match letter {
        'e' | 'j' | 'p' | 'c' => "it changes volumes of version 4, which uxfs only reads",
        'O' => "uxfs adds no features to a volume: use xfs_admin of xfsprogs",
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
        // -f says that it is a file, which shows.
        _ => {}
    }
    Ok(())
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
