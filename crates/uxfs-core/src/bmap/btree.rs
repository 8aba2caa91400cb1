//! The extent btree of a fork (bmbt): its root lies in the inode, its blocks anywhere on the volume.

use uxfs_format::btree::{ROOT_LEVEL, TreeKind};
use uxfs_format::bytes::Field;
use uxfs_format::extent::{Extent, RECORD_LEN};
use uxfs_format::inode::Fork;
use uxfs_format::verify::Owner;
use uxfs_format::{Check, Daddr, FsBlock, Place};

use crate::alloc;
use crate::btree::{Env, Root, Tree};
use crate::buf::BufRef;
use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::tx::{InodeSlot, Tx};

/// A key in a node: the first offset in the fork that the child maps.
const KEY: Field<u64> = Field::at(0);

/// The extent tree of a fork.
#[derive(Clone, Copy)]
pub struct Bmbt {
    slot: Option<InodeSlot>,
    fork: Fork,
}

impl Bmbt {
    /// The tree of a fork of an inode that a transaction has locked.
    pub fn new(slot: InodeSlot, fork: Fork) -> Self {
        Self { slot: Some(slot), fork }
    }

    /// The tree of a fork of the environment's inode.
    pub fn reading(fork: Fork) -> Self {
        Self { slot: None, fork }
    }
}

impl Tree for Bmbt {
    type Rec = Extent;
    type Key = u64;
    const KIND: TreeKind = TreeKind::Bmap;

    fn read_rec(raw: &[u8]) -> Extent {
        let mut bytes = [0; RECORD_LEN];
        bytes.copy_from_slice(&raw[..RECORD_LEN]);
        Extent::unpack(&bytes)
    }

    fn write_rec(rec: &Extent, raw: &mut [u8]) {
        raw[..RECORD_LEN].copy_from_slice(&rec.pack());
    }

    fn key(rec: &Extent) -> u64 {
        rec.offset.0
    }

    fn read_key(raw: &[u8]) -> u64 {
        KEY.get(raw)
    }

    fn write_key(key: &u64, raw: &mut [u8]) {
        KEY.set(raw, *key);
    }

    fn root(&self, env: Env<'_, '_>) -> Root {
        let root = env.inode(self.slot).fork(self.fork);
        // A fork in btree format is never shorter than its header: the inode core's check ensures
        // it.
        Root::Fork(self.fork, ROOT_LEVEL.get(root).into())
    }

    fn set_root(&self, tx: &mut Tx<'_>, _block: u64, levels: usize) {
        if let Some(slot) = self.slot {
            let level = (levels - 1) as u16;
            ROOT_LEVEL.set(tx.fork_mut(slot, self.fork), level);
        }
    }

    fn daddr(&self, fs: &Mount, block: u64) -> Result<Daddr> {
        let fsb = FsBlock(block);
        if !fs.geo.fsb_valid(fsb, 1) {
            let problem = format!("child at block {fsb}, outside the volume");
            return Err(Error::corrupt(
                TreeKind::Bmap.block_name(),
                Place::Volume,
                Check::Pointer,
                problem,
            ));
        }
        Ok(fs.geo.fsb_daddr(fsb))
    }

    fn block_at(&self, fs: &Mount, daddr: Daddr) -> u64 {
        let (ag, block) = fs.geo.daddr_ag(daddr);
        fs.geo.fsb(ag, block).0
    }

    fn owner(&self, env: Env<'_, '_>) -> Owner {
        Owner::Inode(env.inode(self.slot).ino)
    }

    fn alloc(&self, tx: &mut Tx<'_>, near: u64) -> Result<u64> {
        let Some(slot) = self.slot else { unreachable!("trees grow in transactions only") };
        let ino = tx.inode(slot).ino;
        let near = FsBlock(near);
        let goal = if tx.fs().geo.fsb_valid(near, 1) { near } else { tx.fs().inode_goal(ino) };
        let owner = alloc::Owner::Bmbt { ino, fork: self.fork };
        let got = alloc::alloc_anywhere(tx, goal, 1, 1, owner)?;
        tx.count_blocks(slot, 1)?;
        Ok(got.0.0)
    }

    fn free(&self, tx: &mut Tx<'_>, buf: &BufRef) -> Result<()> {
        let Some(slot) = self.slot else { unreachable!("trees shrink in transactions only") };
        let (ag, block) = tx.fs().geo.daddr_ag(buf.daddr());
        let ino = tx.inode(slot).ino;
        let Some(nblocks) = tx.inode(slot).core.nblocks.checked_sub(1) else {
            let problem = "counts fewer blocks than its extent tree has";
            return Err(tx.inode(slot).corrupt(Check::Counter, problem));
        };
        tx.invalidate(buf);
        tx.core_mut(slot).nblocks = nblocks;
        let owner = alloc::Owner::Bmbt { ino, fork: self.fork };
        alloc::free_owned_later(tx, ag, block, 1, owner);
        Ok(())
    }

    fn fork(&self) -> Option<(Option<InodeSlot>, Fork)> {
        Some((self.slot, self.fork))
    }
}
