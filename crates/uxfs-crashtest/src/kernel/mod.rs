//! File systems of a Linux kernel, in a virtual machine that needs no root: the machine's disk is the one that
//! is recorded and cut, and recovery is a mount there.
//!
//! Modules, from the bottom: `message` (what host and machine say to each other), `mailbox` (the disk that
//! carries it), `slot` (the disk under test, exchanged between mounts), `file_system`, `machine` with `uml` and
//! `qemu` (the kernel), `guest` (a running machine), `leg`.

mod file_system;
mod guest;
mod leg;
mod machine;
mod mailbox;
pub(crate) mod message;
mod qemu;
mod slot;
mod uml;

pub use file_system::KernelFs;
pub use leg::KernelLeg;
pub use machine::Machine;
