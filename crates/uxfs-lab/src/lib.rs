//! The lab.

pub mod fsync;
pub mod sim;
