//! Deciding whether the log is torn at its head or damaged further back.
//!
//! A power cut leaves a record near the head that does not match its checksum. Such a record was never
//! acknowledged, and nothing that it logs was written in place. If the volume holds an LSN at or past
//! the point where the log was cut, the record had once been complete, and its content and that of the
//! records after it is lost. Recovery then fails, because going on would mix old and new metadata.
//!
//! The group headers and all inodes are checked before anything is written.

use uxfs_format::inode::LSN;
use uxfs_format::{AgNo, Lsn, Place};

use crate::btree::{Cursor, Env, InoTree};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::inode::read_cluster;
use crate::journal::Op;
use crate::tx::Tx;

/// Fails if the volume holds a structure whose LSN is at or past `head`.
///
/// # Errors
/// An error that names the structure; or a damaged structure on the way.
pub(super) fn refuse(fs: &Fs, head: Lsn) -> Result<()> {
    for ag in (0..fs.geo.ag_count).map(AgNo) {
        let mut tx = fs.begin_freeing_tx_for(Op::Inode, 0)?;
        tx.lock_ag(ag)?;
        let headers = tx.ag(ag).headers();
        for buf in [&headers.agf, &headers.agi, &headers.agfl] {
            let content = buf.read();
            let lsn = content.kind.layout().map_or(Lsn(0), |layout| layout.lsn(&content));
            check(lsn, head, buf.place())?;
        }
        inodes(fs, &tx, ag, head)?;
    }
    Ok(())
}

fn inodes(fs: &Fs, tx: &Tx<'_>, ag: AgNo, head: Lsn) -> Result<()> {
    let (env, tree) = (Env::Tx(tx), InoTree::new(ag));
    let mut cursor = Cursor::<InoTree>::first(env, &tree)?;
    while let Some(chunk) = cursor.rec(env, &tree) {
        let present = chunk.present();
        for bit in (0..64).filter(|bit| present >> bit & 1 != 0) {
            let ino = fs.geo.ino(ag, uxfs_format::AgIno(chunk.start.0.saturating_add(bit)));
            if !fs.geo.ino_valid(ino) {
                continue;
            }
            let (buf, offset) = read_cluster(fs, ino)?;
            check(buf.get(LSN.behind(offset)), head, Place::Inode(ino))?;
        }
        if !cursor.next(env, &tree)? {
            break;
        }
    }
    Ok(())
}

fn check(lsn: Lsn, head: Lsn, place: Place) -> Result<()> {
    // An LSN of all ones was never logged.
    if lsn < head || lsn.0 == u64::MAX {
        return Ok(());
    }
    Err(Error::DirtyLog(format!(
        "it is damaged at log block {}, not torn by a power cut: {place} was logged behind that; run \
         xfs_repair -L, which loses what the log holds",
        head.block()
    )))
}
