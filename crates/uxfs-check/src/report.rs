//! The outcome of a check: as data, as text, as JSON, and as the exit code of fsck(8).

use core::fmt;

use serde_json::{Value, json};

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

/// The outcome of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Findings by place, then by code. At most as many as the options allow.
    pub findings: Vec<Finding>,
    /// Findings that were left out for being too many.
    pub left_out: u64,
    /// Could part of the volume not be looked at (a read failed, memory ran out)?
    pub incomplete: bool,
    /// What was looked at.
    pub totals: Totals,
}

impl Report {
    /// Is anything wrong, notes aside?
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

    /// The exit code as fsck(8) has it: 0 clean, 4 errors left uncorrected; 8, an operational
    /// error, is added when part of the volume could not be looked at.
    pub fn exit_code(&self) -> u8 {
        let errors = if self.is_clean() { 0 } else { 4 };
        errors | if self.incomplete { 8 } else { 0 }
    }

    /// As JSON: `clean`, `incomplete`, `left_out`, `totals`, `findings`. Names stay the same in
    /// every version; more may come.
    pub fn to_json(&self) -> Value {
        let findings: Vec<Value> = self.findings.iter().map(finding_json).collect();
        let t = &self.totals;
        json!({
            "clean": self.is_clean(),
            "incomplete": self.incomplete,
            "left_out": self.left_out,
            "totals": {
                "ags": t.ags,
                "inodes": t.inodes,
                "directories": t.directories,
                "entries": t.entries,
                "extents": t.extents,
                "free_blocks": t.free_blocks,
            },
            "findings": findings,
        })
    }
}

fn finding_json(finding: &Finding) -> Value {
    let place = &finding.place;
    let mut at = serde_json::Map::new();
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
        write!(
            f,
            "{}: {} inodes, {} directories, {} entries, {} extents, {} free blocks",
            if self.is_clean() { "clean" } else { "damaged" },
            t.inodes,
            t.directories,
            t.entries,
            t.extents,
            t.free_blocks
        )
    }
}
