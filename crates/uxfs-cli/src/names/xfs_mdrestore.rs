//! `xfs_mdrestore`: a volume made of a dump of metadata.

use std::path::Path;

use uxfs_metadump::{Content, Info, Version};

use super::program::{Line, Program, Stop, refused};
use super::xfs_metadump::Shown;
use crate::dumps;
use crate::session::Session;

pub(super) const PROGRAM: Program = Program {
    name: "xfs_mdrestore",
    letters: "gil:r:V",
    long: &[],
    script: false,
    usage: "[-V] [-g] [-i] [-l logdev] [-r rtdev] source target",
    usage_code: 1,
    run,
};

fn run(line: &Line, session: &Session) -> Result<(), Stop> {
    let (source, target) = match line.operands.as_slice() {
        [source] if line.has('i') => (Path::new(source), None),
        [source, target] => (Path::new(source), Some(Path::new(target))),
        _ => return Err(Stop::Usage("give a source and a target".into())),
    };
    for (letter, what) in [('l', "an external log"), ('r', "a realtime device")] {
        if line.has(letter) {
            let instead = format!("dumps with {what} need xfs_mdrestore of xfsprogs");
            return Err(refused(&format!("-{letter}"), &instead));
        }
    }
    let mut begun = |info: Info| match line.has('i') {
        true => {
            session.print(described(source, info))?;
            session.flush()
        }
        false => Ok(()),
    };
    let Some(target) = target else {
        return Ok(begun(dumps::info(source)?)?);
    };
    let mut shown = Shown { wanted: line.has('g'), any: false };
    let mut last = 0;
    let done = dumps::restore(source, target, &mut begun, &mut |read| {
        let now = read.div_ceil(1 << 20);
        if now != last {
            last = now;
            shown.line(&format!("{now} MB read"), false, session);
        }
    });
    shown.end(false, session);
    done?;
    Ok(())
}

/// What a dump holds, in the words of xfsprogs.
fn described(source: &Path, info: Info) -> String {
    let source = source.display();
    let Some(content) = info.content else {
        return format!("{source}: no informational flags present\n");
    };
    let names = if content.contains(Content::OBFUSCATED) { "" } else { "not " };
    let log = if content.contains(Content::DIRTY_LOG) { "dirty" } else { "clean" };
    let blocks = if content.contains(Content::WHOLE_BLOCKS) { "full" } else { "zeroed" };
    // Other devices are in no dump that is restored here.
    let (devices, end) = match info.version {
        Version::One => ("", ""),
        Version::Two => {
            ("external log contents are not dumped, rt device contents are not dumped, ", ",")
        }
    };
    format!("{source}: {names}obfuscated, {log} log, {devices}{blocks} metadata blocks{end}\n")
}
