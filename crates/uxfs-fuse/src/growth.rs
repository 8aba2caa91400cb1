//! Growth of a mounted volume, asked for through the control channel: the name [`GROW`] of the mount.
//!
//! 1. The server lengthens the image's file, if it is shorter, and then grows the volume.
//! 2. Changes wait while the volume grows; reads are answered. A frozen volume does not grow, and growth,
//!    freeze and remount exclude each other.
//! 3. A volume whose changes are shipped, or that lies in a store, does not grow: what was shipped has its
//!    length.
//! 4. Only root and the user who mounted the volume may ask for it.
//!
//! Called by the server, and by the command.

use std::io;
use std::path::Path;

use uxfs::mkfs::table_of_7;
use uxfs::resize::{Method, Target};

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
        let frozen = self.freeze.turn.lock();
        if *frozen {
            return Err("the volume is frozen: thaw it first".into());
        }
        let wanted = match words {
            "" | SHOW => None,
            blocks => Some(blocks.parse::<u64>().map_err(|_| "not a number of blocks")?),
        };
        if words != SHOW && self.backing().is_some() {
            return Err(
                "its changes are shipped, or it lies in a store: such a mount does not grow".into(),
            );
        }
        let grow = |fs: &uxfs::Fs| {
            let (sb, block) = (fs.superblock(), u64::from(fs.geo.block_size));
            let target = match wanted {
                Some(blocks) => Target::Bytes(blocks.saturating_mul(block)),
                None => Target::Fill,
            };
            let (blocks, grown) = match words {
                SHOW => (fs.geo.dblocks, false),
                _ => {
                    let done =
                        uxfs::growth::grow_in_use(fs, target).map_err(|error| error.to_string())?;
                    (done.after / block, done.method == Method::Grown)
                }
            };
            let mut lines = Lines::default();
            for (number, line) in table_of_7(&sb, "").lines().enumerate() {
                lines.add(&format!("{TABLE}{number}"), line);
            }
            lines.add("block_size", block);
            lines.add("before", sb.dblocks.get());
            lines.add("blocks", blocks);
            lines.add("grown", if grown { "yes" } else { "no" });
            Ok(lines.bytes())
        };
        self.with(|fs| Ok(grow(fs))).map_err(|_| "the volume is stopped or closed".to_owned())?
    }
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
