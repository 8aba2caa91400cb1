//! `fsck.xfs`, which fsck(8) and boot scripts call.
//!
//! 1. Without options that ask for more it does what that of xfsprogs does: nothing, with success. A
//!    mount replays the log, and a check of every volume at every boot would take minutes.
//! 2. `-f` checks the volume and replays its log, as `uxfs fsck --replay`. `-n`, which that of xfsprogs
//!    ignores, checks and changes nothing, as `uxfs fsck -n`.
//! 3. fsck(8) passes on options of any file system, so unknown ones are ignored, as in xfsprogs.

use std::ffi::OsString;
use std::path::Path;

use super::program::{Line, Program, Stop, as_operand};
use crate::session::Session;

pub(super) const PROGRAM: Program = Program {
    name: "fsck.xfs",
    letters: "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    long: &[],
    script: true,
    usage: "[-aAfnpyV] device|image",
    usage_code: 16,
    run,
};

/// Exit code of fsck(8) for an operational error.
const OPERATIONAL: u8 = 8;

fn run(line: &Line, session: &Session) -> Result<(), Stop> {
    let path = line.operands.last().map(Path::new);
    if let Some(path) = path
        && !path.exists()
    {
        session.set_code(OPERATIONAL);
        // On standard output, as in xfsprogs.
        return Ok(session.print(format!("fsck.xfs: {} does not exist\n", path.display()))?);
    }
    let how = match (line.has('f'), line.has('n')) {
        (_, true) => Some("-n"),
        (true, false) => Some("--replay"),
        (false, false) => None,
    };
    if let (Some(how), Some(path)) = (how, path) {
        let mut args: Vec<OsString> = ["uxfs", "fsck", "-q", how].map(OsString::from).into();
        args.push(as_operand(path));
        return Err(Stop::Uxfs(args));
    }
    let words = match line.options.iter().any(|given| "aAp".contains(given.letter)) {
        true => "fsck.xfs: XFS file system.\n",
        false => {
            "If you wish to check the consistency of an XFS filesystem or\n\
             repair a damaged filesystem, see xfs_repair(8).\n"
        }
    };
    Ok(session.print(words)?)
}
