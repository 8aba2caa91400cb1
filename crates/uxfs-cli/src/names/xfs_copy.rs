//! `xfs_copy`: the blocks of a volume that are in use, copied to one or more files or devices.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use uxfs::disk::{FileDev, OpenMode};
use uxfs::mkfs::random_uuid;
use uxfs::new_file::NewFile;
use uxfs_metadump::{Copier, CopyError, Target};

use super::program::{Line, Program, Stop};
use super::volume::refuse_directory;
use crate::dumps::{open_target, refuse_same};
use crate::interrupt;
use crate::session::{Failure, Session};

pub(super) const PROGRAM: Program = Program {
    name: "xfs_copy",
    letters: "bdL:V",
    long: &[],
    script: false,
    usage: "[-bdV] [-L logfile] source target [target ...]",
    usage_code: 1,
    run,
};

/// The file of `-L`, which has what the user reads, too.
struct Messages<'a> {
    file: Option<File>,
    session: &'a Session,
}

impl Messages<'_> {
    /// A line of results.
    fn print(&mut self, text: &str) -> Result<(), Stop> {
        self.note(text);
        self.session.print(text)?;
        Ok(self.session.flush()?)
    }

    fn note(&mut self, text: &str) {
        if let Some(file) = &mut self.file {
            // The copy matters more than what is said of it.
            let _ = file.write_all(text.as_bytes());
        }
    }

    /// A failure of one target; the others go on.
    fn fail(&mut self, failure: Failure) {
        self.note(&format!("{failure}\n"));
        self.session.fail(failure);
    }
}

fn run(line: &Line, session: &Session) -> Result<(), Stop> {
    // -b, which avoids direct I/O, changes nothing that shows.
    let [source, targets @ ..] = line.operands.as_slice() else {
        return Err(Stop::Usage("give a source and targets".into()));
    };
    if targets.is_empty() {
        return Err(Stop::Usage("give a target".into()));
    }
    let log = line.value('L').map(Path::new);
    let file = log.map(|path| File::create(path).map_err(|error| Failure::host(path, &error)));
    let mut messages = Messages { file: file.transpose()?, session };
    let targets: Vec<&Path> = targets.iter().map(Path::new).collect();
    let done = copy(Path::new(source), &targets, line.has('d'), &mut messages);
    if let Err(Stop::Failed(_, failure)) = &done {
        messages.note(&format!("{failure}\n"));
    }
    done
}

fn copy(
    source: &Path,
    targets: &[&Path],
    duplicate: bool,
    messages: &mut Messages<'_>,
) -> Result<(), Stop> {
    refuse_directory(source)?;
    let host = |error: std::io::Error| Failure::host(source, &error);
    let dev = FileDev::open(source, OpenMode::Read).map_err(host)?;
    dev.check_unmounted().map_err(host)?;
    let failed = |error: CopyError| Failure::new(source, error.to_string());
    let copier = Copier::new(&dev, duplicate).map_err(failed)?;
    let mut open = Vec::new();
    for path in targets {
        refuse_same(source, path)?;
        let host = |error: std::io::Error| Failure::host(path, &error);
        if !path.exists() {
            messages.print(&format!("Creating file {}\n", path.display()))?;
        }
        interrupt::watch("xfs_copy", path).map_err(host)?;
        let new_file = NewFile::create(path).map_err(host)?;
        let dev = open_target(path, copier.volume_len()).map_err(host)?;
        open.push((new_file, dev));
    }
    let mut wanted = Vec::new();
    for (_, dev) in &open {
        let uuid = match duplicate {
            true => copier.uuid(),
            false => random_uuid().map_err(|error| Failure::bare(error.to_string()))?,
        };
        wanted.push(Target { dev, blank: dev.is_regular(), uuid });
    }
    messages.session.print(" 0% ")?;
    messages.session.flush()?;
    let mut shown = 0;
    let summary = copier
        .run(&wanted, &mut |done, total| {
            while shown < 10 && u128::from(done) * 10 >= u128::from(total) * (shown + 1) {
                shown += 1;
                let end = if shown == 10 { "\n\n" } else { " " };
                let text = format!(" ... {}%{end}", shown * 10);
                // A failed write ends no copy.
                let _ = messages.session.print(text).and_then(|()| messages.session.flush());
            }
        })
        .map_err(failed)?;
    let mut whole = true;
    for ((new_file, _), (path, result)) in open.into_iter().zip(targets.iter().zip(summary.targets))
    {
        let kept = match result {
            Ok(()) => new_file.keep_durably().map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match kept {
            Ok(()) => {}
            Err(error) => {
                whole = false;
                messages.fail(Failure::new(path, error));
            }
        }
    }
    if whole {
        messages.session.print("All copies completed.\n")?;
    }
    Ok(())
}
