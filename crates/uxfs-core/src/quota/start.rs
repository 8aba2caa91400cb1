//! Turning quotas on and off when a volume is opened.

use uxfs_format::AgIno;
use uxfs_format::dquot::{QuotaFlags, QuotaType};
use uxfs_format::inode::{ForkFormat, InodeCore, S_IFREG};

use super::count::count;
use super::records::places;
use crate::dquot::Quota;
use crate::engine::Engine;
use crate::error::Result;
use crate::ialloc;
use crate::journal::Op;
use crate::tx::Tx;

/// Begins to account the quotas that the options ask for, or that the volume accounts already. Counts what
/// was not counted. Without a journal only what was counted is accounted.
///
/// # Errors
/// [`crate::Error::NoSpace`] for a new quota inode, or a damaged structure on the way.
pub(crate) fn start(fs: &mut Engine) -> Result<()> {
    if fs.options.read_only {
        return Ok(());
    }
    let now = QuotaFlags::from_bits_truncate(fs.superblock().qflags.get());
    let wanted = match fs.options.quota {
        Some(wanted) if fs.journal.is_some() => wanted - QuotaFlags::CHKD,
        _ => now - QuotaFlags::CHKD,
    };
    let kinds = || QuotaType::ALL.into_iter().filter(|kind| wanted.contains(kind.acct()));
    let keeps =
        |kind: QuotaType| wanted.contains(kind.acct()) && now.contains(kind.acct() | kind.chkd());
    let kept = QuotaType::ALL.into_iter().filter(|kind| keeps(*kind));
    let flags = kept.fold(wanted, |flags, kind| flags | kind.chkd());
    if fs.journal.is_some() && flags != now {
        set_flags(fs, flags)?;
    }
    let mut quota = Quota::new(&fs.geo);
    for kind in kinds().filter(|kind| fs.journal.is_some() || keeps(*kind)) {
        if kind.inode_of(&fs.superblock()).is_none() {
            if fs.journal.is_none() {
                continue;
            }
            make_inode(fs, kind)?;
        }
        let Some(ino) = kind.inode_of(&fs.superblock()) else { continue };
        let places = places(fs, ino)?;
        let enforced = fs.journal.is_some() && wanted.contains(kind.enfd());
        quota.account(kind, ino, enforced, places);
    }
    if quota.is_empty() {
        return Ok(());
    }
    for kind in QuotaType::ALL {
        // Its limits are the defaults of all others.
        quota.get(&fs.bufs, kind, 0)?;
    }
    fs.set_quota(quota);
    let new: Vec<QuotaType> = kinds().filter(|kind| !keeps(*kind)).collect();
    if let (Some(quota), true, false) = (&fs.quota, fs.journal.is_some(), new.is_empty()) {
        count(fs, quota, &new)?;
        set_flags(fs, new.iter().fold(flags, |flags, kind| flags | kind.chkd()))?;
    }
    Ok(())
}

/// Sets the quota flags of the superblock, through the log.
fn set_flags(fs: &Engine, flags: QuotaFlags) -> Result<()> {
    fs.change_superblock(|sb| sb.qflags.set(flags.bits()));
    Tx::begin_for(fs, Op::Inode, 0)?.commit()
}

/// Makes the quota inode of a type.
fn make_inode(fs: &Engine, kind: QuotaType) -> Result<()> {
    let blocks = ialloc::blocks(fs);
    let mut tx = Tx::begin_for(fs, Op::Create(blocks), blocks)?;
    let now = fs.now();
    let core = InodeCore {
        mode: S_IFREG,
        format: ForkFormat::Extents,
        aformat: ForkFormat::Extents,
        nlink: 1,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        next_unlinked: AgIno::NULL,
        ..InodeCore::default()
    };
    let slot = ialloc::alloc(&mut tx, fs.geo.root_ino, core)?;
    let ino = tx.inode(slot).ino;
    fs.change_superblock(|sb| kind.set_inode(sb, ino));
    tx.commit()
}
