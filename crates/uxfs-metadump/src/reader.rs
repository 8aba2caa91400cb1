//! Reads dumps of both versions, as pieces in the order in which they were written.
//!
//! 1. Nothing is believed: counts, addresses and lengths are checked before they are used, and a piece
//!    has at most [`PIECE`] bytes, whatever the dump says.
//! 2. The first piece is the primary superblock, and it comes once.

use std::io::{self, Read};

use uxfs_format::metadump::{
    Content, Device, EXTENT_HEAD_LEN, ExtentHead, HEADER_LEN, Header, INDEX_LEN, INDEX_MAX, Index,
    MAGIC, MAGIC_1, MAGIC_2, Needs,
};
use uxfs_format::{BASIC_BLOCK, Daddr};

use crate::error::RestoreError;
use crate::options::Version;

/// Most bytes of a piece.
const PIECE: usize = 1 << 20;

/// What the header of a dump says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Version of the format.
    pub version: Version,
    /// What the dump holds; `None` if an old xfs_metadump wrote it, which did not say.
    pub content: Option<Content>,
}

/// A run of sectors.
pub(crate) struct Piece<'a> {
    pub(crate) device: Device,
    pub(crate) daddr: Daddr,
    pub(crate) bytes: &'a [u8],
}

/// A dump that is being read.
pub(crate) struct Reader<R> {
    input: R,
    info: Info,
    /// Bytes read so far.
    pub(crate) at: u64,
    buffer: Vec<u8>,
    state: State,
}

enum State {
    /// Version 1: an index whose sectors are to be read from its address `next` on.
    Group {
        index: Index,
        next: usize,
    },
    /// Version 2: an extent, of which `left` sectors from `daddr` on are to be read.
    Extent {
        device: Device,
        daddr: Daddr,
        left: u32,
    },
    End,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub(crate) fn new(mut input: R) -> Result<Self, RestoreError> {
        let mut first = [0; HEADER_LEN];
        let got = fill(&mut input, &mut first)?;
        let magic = MAGIC.get(&first);
        if got < 4 || (magic != MAGIC_1 && magic != MAGIC_2) {
            return Err(RestoreError::NotDump(magic));
        }
        if got < HEADER_LEN {
            return Err(RestoreError::CutOff { at: got as u64 });
        }
        let (version, content, state) = match Header::parse(&first) {
            Some(header) => {
                check_header(&header)?;
                let empty = State::Extent { device: Device::Data, daddr: Daddr(0), left: 0 };
                (Version::Two, Some(header.content), empty)
            }
            None => {
                let mut raw = [0; INDEX_LEN];
                raw[..HEADER_LEN].copy_from_slice(&first);
                let more = fill(&mut input, &mut raw[HEADER_LEN..])?;
                if more < INDEX_LEN - HEADER_LEN {
                    return Err(RestoreError::CutOff { at: (HEADER_LEN + more) as u64 });
                }
                let index = checked(Index::parse(&raw), 0)?;
                (Version::One, index.content, State::Group { index, next: 0 })
            }
        };
        let at = if version == Version::Two { HEADER_LEN } else { INDEX_LEN } as u64;
        let info = Info { version, content };
        Ok(Self { input, info, at, buffer: Vec::new(), state })
    }

    pub(crate) fn info(&self) -> Info {
        self.info
    }

    /// The next piece; `None` at the end of the dump.
    pub(crate) fn next_piece(&mut self) -> Result<Option<Piece<'_>>, RestoreError> {
        let (device, daddr, sectors) = loop {
            match &mut self.state {
                State::End => return Ok(None),
                State::Group { index, next } => {
                    let rest = &index.addresses()[*next..];
                    if let Some(&first) = rest.first() {
                        let follows =
                            |(at, a): &(u64, &Daddr)| a.0.checked_sub(first.0) == Some(*at);
                        let run = (0..).zip(rest).take_while(follows).count();
                        *next += run;
                        break (Device::Data, first, run);
                    }
                    // A group that is not full is the last.
                    if index.count < INDEX_MAX {
                        self.end()?;
                        continue;
                    }
                    let at = self.at;
                    let raw: [u8; INDEX_LEN] = self.array()?;
                    let index = checked(Index::parse(&raw), at)?;
                    self.state = State::Group { index, next: 0 };
                }
                State::Extent { device, daddr, left } if *left > 0 => {
                    let sectors = (*left).min((PIECE / BASIC_BLOCK) as u32);
                    let piece = (*device, *daddr, sectors as usize);
                    *left -= sectors;
                    daddr.0 += u64::from(sectors);
                    break piece;
                }
                State::Extent { .. } => self.next_extent()?,
            }
        };
        self.buffer.resize(sectors * BASIC_BLOCK, 0);
        let got = fill(&mut self.input, &mut self.buffer)?;
        self.at += got as u64;
        if got < self.buffer.len() {
            return Err(RestoreError::CutOff { at: self.at });
        }
        Ok(Some(Piece { device, daddr, bytes: &self.buffer }))
    }

    fn next_extent(&mut self) -> Result<(), RestoreError> {
        let mut raw = [0; EXTENT_HEAD_LEN];
        let got = fill(&mut self.input, &mut raw)?;
        if got == 0 {
            self.state = State::End;
            return Ok(());
        }
        let at = self.at;
        self.at += got as u64;
        if got < raw.len() {
            return Err(RestoreError::CutOff { at: self.at });
        }
        let ExtentHead { device, daddr, sectors } = ExtentHead::parse(&raw);
        let damaged = |problem: String| Err(RestoreError::Damaged { at, problem });
        match device {
            Device::Unknown(number) => return damaged(format!("an extent of device {number}")),
            _ if sectors == 0 => return damaged(format!("an empty extent at sector {daddr}")),
            _ => {}
        }
        self.state = State::Extent { device, daddr, left: sectors };
        Ok(())
    }

    /// Nothing may follow the last group.
    fn end(&mut self) -> Result<(), RestoreError> {
        if fill(&mut self.input, &mut [0])? > 0 {
            let problem = "something follows the last group".into();
            return Err(RestoreError::Damaged { at: self.at, problem });
        }
        self.state = State::End;
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RestoreError> {
        let mut raw = [0; N];
        let got = fill(&mut self.input, &mut raw)?;
        self.at += got as u64;
        if got < N { Err(RestoreError::CutOff { at: self.at }) } else { Ok(raw) }
    }
}

fn check_header(header: &Header) -> Result<(), RestoreError> {
    if header.version != 2 {
        let version = header.version;
        return Err(RestoreError::Unsupported(format!("a dump of version {version}")));
    }
    let unknown = header.needs.bits() & !Needs::all().bits();
    if unknown != 0 {
        return Err(RestoreError::Unsupported(format!("a dump with the features {unknown:#x}")));
    }
    Ok(())
}

fn checked(index: Option<Index>, at: u64) -> Result<Index, RestoreError> {
    let damaged = |problem: String| Err(RestoreError::Damaged { at, problem });
    match index {
        None => damaged("no index where one has to be".into()),
        Some(index) if index.count > INDEX_MAX => {
            damaged(format!("an index of {} sectors; {INDEX_MAX} is the most", index.count))
        }
        Some(index) if index.block_log != 9 => {
            damaged(format!("sectors of 2^{} bytes; they have 512", index.block_log))
        }
        Some(index) => Ok(index),
    }
}

/// Reads until `bytes` is full or the input ends, and returns how much there was.
fn fill(input: &mut impl Read, bytes: &mut [u8]) -> Result<usize, RestoreError> {
    let mut done = 0;
    while done < bytes.len() {
        match input.read(&mut bytes[done..]) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(RestoreError::Read(error)),
        }
    }
    Ok(done)
}
