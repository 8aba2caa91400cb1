//! The numbers of the protocol, and its headers as bytes. All numbers are big-endian.
//!
//! Used by the client and the server. Names are those of the protocol's document, without `NBD_`.

use std::io::{self, Read};

/// What a server says first: "NBDMAGIC" and "IHAVEOPT".
pub(crate) const INIT_MAGIC: [u8; 8] = *b"NBDMAGIC";
pub(crate) const OPTION_MAGIC: [u8; 8] = *b"IHAVEOPT";
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(crate) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags, of both sides.
pub(crate) const FLAG_FIXED_NEWSTYLE: u16 = 1;
pub(crate) const FLAG_NO_ZEROES: u16 = 2;

/// Options of the handshake.
pub(crate) const OPT_EXPORT_NAME: u32 = 1;
pub(crate) const OPT_ABORT: u32 = 2;
pub(crate) const OPT_LIST: u32 = 3;
pub(crate) const OPT_STARTTLS: u32 = 5;
pub(crate) const OPT_INFO: u32 = 6;
pub(crate) const OPT_GO: u32 = 7;
pub(crate) const OPT_STRUCTURED_REPLY: u32 = 8;

/// Replies to options.
pub(crate) const REP_ACK: u32 = 1;
pub(crate) const REP_SERVER: u32 = 2;
pub(crate) const REP_INFO: u32 = 3;
pub(crate) const REP_ERROR: u32 = 1 << 31;
pub(crate) const REP_ERR_UNSUP: u32 = REP_ERROR | 1;
pub(crate) const REP_ERR_POLICY: u32 = REP_ERROR | 2;
pub(crate) const REP_ERR_INVALID: u32 = REP_ERROR | 3;
pub(crate) const REP_ERR_TLS_REQD: u32 = REP_ERROR | 5;
pub(crate) const REP_ERR_UNKNOWN: u32 = REP_ERROR | 6;
pub(crate) const REP_ERR_SHUTDOWN: u32 = REP_ERROR | 7;
pub(crate) const REP_ERR_BLOCK_SIZE_REQD: u32 = REP_ERROR | 8;
pub(crate) const REP_ERR_TOO_BIG: u32 = REP_ERROR | 9;

/// Kinds of information about an export.
pub(crate) const INFO_EXPORT: u16 = 0;
pub(crate) const INFO_BLOCK_SIZE: u16 = 3;

/// What an export can do.
pub(crate) const HAS_FLAGS: u16 = 1;
pub(crate) const READ_ONLY: u16 = 1 << 1;
pub(crate) const SEND_FLUSH: u16 = 1 << 2;
pub(crate) const SEND_FUA: u16 = 1 << 3;
pub(crate) const SEND_TRIM: u16 = 1 << 5;
pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;

/// Requests.
pub(crate) const CMD_READ: u16 = 0;
pub(crate) const CMD_WRITE: u16 = 1;
pub(crate) const CMD_DISC: u16 = 2;
pub(crate) const CMD_FLUSH: u16 = 3;
pub(crate) const CMD_TRIM: u16 = 4;
pub(crate) const CMD_WRITE_ZEROES: u16 = 6;

/// Flags of requests.
pub(crate) const CMD_FLAG_FUA: u16 = 1;
pub(crate) const CMD_FLAG_NO_HOLE: u16 = 2;

/// Flag of the last chunk of a structured reply, and types of chunks.
pub(crate) const REPLY_FLAG_DONE: u16 = 1;
pub(crate) const REPLY_NONE: u16 = 0;
pub(crate) const REPLY_OFFSET_DATA: u16 = 1;
pub(crate) const REPLY_OFFSET_HOLE: u16 = 2;
pub(crate) const REPLY_ERROR: u16 = 1 << 15;
pub(crate) const REPLY_TYPE_ERROR: u16 = REPLY_ERROR | 1;

/// Errors of requests.
pub(crate) const EPERM: u32 = 1;
pub(crate) const EIO: u32 = 5;
pub(crate) const ENOMEM: u32 = 12;
pub(crate) const EINVAL: u32 = 22;
pub(crate) const ENOSPC: u32 = 28;
pub(crate) const EOVERFLOW: u32 = 75;
pub(crate) const ENOTSUP: u32 = 95;
pub(crate) const ESHUTDOWN: u32 = 108;

/// Most bytes of a name or a message.
pub(crate) const STRING_MAX: usize = 4096;
/// Most bytes that a request reads or writes, unless the server says otherwise.
pub(crate) const PAYLOAD_MAX: u32 = 32 << 20;
pub(crate) const DEFAULT_PORT: u16 = 10809;

/// Is it the code of an error's kind?
pub(crate) fn error_of(code: u32) -> io::Error {
    use io::ErrorKind as Kind;
    let kind = match code {
        EPERM => Kind::PermissionDenied,
        ENOMEM => Kind::OutOfMemory,
        EINVAL | EOVERFLOW => Kind::InvalidInput,
        ENOSPC => Kind::StorageFull,
        ENOTSUP => Kind::Unsupported,
        _ => Kind::Other,
    };
    let text = match code {
        EPERM => "the NBD server does not permit it (EPERM)".to_owned(),
        EIO => "the NBD server could not read or write its device (EIO)".to_owned(),
        ENOSPC => "the NBD server has no room (ENOSPC)".to_owned(),
        ESHUTDOWN => "the NBD server is ending (ESHUTDOWN)".to_owned(),
        other => format!("the NBD server failed a request with error {other}"),
    };
    io::Error::new(kind, text)
}

/// The code for an error of a device.
pub(crate) fn code_of(error: &io::Error) -> u32 {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => EPERM,
        Kind::OutOfMemory => ENOMEM,
        Kind::InvalidInput | Kind::UnexpectedEof => EINVAL,
        Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => ENOSPC,
        Kind::Unsupported => ENOTSUP,
        _ => EIO,
    }
}

/// The error of a side that breaks the protocol.
pub(crate) fn broken(what: impl core::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("breaks the NBD protocol: {what}"))
}

/// Reads numbers of the protocol.
pub(crate) trait ReadNumbers: Read + Sized {
    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u16(&mut self) -> io::Result<u16> {
        Ok(u16::from_be_bytes(self.bytes()?))
    }

    fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_be_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_be_bytes(self.bytes()?))
    }

    /// Reads bytes whose number the other side chose. Memory is taken as they arrive.
    fn payload(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut data = Vec::with_capacity(len.min(64 << 10));
        Read::take(&mut *self, len as u64).read_to_end(&mut data)?;
        if data.len() < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(data) }
    }
}

impl<R: Read> ReadNumbers for R {}

/// Bytes that are put together of numbers.
#[derive(Default)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u16(self, number: u16) -> Self {
        self.raw(&number.to_be_bytes())
    }

    pub(crate) fn u32(self, number: u32) -> Self {
        self.raw(&number.to_be_bytes())
    }

    pub(crate) fn u64(self, number: u64) -> Self {
        self.raw(&number.to_be_bytes())
    }
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) flags: u16,
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl RequestHead {
    pub(crate) const LEN: usize = 28;

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let bytes = Bytes::default().u32(REQUEST_MAGIC).u16(self.flags).u16(self.command);
        bytes.u64(self.cookie).u64(self.offset).u32(self.len).0
    }

    /// Parses a header; `None` if it does not begin as one.
    pub(crate) fn parse(bytes: [u8; Self::LEN]) -> Option<Self> {
        let mut from = bytes.as_slice();
        let mut parse = || -> io::Result<Option<Self>> {
            let magic = from.u32()?;
            let (flags, command) = (from.u16()?, from.u16()?);
            let head =
                Self { flags, command, cookie: from.u64()?, offset: from.u64()?, len: from.u32()? };
            Ok((magic == REQUEST_MAGIC).then_some(head))
        };
        parse().ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_parsed_as_it_was_written() {
        let head = RequestHead {
            flags: CMD_FLAG_FUA,
            command: CMD_WRITE,
            cookie: 7,
            offset: 1 << 40,
            len: 4096,
        };
        let mut bytes: [u8; RequestHead::LEN] = head.to_bytes().try_into().unwrap();
        assert_eq!(RequestHead::parse(bytes), Some(head));
        bytes[0] ^= 1;
        assert_eq!(RequestHead::parse(bytes), None);
    }

    #[test]
    fn a_payload_that_ends_early_is_an_error() {
        assert!((&b"abc"[..]).payload(4).is_err());
        assert_eq!((&b"abcd"[..]).payload(3).unwrap(), b"abc");
    }
}
