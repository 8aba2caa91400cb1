//! Deliberate faults, to test that the crash tests and checks find them. They exist only with the
//! feature `faults`, which no release enables. Without it [`planted`] is always false, and the
//! compiler removes the code that depends on it.
//!
//! 1. A fault is planted in one thread and affects only the work of that thread.

/// What goes wrong. Each variant describes the wrong behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device ignores flush requests.
    FlushDropped,
    /// The flushes of a checkpoint are left out.
    FlushAfterLog,
    /// The last block of a checkpoint's records, which holds the commit operation, is not written.
    CommitLost,
    /// A waiter is notified that a checkpoint is durable before it is.
    WokenEarly,
    /// The log's tail moves past metadata that is not written in place yet.
    TailEarly,
    /// Metadata written in place counts as durable before the device is flushed.
    InPlaceUnflushed,
    /// When an object is logged again, only the changes since its last logging are logged.
    NotRelogged,
    /// Blocks are reused before their freeing is durable.
    ReusedEarly,
    /// Metadata is written in place before its changes are durable in the log.
    InPlaceEarly,
    /// Metadata is written in place with a wrong LSN.
    WrongLsn,
    /// Freed buffers are not cancelled in the log.
    CancelMissing,
    /// An inode whose core alone changed is not logged.
    CoreNotLogged,
    /// The last changed chunk of a buffer is not logged.
    ChunkLost,
    /// A new inode chunk is not logged.
    IcreateMissing,
    /// An inode's pointer in an unlinked list is not logged.
    UnlinkedNotLogged,
    /// Data is not flushed before the checkpoint that maps it.
    DataUnflushed,
    /// A caller of fsync whose commit is deferred commits before its data is flushed.
    CommittedEarly,
    /// Remote attribute values are not flushed before the checkpoint that maps them.
    ValueUnflushed,
    /// Recovery does not free unlinked inodes.
    UnlinkedIgnored,
    /// Recovery does not finish pending intents.
    IntentDropped,
    /// Recovery replays records whose checksum does not match.
    TornAccepted,
    /// Recovery overwrites metadata that is newer than the log item.
    LsnIgnored,
    /// Recovery ignores cancelled buffers.
    CancelIgnored,
    /// Data that is moved is not flushed before the checkpoint that maps it.
    MovedUnflushed,
    /// Ordered mode: data is overwritten in place.
    OverwrittenInPlace,
    /// Ordered mode: the last block of a file that is truncated is zeroed in place.
    TailInPlace,
    /// Ordered mode: an epoch is cut before its data is written.
    EpochWithoutData,
    /// Ordered mode: an epoch leaves out one file's data.
    EpochMissesFile,
    /// Ordered mode: an epoch leaves out a file's new length.
    EpochMissesLength,
    /// Ordered mode: an epoch leaves out the last dirty block of each file.
    EpochMissesBlock,
    /// Ordered mode: the journal cuts checkpoints by itself.
    CutByItself,
    /// Ordered mode: a ticket of durability is met at once.
    DurableAtOnce,
    /// Ordered mode: an epoch is cut in the middle of its write-back.
    CutInMidst,
    /// The ranges of an atomic write are changed in transactions of their own.
    AtomicInParts,
    /// An atomic write overwrites its blocks in place.
    AtomicInPlace,
    /// A freeze waits for nothing, and writes nothing.
    FreezeWithoutWait,
    /// A scrub reads the device without the old content that was kept.
    ReadWithoutKept,
    /// The content of freed metadata blocks is not kept for a scrub.
    FreedNotKept,
    /// A repair does not count one of the inodes that own blocks.
    OwnerForgotten,
    /// A repair drops a sound file.
    SoundFileDropped,
    /// A repair leaves one of the sectors that it changes out of the undo file.
    UndoMissesSector,
    /// The thread that removes a name panics in the middle of the removal.
    RemovalPanics,
    /// A client of a network block device that lost its server does not write again what was not flushed.
    UnflushedForgotten,
}

impl Fault {
    /// The faults of ordered mode.
    pub const ORDERED: [Self; 9] = [
        Self::OverwrittenInPlace,
        Self::TailInPlace,
        Self::EpochWithoutData,
        Self::EpochMissesFile,
        Self::EpochMissesLength,
        Self::EpochMissesBlock,
        Self::CutByItself,
        Self::DurableAtOnce,
        Self::CutInMidst,
    ];

    /// The faults of atomic writes.
    pub const ATOMIC: [Self; 2] = [Self::AtomicInParts, Self::AtomicInPlace];

    /// The faults of repairs.
    pub const REPAIR: [Self; 3] =
        [Self::OwnerForgotten, Self::SoundFileDropped, Self::UndoMissesSector];

    /// All other faults that must be visible on the device when one thread works: all except
    /// [`Fault::CommittedEarly`], [`Fault::RemovalPanics`], [`Fault::FreezeWithoutWait`], [`Fault::UnflushedForgotten`], and those of scrubs,
    /// [`Fault::ReadWithoutKept`] and [`Fault::FreedNotKept`].
    pub const ALL: [Self; 23] = [
        Self::FlushDropped,
        Self::FlushAfterLog,
        Self::CommitLost,
        Self::WokenEarly,
        Self::TailEarly,
        Self::InPlaceUnflushed,
        Self::NotRelogged,
        Self::ReusedEarly,
        Self::InPlaceEarly,
        Self::WrongLsn,
        Self::CancelMissing,
        Self::CoreNotLogged,
        Self::ChunkLost,
        Self::IcreateMissing,
        Self::UnlinkedNotLogged,
        Self::DataUnflushed,
        Self::ValueUnflushed,
        Self::UnlinkedIgnored,
        Self::IntentDropped,
        Self::TornAccepted,
        Self::LsnIgnored,
        Self::CancelIgnored,
        Self::MovedUnflushed,
    ];
}

#[cfg(feature = "faults")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault in this thread; `None` removes it. Does nothing without the feature `faults`.
pub fn plant(fault: Option<Fault>) {
    #[cfg(feature = "faults")]
    PLANTED.set(fault);
    #[cfg(not(feature = "faults"))]
    let _ = fault;
}

/// The fault planted in this thread, to plant it in threads that work on its behalf.
pub fn in_force() -> Option<Fault> {
    #[cfg(feature = "faults")]
    return PLANTED.get();
    #[cfg(not(feature = "faults"))]
    None
}

/// Is this fault planted in this thread?
#[inline]
pub fn planted(fault: Fault) -> bool {
    #[cfg(feature = "faults")]
    return PLANTED.get() == Some(fault);
    #[cfg(not(feature = "faults"))]
    {
        let _ = fault;
        false
    }
}

/// Is any fault planted in this thread?
pub fn is_any_planted() -> bool {
    #[cfg(feature = "faults")]
    return PLANTED.get().is_some();
    #[cfg(not(feature = "faults"))]
    false
}
