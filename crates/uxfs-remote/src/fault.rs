//! Deliberate faults of this crate, to test that the simulation finds them. They exist only with the
//! feature `faults`, which no release enables.
//!
//! 1. A fault is planted in one thread and affects only the work of that thread.

/// What goes wrong. Each variant describes the wrong behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A block of the frozen moment is overwritten before it was read.
    FrozenOverwritten,
    /// The manifest is put before the deltas that it names.
    ManifestFirst,
    /// The hash that chains a delta to the one below is not compared.
    ParentIgnored,
    /// What a failed attempt did not ship is not shipped by the next one.
    FailureForgotten,
    /// A second writer's manifest is taken for one's own.
    FenceIgnored,
    /// Objects that a kept manifest names are removed.
    NamedRemoved,
    /// A checkpoint that was removed is taken for one that is there, because its object has a delta that is needed.
    FloorForgotten,
    /// A flush in `sync` mode returns before its checkpoint is in the store.
    FlushEarly,
    /// A writer looks whether its number is free, and then puts its manifest whatever is there.
    FenceLate,
    /// A writer claims a volume that another one holds.
    HolderIgnored,
    /// Changes of a writer that was overtaken are shipped when it comes back.
    LostShipped,
    /// The map of a write cache is durable before the blocks that it names.
    MapFirst,
    /// A write cache gives the room of blocks back that are not shipped.
    GivenBackEarly,
    /// A copy of a table is taken for the table of the delta that it is listed for.
    CopyTrusted,
}

#[cfg(feature = "faults")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault in this thread, or removes it.
#[cfg(feature = "faults")]
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

/// Is this fault planted in this thread?
#[cfg(feature = "faults")]
pub(crate) fn planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

#[cfg(not(feature = "faults"))]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}
