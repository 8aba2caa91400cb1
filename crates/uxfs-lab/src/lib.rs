//! The lab: experiments on modelled disks in virtual time. Each figure states the durability of an
//! acknowledged operation, derived from the disk's requests and checked by cutting the power.

pub mod durability;
pub mod experiments;
pub mod fsync;
pub mod outcome;
pub mod plan;
pub mod posts;
pub mod real;
pub mod report;
pub mod setup;
pub mod sim;
mod sim_mutex;
pub mod verdict;
pub mod work;

/// The error of an experiment.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct LabError {
    /// The attempted operation.
    pub what: String,
    /// The reason.
    pub why: String,
}

impl LabError {
    /// An error with this text.
    pub fn new(what: impl Into<String>, why: impl core::fmt::Display) -> Self {
        Self { what: what.into(), why: why.to_string() }
    }
}

/// The result of an experiment.
pub type Result<T> = core::result::Result<T, LabError>;

#[cfg(test)]
mod tests;
