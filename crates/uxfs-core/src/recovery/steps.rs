//! Completing a pending intent, each kind with the engine's own operations.
//!
//! 1. What an intent names is checked before anything changes: blocks inside a group of the volume, offsets
//!    that the fork can have, an inode whose fork holds extents. The log is input like any other structure.
//! 2. An intent unmaps the blocks that it names, or nothing: dropping the transaction puts all back.

use uxfs_format::attr::parent_of;
use uxfs_format::extent::MAX_EXTENT_LEN;
use uxfs_format::inode::{Flags2, Fork, ForkFormat};
use uxfs_format::log::{
    AttrIntent, AttrOp, BmapOp, BmapStep, ExchangeFlags, ExchangeIntent, ExtentRun, Intent,
    IntentKind,
};
use uxfs_format::{Check, Extent, FileBlock, Ino, Place};

use crate::alloc;
use crate::attr::{self, Namespace};
use crate::bmap;
use crate::deferred::{Deferred, in_one_group};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::file::SIZE_MAX;
use crate::tx::{InodeSlot, Tx};

/// Most blocks by which the trees of a step grow.
const BLOCKS: u64 = 16;

/// Completes a pending intent.
pub(super) fn finish(fs: &Engine, intent: &Intent, kind: IntentKind) -> Result<()> {
    if matches!(kind, IntentKind::FreeRt | IntentKind::RmapRt | IntentKind::RefcountRt) {
        let name = kind.items().0.name();
        return Err(Error::Unsupported(format!("{name} items in the log are not supported")));
    }
    match intent {
        Intent::Free(_) | Intent::Rmap(_) | Intent::Refcount(_) => {
            let steps = Deferred::recover(&fs.geo, intent).map_err(bad_run)?;
            steps.into_iter().try_for_each(|step| run(fs, step))
        }
        Intent::Bmap(steps) => steps.iter().try_for_each(|step| mapping(fs, step)),
        Intent::Attr(attr) => attribute(fs, attr),
        Intent::Exchange(exchange) => self::exchange(fs, exchange),
    }
}

fn bad(what: &'static str, check: Check, detail: String) -> Error {
    Error::corrupt(what, Place::Volume, check, detail)
}

fn bad_run(run: ExtentRun) -> Error {
    bad("intent in the log", Check::Range, format!("blocks {}+{}", run.start, run.len))
}

/// Runs a deferred operation as a transaction of its own.
fn run(fs: &Engine, step: Deferred) -> Result<()> {
    let mut tx = Tx::begin_freeing(fs, BLOCKS)?;
    tx.deferred.push(step);
    tx.commit()
}

/// Begins a transaction on an inode, which may have no name left.
fn on_inode(fs: &Engine, ino: Ino, blocks: u64) -> Result<(Tx<'_>, InodeSlot)> {
    if !fs.geo.ino_valid(ino) {
        return Err(bad("intent in the log", Check::Range, format!("inode {ino}")));
    }
    let mut tx = Tx::begin_freeing(fs, blocks)?;
    let slot = tx.lock_inode(ino)?;
    Ok((tx, slot))
}

/// Fails unless a fork can map the `len` blocks from `at` on.
fn check_offsets(fs: &Engine, fork: Fork, at: FileBlock, len: u64) -> Result<()> {
    let end = match fork {
        Fork::Data => fs.geo.blocks_for(SIZE_MAX),
        Fork::Attr => 1 << 32,
    };
    match at.0.checked_add(len) {
        Some(last) if last <= end => Ok(()),
        _ => Err(bad("intent in the log", Check::Range, format!("{fork:?} fork at {at}+{len}"))),
    }
}

/// Fails unless the fork exists and holds extents.
fn check_extents(tx: &Tx<'_>, slot: InodeSlot, fork: Fork) -> Result<()> {
    let inode = tx.inode(slot);
    let format = inode.core.fork_format(fork);
    let exists = fork == Fork::Data || inode.core.has_attr_fork();
    if exists && matches!(format, ForkFormat::Extents | ForkFormat::Btree) {
        return Ok(());
    }
    let problem = format!("an intent in the log changes extents of its {fork:?} fork, {format:?}");
    Err(inode.corrupt(Check::Format, problem))
}

fn mapping(fs: &Engine, step: &BmapStep) -> Result<()> {
    if step.realtime {
        return Err(Error::Unsupported("realtime mappings in the log are not supported".into()));
    }
    in_one_group(&fs.geo, step.run).map_err(bad_run)?;
    let fork = if step.attr { Fork::Attr } else { Fork::Data };
    let len = u64::from(step.run.len);
    if len > MAX_EXTENT_LEN {
        return Err(bad_run(step.run));
    }
    check_offsets(fs, fork, step.offset, len)?;
    let (mut tx, slot) = on_inode(fs, step.ino, BLOCKS)?;
    check_extents(&tx, slot, fork)?;
    let core = &tx.inode(slot).core;
    if fork == Fork::Data && core.is_realtime() {
        let problem = "an intent in the log maps blocks of the data device to realtime data";
        return Err(tx.inode(slot).corrupt(Check::Flags, problem));
    }
    if step.unwritten && (fork == Fork::Attr || !core.is_reg()) {
        let problem = "an intent in the log maps unwritten blocks to metadata";
        return Err(tx.inode(slot).corrupt(Check::State, problem));
    }
    let extent =
        Extent { offset: step.offset, start: step.run.start, len, unwritten: step.unwritten };
    match step.op {
        BmapOp::Map => map(&mut tx, slot, fork, extent)?,
        BmapOp::Unmap => {
            let gone = unmap(&mut tx, slot, fork, step.offset, len)?;
            let named = |e: &Extent| e.start == extent.start.plus(e.offset.0 - extent.offset.0);
            if !gone.iter().all(named) {
                let problem = format!(
                    "an intent in the log unmaps blocks {} from its {fork:?} fork, which maps others",
                    step.run.start
                );
                return Err(tx.inode(slot).corrupt(Check::CrossReference, problem));
            }
        }
    }
    tx.commit()
}

/// Maps blocks that are allocated already.
fn map(tx: &mut Tx<'_>, slot: InodeSlot, fork: Fork, extent: Extent) -> Result<()> {
    tx.count_blocks(slot, extent.len)?;
    bmap::map(tx, slot, fork, extent)?;
    let ino = tx.inode(slot).ino;
    alloc::map_later(tx, ino, fork, &extent);
    Ok(())
}

/// Unmaps blocks without freeing them. Returns what was mapped.
fn unmap(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    fork: Fork,
    at: FileBlock,
    len: u64,
) -> Result<Vec<Extent>> {
    let gone = bmap::unmap_only(tx, slot, fork, at, len)?;
    let ino = tx.inode(slot).ino;
    for extent in &gone {
        alloc::unmap_later(tx, ino, fork, extent);
    }
    Ok(gone)
}

fn attribute(fs: &Engine, intent: &AttrIntent) -> Result<()> {
    let blocks = 2 * attr::set_blocks(&fs.geo, intent.value.len()) + BLOCKS;
    let (mut tx, slot) = on_inode(fs, intent.ino, blocks)?;
    if intent.op.is_parent() && tx.inode(slot).core.generation != intent.generation {
        let problem = "an attribute intent in the log is of another generation";
        return Err(tx.inode(slot).corrupt(Check::Generation, problem));
    }
    let space = match intent.filter {
        0 => Namespace::User,
        2 => Namespace::Trusted,
        4 => Namespace::Secure,
        8 => Namespace::Parent,
        other => {
            return Err(bad("intent in the log", Check::Flags, format!("namespace {other:#x}")));
        }
    };
    let (name, value) = (&intent.name, &intent.value);
    match intent.op {
        AttrOp::Set | AttrOp::Replace | AttrOp::ParentSet => {
            attr::set(&mut tx, slot, space, name, value)?;
        }
        AttrOp::Remove => {
            attr::remove(&mut tx, slot, space, name)?;
        }
        AttrOp::ParentRemove | AttrOp::ParentReplace => {
            let (parent, generation) = parent_of(value);
            attr::remove_parent(&mut tx, slot, name, parent, generation)?;
            if intent.op == AttrOp::ParentReplace {
                attr::set(&mut tx, slot, space, &intent.new_name, &intent.new_value)?;
            }
        }
    }
    tx.commit()
}

/// Exchanges the remaining mappings of two files.
fn exchange(fs: &Engine, intent: &ExchangeIntent) -> Result<()> {
    let [one, two] = intent.inos;
    if intent.flags.contains(ExchangeFlags::ATTR_FORK) || one == two {
        let what = "exchanges of attribute forks in the log are not supported";
        return Err(Error::Unsupported(what.into()));
    }
    for start in intent.starts {
        check_offsets(fs, Fork::Data, start, intent.blocks)?;
    }
    let mut done = 0;
    while done < intent.blocks {
        let (mut tx, slots) = on_both(fs, intent)?;
        let at = intent.starts.map(|start| start.plus(done));
        let left = intent.blocks - done;
        let step = exchange_step(&mut tx, slots, at, left, intent.flags)?;
        tx.commit()?;
        done += step;
    }
    let (mut tx, slots) = on_both(fs, intent)?;
    let clear = [ExchangeFlags::CLEAR_INO1_REFLINK, ExchangeFlags::CLEAR_INO2_REFLINK];
    for ((slot, size), clear) in slots.into_iter().zip(intent.sizes).zip(clear) {
        if intent.flags.contains(ExchangeFlags::SET_SIZES) {
            tx.core_mut(slot).size = size;
        }
        if intent.flags.contains(clear) {
            tx.core_mut(slot).flags2.remove(Flags2::REFLINK);
        }
        let inode = tx.inode(slot);
        let checked = inode.core.check(fs.geo.literal_len());
        checked.map_err(|problem| inode.corrupt(problem.check, problem.detail))?;
    }
    tx.commit()
}

fn on_both<'fs>(fs: &'fs Engine, intent: &ExchangeIntent) -> Result<(Tx<'fs>, [InodeSlot; 2])> {
    if intent.inos.iter().any(|ino| !fs.geo.ino_valid(*ino)) {
        return Err(bad("intent in the log", Check::Range, format!("inodes {:?}", intent.inos)));
    }
    let mut tx = Tx::begin_freeing(fs, 2 * BLOCKS)?;
    let slots = tx.lock_inodes(intent.inos)?;
    for (slot, generation) in slots.iter().zip(intent.generations) {
        if tx.inode(*slot).core.generation != generation {
            let problem = "an exchange intent in the log is of another generation";
            return Err(tx.inode(*slot).corrupt(Check::Generation, problem));
        }
        check_extents(&tx, *slot, Fork::Data)?;
    }
    let [one, two] = slots.map(|slot| &tx.inode(slot).core);
    if one.file_type() != two.file_type() || one.is_realtime() != two.is_realtime() {
        let problem = "an exchange intent in the log names an inode of another type";
        return Err(tx.inode(slots[1]).corrupt(Check::Mode, problem));
    }
    if one.is_realtime() && fs.geo.has_rmap() {
        let what = "exchanges of realtime data in the log are not supported";
        return Err(Error::Unsupported(what.into()));
    }
    Ok((tx, slots))
}

/// Exchanges the first piece, at most `left` blocks. Returns its length.
fn exchange_step(
    tx: &mut Tx<'_>,
    slots: [InodeSlot; 2],
    at: [FileBlock; 2],
    left: u64,
    flags: ExchangeFlags,
) -> Result<u64> {
    let fork = Fork::Data;
    let mut step = left;
    let mut skip = false;
    for (number, (slot, at)) in slots.into_iter().zip(at).enumerate() {
        let next = bmap::at_or_after(tx.fs(), tx.inode(slot), fork, at)?;
        let here = next.filter(|extent| extent.offset <= at);
        step = step.min(match (here, next) {
            (Some(extent), _) => extent.end().0 - at.0,
            (None, Some(extent)) => extent.offset.0 - at.0,
            (None, None) => left,
        });
        let written = here.is_some_and(|extent| !extent.unwritten);
        skip |= number == 0 && flags.contains(ExchangeFlags::INO1_WRITTEN) && !written;
    }
    if skip {
        return Ok(step);
    }
    let [gone1, gone2] =
        [unmap(tx, slots[0], fork, at[0], step)?, unmap(tx, slots[1], fork, at[1], step)?];
    for (slot, at, gone) in [(slots[0], at[0], gone2), (slots[1], at[1], gone1)] {
        for extent in gone {
            map(tx, slot, fork, Extent { offset: at, ..extent })?;
        }
    }
    Ok(step)
}
