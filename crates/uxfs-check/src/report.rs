//! The outcome of a check: as data, as text, as JSON, and as the exit code of fsck(8).

use core::fmt;

use serde_json::{Map, Value, json};

use crate::finding::{Finding, Severity};

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Allocation groups.
    pub ags: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Directory entries, without "." and "..".
    pub entries: u64,
    /// Extents of files.
    pub extents: u64,
    /// Blocks that are free.
    pub free_blocks: u64,
}

/// The volume's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogState {
    /// Clean: the volume was unmounted.
    #[default]
    Clean,
    /// Dirty, and replayed in memory for the check.
    Replayed,
    /// Dirty, and left alone: the volume was judged as it lies on the device.
    Dirty,
    /// Damaged.
    Damaged,
    /// On another device, and not looked at.
    External,
}

impl LogState {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Replayed => "replayed-in-memory",
            Self::Dirty => "dirty",
            Self::Damaged => "damaged",
            Self::External => "external",
        }
    }
}

/// The outcome in a word. Warnings and notes are not damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Sound, with a log that need not be replayed.
    Clean,
    /// Sound; the log holds changes that are not on the volume, and the next mount replays them.
    LogNotReplayed,
    /// The volume contradicts itself.
    Damaged,
}

impl Verdict {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::LogNotReplayed => "log-not-replayed",
            Self::Damaged => "damaged",
        }
    }
}

/// The outcome of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Findings by place, then by code. At most as many as the options allow.
    pub findings: Vec<Finding>,
    /// Findings that were left out for being too many.
    pub left_out: u64,
    /// Could part of the volume not be looked at (a read failed, memory ran out)?
    pub incomplete: bool,
    /// The log.
    pub log: LogState,
    /// What was looked at.
    pub totals: Totals,
}

impl Report {
    /// The outcome in a word. Findings that were left out may be errors, and count as such.
    pub fn verdict(&self) -> Verdict {
        match self.log {
            _ if self.left_out > 0 || self.count(Severity::Error) > 0 => Verdict::Damaged,
            LogState::Replayed | LogState::Dirty => Verdict::LogNotReplayed,
            LogState::Clean | LogState::Damaged | LogState::External => Verdict::Clean,
        }
    }

    /// Is there nothing to find, notes aside?
    pub fn is_clean(&self) -> bool {
        self.left_out == 0 && self.findings.iter().all(|f| f.severity == Severity::Note)
    }

    /// Number of findings of a severity among those kept.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|f| f.severity == severity).count()
    }

    /// Is there a finding of this code?
    pub fn has(&self, code: crate::Code) -> bool {
        self.findings.iter().any(|f| f.code == code.name)
    }

    /// The exit code: 0 sound; 2 sound, but the log is not replayed, as xfs_repair has it; 4 damage
    /// left uncorrected, as fsck(8) has it. 8, an operational error, is added when part of the
    /// volume could not be looked at.
    pub fn exit_code(&self) -> u8 {
        let code = match self.verdict() {
            Verdict::Clean => 0,
            Verdict::LogNotReplayed => 2,
            Verdict::Damaged => 4,
        };
        code | if self.incomplete { 8 } else { 0 }
    }

    /// As JSON: `verdict`, `log`, `clean`, `incomplete`, `left_out`, `totals`, `findings`. Names stay
    /// the same in every version; more may come.
    pub fn to_json(&self) -> Map<String, Value> {
        let findings: Vec<Value> = self.findings.iter().map(finding_json).collect();
        let t = &self.totals;
        let totals = json!({
            "ags": t.ags,
            "inodes": t.inodes,
            "directories": t.directories,
            "entries": t.entries,
            "extents": t.extents,
            "free_blocks": t.free_blocks,
        });
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| map.insert(key.into(), value);
        put("verdict", self.verdict().name().into());
        put("log", self.log.name().into());
        put("clean", self.is_clean().into());
        put("incomplete", self.incomplete.into());
        put("left_out", self.left_out.into());
        put("totals", totals);
        put("findings", findings.into());
        map
    }
}

fn finding_json(finding: &Finding) -> Value {
    let place = &finding.place;
    let mut at = Map::new();
    if let Some(ag) = place.ag {
        at.insert("ag".into(), ag.0.into());
    }
    if let Some(block) = place.block {
        at.insert("block".into(), block.0.into());
    }
    if let Some(ino) = place.inode {
        at.insert("inode".into(), ino.0.into());
    }
    if let Some(path) = &place.path {
        at.insert("path".into(), String::from_utf8_lossy(path).into());
    }
    json!({
        "code": finding.code,
        "severity": finding.severity.name(),
        "place": at,
        "message": finding.message,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        if self.left_out > 0 {
            writeln!(f, "{} more findings are left out", self.left_out)?;
        }
        if self.incomplete {
            writeln!(f, "part of the volume could not be looked at")?;
        }
        let t = &self.totals;
        f.write_str(match self.verdict() {
            Verdict::Clean if self.is_clean() => "clean",
            Verdict::Clean => "sound",
            Verdict::LogNotReplayed => "sound, log not replayed",
            Verdict::Damaged => "damaged",
        })?;
        match self.count(Severity::Warning) {
            0 => {}
            1 => f.write_str(", 1 warning")?,
            more => write!(f, ", {more} warnings")?,
        }
        write!(
            f,
            ": {} inodes, {} directories, {} entries, {} extents, {} free blocks",
            t.inodes, t.directories, t.entries, t.extents, t.free_blocks
        )
    }
}
