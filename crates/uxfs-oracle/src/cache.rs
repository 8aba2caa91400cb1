//! The directory of tools and kernels that are not installed.

use std::path::PathBuf;

/// The directory that `tools/setup-uml`, `tools/setup-vm` and `tools/setup-xfsprogs` fill.
///
/// # Panics
/// When neither `UXFS_CACHE` nor `HOME` is set.
pub(crate) fn cache() -> PathBuf {
    if let Some(cache) = std::env::var_os("UXFS_CACHE") {
        return cache.into();
    }
    let home = std::env::var_os("HOME").unwrap_or_else(|| panic!("set HOME or UXFS_CACHE"));
    PathBuf::from(home).join(".cache/uxfs/vm")
}
