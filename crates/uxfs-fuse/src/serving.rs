//! A volume served to a virtual machine by virtiofs, from its start to its end.
//!
//! 1. When [`serve`] returns, a monitor can connect.
//! 2. When a guest has disconnected, everything it did is durable.
//! 3. When [`Serving::run`] returns, the volume is closed: everything is written in place and the log is
//!    clean, unless it returns an error. The record ([`crate::record`]) says the same.

use std::io;
use std::path::Path;
use std::sync::Arc;

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
        let served = loop {
            match (self.host.serve_one(), until) {
                (Ok(true), Until::Stopped) => {}
                (Ok(_), _) => break Ok(()),
                (Err(error), Until::Stopped) => {
                    let text = format!("the connection was ended: {error}");
                    self.volume.say(Severity::Warning, &text);
                }
                (Err(error), Until::Disconnected) => break Err(error.to_string()),
            }
        };
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
