//! The experiments: most repeat a measurement that a post argues from.

mod aging;
mod barriers;
pub(crate) mod blank;
mod concat;
mod coordination;
mod dbench;
mod delaylog;
mod disks;
mod fs_mark;
mod overwrites;
mod policies;
pub(crate) mod recorded;
mod rungs;
mod servers;
mod spindle;
pub(crate) mod tar_star;

use crate::outcome::Experiment;
use crate::plan::{How, Progress};
use crate::posts::{self, Post};
use crate::{LabError, Result};

pub struct Known {
    pub name: &'static str,
    pub about: &'static str,
    /// The post whose measurement it repeats.
    pub post: Option<&'static Post>,
    run: fn(&How, &dyn Progress) -> Result<Experiment>,
}

pub const ALL: &[Known] = &[
    Known {
        name: "fs-mark",
        about: "files created in memory by 1 to 8 clients, delayed and immediate logging",
        post: Some(&posts::DELAYED_LOGGING),
        run: fs_mark::run,
    },
    Known {
        name: "dbench",
        about: "a file server's load at 1 to 200 clients, delayed and immediate logging",
        post: Some(&posts::DELAYED_LOGGING),
        run: dbench::run,
    },
    Known {
        name: "log-force",
        about: "the same load, with the log force of 2010 and with uxfs'",
        post: Some(&posts::DELAYED_LOGGING),
        run: dbench::run_force,
    },
    Known {
        name: "delaylog",
        about: "log traffic of work on names, delayed and immediate logging",
        post: Some(&posts::DELAYED_LOGGING),
        run: delaylog::run,
    },
    Known {
        name: "fsync-coordination",
        about: "many threads that call fsync, under each policy",
        post: Some(&posts::FSYNC_COORDINATION),
        run: coordination::run,
    },
    Known {
        name: "fsync-overwrite",
        about: "many threads that overwrite and call fdatasync, under each policy",
        post: Some(&posts::FSYNC_COORDINATION),
        run: overwrites::run,
    },
    Known {
        name: "policies",
        about: "each policy of fsync_policy= without an engine, on many disks, 1 to 1,000 threads",
        post: Some(&posts::FSYNC_COORDINATION),
        run: policies::run,
    },
    Known {
        name: "spindle",
        about: "builds and tests on one slow spindle and on an SSD, by allocation groups",
        post: Some(&posts::SPINDLE),
        run: spindle::run,
    },
    Known {
        name: "concat",
        about: "the use of all disks of a concat, or only its first",
        post: Some(&posts::SPINDLE),
        run: concat::run,
    },
    Known {
        name: "aging",
        about: "work on a tree, on a new volume and on volumes aged for months",
        post: Some(&posts::SPINDLE),
        run: aging::run,
    },
    Known {
        name: "barriers",
        about: "a tree extracted on a mirror of 2008, barriers and write cache on or off",
        post: Some(&posts::BARRIERS),
        run: barriers::run,
    },
    Known {
        name: "tar-star",
        about: "a tree extracted with an fsync of no file, of each, or of all at the end",
        post: Some(&posts::TAR_STAR),
        run: tar_star::run,
    },
    Known {
        name: "mail",
        about: "a mail server's deliveries, under three policies and four other promises, on three disks",
        post: None,
        run: servers::run_mail,
    },
    Known {
        name: "database",
        about: "a database's commits, under three policies and four other promises, on three disks",
        post: None,
        run: servers::run_database,
    },
    Known {
        name: "git",
        about: "a recording of git: a clone, five commits, gc; two kinds of logging, four other promises",
        post: None,
        run: recorded::run_git,
    },
    Known {
        name: "compile",
        about: "a recording of configure and make; delayed and immediate logging",
        post: None,
        run: recorded::run_compile,
    },
];

/// Runs the experiment of this name.
///
/// # Errors
/// If there is none, or it cannot be run.
pub fn run(name: &str, how: &How, progress: &dyn Progress) -> Result<Experiment> {
    let known = ALL.iter().find(|known| known.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|known| known.name).collect();
        LabError::new(name, format!("no such experiment; known: {}", names.join(", ")))
    })?;
    let mut found = match how.on.is_empty() {
        true => (known.run)(how, progress)?,
        false => crate::real::run(name, how, progress)?,
    };
    if how.only.is_empty() {
        return Ok(found);
    }
    found.notes.push(format!("only rows with \"{}\" in them were run", how.only));
    Ok(found)
}
