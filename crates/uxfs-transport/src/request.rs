//! A request: who makes it, and its arguments, parsed where they lie.
//!
//! 1. Nothing that a request says is trusted: an argument that is cut short, a name without its
//!    end, an empty name or one with a slash is an error, never a panic.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::Errno;
use crate::abi::InHeader;

/// Whose kernel makes the requests of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This machine's.
    #[default]
    Host,
    /// A virtual machine's, which may send anything.
    Guest,
}

/// Who makes a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    uid: u32,
    gid: u32,
    pid: u32,
    origin: Origin,
}

impl Request {
    pub(crate) fn of(head: &InHeader, origin: Origin) -> Self {
        Self { uid: head.uid, gid: head.gid, pid: head.pid, origin }
    }

    /// The caller's user, for permissions.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The caller's group, for permissions.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The caller's thread; 0 if there is none, or it is not visible here. A guest's threads are
    /// none of this machine's.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Does it come from a virtual machine?
    pub fn is_of_guest(&self) -> bool {
        self.origin == Origin::Guest
    }
}

/// The arguments of a request: a structure, and what follows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args<'a> {
    pub(crate) fixed: &'a [u8],
    pub(crate) rest: &'a [u8],
}

impl<'a> Args<'a> {
    /// The arguments of a request whose structure has `fixed_len` bytes.
    pub(crate) fn split(body: &'a [u8], fixed_len: usize) -> Result<Self, Errno> {
        let (fixed, rest) = body.split_at_checked(fixed_len).ok_or(Errno::INVAL)?;
        Ok(Self { fixed, rest })
    }

    pub(crate) fn get<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<T, Errno> {
        T::read_from_prefix(self.fixed).map(|(value, _)| value).map_err(|_| Errno::INVAL)
    }

    /// The next string, without its end.
    pub(crate) fn string(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let (string, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Ok(string)
    }

    /// The next string, which must be the name of a directory entry.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Errno> {
        match self.string()? {
            [] => Err(Errno::INVAL),
            name if name.contains(&b'/') => Err(Errno::INVAL),
            name => Ok(name),
        }
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: u32) -> Result<&'a [u8], Errno> {
        let (bytes, rest) = self.rest.split_at_checked(len as usize).ok_or(Errno::INVAL)?;
        self.rest = rest;
        Ok(bytes)
    }
}
