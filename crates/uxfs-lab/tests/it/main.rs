//! The lab's experiments, in the small.

mod fsync;
mod pictures;
