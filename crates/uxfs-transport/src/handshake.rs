//! The first request of a connection, in which the kernel and the server agree on its settings.
//!
//! Called by `session`, and by `connection` for a guest's kernel.

use std::io;

use zerocopy::IntoBytes;

use crate::Errno;
use crate::abi::{InitIn, InitOut, MAJOR, MINOR_OLDEST};
use crate::filesystem::Filesystem;
use crate::negotiation::Negotiation;

/// What to answer a request for a connection.
pub(crate) enum Handshake {
    /// The kernel speaks a newer major version, and asks again with this answer's.
    Again(Box<InitOut>),
    /// They can agree.
    Begun(Negotiation),
}

/// Reads the request, and asks the server.
///
/// # Errors
/// The kernel is too old, or lacks what the server needs. EPROTO is the answer.
pub(crate) fn handshake(server: &impl Filesystem, body: &[u8]) -> io::Result<Handshake> {
    // Older kernels send less.
    let mut kernel = InitIn::default();
    let len = body.len().min(size_of::<InitIn>());
    kernel.as_mut_bytes()[..len].copy_from_slice(&body[..len]);
    if kernel.major > MAJOR {
        return Ok(Handshake::Again(Box::new(InitOut { major: MAJOR, ..InitOut::default() })));
    }
    if (kernel.major, kernel.minor) < (MAJOR, MINOR_OLDEST) {
        return Err(io::Error::other(format!(
            "the kernel's FUSE {}.{} is too old: {MAJOR}.{MINOR_OLDEST} (Linux 5.4) is needed",
            kernel.major, kernel.minor
        )));
    }
    let mut negotiation = Negotiation::new(&kernel);
    server.init(&mut negotiation)?;
    Ok(Handshake::Begun(negotiation))
}

/// The error that answers a request for a connection that cannot begin.
pub(crate) const REFUSED: Errno = Errno::PROTO;
