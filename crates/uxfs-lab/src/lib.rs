//! Experiments with file systems: on disks that are only described, in virtual time, the same digits
//! every time; no figure without the durability it was bought at.

pub mod fsync;
