//! Defects of disks, for tests of what lies above them.

use std::str::FromStr;

/// A defect of a disk or of a layer above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceFault {
    /// A flush is acknowledged but never reaches the disk.
    FlushDropped,
    /// A forced write (FUA) is treated as a plain write.
    FuaDropped,
    /// Every third flush is acknowledged but never reaches the disk.
    SomeFlushesDropped,
    /// Every fiftieth write is acknowledged but never reaches the disk.
    WriteLost,
    /// Every write of more than 4 KiB loses its last sector.
    WriteTorn,
    /// Every fiftieth write goes one page too far.
    WriteMisplaced,
}

impl DeviceFault {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 6] = [
        ("flush-dropped", Self::FlushDropped),
        ("fua-dropped", Self::FuaDropped),
        ("some-flushes-dropped", Self::SomeFlushesDropped),
        ("write-lost", Self::WriteLost),
        ("write-torn", Self::WriteTorn),
        ("write-misplaced", Self::WriteMisplaced),
    ];
}

/// Parses a name.
///
/// ```
/// use uxfs_models::DeviceFault;
/// assert_eq!("write-torn".parse(), Ok(DeviceFault::WriteTorn));
/// assert!("torn".parse::<DeviceFault>().unwrap_err().contains("write-torn"));
/// ```
impl FromStr for DeviceFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, fault)| *fault).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!("not one of {}", names.join(", "))
        })
    }
}
