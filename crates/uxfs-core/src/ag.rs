//! The in-memory state of an allocation group: its headers, and hints where to search next.

use uxfs_format::verify::{BufKind, Owner};
use uxfs_format::{AgBlock, AgIno, AgNo};
use uxfs_sync::Mutex;

use crate::buf::BufRef;
use crate::busy::Busy;
use crate::error::Result;
use crate::mount::Mount;

/// The lock of an allocation group. It protects everything in the group except inodes in use and
/// their blocks.
pub type AgCell = Mutex<AgState>;

/// The three headers of an allocation group.
pub struct Headers {
    /// Free space.
    pub agf: BufRef,
    /// Inodes.
    pub agi: BufRef,
    /// Free list.
    pub agfl: BufRef,
}

/// The in-memory state of an allocation group.
#[derive(Default)]
pub struct AgState {
    headers: Option<Headers>,
    /// The block after the last extent allocated for data, where the next file starts.
    pub next_data: Option<AgBlock>,
    /// Busy extents: blocks whose freeing is not durable yet.
    pub(crate) busy: Busy,
    /// The chunk of the last allocated inode.
    pub last_chunk: Option<AgIno>,
}

impl AgState {
    /// Reads the headers if they are not loaded.
    ///
    /// # Errors
    /// If a header cannot be read or is damaged.
    pub(crate) fn load(&mut self, fs: &Mount, ag: AgNo) -> Result<()> {
        if self.headers.is_some() {
            return Ok(());
        }
        let sector = fs.geo.sector_size;
        let get = |daddr, kind| fs.bufs.get(daddr, sector, &[kind], Owner::Ag(ag));
        self.headers = Some(Headers {
            agf: get(fs.geo.agf_daddr(ag), BufKind::Agf)?,
            agi: get(fs.geo.agi_daddr(ag), BufKind::Agi)?,
            agfl: get(fs.geo.agfl_daddr(ag), BufKind::Agfl)?,
        });
        Ok(())
    }

    /// Returns the headers.
    ///
    /// # Panics
    /// If the headers are not loaded. A transaction loads them when it locks the group.
    pub fn headers(&self) -> &Headers {
        self.headers.as_ref().expect("headers are loaded when the AG is locked")
    }
}
