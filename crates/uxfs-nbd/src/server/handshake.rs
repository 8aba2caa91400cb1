//! The server's side of the handshake, up to the export that a client chose.
//!
//! 1. An option has at most [`OPTION_MAX`] bytes, and a client at most [`OPTIONS_MAX`] options.
//! 2. With TLS, an option but STARTTLS and ABORT is refused until TLS has begun.

use std::io;
use std::sync::Arc;

use super::{STILL, Shared};
use crate::link::{Link, Socket};
use crate::wire::{self, Bytes, ReadNumbers, broken};

const OPTION_MAX: u32 = 16 << 10;
const OPTIONS_MAX: usize = 64;
/// What is preferred, in bytes: the page of the host's cache.
const PREFERRED: u32 = 4096;

/// A client that chose the export.
pub(crate) struct Greeted {
    pub(crate) link: Link,
    /// Does it understand replies in chunks?
    pub(crate) structured: bool,
}

/// Does the handshake. `None` if the client left.
pub(crate) fn greet(shared: &Shared, socket: &Arc<Socket>) -> io::Result<Option<Greeted>> {
    let mut link = Link::over(Arc::clone(socket), STILL);
    link.receiver.limit(Some(STILL))?;
    let ours = wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES;
    let hello = Bytes::default().raw(&wire::INIT_MAGIC).raw(&wire::OPTION_MAGIC).u16(ours);
    link.sender.send(&hello.0, &[])?;
    let theirs = link.receiver.u32()?;
    if theirs & !u32::from(ours) != 0 {
        return Err(broken(format_args!("flags {theirs:#x}")));
    }
    let no_zeroes = theirs & u32::from(wire::FLAG_NO_ZEROES) != 0;
    let mut structured = false;
    for _ in 0..OPTIONS_MAX {
        if link.receiver.bytes()? != wire::OPTION_MAGIC {
            return Err(broken("an option does not begin as one"));
        }
        let (option, len) = (link.receiver.u32()?, link.receiver.u32()?);
        if len > OPTION_MAX {
            return Err(broken(format_args!("an option of {len} bytes")));
        }
        let data = link.receiver.payload(len as usize)?;
        let mut to = Answer { link: &mut link, option };
        if shared.options.tls.is_some() && !to.link.is_tls() {
            match (option, &shared.options.tls) {
                (wire::OPT_STARTTLS, Some(tls)) if data.is_empty() => {
                    to.send(wire::REP_ACK, &[])?;
                    link.start_tls(tls.begin()?)?;
                }
                (wire::OPT_ABORT, _) => return to.send(wire::REP_ACK, &[]).map(|()| None),
                // This option has no way to report an error.
                (wire::OPT_EXPORT_NAME, _) => return Ok(None),
                _ => to.send(wire::REP_ERR_TLS_REQD, b"this server speaks TLS only")?,
            }
            continue;
        }
        match option {
            wire::OPT_ABORT => return to.send(wire::REP_ACK, &[]).map(|()| None),
            wire::OPT_STRUCTURED_REPLY if data.is_empty() => {
                structured = true;
                to.send(wire::REP_ACK, &[])?;
            }
            wire::OPT_LIST if data.is_empty() => {
                let name = shared.options.export.as_bytes();
                // A name has at most `STRING_MAX` bytes.
                to.send(wire::REP_SERVER, &Bytes::default().u32(name.len() as u32).raw(name).0)?;
                to.send(wire::REP_ACK, &[])?;
            }
            wire::OPT_EXPORT_NAME => {
                if !shared.has(&data) {
                    return Ok(None);
                }
                let zeroes: &[u8] = if no_zeroes { &[] } else { &[0; 124] };
                let export = Bytes::default().u64(shared.dev.len()).u16(shared.flags());
                link.sender.send(&export.raw(zeroes).0, &[])?;
                return Ok(Some(Greeted { link, structured }));
            }
            wire::OPT_INFO | wire::OPT_GO => match name_of(&data) {
                None => to.send(wire::REP_ERR_INVALID, b"the option is not well formed")?,
                Some(name) if !shared.has(name) => {
                    to.send(wire::REP_ERR_UNKNOWN, b"there is no export of this name")?;
                }
                Some(_) => {
                    let export = Bytes::default().u16(wire::INFO_EXPORT);
                    let export = export.u64(shared.dev.len()).u16(shared.flags());
                    to.send(wire::REP_INFO, &export.0)?;
                    let sizes = Bytes::default().u16(wire::INFO_BLOCK_SIZE);
                    let sizes = sizes.u32(1).u32(PREFERRED).u32(wire::PAYLOAD_MAX);
                    to.send(wire::REP_INFO, &sizes.0)?;
                    to.send(wire::REP_ACK, &[])?;
                    if option == wire::OPT_GO {
                        return Ok(Some(Greeted { link, structured }));
                    }
                }
            },
            wire::OPT_STARTTLS if shared.options.tls.is_none() => {
                to.send(wire::REP_ERR_POLICY, b"this server was started without TLS")?;
            }
            wire::OPT_STARTTLS | wire::OPT_STRUCTURED_REPLY | wire::OPT_LIST => {
                to.send(wire::REP_ERR_INVALID, b"not now, or not with data")?;
            }
            _ => to.send(wire::REP_ERR_UNSUP, &[])?,
        }
    }
    Err(broken("options without an end"))
}

/// Replies to an option.
struct Answer<'a> {
    link: &'a mut Link,
    option: u32,
}

impl Answer<'_> {
    fn send(&mut self, kind: u32, data: &[u8]) -> io::Result<()> {
        // What is sent here is short.
        let len = data.len() as u32;
        let head = Bytes::default().u64(wire::OPTION_REPLY_MAGIC).u32(self.option);
        self.link.sender.send(&head.u32(kind).u32(len).0, data)
    }
}

/// The name in NBD_OPT_INFO and NBD_OPT_GO: its length, itself, and a list of two-byte requests.
fn name_of(data: &[u8]) -> Option<&[u8]> {
    let mut rest = data;
    let len = rest.u32().ok()? as usize;
    let name = rest.get(..len)?;
    rest = &rest[len..];
    let requests = usize::from(rest.u16().ok()?);
    (rest.len() == 2 * requests && len <= wire::STRING_MAX).then_some(name)
}

impl Shared {
    fn has(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.options.export.as_bytes()
    }

    fn flags(&self) -> u16 {
        let common = wire::HAS_FLAGS | wire::SEND_FLUSH | wire::CAN_MULTI_CONN;
        match self.read_only() {
            true => common | wire::READ_ONLY,
            false => common | wire::SEND_FUA | wire::SEND_TRIM | wire::SEND_WRITE_ZEROES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_only_from_a_well_formed_option() {
        let option = |len: u32, name: &[u8], requests: u16, rest: &[u8]| {
            Bytes::default().u32(len).raw(name).u16(requests).raw(rest).0
        };
        assert_eq!(name_of(&option(2, b"ab", 1, &[0, 3])), Some(&b"ab"[..]));
        assert_eq!(name_of(&option(0, b"", 0, &[])), Some(&b""[..]));
        for wrong in [
            option(3, b"ab", 0, &[]),
            option(u32::MAX, b"ab", 0, &[]),
            option(2, b"ab", 2, &[0, 3]),
            option(2, b"ab", 0, &[0, 3]),
            b"\0\0".to_vec(),
            Vec::new(),
        ] {
            assert_eq!(name_of(&wrong), None, "{wrong:?}");
        }
    }
}
