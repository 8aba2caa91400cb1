//! Growth of a mounted volume, asked for through the control channel: the name [`GROW`] of the mount.
//!
//! 1. The server lengthens the image's file, if it is shorter, and then grows the volume.
//! 2. Changes go on while the new groups are written. Then they wait for a moment, parked as in a freeze, so
//!    that reads are answered. A frozen volume does not grow, and growth, freeze and remount exclude each
//!    other. What only shows the state waits for none of them.
//! 3. A volume whose changes are shipped, or that lies in a store, does not grow: what was shipped has its
//!    length.
//! 4. Only root and the user who mounted the volume may ask for it.
//!
//! Called by the server, and by the command.

use std::io;
use std::path::Path;

use uxfs::mkfs::table_of_7;
use uxfs::resize::{Method, Target};
use uxfs::{Fs, growth};

use crate::control::{self, Lines};
use crate::volume::Volume;

/// The prefix of the name whose value grows the volume: a number of blocks, nothing for the present length of
/// its file or device, or [`SHOW`].
pub(crate) const GROW: &[u8] = b"uxfs.grow=";

/// What asks for the present state alone.
const SHOW: &str = "show";

/// The prefix of the names of the table's lines.
const TABLE: &str = "table";

/// The state before a growth, and the length after it.
#[derive(Clone, Debug)]
pub struct Growth {
    /// The table of the volume before, as xfs_info prints it, without a name of the volume.
    pub table: Vec<String>,
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks before.
    pub before: u64,
    /// Blocks after.
    pub blocks: u64,
    /// Did it grow?
    pub grown: bool,
}

impl Volume {
    /// Grows the volume; `words` as after [`GROW`]. Returns the value of the name.
    ///
    /// # Errors
    /// Why it is not grown.
    pub(crate) fn grow(&self, words: &str) -> Result<Vec<u8>, String> {
        let gone = |_| "the volume is stopped or closed".to_owned();
        if words == SHOW {
            let shown = self.with(|fs| Ok(after(state(fs), fs.geo.dblocks, false)));
            return shown.map_err(gone);
        }
        let target = match words {
            "" => Target::Fill,
            blocks => {
                let blocks = blocks.parse::<u64>().map_err(|_| "not a number of blocks")?;
                let block = self.with(|fs| Ok(u64::from(fs.geo.block_size))).map_err(gone)?;
                Target::Bytes(blocks.saturating_mul(block))
            }
        };
        let turn = self.freeze.turn.lock();
        if self.freeze.is_frozen() {
            return Err("the volume is frozen: thaw it first".into());
        }
        if self.backing().is_some() {
            return Err(
                "its changes are shipped, or it lies in a store: such a mount does not grow".into(),
            );
        }
        let grown = self.with(|fs| Ok(self.grow_to(fs, target)));
        drop(turn);
        self.freeze.run_waiting();
        grown.map_err(gone)?
    }

    fn grow_to(&self, fs: &Fs, target: Target) -> Result<Vec<u8>, String> {
        let before = state(fs);
        let prepared = growth::prepare(fs, target).map_err(|error| error.to_string())?;
        let done = {
            let _held_back = self.freeze.requests.hold_back();
            prepared.commit().map_err(|error| error.to_string())?
        };
        let blocks = done.after / u64::from(fs.geo.block_size);
        Ok(after(before, blocks, done.method == Method::Grown))
    }
}

/// The state before a growth.
fn state(fs: &Fs) -> Lines {
    let (sb, mut lines) = (fs.superblock(), Lines::default());
    for (number, line) in table_of_7(&sb, "").lines().enumerate() {
        lines.add(&format!("{TABLE}{number}"), line);
    }
    lines.add("block_size", fs.geo.block_size);
    lines.add("before", sb.dblocks.get());
    lines
}

/// The value of the name: the state before a growth, and the length after it.
fn after(mut lines: Lines, blocks: u64, grown: bool) -> Vec<u8> {
    lines.add("blocks", blocks);
    lines.add("grown", if grown { "yes" } else { "no" });
    lines.bytes()
}

/// The value that says why a volume is not grown.
pub(crate) fn refused(why: String) -> Vec<u8> {
    let mut lines = Lines::default();
    lines.add("refused", why);
    lines.bytes()
}

/// Grows the mounted volume of `path` to this many blocks, or to the length of its file or device. `path` as
/// for [`control::ask`].
///
/// # Errors
/// As [`control::ask`]; EPERM for other users than root and the mount's owner; why it is not grown.
pub fn grow(path: &Path, blocks: Option<u64>) -> io::Result<Growth> {
    request(path, &blocks.map(|blocks| blocks.to_string()).unwrap_or_default())
}

/// The state of the mounted volume of `path`, as [`grow`] finds it.
///
/// # Errors
/// As [`control::ask`].
pub fn show(path: &Path) -> io::Result<Growth> {
    request(path, SHOW)
}

fn request(path: &Path, words: &str) -> io::Result<Growth> {
    let pairs = control::ask(path, &[GROW, words.as_bytes()].concat())?;
    let value = |wanted: &str| {
        pairs.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    };
    if let Some(why) = value("refused") {
        return Err(io::Error::other(why.to_owned()));
    }
    let unknown = || io::Error::other("the server's answer is not understood");
    let number = |name| value(name).and_then(|blocks| blocks.parse().ok()).ok_or_else(unknown);
    let table = pairs.iter().filter(|(name, _)| name.starts_with(TABLE));
    Ok(Growth {
        table: table.map(|(_, line)| line.clone()).collect(),
        block_size: value("block_size").and_then(|size| size.parse().ok()).ok_or_else(unknown)?,
        before: number("before")?,
        blocks: number("blocks")?,
        grown: value("grown") == Some("yes"),
    })
}
