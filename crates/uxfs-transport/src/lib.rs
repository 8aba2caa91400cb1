//! FUSE between the kernel and a file system in user space.
//!
//! A server implements [`Filesystem`]. A [`Session`] mounts it, calls it for each request, and
//! carries its replies back, over one of two ways ([`Transport`]): the device `/dev/fuse`, or
//! io_uring, where a caller's processor also serves it. A [`Connection`] does the same for the kernel of
//! a virtual machine, whose requests another crate fetches.
//!
//! Requests are parsed where they lie; content is written where it is sent from.
//!
//! Modules, from the bottom: `abi` (structures of the protocol), `sys` (unsafe calls), `stop`, `attr`,
//! `count`, `listing`, `request`, `negotiation`, `head`, `device` and `queue` (where replies go), `outlet` (either),
//! `reply`, `filesystem`, `dispatch`, `handshake` (the first request), `connection` (to a guest),
//! `exchange` (requests from memory), `ring`, `mount`, `session`.

mod abi;
mod attr;
mod connection;
mod count;
mod device;
mod dispatch;
mod exchange;
mod filesystem;
mod handshake;
mod head;
mod listing;
mod mount;
mod negotiation;
mod outlet;
mod park;
mod queue;
mod reply;
mod request;
mod ring;
mod session;
mod stop;
mod sys;

pub use abi::{Capabilities, OpenedFlags};
pub use attr::{Attr, Entry, Handle, Node, SetTime, Statx, Time};
pub use connection::Connection;
pub use count::Requests;
pub use device::Notifier;
pub use exchange::{exchange, exchange_with_guest};
pub use filesystem::{CopyRange, Fallocate, Filesystem, Ioctl, Read, SetAttr, Write};
pub use listing::{Kind, Listing, Name};
pub use mount::MountOptions;
pub use negotiation::Negotiation;
pub use outlet::ReplySink;
pub use park::Parked;
pub use reply::{
    Answer, Bytes, IoctlResult, Offset, Opened, Reply, ReplyAttr, ReplyCreate, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr,
    Statfs, Xattr,
};
pub use request::Request;
/// An error of a request, as the kernel numbers it.
pub use rustix::io::Errno;
pub use session::{NoRing, Session, Settings, Stopper, Transport};
