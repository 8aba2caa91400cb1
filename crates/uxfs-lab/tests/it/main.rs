//! Tests of the lab's experiments with small parameters.

mod fsync;
mod pictures;
