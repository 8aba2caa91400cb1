//! The result of a check, as data, text, JSON, and as an exit code of fsck(8).

use core::fmt;

use serde_json::{Map, Value, json};

use crate::finding::{Finding, Severity};

/// Counts of checked structures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Allocation groups.
    pub ags: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among the inodes.
    pub directories: u64,
    /// Directory entries, without "." and "..".
    pub entries: u64,
    /// Extents of files.
    pub extents: u64,
    /// Free blocks.
    pub free_blocks: u64,
}

/// State of the volume's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogState {
    /// Clean: the volume was unmounted.
    #[default]
    Clean,
    /// Dirty, and replayed in memory for the check.
    Replayed,
    /// Dirty and not replayed; the volume was checked as it is on the device.
    Dirty,
    /// Damaged.
    Damaged,
    /// On another device, and not checked.
    External,
}

impl LogState {
    /// Name in JSON.
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

/// The overall result. Warnings and notes do not count as damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No errors, and the log needs no replay.
    Clean,
    /// No errors; the log holds changes that the next mount will replay.
    LogNotReplayed,
    /// The volume is inconsistent.
    Damaged,
}

impl Verdict {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::LogNotReplayed => "log-not-replayed",
            Self::Damaged => "damaged",
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Findings sorted by location, then by code; limited by [`crate::CheckOptions::max_findings`].
    pub findings: Vec<Finding>,
    /// Number of findings beyond that limit.
    pub left_out: u64,
    /// Was part of the volume not checked, because a read failed or memory ran out?
    pub incomplete: bool,
    /// State of the log.
    pub log: LogState,
    /// Counts of checked structures.
    pub totals: Totals,
}

impl Report {
    /// The overall result. If findings were left out, they count as errors.
    pub fn verdict(&self) -> Verdict {
        match self.log {
            _ if self.left_out > 0 || self.count(Severity::Error) > 0 => Verdict::Damaged,
            LogState::Replayed | LogState::Dirty => Verdict::LogNotReplayed,
            LogState::Clean | LogState::Damaged | LogState::External => Verdict::Clean,
        }
    }

    /// Are there no findings except notes?
    pub fn is_clean(&self) -> bool {
        self.left_out == 0 && self.findings.iter().all(|f| f.severity == Severity::Note)
    }

    /// Number of kept findings with this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|f| f.severity == severity).count()
    }

    /// Is there a finding with this code?
    pub fn has(&self, code: crate::Code) -> bool {
        self.findings.iter().any(|f| f.code == code.name)
    }

    /// The exit code: 0 no errors; 2 no errors, but the log is not replayed (as in xfs_repair);
    /// 4 damage left uncorrected (as in fsck(8)). 8, an operational error, is added if part of the
    /// volume was not checked.
    pub fn exit_code(&self) -> u8 {
        let code = match self.verdict() {
            Verdict::Clean => 0,
            Verdict::LogNotReplayed => 2,
            Verdict::Damaged => 4,
        };
        code | if self.incomplete { 8 } else { 0 }
    }

    /// The report as JSON: `verdict`, `log`, `clean`, `incomplete`, `left_out`, `totals`,
    /// `findings`. Existing names are stable; versions may add others.
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
            writeln!(f, "part of the volume could not be checked")?;
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
