//! The run of a command: its output, its failures and its exit code.
//!
//! 1. Results go to standard output as bytes. Messages go to standard error.
//! 2. A command continues after a failure where the coreutils command does, and its exit code
//!    reports the failure.
//! 3. If the reader of standard output closes the pipe, the command ends without a message and with
//!    the exit code of SIGPIPE.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use uxfs_host::{OsStrExt, os_str};

use crate::image::text_of;
use crate::json;
use crate::kind::Kind;

/// Exit code that shells report for a process that SIGPIPE ended.
const EXIT_PIPE: u8 = 128 + 13;

/// A failure: the path or image it concerns, the message, and its kind for JSON.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    place: Option<Vec<u8>>,
    text: String,
    kind: Kind,
}

impl Failure {
    /// A failure of a path or an image.
    pub(crate) fn new(place: impl AsRef<OsStr>, text: impl Into<String>) -> Self {
        let place = Some(place.as_ref().as_bytes().to_vec());
        Self { place, text: text.into(), kind: Kind::Failed }
    }

    pub(crate) fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// A failure of a path given as bytes.
    pub(crate) fn at(place: &[u8], text: impl Into<String>) -> Self {
        Self::new(os_str(place), text)
    }

    /// A failure that concerns no path.
    pub(crate) fn bare(text: impl Into<String>) -> Self {
        Self { place: None, text: text.into(), kind: Kind::Failed }
    }

    /// A failure that the library reports.
    pub(crate) fn volume(place: impl AsRef<OsStr>, error: uxfs::Error) -> Self {
        Self::new(place, error.to_string()).of(Kind::of_volume(&error))
    }

    /// A failure that the host's system reports.
    pub(crate) fn host(place: impl AsRef<OsStr>, error: &io::Error) -> Self {
        let text = text_of(error);
        // Some messages begin with the path. It is printed before the message already.
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
    /// Converts an error of writing to standard output.
    fn from(error: io::Error) -> Self {
        let broken = error.kind() == io::ErrorKind::BrokenPipe;
        let kind = if broken { Kind::Pipe } else { Kind::of_host(&error) };
        Self::new("standard output", text_of(&error)).of(kind)
    }
}

/// The result of a command or of a part of it.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A running command.
pub(crate) struct Session {
    command: &'static str,
    /// What messages say before the command's name.
    prefix: &'static str,
    json: bool,
    code: Cell<u8>,
    /// Standard output.
    pub(crate) out: RefCell<BufWriter<StdoutLock<'static>>>,
    /// Is standard output a terminal?
    pub(crate) terminal: bool,
}

impl Session {
    /// Starts the command of this name. With `json`, failures are printed as JSON.
    pub(crate) fn new(command: &'static str, json: bool) -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let out = RefCell::new(BufWriter::with_capacity(128 << 10, stdout.lock()));
        Self { command, prefix: "uxfs: ", json, code: Cell::new(0), out, terminal }
    }

    /// Starts the run of a program of this name. Messages begin with the name, as they do in xfsprogs.
    pub(crate) fn of_program(name: &'static str) -> Self {
        Self { prefix: "", ..Self::new(name, false) }
    }

    /// Writes a result.
    pub(crate) fn print(&self, bytes: impl AsRef<[u8]>) -> Result<()> {
        Ok(self.out.borrow_mut().write_all(bytes.as_ref())?)
    }

    pub(crate) fn flush(&self) -> Result<()> {
        Ok(self.out.borrow_mut().flush()?)
    }

    /// Ends the command with at least this exit code.
    pub(crate) fn set_code(&self, code: u8) {
        self.code.set(self.code.get().max(code));
    }

    /// Reports a failure and sets the exit code to at least 1.
    pub(crate) fn fail(&self, failure: Failure) {
        self.fail_with(1, failure);
    }

    /// Reports a failure and sets the exit code to at least `code`.
    pub(crate) fn fail_with(&self, code: u8, failure: Failure) {
        if failure.kind == Kind::Pipe {
            self.code.set(EXIT_PIPE);
            return;
        }
        // Keep results and messages in order.
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
        let mut line = format!("{}{}: ", self.prefix, self.command).into_bytes();
        if let Some(place) = &failure.place {
            line.extend_from_slice(&crate::quote::message(place));
            line.extend_from_slice(b": ");
        }
        line.extend_from_slice(failure.text.as_bytes());
        self.say(&line);
    }

    /// Writes a line to standard error. A failed write cannot be reported.
    pub(crate) fn say(&self, line: &[u8]) {
        let _ = io::stderr().lock().write_all(&[line, b"\n"].concat());
    }

    /// Reports a failure, if there is one, and returns the value otherwise.
    pub(crate) fn ok<T>(&self, result: Result<T>) -> Option<T> {
        result.map_err(|failure| self.fail(failure)).ok()
    }

    /// Has the reader of standard output closed the pipe?
    pub(crate) fn pipe_closed(&self) -> bool {
        self.code.get() == EXIT_PIPE
    }

    /// Flushes standard output and returns the exit code.
    pub(crate) fn end(self) -> u8 {
        let flushed = self.out.borrow_mut().flush();
        if let Err(error) = flushed {
            self.fail(error.into());
        }
        self.code.get()
    }
}
