//! A volume served to a virtual machine by virtiofs, from its start to its end.
//!
//! 1. When [`serve`] returns, a monitor can connect.
//! 2. When a guest has disconnected, everything it did is durable.
//! 3. When [`Serving::run`] returns, the volume is closed: everything is written in place and the log is
//!    clean, unless it returns an error. The record ([`crate::record`]) says the same.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use uxfs::Fs;
use uxfs_transport::{Connection, Requests, Transport, exchange_with_guest};
use uxfs_virtiofs::{Host, Settings, Socket, Stopper};

use crate::options::Options;
use crate::record::Recorder;
use crate::server::Server;
use crate::settings;
use crate::syslog::Severity;
use crate::volume::Volume;

pub struct Serving {
    volume: Arc<Volume>,
    host: Host<Server>,
}

/// The pause after a connection that failed. Each further one in a row doubles it: a host without
/// descriptors fails at every connection that waits, at once.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// When [`Serving::run`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The first guest has disconnected.
    Disconnected,
    /// It is stopped.
    Stopped,
}

/// Prepares to serve an open volume on a socket. `source` is the image. `tag` is the name of the file
/// system for monitors that ask for it.
///
/// # Errors
/// An option that concerns mounts of this machine; no permission for `awake`; those of the host. The volume
/// is then closed.
pub fn serve(
    fs: Fs,
    source: &Path,
    socket: Socket,
    tag: Option<String>,
    options: &Options,
) -> io::Result<Serving> {
    let volume = Volume::new(fs, options);
    let started = start(&volume, source, socket, tag, options);
    if started.is_err() {
        // The first error is reported.
        let _ = volume.close();
    }
    started.map(|host| Serving { volume, host })
}

fn start(
    volume: &Arc<Volume>,
    source: &Path,
    socket: Socket,
    tag: Option<String>,
    options: &Options,
) -> io::Result<Host<Server>> {
    let refused = [
        ("fuseblk", options.fuseblk),
        ("io_uring", options.io_uring.is_some()),
        ("allow_other", options.allow_other),
    ];
    if let Some((name, _)) = refused.iter().find(|(_, is_set)| *is_set) {
        let text = format!("option '{name}' is for mounts of this machine");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    if options.awake {
        volume.keep_awake()?;
    }
    volume.start()?;
    volume.set_transport(Transport::Virtiofs);
    let record = std::path::absolute(socket.path())?;
    let settings = Settings { threads: settings::threads(options.threads), tag };
    let host = Host::new(Server::new(Arc::clone(volume), options.clone()), socket, settings)?;
    volume.set_requests(host.requests());
    volume.set_recorder(Recorder::begin("serve", source, &record));
    Ok(host)
}

impl Serving {
    /// A handle that ends it: the connection to a guest too.
    pub fn stopper(&self) -> Stopper {
        self.host.stopper()
    }

    /// Serves guests, and closes the volume.
    ///
    /// # Errors
    /// A guest or its monitor broke the rules (only the last one counts); not everything could be written.
    pub fn run(self, until: Until) -> io::Result<()> {
        let say = |text: &str| self.volume.say(Severity::Warning, text);
        let served = serve_all(until, || self.host.serve_one(), std::thread::sleep, say);
        let recorder = self.volume.recorder();
        if let Some(recorder) = recorder {
            recorder.closing();
        }
        let ended = self.volume.close().and(served);
        if let Some(recorder) = recorder {
            recorder.end(&ended);
        }
        ended.map_err(io::Error::other)
    }
}

/// Serves guests by `serve_one`, which returns false when it is stopped, and pauses after failures.
/// Says each failure in a row that is not like the last one.
fn serve_all(
    until: Until,
    mut serve_one: impl FnMut() -> io::Result<bool>,
    mut sleep: impl FnMut(Duration),
    mut say: impl FnMut(&str),
) -> Result<(), String> {
    let (mut pause, mut last) = (PAUSE, None);
    loop {
        match (serve_one(), until) {
            (Ok(true), Until::Stopped) => (pause, last) = (PAUSE, None),
            (Ok(_), _) => return Ok(()),
            (Err(error), Until::Stopped) => {
                let text = format!("the connection was ended: {error}");
                if last.as_ref() != Some(&text) {
                    say(&text);
                    last = Some(text);
                }
                sleep(pause);
                pause = (2 * pause).min(PAUSE_MAX);
            }
            (Err(error), Until::Disconnected) => return Err(error.to_string()),
        }
    }
}

/// A guest without a machine, whose requests are bytes in memory: for tests and fuzzers. No thread works
/// beside the caller, so a run repeats exactly; replies that wait for durability may come only at the end.
pub struct MemoryGuest {
    volume: Arc<Volume>,
    connection: Connection<Server>,
}

impl MemoryGuest {
    pub fn new(fs: Fs, options: &Options) -> Self {
        let volume = Volume::new(fs, options);
        volume.set_transport(Transport::Virtiofs);
        let server = Server::new(Arc::clone(&volume), options.clone());
        Self { volume, connection: Connection::new(Arc::new(server), &Requests::default()) }
    }

    /// Sends a request, whose caller has `room` bytes for the reply. Returns the replies sent meanwhile.
    pub fn request(&self, request: &[u8], room: usize) -> Vec<Vec<u8>> {
        exchange_with_guest(&self.connection, request, room)
    }

    /// Why the volume has stopped, if it has.
    pub fn stopped_by(&self) -> Option<String> {
        self.volume.fs.read().as_ref().and_then(|fs| fs.stopped_by())
    }

    /// Disconnects, and closes the volume.
    ///
    /// # Errors
    /// What could not be written and why.
    pub fn end(self) -> Result<(), String> {
        self.connection.end();
        self.volume.close()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// As without descriptors: every attempt fails at once.
    #[test]
    fn connections_that_fail_at_once_are_tried_again_after_pauses() {
        let mut results = vec![Ok(false), Err("no descriptors")];
        results.push(Ok(true));
        results.extend([Err("a bad guest"); 1]);
        results.extend([Err("no descriptors"); 7]);
        let (pauses, said) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let serve_one = || results.pop().unwrap().map_err(io::Error::other);
        let sleep = |pause: Duration| pauses.borrow_mut().push(pause.as_millis());
        let say = |text: &str| said.borrow_mut().push(text.to_owned());
        serve_all(Until::Stopped, serve_one, sleep, say).unwrap();
        // A guest that was served ends the row.
        assert_eq!(*pauses.borrow(), [50, 100, 200, 400, 800, 1000, 1000, 1000, 50]);
        let causes = ["no descriptors", "a bad guest", "no descriptors"];
        assert_eq!(*said.borrow(), causes.map(|why| format!("the connection was ended: {why}")));
        let failed = serve_all(Until::Disconnected, || Err(io::Error::other("no")), |_| (), |_| ());
        assert_eq!(failed, Err("no".into()));
    }
}
