//! What every command needs: where results go, how failures are told, and the exit code.
//!
//! 1. Results go to standard output as bytes, words to standard error.
//! 2. A command goes on after a failure where coreutils' does, and ends with the code that says so.
//! 3. A reader that goes away ends the command quietly, as a signal would.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;

use crate::image::text_of;
use crate::json;
use crate::kind::Kind;

/// Exit code of a process that SIGPIPE ended, as shells tell it.
const EXIT_PIPE: u8 = 128 + 13;

/// What went wrong, and with what.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    place: Option<Vec<u8>>,
    text: String,
    kind: Kind,
}

impl Failure {
    /// About a place: a path, or an image.
    pub(crate) fn new(place: impl AsRef<OsStr>, text: impl Into<String>) -> Self {
        let place = Some(place.as_ref().as_bytes().to_vec());
        Self { place, text: text.into(), kind: Kind::Failed }
    }

    /// The same, of this kind.
    pub(crate) fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// About a path in bytes.
    pub(crate) fn at(place: &[u8], text: impl Into<String>) -> Self {
        Self::new(OsStr::from_bytes(place), text)
    }

    /// About nothing in particular.
    pub(crate) fn bare(text: impl Into<String>) -> Self {
        Self { place: None, text: text.into(), kind: Kind::Failed }
    }

    /// What the library says about a place.
    pub(crate) fn volume(place: impl AsRef<OsStr>, error: uxfs::Error) -> Self {
        Self::new(place, error.to_string()).of(Kind::of_volume(&error))
    }

    /// What the host says about a place.
    pub(crate) fn host(place: impl AsRef<OsStr>, error: &io::Error) -> Self {
        let text = text_of(error);
        // Some messages begin with the place that stands before them anyway.
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
    /// Of writing to standard output.
    fn from(error: io::Error) -> Self {
        let broken = error.kind() == io::ErrorKind::BrokenPipe;
        let kind = if broken { Kind::Pipe } else { Kind::of_host(&error) };
        Self::new("standard output", text_of(&error)).of(kind)
    }
}

/// The result of a command's parts.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A command at work.
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
    /// For the command of this name; failures are told as JSON if `json`.
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

    /// Writes a result now, for whoever watches.
    pub(crate) fn flush(&self) -> Result<()> {
        Ok(self.out.borrow_mut().flush()?)
    }

    /// Ends the command with at least this exit code.
    pub(crate) fn set_code(&self, code: u8) {
        self.code.set(self.code.get().max(code));
    }

    /// Tells of a failure and remembers it in the exit code.
    pub(crate) fn fail(&self, failure: Failure) {
        self.fail_with(1, failure);
    }

    /// The same with an exit code of its own.
    pub(crate) fn fail_with(&self, code: u8, failure: Failure) {
        if failure.kind == Kind::Pipe {
            self.code.set(EXIT_PIPE);
            return;
        }
        // Words must not overtake results.
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

    /// A line on standard error; nobody can be told if that fails.
    pub(crate) fn say(&self, line: &[u8]) {
        let _ = io::stderr().lock().write_all(&[line, b"\n"].concat());
    }

    /// Does the command go on? Tells of the failure if it was one.
    pub(crate) fn ok<T>(&self, result: Result<T>) -> Option<T> {
        result.map_err(|failure| self.fail(failure)).ok()
    }

    /// Is there nobody left to write for?
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
