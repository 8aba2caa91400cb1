//! What is wrong with a state, and of which class that is.
//!
//! 1. Two failures of different classes are two defects: one is never reported for the other.
//! 2. A time-out says nothing that is certain: it is tried again, and not remembered.
//!
//! Legs and the judge of a test make them; the shrinker's callers compare their classes.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The file system did not recover the volume.
    Recovery,
    /// The recovered volume is damaged.
    Damage,
    /// The check refuses the files.
    Check,
    /// The kernel under the check stopped.
    Kernel,
    TimedOut,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub class: Class,
    pub text: String,
}

impl Problem {
    pub fn new(class: Class, text: impl Into<String>) -> Self {
        Self { class, text: text.into() }
    }
}
