//! A volume checked while it is in use: the check of `uxfs check`, of the volume's metadata at one moment.
//!
//! 1. The volume is frozen for that moment only. Changes go on while the check runs; a write of metadata in
//!    place waits for the read of the page that it overwrites, and for nothing else.
//! 2. The old content of what is overwritten meanwhile is kept in memory, bounded by
//!    [`ScrubOptions::kept_limit`]. If that is not enough, there is no verdict.
//! 3. Files in use whose last name was removed are no finding.
//! 4. The log, which is written to meanwhile, is not checked.
//!
//! Used by the mount, and by programs that have a volume open.

use uxfs_check::{CheckError, CheckOptions, Progress, Replay, Report, check, code};
use uxfs_core::{Error, Fs, PointInTime};

/// Options of a scrub.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScrubOptions {
    /// Most bytes of memory for old content.
    pub kept_limit: u64,
    /// Options of the check. By default it uses one thread, so that it has one read under way at a time,
    /// and less memory than a check of a volume that is not in use: the process has other work.
    pub check: CheckOptions,
}

impl Default for ScrubOptions {
    fn default() -> Self {
        let mut check = CheckOptions::default();
        check.threads = 1;
        check.memory_limit = 256 << 20;
        Self { kept_limit: 256 << 20, check }
    }
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScrubError {
    /// The scrub could not begin.
    #[error(transparent)]
    Volume(#[from] Error),
    /// The volume cannot be checked.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// It ended early, for this reason.
    #[error("{0}")]
    Ended(String),
}

/// A scrub that has begun.
pub struct Scrub {
    moment: PointInTime,
    options: CheckOptions,
}

impl Scrub {
    /// Begins a scrub: what it checks is the volume as it is now.
    ///
    /// # Errors
    /// [`Error::Busy`] if the volume is frozen, or a scrub is under way; [`Error::Unsupported`] if its log
    /// holds changes that were not replayed; what cannot be written.
    pub fn begin(fs: &Fs, options: ScrubOptions) -> Result<Self, Error> {
        let ScrubOptions { kept_limit, check: mut options } = options;
        let moment = fs.point_in_time(kept_limit)?;
        if let Some(head) = moment.head() {
            options.replay = Replay::InUse { head };
        }
        Ok(Self { moment, options })
    }

    /// Checks. Threads call `progress` from time to time.
    ///
    /// # Errors
    /// Why there is no verdict. Damage is not an error but a finding.
    pub fn run(&self, progress: &(dyn Fn(Progress) + Sync)) -> Result<Report, ScrubError> {
        let checked = check(&self.moment, &self.options, progress);
        if let Some(why) = self.moment.ended() {
            return Err(ScrubError::Ended(why));
        }
        let mut report = checked?;
        report.findings.retain(|finding| finding.code != code::UNLINKED_LIST.name);
        Ok(report)
    }

    /// Ends it early, from another thread. The volume must stay open until [`Scrub::run`] has returned.
    pub fn end(&self, why: &str) {
        self.moment.end(why);
    }

    /// Bytes of memory that old content takes.
    pub fn kept_bytes(&self) -> u64 {
        self.moment.kept_bytes()
    }
}

/// Checks a volume in use.
///
/// # Errors
/// As [`Scrub::begin`] and [`Scrub::run`].
pub fn scrub(
    fs: &Fs,
    options: ScrubOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, ScrubError> {
    Scrub::begin(fs, options)?.run(progress)
}
