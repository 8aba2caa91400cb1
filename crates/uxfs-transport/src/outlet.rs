//! Where a reply goes: back on the way that its request came.

use std::cell::RefCell;
use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::Errno;
use crate::abi::OutHeader;
use crate::device::Device;
use crate::head::header;
use crate::queue::RingOutlet;

/// The place for one reply, on a way that this crate does not know ([`crate::Connection`]).
pub trait ReplySink: Send + 'static {
    /// Most bytes of a reply, with its header.
    fn room(&self) -> usize;

    /// Sends a reply of at most [`ReplySink::room`] bytes, in up to three parts.
    fn send(self: Box<Self>, parts: &[&[u8]]);
}

pub(crate) enum Outlet {
    Device { device: Arc<Device>, unique: u64 },
    Ring(RingOutlet),
    Sink { sink: Box<dyn ReplySink>, unique: u64 },
}

thread_local! {
    /// Content of a reply that is being written.
    static CONTENT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Outlet {
    /// Sends a reply: an error, or a success and its content.
    pub(crate) fn send(self, result: Result<(), Errno>, body: &[&[u8]]) {
        match self {
            Self::Device { device, unique } => device.reply(unique, result, body),
            Self::Ring(ring) => ring.send(result, body),
            Self::Sink { sink, unique } => send_to(sink, unique, result, body),
        }
    }

    /// Sends what `fill` writes, at most `limit` bytes.
    pub(crate) fn fill(self, limit: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) {
        match self {
            Self::Ring(ring) => ring.fill(limit, fill),
            Self::Device { device, unique } => {
                with_content(limit, fill, |result, body| device.reply(unique, result, body));
            }
            Self::Sink { sink, unique } => {
                let limit = limit.min(sink.room().saturating_sub(size_of::<OutHeader>()));
                with_content(limit, fill, |result, body| send_to(sink, unique, result, body));
            }
        }
    }
}

/// Lets `fill` write content of at most `limit` bytes, and sends it.
fn with_content(
    limit: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    send: impl FnOnce(Result<(), Errno>, &[&[u8]]),
) {
    CONTENT.with_borrow_mut(|content| {
        if content.len() < limit {
            content.resize(limit, 0);
        }
        match fill(&mut content[..limit]) {
            Ok(len) => send(Ok(()), &[&content[..len.min(limit)]]),
            Err(error) => send(Err(error), &[]),
        }
    });
}

/// Sends a reply to a sink; EIO if its caller gave too little room for it, and nothing if that does not fit
/// either.
fn send_to(sink: Box<dyn ReplySink>, unique: u64, result: Result<(), Errno>, body: &[&[u8]]) {
    if sink.room() < size_of::<OutHeader>() {
        return;
    }
    let len = body.iter().map(|part| part.len()).sum::<usize>();
    let (result, body, len) = match size_of::<OutHeader>() + len <= sink.room() {
        true => (result, body, len),
        false => (Err(Errno::IO), &[][..], 0),
    };
    let head = header(unique, result, len);
    match *body {
        [] => sink.send(&[head.as_bytes()]),
        [one] => sink.send(&[head.as_bytes(), one]),
        [one, two, ..] => sink.send(&[head.as_bytes(), one, two]),
    }
}
