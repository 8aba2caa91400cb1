//! What the host and the agent in the machine say to each other, and the frames that carry it.
//!
//! A message is cut into frames of [`FRAME`] bytes: two bytes with the length of the part in this frame, one that
//! says whether it is the last, and the part. Each frame is one request to the mailbox, a disk.
//!
//! The host sends an [`Order`] and gets one answer. While a program runs for a recording, the agent sends
//! [`Report::Heard`] and [`Report::Did`] before the answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::job::Ended;
use crate::operations::Operation;
use crate::tree::Tree;

/// Bytes of a frame.
pub(crate) const FRAME: usize = 32 << 10;
/// Bytes before the part of a message.
const HEAD: usize = 3;
/// Where in the mailbox frames are written and read. What kernels read of every new disk is elsewhere.
pub(crate) const FRAME_OFFSET: u64 = 1 << 20;
/// Bytes of the mailbox.
pub(crate) const MAILBOX_LEN: u64 = 4 << 20;
/// The serial numbers of the mailbox and of the disk under test.
pub(crate) const MAILBOX_SERIAL: &str = "uxfs-mailbox";
pub(crate) const DISK_SERIAL: &str = "uxfs-disk";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Mount the disk on this directory of the host.
    Mount {
        fs: String,
        options: String,
        at: Vec<u8>,
    },
    /// Give the root directory to this user and group.
    Own {
        user: u32,
        group: u32,
    },
    /// Read all files.
    Tree,
    /// Run a program in the root directory.
    Run(Program),
    /// Run a program there, and report what it acknowledges, says and does.
    Trace(Program, Pace),
    Unmount,
    /// Run a program without the volume; `%` among its words stands for the disk.
    Inspect(Program),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) words: Vec<Vec<u8>>,
    /// All of its environment.
    pub(crate) env: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) timeout: Duration,
    pub(crate) user: u32,
    pub(crate) group: u32,
}

/// What is written in the background while a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Pace {
    /// Nothing that a call does not ask for.
    Late,
    /// The journal, after each change of a name or a length.
    Names,
    /// Data, after each write.
    Data,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The agent is there, and the kernel has these file systems.
    Ready {
        file_systems: Vec<String>,
    },
    Done,
    /// The order could not be carried out.
    Refused(String),
    Tree(Option<Tree>),
    /// What a program wrote to `UXFS_ACK`, and to its output.
    Heard {
        acks: Vec<u8>,
        output: Vec<u8>,
    },
    Did(Operation),
    Ended(Ended),
}

/// The frames of a message.
///
/// # Errors
/// None that the messages above can cause.
pub(crate) fn frames(message: &impl Serialize) -> Result<Vec<Vec<u8>>, String> {
    let bytes = postcard::to_stdvec(message).map_err(|error| error.to_string())?;
    let mut parts = bytes.chunks(FRAME - HEAD).peekable();
    let mut frames = Vec::new();
    while let Some(part) = parts.next() {
        let len = u16::try_from(part.len()).map_err(|error| error.to_string())?;
        let mut frame = len.to_le_bytes().to_vec();
        frame.push(u8::from(parts.peek().is_none()));
        frame.extend_from_slice(part);
        frame.resize(FRAME, 0);
        frames.push(frame);
    }
    Ok(frames)
}

/// A message of which frames come in.
#[derive(Default)]
pub(crate) struct Incoming(Vec<u8>);

impl Incoming {
    /// Takes a frame. Returns the message if this was its last.
    ///
    /// # Errors
    /// The frame or the message makes no sense.
    pub(crate) fn take<M: for<'a> Deserialize<'a>>(
        &mut self,
        frame: &[u8],
    ) -> Result<Option<M>, String> {
        let part = match frame {
            [low, high, last, rest @ ..] => {
                let len = usize::from(u16::from_le_bytes([*low, *high]));
                rest.get(..len).map(|part| (part, *last == 1))
            }
            _ => None,
        };
        let (part, last) = part.ok_or("a frame that is too short")?;
        self.0.extend_from_slice(part);
        if !last {
            return Ok(None);
        }
        let bytes = std::mem::take(&mut self.0);
        postcard::from_bytes(&bytes).map(Some).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_any_length_arrives() {
        for len in [0, 1, FRAME - 20, FRAME, 5 * FRAME + 7] {
            let report = Report::Heard { acks: vec![7; len], output: vec![9; 3] };
            let mut incoming = Incoming::default();
            let frames = frames(&report).unwrap();
            let (last, first) = frames.split_last().unwrap();
            for frame in first {
                assert_eq!(incoming.take::<Report>(frame), Ok(None));
            }
            assert_eq!(incoming.take(last), Ok(Some(report)), "{len}");
        }
    }

    #[test]
    fn frames_that_make_no_sense_are_refused() {
        let refused = |frame: &[u8]| Incoming::default().take::<Report>(frame).is_err();
        assert!(refused(&[]) && refused(&[1, 0]) && refused(&[9, 0, 1, 2]));
        assert!(refused(&[1, 0, 1, 200]) && refused(&[0, 0, 1]));
    }
}
