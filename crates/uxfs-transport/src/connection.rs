//! A connection to a guest's kernel: requests come as messages from another crate's transport.
//!
//! 1. Before the guest's kernel and the server have agreed on the settings, every other request gets
//!    EIO. The guest may begin again at any time: its machine may have started again.
//! 2. When the guest ends its mount or begins again, the server forgets what the guest knew. No
//!    other request runs meanwhile.
//! 3. A message is no longer than [`Connection::MESSAGE_MAX`].

use std::sync::Arc;

use parking_lot::RwLock;
use zerocopy::{FromBytes, IntoBytes};

use crate::Errno;
use crate::abi::{CONTENT_MAX, InHeader, REQUEST_OVERHEAD, op};
use crate::count::{Requests, Tally};
use crate::dispatch;
use crate::filesystem::Filesystem;
use crate::handshake::{Handshake, REFUSED, handshake};
use crate::outlet::{Outlet, ReplySink};
use crate::request::Origin;

/// A connection to a guest's kernel.
pub struct Connection<S> {
    server: Arc<S>,
    has_begun: RwLock<bool>,
    tally: Arc<Tally>,
}

impl<S: Filesystem> Connection<S> {
    /// Bytes of the longest request.
    pub const MESSAGE_MAX: usize = CONTENT_MAX as usize + REQUEST_OVERHEAD;

    /// A connection whose requests are counted in `requests`.
    pub fn new(server: Arc<S>, requests: &Requests) -> Self {
        Self { server, has_begun: RwLock::new(false), tally: requests.tally() }
    }

    /// Runs a request. `sink` is called for the place of its reply if it has one; the reply is sent now
    /// or later.
    pub fn run<R: ReplySink>(&self, message: &[u8], sink: impl FnOnce() -> R) {
        let Ok((head, body)) = InHeader::read_from_prefix(message) else { return };
        let outlet = |unique| Outlet::Sink { sink: Box::new(sink()), unique };
        match head.opcode {
            op::INIT => self.begin(body, outlet(head.unique)),
            op::DESTROY => {
                self.end();
                outlet(head.unique).send(Ok(()), &[]);
            }
            _ => {
                self.tally.count_shared(head.opcode);
                let has_begun = self.has_begun.read();
                match *has_begun {
                    true => dispatch::run_parsed(&*self.server, &head, body, Origin::Guest, outlet),
                    false if dispatch::is_silent(head.opcode) => {}
                    false => outlet(head.unique).send(Err(Errno::IO), &[]),
                }
            }
        }
    }

    fn begin(&self, body: &[u8], outlet: Outlet) {
        let mut has_begun = self.has_begun.write();
        if std::mem::take(&mut *has_begun) {
            self.server.forget_all();
        }
        match handshake(&*self.server, body) {
            Ok(Handshake::Begun(negotiation)) => {
                *has_begun = true;
                // Requests of other threads run only after the guest has this answer.
                outlet.send(Ok(()), &[negotiation.reply().as_bytes()]);
            }
            Ok(Handshake::Again(ours)) => outlet.send(Ok(()), &[ours.as_bytes()]),
            Err(_) => outlet.send(Err(REFUSED), &[]),
        }
    }

    /// Ends the guest's use of the server, which then forgets what the guest knew.
    pub fn end(&self) {
        let mut has_begun = self.has_begun.write();
        if std::mem::take(&mut *has_begun) {
            self.server.forget_all();
        }
    }
}
