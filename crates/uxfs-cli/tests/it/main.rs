//! Tests of the command `uxfs`: against coreutils on the same tree, with xfsprogs as the judge.
//!
//! The tests need no root; what only root can put on the host (owners, devices) is made with the
//! command in the image.

mod attributes;
mod bed;
mod builds;
mod contents;
mod copies;
mod depths;
mod devices;
mod dirty;
mod disks;
mod edits;
mod errors;
mod hosts;
mod kills;
mod leftovers;
mod letters;
mod listings;
mod mount_ends;
mod mounts;
mod readme;
mod refusals;
mod remounts;
mod slashes;
mod small;
mod space;
mod streams;
mod tars;
mod volumes;
mod wishes;
