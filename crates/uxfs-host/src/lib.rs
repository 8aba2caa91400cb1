//! What the host's system gives: positioned I/O, names as bytes, metadata of files, holes, room,
//! standard streams.
//!
//! The crates above use Linux' own calls only in modules that other systems leave out; everything
//! that all systems need, and name differently, is here.
//!
//! 1. On Linux and other Unix systems each item is what the system has, at no cost.
//! 2. What a system does not have gets the value that its item documents; nothing is guessed in
//!    silence elsewhere.
//! 3. Nothing here knows XFS, volumes or archives.
//!
//! Used by every crate that touches files of the host.

#![warn(missing_docs)]

mod durable;
mod holes;
#[cfg(target_os = "linux")]
mod listening;
mod names;
mod positioned;
mod room;
#[cfg(unix)]
mod socket;
mod stat;
mod streams;
mod user;

pub use durable::{dir_of, sync, sync_dir};
pub use holes::{Next, next_data, next_hole};
#[cfg(target_os = "linux")]
pub use listening::ListeningSocket;
pub use names::{OsStrExt, OsStringExt, os_str, plain_name};
pub use positioned::FileExt;
pub use room::{free_room, will_need, wont_need};
#[cfg(unix)]
pub use socket::remove_stale_socket;
pub use stat::{LEFT_OUT, Stat, Type, id_of, is_block_device};
pub use streams::{stdin, stdout};
pub use user::{User, umask};
