//! `xfs_repair -n`: checks a volume and changes nothing. Repairs are not done.
//!
//! As in xfsprogs the log is ignored: a volume whose log is dirty is checked as it is on the device.
//! `uxfs check` replays the log in memory first.

use std::path::Path;

use uxfs::disk::OpenMode;
use uxfs_check::{CheckOptions, LogState, Verdict, check};

use super::program::{Line, Program, Stop, refused};
use super::volume::{identity, whole};
use crate::session::{Failure, Session};

pub(super) const PROGRAM: Program = Program {
    name: "xfs_repair",
    letters: "c:defl:Lm:no:Pr:t:vV",
    long: &[],
    script: false,
    usage: "-n [-dfLPvV] [-l logdev] [-m maxmem] [-o subopt[=value]] [-t interval] device|image",
    usage_code: 1,
    run,
};

fn run(line: &Line, session: &Session) -> Result<(), Stop> {
    for given in &line.options {
        refuse(given.letter)?;
    }
    let forced = geometry_forced(line)?;
    let path = line.operand("device or image")?;
    if line.has('n') && line.has('e') {
        return Err(Stop::Usage("-n and -e cannot be combined".into()));
    }
    if !line.has('n') {
        let instead = "give -n to check, or repair with xfs_repair of xfsprogs";
        return Err(refused("repairing (no -n)", instead));
    }
    let primary = identity(path, OpenMode::Read).ok();
    let alone = primary.as_ref().is_some_and(|it| it.superblock().agcount.get() == 1);
    if alone && !forced {
        let why = "only one allocation group, so no other superblock confirms the geometry: give -o \
                   force_geometry to go on";
        return Err(Failure::new(path, why).into());
    }
    let dev = whole(path, line.value('l').map(Path::new), OpenMode::Read)?;
    let report = check(&*dev, &CheckOptions::default(), &|_| {})
        .map_err(|error| Failure::new(path, error.to_string()))?;
    session.say(report.to_string().as_bytes());
    if report.log == LogState::Dirty {
        session.set_code(1);
        let alert = "the log is dirty, and ignored because of -n: uxfs check replays it in memory";
        session.say(format!("xfs_repair: {}: {alert}", path.display()).as_bytes());
    }
    if report.verdict() == Verdict::Damaged || report.incomplete {
        session.set_code(1);
    }
    // All that xfs_repair prints on standard output. It ends before if the primary superblock is bad.
    match primary {
        Some(_) => Ok(session.print("No modify flag set, skipping phase 5\n")?),
        None => Ok(()),
    }
}

fn refuse(letter: char) -> Result<(), Stop> {
    let instead = match letter {
        'r' => "uxfs checks no realtime device",
        'c' => "features are added by xfs_admin -O",
        // The others choose how much memory and how many threads are used, what is printed, and
        // what a repair may do, such as -L, which discards the log.
        _ => return Ok(()),
    };
    Err(refused(&format!("-{letter}"), instead))
}

/// Takes the values of `-o`. Does one allow a volume with one allocation group?
fn geometry_forced(line: &Line) -> Result<bool, Stop> {
    let mut forced = false;
    for given in line.options.iter().filter(|given| given.letter == 'o') {
        for word in given.value.to_string_lossy().split(',') {
            match word.split('=').next().unwrap_or_default() {
                // They choose how memory and threads are used.
                "ihash" | "bhash" | "ag_stride" | "phase2_threads" => {}
                "force_geometry" => forced = true,
                "assume_xfs" | "noquota" => {
                    let what = format!("-o {word}");
                    return Err(refused(&what, "use xfs_repair -n of xfsprogs"));
                }
                other => return Err(Stop::Usage(format!("unknown option -o {other}"))),
            }
        }
    }
    Ok(forced)
}
