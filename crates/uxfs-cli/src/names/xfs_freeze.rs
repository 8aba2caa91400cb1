//! `xfs_freeze` of a mount made by uxfs. That of xfsprogs asks the kernel, which freezes no FUSE mount.

use super::program::{Line, Program, Stop};
use crate::cmd::freeze;
use crate::session::Session;

pub(super) const PROGRAM: Program = Program {
    name: "xfs_freeze",
    letters: "fuV",
    long: &[],
    script: true,
    usage: "[-V] [-f | -u] mountpoint",
    usage_code: 2,
    run,
};

fn run(line: &Line, _: &Session) -> Result<(), Stop> {
    let dir = line.operand("mountpoint")?;
    match (line.has('f'), line.has('u')) {
        (true, false) => Ok(freeze::freeze(dir)?),
        (false, true) => Ok(freeze::thaw(dir)?),
        _ => Err(Stop::Usage("one of -f and -u must be given".into())),
    }
}
