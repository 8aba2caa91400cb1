//! Scrubs of a mount: its metadata of one moment checked while the mount is used, asked for through the
//! control channel.
//!
//! 1. One scrub at a time. It begins with a freeze that lasts until everything is in place; requests that
//!    come meanwhile wait in the engine, and the thread that froze it thaws it. So it needs no request to
//!    end the freeze, and works over io_uring too.
//! 2. The check runs in a thread of its own. Closing the volume and opening it anew end it first, because
//!    what is written to the device afterwards is not kept.
//! 3. Its result is held until the next one begins. It does not depend on the command that asked for it.
//! 4. Root may ask for it, and the owner of the mount.
//!
//! Called by [`crate::server`], and by the command.

use std::io;
use std::path::Path;
use std::sync::Arc;

use uxfs::check::Phase;
use uxfs::scrub::{Scrub, ScrubOptions};
use uxfs_transport::Errno;

use crate::control::{self, Lines};
use crate::scrubs::{self, Outcome, State};
use crate::volume::Volume;

/// The prefix of the name whose value begins a scrub: what follows is the limit of memory for old content
/// in bytes, or nothing.
pub(crate) const BEGIN: &[u8] = b"uxfs.scrub=";
/// How far the scrub is.
pub(crate) const STATUS: &[u8] = b"uxfs.scrub";
/// Reading this value ends the scrub.
pub(crate) const END: &[u8] = b"uxfs.scrub.end";
/// The prefix of the name whose value is a part of the report as text: the number of the scrub, a comma and a
/// byte offset follow.
pub(crate) const TEXT: &[u8] = b"uxfs.scrub.text=";
/// The same, as JSON.
pub(crate) const JSON: &[u8] = b"uxfs.scrub.json=";

/// Most bytes of a part of a report.
const PART: usize = 48 << 10;

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Groups => "groups",
        Phase::Inodes => "inodes",
        Phase::Blocks => "blocks",
        Phase::Links => "links",
    }
}

impl Volume {
    /// Begins a scrub. Returns its number.
    ///
    /// # Errors
    /// EBUSY if the mount is frozen or being remounted, or a scrub is under way; EOPNOTSUPP if its log was
    /// not replayed; those of writing.
    pub(crate) fn begin_scrub(&self, words: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut options = ScrubOptions::default();
        if !words.is_empty() {
            let limit = std::str::from_utf8(words).ok().and_then(|text| text.parse().ok());
            options.kept_limit = limit.ok_or(Errno::INVAL)?;
        }
        let Some(freeze) = self.freeze.turn.try_lock() else { return Err(Errno::BUSY) };
        let Some(mut turn) = self.scrubs.turn.try_lock() else { return Err(Errno::BUSY) };
        if self.freeze.is_frozen() || turn.closed || self.scrubs.state.lock().running.is_some() {
            return Err(Errno::BUSY);
        }
        if let Some(thread) = turn.thread.take() {
            // It has a result, and drops the old content now.
            let _ = thread.join();
        }
        let scrub = Arc::new(self.with(|fs| Scrub::begin(fs, options))?);
        drop(freeze);
        let number = {
            let mut state = self.scrubs.state.lock();
            let number = state.number + 1;
            *state = State { number, running: Some(Arc::clone(&scrub)), ..State::default() };
            number
        };
        let state = Arc::clone(&self.scrubs.state);
        let work = std::thread::Builder::new().name("uxfs-scrub".into());
        match work.spawn(move || scrubs::run(scrub, &state)) {
            Ok(thread) => turn.thread = Some(thread),
            Err(_) => {
                self.scrubs.state.lock().running = None;
                return Err(Errno::AGAIN);
            }
        }
        let mut lines = Lines::default();
        lines.add("number", number);
        Ok(lines.bytes())
    }

    /// Ends a scrub, and waits for its thread. With `closed`, none begins later.
    pub(crate) fn end_scrub(&self, why: &str, closed: bool) {
        let mut turn = self.scrubs.turn.lock();
        turn.closed |= closed;
        if let Some(scrub) = &self.scrubs.state.lock().running {
            scrub.end(why);
        }
        if let Some(thread) = turn.thread.take() {
            // Panics are caught in the thread.
            let _ = thread.join();
        }
    }

    /// The value of [`STATUS`], and of parts of the report; `None` for other names. ESTALE if another scrub
    /// has begun since, EINVAL for words that name no part.
    pub(crate) fn scrub_value(&self, name: &[u8]) -> Option<Result<Vec<u8>, Errno>> {
        let state = self.scrubs.state.lock();
        if name == STATUS {
            return Some(Ok(state.status_value()));
        }
        let (is_json, words) = match (name.strip_prefix(JSON), name.strip_prefix(TEXT)) {
            (Some(words), _) => (true, words),
            (None, words) => (false, words?),
        };
        Some(state.part(is_json, words))
    }
}

impl State {
    /// A part of the report; `words` as after [`TEXT`].
    fn part(&self, is_json: bool, words: &[u8]) -> Result<Vec<u8>, Errno> {
        let words = std::str::from_utf8(words).ok().and_then(|words| words.split_once(','));
        let (number, from) = words.ok_or(Errno::INVAL)?;
        let number: u64 = number.parse().map_err(|_| Errno::INVAL)?;
        let from: usize = from.parse().map_err(|_| Errno::INVAL)?;
        let report: &[u8] = match &self.result {
            _ if number != self.number => return Err(Errno::STALE),
            Some(Outcome::Checked { json, .. }) if is_json => json.as_bytes(),
            Some(Outcome::Checked { text, .. }) => text.as_bytes(),
            _ => &[],
        };
        let rest = report.get(from..).unwrap_or_default();
        Ok(rest[..rest.len().min(PART)].to_vec())
    }

    fn status_value(&self) -> Vec<u8> {
        let mut lines = Lines::default();
        lines.add("number", self.number);
        if let Some(scrub) = &self.running {
            lines.add("state", "running");
            lines.add("kept_bytes", scrub.kept_bytes());
        }
        if let Some(progress) = self.progress {
            lines.add("phase", phase_name(progress.phase));
            lines.add("done", progress.done);
            lines.add("total", progress.total);
        }
        match &self.result {
            Some(Outcome::Checked { code, .. }) => {
                lines.add("state", "done");
                lines.add("code", code);
            }
            Some(Outcome::Ended(why)) => {
                lines.add("state", "ended");
                lines.add("why", why);
            }
            None => {}
        }
        lines.bytes()
    }
}

/// How far a scrub is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Which scrub of the mount it is.
    pub number: u64,
    /// What is checked now.
    pub phase: String,
    /// Pieces of work done in this phase.
    pub done: u64,
    /// All of them.
    pub total: u64,
    /// Bytes of memory that old content takes.
    pub kept_bytes: u64,
    /// The exit code, once the scrub has a verdict.
    pub code: Option<u8>,
    /// Why it ended without a verdict, if it did.
    pub why: Option<String>,
}

/// Begins a scrub of a mount; `path` is its directory or anything in it. Returns the scrub's number. Old
/// content takes at most `kept_limit` bytes of memory, by default 256 MiB.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] if `path` lies in no mount of uxfs; EBUSY if the mount is frozen or a
/// scrub is under way; EPERM for other users than root and the mount's owner; EOPNOTSUPP if the log holds
/// changes that were not replayed; what cannot be written.
pub fn begin(path: &Path, kept_limit: Option<u64>) -> io::Result<u64> {
    let words = kept_limit.map(|limit| limit.to_string()).unwrap_or_default();
    let pairs = control::ask(path, &[BEGIN, words.as_bytes()].concat())?;
    let number = pairs.iter().find(|(name, _)| name == "number");
    number.and_then(|(_, value)| value.parse().ok()).ok_or_else(no_number)
}

/// How far the last scrub is.
///
/// # Errors
/// As [`control::ask`].
pub fn status(path: &Path) -> io::Result<Status> {
    let mut status = Status::default();
    for (name, value) in control::ask(path, STATUS)? {
        let number = || value.parse().map_err(|_| no_number());
        match name.as_str() {
            "number" => status.number = number()?,
            "phase" => status.phase = value,
            "done" => status.done = number()?,
            "total" => status.total = number()?,
            "kept_bytes" => status.kept_bytes = number()?,
            "code" => status.code = Some(value.parse().map_err(|_| no_number())?),
            "why" => status.why = Some(value),
            _ => {}
        }
    }
    Ok(status)
}

/// Ends the scrub that is under way, without a verdict.
///
/// # Errors
/// As [`control::ask`].
pub fn end(path: &Path) -> io::Result<()> {
    control::ask(path, END).map(drop)
}

/// The report of the scrub of this number, the last one, as text.
///
/// # Errors
/// As [`control::ask`]; ESTALE if another scrub has begun since.
pub fn text(path: &Path, number: u64) -> io::Result<Vec<u8>> {
    whole(path, TEXT, number)
}

/// The same, as the members of a JSON document.
///
/// # Errors
/// As [`text`].
pub fn json(path: &Path, number: u64) -> io::Result<Vec<u8>> {
    whole(path, JSON, number)
}

fn whole(path: &Path, prefix: &[u8], number: u64) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let words = format!("{number},{}", all.len());
        let part = control::ask_bytes(path, &[prefix, words.as_bytes()].concat())?;
        if part.is_empty() {
            return Ok(all);
        }
        all.extend(part);
    }
}

fn no_number() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is no number")
}
