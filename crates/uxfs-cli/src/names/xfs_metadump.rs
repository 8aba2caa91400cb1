//! `xfs_metadump`: a dump of a volume's metadata.
//!
//! Names get other names by a key that nobody knows; those of xfsprogs differ, and differ each time, too.

use std::cell::RefCell;
use std::io::Write;
use std::path::Path;

use uxfs::volume::Location;
use uxfs_metadump::{DumpOptions, DumpProgress, Event};

use super::program::{Line, Program, Stop, refused};
use super::volume::refuse_directory;
use crate::cmd::metadump::parse_version;
use crate::dumps;
use crate::session::{Failure, Session};

pub(super) const PROGRAM: Program = Program {
    name: "xfs_metadump",
    letters: "aefFgl:m:or:v:wV",
    long: &[],
    script: true,
    usage: "[-aefFogwV] [-m max_extents] [-l logdev] [-r rtdev] [-v version] source target",
    usage_code: 2,
    run,
};

fn run(line: &Line, session: &Session) -> Result<(), Stop> {
    let [source, target] = line.operands.as_slice() else {
        return Err(Stop::Usage("give a source and a target".into()));
    };
    let (source, target) = (Path::new(source), Path::new(target));
    for given in &line.options {
        let instead = match given.letter {
            'F' => "the superblock is damaged: repair the volume with xfs_repair of xfsprogs",
            'l' => "use xfs_metadump of xfsprogs; without -l the external log is left out",
            'r' => "use xfs_metadump of xfsprogs",
            // -f says that it is a file, which shows.
            _ => continue,
        };
        return Err(refused(&format!("-{}", given.letter), instead));
    }
    let mut options = DumpOptions {
        whole_blocks: line.has('a'),
        stop_at_read_error: line.has('e'),
        ..DumpOptions::default()
    };
    let number = |letter| line.value(letter).map(|value| value.to_str().unwrap_or_default());
    if let Some(version) = number('v') {
        options.version = parse_version(version)
            .map_err(|_| Failure::bare(format!("bad metadump version: {version}")))?;
    }
    if let Some(blocks) = number('m') {
        let most = blocks.parse().ok().filter(|blocks| *blocks > 0);
        options.longest_extent =
            most.ok_or_else(|| Failure::bare(format!("bad max extent size {blocks}")))?;
    }
    if !line.has('o') {
        options.names = Some(dumps::names(None)?);
    }
    refuse_directory(source)?;
    let shown = RefCell::new(Shown { wanted: line.has('g'), any: false });
    let on_stream = dumps::is_stream(target);
    let summary =
        dumps::write(source, &Location::whole(), target, &options, &mut |event| match event {
            Event::Progress(progress) => {
                shown.borrow_mut().line(&text(progress), on_stream, session)
            }
            Event::Warning(what) if line.has('w') => shown.borrow_mut().say(&what, session),
            Event::Notice(what) => shown.borrow_mut().say(&what, session),
            _ => {}
        });
    shown.borrow_mut().end(on_stream, session);
    summary?;
    Ok(())
}

fn text(progress: DumpProgress) -> String {
    match progress {
        DumpProgress::Trees { ag } => format!("Copying free space trees of AG {ag}"),
        DumpProgress::Inodes { done, total, ag, ags } => {
            format!("Copied {done} of {total} inodes ({ag} of {ags} AGs)")
        }
        DumpProgress::Log => "Copying log".into(),
        _ => "Zeroing clean log".into(),
    }
}

/// Lines of progress that replace each other, as xfsprogs print them: on standard output, or on standard
/// error if the dump goes to standard output.
pub(super) struct Shown {
    pub(super) wanted: bool,
    pub(super) any: bool,
}

impl Shown {
    pub(super) fn line(&mut self, text: &str, on_error: bool, session: &Session) {
        if self.wanted {
            self.any = true;
            put(&format!("\r{text:<59}"), on_error, session);
        }
    }

    /// Writes a message, below the line of progress.
    fn say(&mut self, text: &str, session: &Session) {
        if std::mem::take(&mut self.any) {
            session.say(b"");
        }
        session.say(format!("xfs_metadump: {text}").as_bytes());
    }

    pub(super) fn end(&self, on_error: bool, session: &Session) {
        if self.any {
            put("\n", on_error, session);
        }
    }
}

/// A failed write ends no dump.
fn put(text: &str, on_error: bool, session: &Session) {
    if on_error {
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    } else {
        let _ = session.print(text).and_then(|()| session.flush());
    }
}
