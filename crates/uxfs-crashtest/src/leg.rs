//! A file system under test, and how programs come to run on it.
//!
//! 1. All that is written between the start and the end of [`Leg::record`] goes through the recorder.
//! 2. Recovery is the file system's own.
//! 3. Nothing else in this crate knows which file system it is.

use std::ops::Range;
use std::sync::Arc;

use uxfs_disk::MemDev;

use crate::error::Result;
use crate::job::{Ended, Job};
use crate::problem::Problem;
use crate::recorder::Recorder;
use crate::tree::Tree;

pub trait Leg: Sync {
    /// Its name, as after `--fs`.
    fn name(&self) -> &str;

    /// Bytes that its disks write whole or not at all.
    fn sector(&self) -> usize;

    /// The ways in which the file system may write in the background, by name. The program runs once
    /// with each, because none is promised.
    fn paces(&self) -> Vec<&'static str>;

    /// A new volume that the user may write to.
    ///
    /// # Errors
    /// It cannot be made.
    fn make(&self) -> Result<MemDev>;

    /// Runs a program on the volume, with its working directory in the root, and closes the volume.
    ///
    /// # Errors
    /// The volume cannot be opened, or the program cannot be started.
    fn record(&self, recorder: &Arc<Recorder>, pace: &str, job: &Job) -> Result<Ended>;

    /// Recovers a volume, or says why it does not recover, which is a failure of the file system.
    ///
    /// # Errors
    /// The host has not what recovery needs.
    fn recover(&self, disk: Arc<MemDev>) -> Result<Recovery<'_>>;

    /// What lies where on a disk, as far as the leg can tell.
    fn places(&self, disk: Arc<MemDev>) -> Places;
}

/// A recovered volume, or why there is none.
pub type Recovery<'a> = std::result::Result<Box<dyn Recovered + 'a>, Problem>;

/// A recovered volume.
pub trait Recovered {
    /// Its files; `None` if the leg cannot tell, or they are too many.
    ///
    /// # Errors
    /// Damage.
    fn tree(&self) -> std::result::Result<Option<Tree>, Problem>;

    /// Runs a program in the root, and closes the volume.
    ///
    /// # Errors
    /// The volume cannot be used, or the program cannot be started.
    fn run(self: Box<Self>, job: &Job) -> Result<Ended>;

    /// What a check of the file system's own structures finds, if it finds something.
    fn damage(self: Box<Self>) -> Option<Problem>;
}

/// Ranges of a disk's bytes, and what they hold.
#[derive(Clone, Debug, Default)]
pub struct Places {
    ranges: Vec<(Range<u64>, Place)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Log,
    /// A file's data: its path, and the offset in the file at which the range begins.
    File {
        path: String,
        offset: u64,
    },
}

impl Places {
    pub fn add(&mut self, range: Range<u64>, place: Place) {
        self.ranges.push((range, place));
    }

    /// What a write at this offset changes.
    pub fn thing(&self, offset: u64) -> String {
        match self.find(offset) {
            Some((_, Place::Log)) => "the log".into(),
            Some((_, Place::File { path, .. })) => path.clone(),
            None if self.ranges.is_empty() => "the disk".into(),
            None => "metadata".into(),
        }
    }

    fn find(&self, offset: u64) -> Option<&(Range<u64>, Place)> {
        self.ranges.iter().find(|(range, _)| range.contains(&offset))
    }

    /// What a write changes, in words.
    pub fn of(&self, offset: u64, len: u64) -> String {
        match self.find(offset) {
            Some((_, Place::Log)) => format!("{len} bytes of the log"),
            Some((range, Place::File { path, offset: first })) => {
                format!("{len} bytes of {path} at {}", first + offset - range.start)
            }
            None if self.ranges.is_empty() => format!("{len} bytes at {offset} of the disk"),
            None => format!("{len} bytes of metadata, at {offset} of the disk"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_places_a_write_is_named_by_its_offset() {
        assert_eq!(Places::default().of(300, 7), "7 bytes at 300 of the disk");
    }

    #[test]
    fn a_write_is_named_by_the_file_and_the_offset_in_it() {
        let mut places = Places::default();
        places.add(100..200, Place::Log);
        places.add(200..300, Place::File { path: "a/b".into(), offset: 1000 });
        assert_eq!(places.of(150, 7), "7 bytes of the log");
        assert_eq!(places.of(210, 7), "7 bytes of a/b at 1010");
        assert_eq!([150, 210, 300].map(|at| places.thing(at)), ["the log", "a/b", "metadata"]);
        assert_eq!(places.of(300, 7), "7 bytes of metadata, at 300 of the disk");
    }
}
