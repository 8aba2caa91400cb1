//! The disks of the experiments that are not among the models.

use uxfs_models::{Description, Model};

use crate::{LabError, Result};

/// The disk of Dave Chinner's post of May 2010: it served at most 9,800 requests and 520 MB per
/// second, and log writes were complete when they were in its controller's memory.
const ARRAY_2010: &str = r#"
name = "array-2010"
about = "twelve 15,000 rpm SAS disks, striped, behind a controller with 512 MiB that a battery keeps and 520 MB/s to the host: as much as the disks of Dave Chinner's post (May 2010) were seen to do"
[disk]
kind = "battery"
[disk.controller]
cache_mib = 512
command_us = 80
mb_s = 520
depth = 48
[disk.disk]
kind = "stripe"
count = 12
chunk_kib = 64
[disk.disk.disk]
kind = "spindle"
capacity_gb = 147
rpm = 15000
heads = 6
zones = 16
outer_mb_s = 125
inner_mb_s = 90
track_ms = 0.2
average_ms = 3.3
full_ms = 6.6
write_settle_ms = 0.5
head_switch_ms = 0.2
interface_mb_s = 300
command_us = 30
cache_mib = 16
write_cache = false
readahead_kib = 512
queue = 64
scheduler = "elevator"
"#;

/// A disk of the models, or `array-2010`.
///
/// # Errors
/// If there is none of that name.
pub(super) fn named(name: &str) -> Result<Description> {
    let found = match name {
        "array-2010" => Description::parse(ARRAY_2010),
        name => Description::named(name),
    };
    found.map_err(|e| LabError::new("disk", e))
}

/// The same disk with its write cache on or off.
pub(super) fn with_cache(disk: &Description, on: bool) -> Description {
    fn set(model: &mut Model, on: bool) {
        match model {
            Model::Spindle(spec) => spec.write_cache = on,
            Model::Flash(spec) if !on => spec.cache_mib = 0.0,
            Model::Flash(_) | Model::Cloud(_) => {}
            Model::Battery { disk, .. }
            | Model::Sata { disk }
            | Model::Mirror { disk, .. }
            | Model::Concat { disk, .. }
            | Model::Stripe { disk, .. } => set(disk, on),
        }
    }
    let mut disk = disk.clone();
    set(&mut disk.disk, on);
    disk
}
