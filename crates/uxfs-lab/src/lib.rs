//! The lab: experiments on modelled disks, in virtual time, with what an acknowledged operation was
//! worth beside every figure, derived from what went down and checked by cutting the power.

mod baton;
pub mod bed;
pub mod durability;
pub mod experiments;
pub mod fsync;
pub mod outcome;
pub mod plan;
pub mod posts;
pub mod real;
pub mod report;
pub mod rng;
pub mod sim;
pub mod verdict;
pub mod work;

/// Why an experiment could not be done.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct LabError {
    /// What was attempted.
    pub what: String,
    /// What stood in the way.
    pub why: String,
}

impl LabError {
    /// An error with words for it.
    pub fn new(what: impl Into<String>, why: impl core::fmt::Display) -> Self {
        Self { what: what.into(), why: why.to_string() }
    }
}

/// The result of an experiment.
pub type Result<T> = core::result::Result<T, LabError>;

#[cfg(test)]
mod tests;
