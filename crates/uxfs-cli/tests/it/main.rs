//! Tests of the command `uxfs`: against coreutils on the same tree, with xfsprogs as the judge.
//!
//! Most tests need no root: owners and devices, which only root can create on the host, are made in
//! the image with the command.

#[cfg(feature = "remote")]
mod afar;
mod attributes;
mod bench_mount;
mod builds;
#[cfg(feature = "remote")]
mod checkpoints;
mod contents;
mod copies;
mod coreutils;
mod crash_tests;
mod defrag;
mod depths;
mod devices;
mod dirty;
mod disk_images;
mod disks;
mod edits;
mod errors;
mod fixture;
mod forks;
mod freeze;
mod fsck;
mod growth;
mod hosts;
mod kills;
mod labels;
mod leftovers;
mod listings;
mod models;
mod mount_ends;
mod mounts;
mod names;
mod nbd;
mod ordered;
mod population;
mod quota;
mod readme;
mod refusals;
mod remounts;
mod scrub;
mod serves;
mod short_options;
mod slashes;
mod small_commands;
mod soak;
mod space;
#[cfg(feature = "remote")]
mod stores;
mod streams;
mod tars;
mod volumes;
