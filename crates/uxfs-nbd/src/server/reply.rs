//! Replies to requests: simple ones, or in one chunk, as was negotiated.

use std::io;

use parking_lot::Mutex;

use crate::link::Sender;
use crate::wire::{self, Bytes};

pub(crate) struct Replies {
    sender: Mutex<Sender>,
    structured: bool,
}

impl Replies {
    pub(crate) fn new(sender: Sender, structured: bool) -> Self {
        Self { sender: Mutex::new(sender), structured }
    }

    /// Answers a request that reads nothing; `code` is 0 or an error.
    pub(crate) fn status(&self, cookie: u64, code: u32) -> io::Result<()> {
        let head = match (self.structured, code) {
            (false, _) => simple(cookie, code),
            (true, 0) => chunk(wire::REPLY_NONE, cookie, 0),
            // The code, and a message of no bytes.
            (true, code) => chunk(wire::REPLY_TYPE_ERROR, cookie, 6).u32(code).u16(0),
        };
        self.sender.lock().send(&head.0, &[])
    }

    /// Answers a read.
    pub(crate) fn data(&self, cookie: u64, offset: u64, data: &[u8]) -> io::Result<()> {
        let head = match self.structured {
            false => simple(cookie, 0),
            // A chunk of data has at least one byte of it.
            true if data.is_empty() => chunk(wire::REPLY_NONE, cookie, 0),
            // A request has at most `PAYLOAD_MAX` bytes.
            true => chunk(wire::REPLY_OFFSET_DATA, cookie, data.len() as u32 + 8).u64(offset),
        };
        self.sender.lock().send(&head.0, data)
    }
}

fn simple(cookie: u64, code: u32) -> Bytes {
    Bytes::default().u32(wire::SIMPLE_REPLY_MAGIC).u32(code).u64(cookie)
}

fn chunk(kind: u16, cookie: u64, len: u32) -> Bytes {
    let head = Bytes::default().u32(wire::STRUCTURED_REPLY_MAGIC).u16(wire::REPLY_FLAG_DONE);
    head.u16(kind).u64(cookie).u32(len)
}
