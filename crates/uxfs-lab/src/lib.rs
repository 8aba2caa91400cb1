//! The lab: experiments on modelled disks in virtual time. Each figure states the durability of an
//! acknowledged operation, derived from the disk's requests and checked by cutting the power.

pub mod durability;
pub mod experiments;
pub mod fsync;
pub mod history;
mod loss;
mod moment;
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

#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct LabError {
    pub what: String,
    pub why: String,
}

impl LabError {
    pub fn new(what: impl Into<String>, why: impl core::fmt::Display) -> Self {
        Self { what: what.into(), why: why.to_string() }
    }
}

pub type Result<T> = core::result::Result<T, LabError>;

#[cfg(test)]
mod tests;
