//! The commands, one file each. A file defines the command's options and runs it.

#[cfg(not(target_os = "linux"))]
pub(crate) mod absent;
pub(crate) mod ack;
pub(crate) mod as_name;
#[cfg(feature = "bench")]
pub(crate) mod bench;
pub(crate) mod cat;
pub(crate) mod chattr;
pub(crate) mod check;
pub(crate) mod chmod;
pub(crate) mod chown;
#[cfg(target_os = "linux")]
pub(crate) mod clone;
pub(crate) mod commit;
pub(crate) mod completions;
pub(crate) mod cp;
#[cfg(feature = "crash")]
pub(crate) mod crash;
#[cfg(target_os = "linux")]
pub(crate) mod crash_test;
#[cfg(target_os = "linux")]
pub(crate) mod crash_test_agent;
pub(crate) mod defrag;
pub(crate) mod df;
pub(crate) mod diff;
pub(crate) mod disk;
pub(crate) mod du;
pub(crate) mod export;
pub(crate) mod extsize;
pub(crate) mod fallocate;
pub(crate) mod find;
pub(crate) mod fork;
#[cfg(target_os = "linux")]
pub(crate) mod freeze;
pub(crate) mod fsck;
pub(crate) mod import;
pub(crate) mod info;
#[cfg(feature = "lab")]
pub(crate) mod lab;
pub(crate) mod label;
pub(crate) mod ln;
pub(crate) mod log;
pub(crate) mod ls;
pub(crate) mod lsattr;
pub(crate) mod man;
pub(crate) mod mdrestore;
pub(crate) mod metadump;
pub(crate) mod mkdir;
pub(crate) mod mkfs;
pub(crate) mod mknod;
#[cfg(target_os = "linux")]
pub(crate) mod mount;
pub(crate) mod mv;
#[cfg(all(feature = "nbd", target_os = "linux"))]
pub(crate) mod nbd_serve;
#[cfg(target_os = "linux")]
mod opening;
mod population;
pub(crate) mod quota;
pub(crate) mod readlink;
pub(crate) mod relabel;
#[cfg(target_os = "linux")]
mod remount;
pub(crate) mod repair;
pub(crate) mod resize;
#[cfg(feature = "remote")]
pub(crate) mod restore;
pub(crate) mod rm;
pub(crate) mod rmdir;
#[cfg(target_os = "linux")]
pub(crate) mod scrub;
#[cfg(target_os = "linux")]
pub(crate) mod serve;
#[cfg(feature = "remote")]
pub(crate) mod ship;
#[cfg(all(target_os = "linux", feature = "remote"))]
mod shipping;
#[cfg(all(target_os = "linux", not(feature = "remote")))]
#[path = "no_shipping.rs"]
mod shipping;
pub(crate) mod stat;
pub(crate) mod stats;
#[cfg(target_os = "linux")]
pub(crate) mod status;
#[cfg(target_os = "linux")]
pub(crate) mod sync;
pub(crate) mod tee;
pub(crate) mod touch;
pub(crate) mod truncate;
#[cfg(target_os = "linux")]
pub(crate) mod umount;
pub(crate) mod xattr;

// What needs a mount: one file stands in for all of it elsewhere.
#[cfg(not(target_os = "linux"))]
pub(crate) mod mount {
    pub(crate) use super::absent::{Options, run_mount as run};
}
#[cfg(not(target_os = "linux"))]
pub(crate) use absent as crash_test;
#[cfg(not(target_os = "linux"))]
pub(crate) use absent as status;
#[cfg(not(target_os = "linux"))]
pub(crate) use absent as sync;
#[cfg(not(target_os = "linux"))]
pub(crate) use absent as umount;
#[cfg(not(target_os = "linux"))]
pub(crate) use mount as serve;
#[cfg(not(target_os = "linux"))]
mod clone {
    pub(super) use super::absent::clone as run;
}
