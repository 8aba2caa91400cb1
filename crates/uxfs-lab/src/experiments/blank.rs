//! An experiment before its run.

use crate::outcome::{DiskNote, Experiment, Row, SCHEMA};
use crate::plan::How;

/// An experiment without results.
pub(crate) fn blank(name: &str, title: &str, how: &How) -> Experiment {
    Experiment {
        schema: SCHEMA.0.into(),
        version: SCHEMA.1,
        name: name.into(),
        title: title.into(),
        about: String::new(),
        source: String::new(),
        seed: how.seed,
        disks: Vec::new(),
        cpu: None,
        heads: (String::new(), String::new()),
        columns: Vec::new(),
        rows: Vec::<Row>::new(),
        charts: Vec::new(),
        shapes: Vec::new(),
        notes: Vec::new(),
    }
}

/// A disk's name and description.
pub(super) fn note(disk: &uxfs_models::Description) -> DiskNote {
    DiskNote { name: disk.name.clone(), about: disk.about.clone() }
}
