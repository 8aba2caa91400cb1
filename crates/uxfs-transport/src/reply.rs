//! Replies: each request gets exactly one.
//!
//! 1. A [`Reply`] is sent once. Dropped without that, it answers with EIO.
//! 2. It may be sent from any thread, at any time.
//! 3. The type says what a success carries, so a request cannot get another kind's answer.

use std::marker::PhantomData;
use std::time::Duration;

use zerocopy::IntoBytes;

use crate::Errno;
use crate::abi::{
    CreateOut, GetxattrOut, IoctlOut, LseekOut, OpenOut, OpenedFlags, StatfsOut, WriteOut,
};
use crate::attr::{Attr, Entry, Handle, Statx};
use crate::outlet::Outlet;

/// The reply to one request, whose success carries a `T`.
pub struct Reply<T> {
    outlet: Option<Outlet>,
    /// Most bytes that the caller takes, where the kind has a limit.
    limit: usize,
    kind: PhantomData<fn(T)>,
}

pub type ReplyEmpty = Reply<()>;
pub type ReplyEntry = Reply<Entry>;
pub type ReplyAttr = Reply<(Attr, Duration)>;
pub type ReplyStatx = Reply<Statx>;
pub type ReplyOpen = Reply<Opened>;
pub type ReplyCreate = Reply<(Entry, Opened)>;
pub type ReplyWrite = Reply<u32>;
pub type ReplyStatfs = Reply<Statfs>;
pub type ReplyXattr = Reply<Xattr>;
pub type ReplyIoctl = Reply<IoctlResult>;
pub type ReplyLseek = Reply<Offset>;

/// An opened file or directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opened {
    pub handle: Handle,
    pub flags: OpenedFlags,
}

/// The size and use of a volume, in blocks and files.
#[derive(Clone, Copy, Debug)]
pub struct Statfs {
    pub blocks: u64,
    pub free: u64,
    /// Free for ordinary users.
    pub available: u64,
    pub files: u64,
    pub files_free: u64,
    /// Bytes.
    pub block_size: u32,
    /// Bytes of the longest name.
    pub name_max: u32,
}

/// Content of any length: of a file, a symbolic link, a listing.
pub enum Bytes {}

/// An extended attribute's value, or the names of a file's attributes.
pub enum Xattr {}

/// What an ioctl returns to the caller's memory.
pub enum IoctlResult {}

/// An offset in a file.
#[derive(Clone, Copy, Debug)]
pub struct Offset(pub u64);

/// A success of a fixed size.
pub trait Answer {
    /// Calls `send` with the bytes that are sent.
    #[doc(hidden)]
    fn with_bytes(self, send: impl FnOnce(&[u8]));
}

impl Answer for () {
    fn with_bytes(self, send: impl FnOnce(&[u8])) {
        send(&[]);
    }
}

impl Answer for Entry {
    fn with_bytes(self, send: impl FnOnce(&[u8])) {
        send(self.wire().as_bytes());
    }
}

impl Answer for (Attr, Duration) {
    fn with_bytes(self, send: impl FnOnce(&[u8])) {
        send(self.0.reply(self.1).as_bytes());
    }
}

impl Answer for Statx {
    fn with_bytes(self, send: impl FnOnce(&[u8])) {
        send(self.wire().as_bytes());
    }
}

impl Opened {
    fn wire(self) -> OpenOut {
        OpenOut { handle: self.handle.0, flags: self.flags.bits(), backing: 0 }
    }
}

impl Answer for Opened {
    fn with_bytes(self, send: impl FnOnce(&[u8])) {
        send(self.wire().as_bytes());
    }
}

impl Answer for (Entry, Opened) {
    fn with_bytes(self, send: impl FnOnce(&[u8])) {
        send(CreateOut { entry: self.0.wire(), open: self.1.wire() }.as_bytes());
    }
}

impl Answer for u32 {
    fn with_bytes(self, send: impl FnOnce(&[u8])) {
        send(WriteOut { size: self, unused: 0 }.as_bytes());
    }
}

impl Answer for Statfs {
    fn with_bytes(self, send: impl FnOnce(&[u8])) {
        let wire = StatfsOut {
            blocks: self.blocks,
            free: self.free,
            available: self.available,
            files: self.files,
            files_free: self.files_free,
            block_size: self.block_size,
            name_max: self.name_max,
            fragment_size: self.block_size,
            ..StatfsOut::default()
        };
        send(wire.as_bytes());
    }
}

impl Answer for Offset {
    fn with_bytes(self, send: impl FnOnce(&[u8])) {
        send(LseekOut { offset: self.0 }.as_bytes());
    }
}

impl<T> Reply<T> {
    pub(crate) fn new(outlet: Outlet, limit: usize) -> Self {
        Self { outlet: Some(outlet), limit, kind: PhantomData }
    }

    /// Answers that the request failed.
    pub fn error(self, error: Errno) {
        self.out(Err(error), &[]);
    }

    fn out(mut self, error: Result<(), Errno>, body: &[&[u8]]) {
        if let Some(outlet) = self.outlet.take() {
            outlet.send(error, body);
        }
    }
}

impl<T: Answer> Reply<T> {
    /// Answers with a success or an error.
    pub fn send(self, result: Result<T, Errno>) {
        match result {
            Ok(answer) => answer.with_bytes(|bytes| self.out(Ok(()), &[bytes])),
            Err(error) => self.error(error),
        }
    }
}

impl Reply<Bytes> {
    /// Most bytes that the caller takes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Answers with content; what is beyond the limit is left out.
    pub fn bytes(self, content: &[u8]) {
        let limit = self.limit;
        self.out(Ok(()), &[&content[..content.len().min(limit)]]);
    }

    /// Lets `fill` write the content to where it is sent from, and answers with as many bytes as it
    /// returns.
    pub fn fill(mut self, fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) {
        let limit = self.limit;
        if let Some(outlet) = self.outlet.take() {
            outlet.fill(limit, fill);
        }
    }
}

impl Reply<Xattr> {
    /// Answers with a value, or with its length if the caller gave no buffer, or with ERANGE if the
    /// buffer is too small.
    pub fn send(self, value: Result<&[u8], Errno>) {
        let limit = self.limit;
        match (value, value.map(|value| u32::try_from(value.len()))) {
            (Err(error), _) => self.error(error),
            (_, Ok(Ok(size))) if limit == 0 => {
                self.out(Ok(()), &[GetxattrOut { size, unused: 0 }.as_bytes()]);
            }
            (Ok(value), _) if value.len() <= limit => self.out(Ok(()), &[value]),
            _ => self.error(Errno::RANGE),
        }
    }
}

impl Reply<IoctlResult> {
    /// Answers with what goes to the caller's memory.
    pub fn send(self, output: Result<&[u8], Errno>) {
        match output {
            Ok(output) => self.out(Ok(()), &[IoctlOut::default().as_bytes(), output]),
            Err(error) => self.error(error),
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(outlet) = self.outlet.take() {
            outlet.send(Err(Errno::IO), &[]);
        }
    }
}
