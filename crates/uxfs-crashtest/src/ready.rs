//! Ready-made tests: programs as they are packaged, each with a workload and a check in Python.
//!
//! `uxfs crash-test --list` and `--run` show and use them.

use std::ffi::OsString;
use std::io;
use std::path::Path;

/// A ready-made test.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    pub name: &'static str,
    pub what: &'static str,
    script: &'static str,
    words: &'static [&'static str],
}

const SQLITE: &str = include_str!("../ready/sqlite.py");
const MAIL: &str = include_str!("../ready/mail.py");

const fn sqlite(name: &'static str, what: &'static str, words: &'static [&'static str]) -> Ready {
    Ready { name, what, script: SQLITE, words }
}

/// All of them: each passes.
pub const READY: &[Ready] = &[
    sqlite("sqlite-wal", "SQLite, write-ahead log, synchronous=full", &["run", "wal", "full"]),
    // With `full` the directory is not synced when the journal is removed, and a commit can be lost.
    sqlite(
        "sqlite-delete",
        "SQLite, journal removed, synchronous=extra",
        &["run", "delete", "extra"],
    ),
    sqlite(
        "sqlite-truncate",
        "SQLite, journal emptied, synchronous=full",
        &["run", "truncate", "full"],
    ),
    sqlite("sqlite-persist", "SQLite, journal kept, synchronous=full", &["run", "persist", "full"]),
    Ready {
        name: "mail",
        what: "a mail drop: write, fsync, rename, fsync of the directory",
        script: MAIL,
        words: &["run"],
    },
];

impl Ready {
    /// The test of this name.
    pub fn of(name: &str) -> Option<Self> {
        READY.iter().find(|ready| ready.name == name).copied()
    }

    /// Writes its script into a directory. Returns the command and the check.
    ///
    /// # Errors
    /// Those of the host.
    pub fn prepare(&self, dir: &Path) -> io::Result<(Vec<OsString>, String)> {
        let script = dir.join("test.py");
        std::fs::write(&script, self.script)?;
        let mut command: Vec<OsString> = ["python3", "-B"].map(OsString::from).to_vec();
        command.push(script.clone().into());
        command.extend(self.words.iter().map(OsString::from));
        Ok((command, format!("python3 -B '{}' check", script.display())))
    }
}
