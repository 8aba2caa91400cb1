//! Ready-made tests: programs as they are packaged, each with a workload and a check in Python.
//!
//! `uxfs crash-test --list` and `--run` show and use them; `tools/crash-test-trophies` runs all of them.

use std::ffi::OsString;
use std::io;
use std::path::Path;

/// A ready-made test.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    pub name: &'static str,
    pub what: &'static str,
    script: &'static str,
    /// Does its script prepare the volume?
    has_setup: bool,
    words: Words,
}

/// What a ready-made test runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    pub command: Vec<OsString>,
    /// Lines for the shell, as of [`Plan`](crate::Plan).
    pub setup: Option<String>,
    pub check: String,
}

/// Beside each script.
const COMMON: &str = include_str!("../ready/common.py");

const COPY: &str = include_str!("../ready/copy.py");
const DPKG: &str = include_str!("../ready/dpkg.py");
const GDBM: &str = include_str!("../ready/gdbm.py");
const GIT: &str = include_str!("../ready/git.py");
const HISTORY: &str = include_str!("../ready/history.py");
const LEVELDB: &str = include_str!("../ready/leveldb.py");
const LMDB: &str = include_str!("../ready/lmdb.py");
const MAIL: &str = include_str!("../ready/mail.py");
const MAILDIR: &str = include_str!("../ready/maildir.py");
const ROCKSDB: &str = include_str!("../ready/rocksdb.py");
const SERVER: &str = include_str!("../ready/server.py");
const SQLITE: &str = include_str!("../ready/sqlite.py");
const TDB: &str = include_str!("../ready/tdb.py");
const XAPIAN: &str = include_str!("../ready/xapian.py");

type Words = &'static [&'static str];

/// A test of a script that needs nothing but an empty volume.
const fn store(
    name: &'static str,
    what: &'static str,
    script: &'static str,
    words: Words,
) -> Ready {
    Ready { name, what, script, has_setup: false, words }
}

/// A test of a script that prepares the volume.
const fn prepared(
    name: &'static str,
    what: &'static str,
    script: &'static str,
    words: Words,
) -> Ready {
    Ready { name, what, script, has_setup: true, words }
}

/// All of them. docs/CRASH-TEST.md says which programs lose something.
pub const READY: &[Ready] = &[
    store("sqlite-wal", "SQLite, write-ahead log, synchronous=full", SQLITE, &["wal", "full"]),
    store(
        "sqlite-delete",
        "SQLite, journal removed, synchronous=extra",
        SQLITE,
        &["delete", "extra"],
    ),
    store(
        "sqlite-default",
        "SQLite, journal removed, synchronous=full",
        SQLITE,
        &["delete", "full"],
    ),
    store(
        "sqlite-truncate",
        "SQLite, journal emptied, synchronous=full",
        SQLITE,
        &["truncate", "full"],
    ),
    store("sqlite-persist", "SQLite, journal kept, synchronous=full", SQLITE, &["persist", "full"]),
    prepared("postgres", "PostgreSQL, a transaction for each row", SERVER, &["postgres"]),
    prepared("redis", "Redis, append-only file, appendfsync=always", SERVER, &["redis"]),
    store("lmdb", "LMDB, a transaction for each record", LMDB, &[]),
    store("leveldb", "LevelDB, writes with sync", LEVELDB, &[]),
    store("rocksdb", "RocksDB, writes with sync", ROCKSDB, &[]),
    store("gdbm", "GNU dbm, each record synced", GDBM, &[]),
    store("tdb", "TDB, a transaction for each record", TDB, &[]),
    prepared("xapian", "Xapian, a commit for each document", XAPIAN, &[]),
    prepared("git", "Git's commits, core.fsync=default", GIT, &["default"]),
    prepared("git-all", "Git's commits, core.fsync=all", GIT, &["all"]),
    prepared("hg", "Mercurial's commits", HISTORY, &["hg"]),
    prepared("fossil", "pages of Fossil's wiki", HISTORY, &["fossil"]),
    prepared("svn", "Subversion's commits", HISTORY, &["svn"]),
    prepared("ostree", "OSTree's commits", HISTORY, &["ostree"]),
    prepared("borg", "archives of BorgBackup", HISTORY, &["borg"]),
    prepared("dpkg", "packages that dpkg installs", DPKG, &[]),
    prepared("mail", "a mail drop: write, fsync, rename, fsync of the directory", MAIL, &[]),
    prepared("maildir", "Python's mailbox.Maildir", MAILDIR, &["python"]),
    prepared("procmail", "procmail's delivery into a Maildir", MAILDIR, &["procmail"]),
    prepared("maildrop", "maildrop's delivery into a Maildir", MAILDIR, &["maildrop"]),
    prepared("cp", "cp, and sync of the file and its directory", COPY, &["cp"]),
    prepared("rsync", "rsync --fsync", COPY, &["rsync"]),
    prepared("vim", "files written by Vim", COPY, &["vim"]),
];

impl Ready {
    /// The test of this name.
    pub fn of(name: &str) -> Option<Self> {
        READY.iter().find(|ready| ready.name == name).copied()
    }

    /// Writes its script into a directory.
    ///
    /// # Errors
    /// Those of the host.
    pub fn prepare(&self, dir: &Path) -> io::Result<Prepared> {
        std::fs::write(dir.join("common.py"), COMMON)?;
        let script = dir.join("test.py");
        std::fs::write(&script, self.script)?;
        let words = self.words.join(" ");
        let line = |verb: &str| format!("python3 -B '{}' {verb} {words}", script.display());
        let mut command: Vec<OsString> = ["python3", "-B"].map(OsString::from).to_vec();
        command.extend([script.clone().into(), "run".into()]);
        command.extend(self.words.iter().map(OsString::from));
        Ok(Prepared { command, setup: self.has_setup.then(|| line("setup")), check: line("check") })
    }
}
