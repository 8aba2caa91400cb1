//! Faults planted on purpose, to see whether those who look for faults find them. Only where the
//! feature `faults` is on, which nothing that is shipped turns on; elsewhere [`planted`] is always
//! false, and the compiler drops what hangs on it.
//!
//! 1. A fault is planted in a thread, and met by what this thread does.

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device forgets to flush.
    FlushDropped,
    /// The flushes of a checkpoint are left out.
    FlushAfterLog,
    /// The last block of a checkpoint's records, with its commit, is never written.
    CommitLost,
    /// Somebody who asks is told of a checkpoint as durable before it is.
    WokenEarly,
    /// The log's tail moves past what is not home.
    TailEarly,
    /// What is written home counts as home before it is flushed.
    HomeUnflushed,
    /// Of an object that is logged again only what changed since is logged.
    NotRelogged,
    /// Blocks are given away before their being freed is durable.
    ReusedEarly,
    /// Metadata goes home with changes that are not durable.
    HomeEarly,
    /// What goes home bears an LSN that is not its own.
    WrongLsn,
    /// Buffers whose blocks are freed are not cancelled.
    CancelMissing,
    /// An inode of which only the core changed is not logged.
    CoreNotLogged,
    /// The last changed chunk of a buffer is not logged.
    ChunkLost,
    /// A new chunk of inodes is not logged.
    IcreateMissing,
    /// An inode's place in a list of unlinked ones is not logged.
    UnlinkedNotLogged,
    /// Data is not flushed before the checkpoint that shows it.
    DataUnflushed,
    /// Nor are remote attribute values.
    ValueUnflushed,
    /// Recovery does not free inodes that lost their last name.
    UnlinkedIgnored,
    /// Recovery does not finish what was announced.
    IntentDropped,
    /// Recovery takes records whose checksum does not match.
    TornAccepted,
    /// Recovery replays over newer metadata.
    LsnIgnored,
    /// Recovery does not obey cancelled buffers.
    CancelIgnored,
    /// Who takes a name away panics in the midst of it.
    RemovalPanics,
}

impl Fault {
    /// All that have to be found in what is on the device: all but [`Fault::RemovalPanics`].
    pub const ALL: [Self; 22] = [
        Self::FlushDropped,
        Self::FlushAfterLog,
        Self::CommitLost,
        Self::WokenEarly,
        Self::TailEarly,
        Self::HomeUnflushed,
        Self::NotRelogged,
        Self::ReusedEarly,
        Self::HomeEarly,
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
    ];
}

#[cfg(feature = "faults")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault in this thread, or takes the one that is there away. Without the feature nothing
/// happens.
pub fn plant(fault: Option<Fault>) {
    #[cfg(feature = "faults")]
    PLANTED.set(fault);
    #[cfg(not(feature = "faults"))]
    let _ = fault;
}

/// The fault that is planted in this thread: for threads that work on its behalf.
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
