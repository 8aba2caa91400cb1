//! `xfs_copy`: not done, and refused by its name.

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

fn copy(line: &Line, _: &Session) -> Result<(), Stop> {
    need(line, "a source and targets", |count| count >= 2)?;
    let instead = "copy the image with cp --sparse=always and give the copy a UUID with \
                   xfs_admin -U generate, or use xfs_copy of xfsprogs";
    Err(refused("xfs_copy", instead))
}

fn need(line: &Line, what: &str, enough: impl Fn(usize) -> bool) -> Result<(), Stop> {
    match enough(line.operands.len()) {
        true => Ok(()),
        false => Err(Stop::Usage(format!("give {what}"))),
    }
}
