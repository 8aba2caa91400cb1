//! The session of a command: results, failures, and the exit code.
//!
//! 1. Results go to standard output as bytes, messages to standard error.
//! 2. A command continues after a failure where coreutils' does, and ends with the exit code of
//!    that failure.
//! 3. If the reader of standard output is gone, the command ends silently, as if by SIGPIPE.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;

use crate::image::text_of;
use crate::json;
use crate::kind::Kind;

/// Exit code of a process that SIGPIPE ended, as shells report it.
const EXIT_PIPE: u8 = 128 + 13;

/// A failure, and the object that it concerns.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    place: Option<Vec<u8>>,
    text: String,
    kind: Kind,
}

impl Failure {
    /// A failure that concerns a path or an image.
    pub(crate) fn new(place: impl AsRef<OsStr>, text: impl Into<String>) -> Self {
        let place = Some(place.as_ref().as_bytes().to_vec());
        Self { place, text: text.into(), kind: Kind::Failed }
    }

    /// As above, of a given kind.
    pub(crate) fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// A failure that concerns a path in bytes.
    pub(crate) fn at(place: &[u8], text: impl Into<String>) -> Self {
        Self::new(OsStr::from_bytes(place), text)
    }

    /// A failure without an object.
    pub(crate) fn bare(text: impl Into<String>) -> Self {
        Self { place: None, text: text.into(), kind: Kind::Failed }
    }

    /// An error of the library that concerns a path.
    pub(crate) fn volume(place: impl AsRef<OsStr>, error: uxfs::Error) -> Self {
        Self::new(place, error.to_string()).of(Kind::of_volume(&error))
    }

    /// An error of the host that concerns a path.
    pub(crate) fn host(place: impl AsRef<OsStr>, error: &io::Error) -> Self {
        let text = text_of(error);
        // Some messages begin with the path already.
        let named = place.as_ref().to_str().and_then(|name| text.strip_prefix(name));
        let short = named.and_then(|rest| rest.strip_prefix(": ").or(rest.strip_prefix(' ')));
        Self::new(place.as_ref(), short.unwrap_or(&text)).of(Kind::of_host(error))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{}: ", String::from_utf8_lossy(&crate::quote::message(place)))?;
        }
        f.write_str(&self.text)
    }
}

impl From<io::Error> for Failure {
    /// A failure to write to standard output.
    fn from(error: io::Error) -> Self {
        let broken = error.kind() == io::ErrorKind::BrokenPipe;
        let kind = if broken { Kind::Pipe } else { Kind::of_host(&error) };
        Self::new("standard output", text_of(&error)).of(kind)
    }
}

/// The result of a command's parts.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// The session of a running command.
pub(crate) struct Session {
    command: &'static str,
    json: bool,
    code: Cell<u8>,
    /// Standard output.
    pub(crate) out: RefCell<BufWriter<StdoutLock<'static>>>,
    /// Is standard output a terminal?
    pub(crate) terminal: bool,
}

impl Session {
    /// A session for the command of this name. Failures are reported as JSON if `json`.
    pub(crate) fn new(command: &'static str, json: bool) -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let out = RefCell::new(BufWriter::with_capacity(128 << 10, stdout.lock()));
        Self { command, json, code: Cell::new(0), out, terminal }
    }

    /// Writes a result.
    pub(crate) fn print(&self, bytes: impl AsRef<[u8]>) -> Result<()> {
        Ok(self.out.borrow_mut().write_all(bytes.as_ref())?)
    }

    /// Writes a result and flushes, for a reader that waits.
    pub(crate) fn flush(&self) -> Result<()> {
        Ok(self.out.borrow_mut().flush()?)
    }

    /// Ends the command with at least this exit code.
    pub(crate) fn set_code(&self, code: u8) {
        self.code.set(self.code.get().max(code));
    }

    /// Reports a failure and sets the exit code.
    pub(crate) fn fail(&self, failure: Failure) {
        self.fail_with(1, failure);
    }

    /// As above, with another exit code.
    pub(crate) fn fail_with(&self, code: u8, failure: Failure) {
        if failure.kind == Kind::Pipe {
            self.code.set(EXIT_PIPE);
            return;
        }
        // Messages must not overtake results.
        let _ = self.out.borrow_mut().flush();
        self.code.set(self.code.get().max(code));
        if self.json {
            let place = failure.place.as_deref().map(|p| String::from_utf8_lossy(p).into_owned());
            let kind = failure.kind.name();
            let mut map = serde_json::Map::new();
            map.insert("command".into(), self.command.into());
            let error =
                serde_json::json!({ "kind": kind, "message": failure.text, "where": place });
            map.insert("error".into(), error);
            self.say(json::document("error", map).trim_ascii_end());
            return;
        }
        let mut line = format!("uxfs: {}: ", self.command).into_bytes();
        if let Some(place) = &failure.place {
            line.extend_from_slice(&crate::quote::message(place));
            line.extend_from_slice(b": ");
        }
        line.extend_from_slice(failure.text.as_bytes());
        self.say(&line);
    }

    /// Prints a line on standard error. A failure to do so cannot be reported.
    pub(crate) fn say(&self, line: &[u8]) {
        let _ = io::stderr().lock().write_all(&[line, b"\n"].concat());
    }

    /// Reports the failure, if it is one. Returns whether the command continues.
    pub(crate) fn ok<T>(&self, result: Result<T>) -> Option<T> {
        result.map_err(|failure| self.fail(failure)).ok()
    }

    /// Is the reader of standard output gone?
    pub(crate) fn unheard(&self) -> bool {
        self.code.get() == EXIT_PIPE
    }

    /// Ends the command.
    pub(crate) fn end(self) -> u8 {
        let flushed = self.out.borrow_mut().flush();
        if let Err(error) = flushed {
            self.fail(error.into());
        }
        self.code.get()
    }
}
