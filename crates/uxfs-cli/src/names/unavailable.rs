//! `xfs_copy`, `xfs_metadump` and `xfs_mdrestore`: not done, and refused by their names.

use super::program::{Line, Program, Stop, refused};
use crate::session::Session;

pub(super) const COPY: Program = Program {
    name: "xfs_copy",
    letters: "bdL:V",
    long: &[],
    script: false,
    usage: "[-bdV] [-L logfile] source target …",
    usage_code: 1,
    run: copy,
};

pub(super) const METADUMP: Program = Program {
    name: "xfs_metadump",
    letters: "aefFgl:m:or:v:wV",
    long: &[],
    script: true,
    usage: "[-aefFgowV] [-m max_extents] [-l logdev] [-r rtdev] [-v version] source target",
    usage_code: 2,
    run: metadump,
};

pub(super) const MDRESTORE: Program = Program {
    name: "xfs_mdrestore",
    letters: "gil:r:V",
    long: &[],
    script: false,
    usage: "[-giV] [-l logdev] [-r rtdev] source target",
    usage_code: 1,
    run: mdrestore,
};

fn copy(line: &Line, _: &Session) -> Result<(), Stop> {
    need(line, "a source and targets", |count| count >= 2)?;
    let instead = "copy the image with cp --sparse=always and give the copy a UUID with \
                   xfs_admin -U generate, or use xfs_copy of xfsprogs";
    Err(refused("xfs_copy", instead))
}

fn metadump(line: &Line, _: &Session) -> Result<(), Stop> {
    need(line, "a source and a target", |count| count == 2)?;
    Err(refused("xfs_metadump", "use xfs_metadump of xfsprogs"))
}

fn mdrestore(line: &Line, _: &Session) -> Result<(), Stop> {
    let information = line.has('i');
    need(line, "a source and a target", |count| count == 2 || information && count == 1)?;
    Err(refused("xfs_mdrestore", "use xfs_mdrestore of xfsprogs"))
}

fn need(line: &Line, what: &str, enough: impl Fn(usize) -> bool) -> Result<(), Stop> {
    match enough(line.operands.len()) {
        true => Ok(()),
        false => Err(Stop::Usage(format!("give {what}"))),
    }
}
