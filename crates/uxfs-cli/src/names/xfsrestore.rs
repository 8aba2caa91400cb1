//! `xfsrestore`: the names in a dump of xfsdump. `uxfs import` makes a volume of it.

use std::path::{Path, PathBuf};

use uxfs::archive::{self, Kind};

use super::program::{Line, Program, Stop, refused};
use crate::session::{Failure, Session};

pub(super) const PROGRAM: Program = Program {
    name: "xfsrestore",
    letters: "a:b:c:ef:him:n:op:qrs:tv:w:ABDEFIJKL:QRS:TX:Y:V",
    long: &[],
    script: false,
    usage: "-t -f source [-J] [-F] [-T] [-v verbosity]",
    usage_code: 1,
    run,
};

/// The options of a list of names. But for -t and -f they change nothing in it.
const OF_A_LIST: &[char] = &['t', 'f', 'J', 'F', 'T', 'v', 'A', 'B'];

fn run(line: &Line, session: &Session) -> Result<(), Stop> {
    if line.has('h') {
        return Err(Stop::Usage("options:".into()));
    }
    let instead = "uxfs import DUMP IMAGE makes a volume of a dump; a list of its names is -t";
    if let Some(other) = line.options.iter().find(|o| !OF_A_LIST.contains(&o.letter)) {
        return Err(refused(&format!("-{}", other.letter), instead));
    }
    if !line.has('t') {
        return Err(refused("a restore", instead));
    }
    let source: PathBuf = match (line.value('f'), line.operands.as_slice()) {
        (Some(file), []) => file.into(),
        (None, [input]) if input == "-" => Path::new("-").to_owned(),
        _ => return Err(Stop::Usage("give a source: -f FILE".into())),
    };
    let failed = |error: archive::ArchiveError| Failure::bare(error.to_string());
    let mut dump = archive::open_dump_to_list(&source).map_err(failed)?;
    while let Some(entry) = dump.next().map_err(failed)? {
        if entry.kind != Kind::Dir {
            session.print([entry.path.as_slice(), b"\n"].concat())?;
        }
    }
    Ok(())
}
