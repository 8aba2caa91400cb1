//! A request in the guest's memory: the parts to read it from, and the parts to write its reply to.
//!
//! 1. The lengths and addresses are the guest's, and may be anything. They are copied once, and checked
//!    whenever memory is read or written through them.
//! 2. A request is read into memory of this process before it is parsed, so the guest cannot change it
//!    meanwhile.
//! 3. Memory that the guest's monitor takes away stays mapped as long as a chain lies in it.

use std::ops::Deref;

use smallvec::SmallVec;
use virtio_queue::DescriptorChain;
use vm_memory::{Bytes, GuestAddress, GuestMemory};

/// Most parts of a request and its reply: the pages of the largest content, headers and structures.
const SEGMENTS_MAX: usize = 1024;

/// A part of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub address: GuestAddress,
    pub len: u32,
}

type Segments = SmallVec<[Segment; 4]>;

/// A request and the place for its reply. `M` refers to the guest's memory.
#[derive(Clone, Debug)]
pub struct Chain<M> {
    memory: M,
    readable: Segments,
    writable: Segments,
}

/// A chain that no driver makes: too long, or with a part to read after one to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl<M> Chain<M>
where
    M: Deref + Clone,
    M::Target: GuestMemory,
{
    /// Copies the parts of a chain. `longest` is the most bytes of a request.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn of(chain: DescriptorChain<M>, memory: M, longest: usize) -> Result<Self, Malformed> {
        let (mut readable, mut writable) = (Segments::new(), Segments::new());
        for part in chain {
            let segment = Segment { address: part.addr(), len: part.len() };
            match part.is_write_only() {
                true => writable.push(segment),
                false if writable.is_empty() => readable.push(segment),
                false => return Err(Malformed),
            }
            if readable.len() + writable.len() > SEGMENTS_MAX {
                return Err(Malformed);
            }
        }
        if total(&readable) > longest {
            return Err(Malformed);
        }
        Ok(Self { memory, readable, writable })
    }

    /// Reads the request.
    ///
    /// # Errors
    /// [`Malformed`] if a part lies outside of the guest's memory.
    pub fn read<'a>(&self, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], Malformed> {
        let len = total(&self.readable);
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        let mut rest = &mut buffer[..len];
        for segment in &self.readable {
            let (part, after) = rest.split_at_mut(segment.len as usize);
            self.memory.read_slice(part, segment.address).map_err(|_| Malformed)?;
            rest = after;
        }
        Ok(&buffer[..len])
    }

    /// Bytes of the request.
    pub fn len(&self) -> usize {
        total(&self.readable)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most bytes of a reply.
    pub fn room(&self) -> usize {
        total(&self.writable)
    }

    /// Writes a reply, and returns its length. What is beyond the room is left out.
    ///
    /// # Errors
    /// [`Malformed`] if a part lies outside of the guest's memory.
    pub fn write(&self, parts: &[&[u8]]) -> Result<u32, Malformed> {
        let mut written = 0;
        let mut segments = self.writable.iter().copied();
        let mut room = Segment { address: GuestAddress(0), len: 0 };
        for part in parts {
            let mut part = *part;
            while !part.is_empty() {
                while room.len == 0 {
                    match segments.next() {
                        Some(next) => room = next,
                        None => return Ok(written),
                    }
                }
                let len = part.len().min(room.len as usize);
                let (now, later) = part.split_at(len);
                self.memory.write_slice(now, room.address).map_err(|_| Malformed)?;
                // The length is at most that of the segment.
                let len = u32::try_from(len).map_err(|_| Malformed)?;
                let next = room.address.0.wrapping_add(len.into());
                room = Segment { address: GuestAddress(next), len: room.len - len };
                written += len;
                part = later;
            }
        }
        Ok(written)
    }
}

impl<M> Chain<M>
where
    M: Deref + Clone,
    M::Target: GuestMemory,
{
    /// Writes the last byte of the reply's room, and leaves the rest as it is. Returns the length
    /// of the room.
    ///
    /// # Errors
    /// [`Malformed`] if there is no room, or the byte lies outside of the guest's memory.
    pub fn write_last(&self, byte: u8) -> Result<u32, Malformed> {
        let last = self.writable.iter().rfind(|segment| segment.len > 0).ok_or(Malformed)?;
        let at = last.address.0.checked_add(u64::from(last.len) - 1).ok_or(Malformed)?;
        self.memory.write_slice(&[byte], GuestAddress(at)).map_err(|_| Malformed)?;
        Ok(u32::try_from(self.room()).unwrap_or(u32::MAX))
    }
}

/// Bytes of all segments. There are so few that their sum fits.
fn total(segments: &[Segment]) -> usize {
    segments.iter().map(|segment| segment.len as usize).sum()
}
