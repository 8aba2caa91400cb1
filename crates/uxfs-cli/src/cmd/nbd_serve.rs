//! `uxfs nbd-serve`: an image as a network block device.
//!
//! 1. The command writes `ready` to standard error when clients can connect.
//! 2. A signal ends the command: what clients have sent is done, and everything is on stable storage.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use uxfs::disk::OpenMode;
use uxfs_nbd::{Access, Listener, Server, ServerOptions, ServerTls};

use crate::address;
use crate::image::Images;
use crate::readiness;
use crate::session::{Failure, Result, Session};

/// Serve an image as a network block device (NBD), without root
///
/// Clients see the image as a disk: qemu and qemu-img, nbd-client, libnbd's nbdcopy and nbdmount, and uxfs
/// on another machine (uxfs mount nbd://HOST/). An image of any format that uxfs reads is served as the
/// disk it holds; with --partition or --offset, as the volume in it.
///
/// The command stays in the foreground. It writes `ready` to standard error, and reports it as sd_notify(3)
/// does, when clients can connect. A SIGTERM ends it, with everything on stable storage. Several clients
/// can be connected; one that writes must be alone, unless they coordinate. No other process can use the
/// image meanwhile, or, with --read-only, write to it.
///
/// Only the socket's owner can connect to --socket, unless --socket-mode permits others. Everybody who
/// reaches --bind can read and change the image: use it on networks you trust, or with --tls-cert and
/// --tls-clients. docs/NBD.md shows the command lines.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs nbd-serve disk.img --socket /run/disk.sock\n  \
    uxfs nbd-serve --read-only disk.qcow2 --bind 127.0.0.1:10809\n  \
    uxfs nbd-serve disk.img --bind 0.0.0.0:10809 --tls-cert cert.pem --tls-key key.pem \
    --tls-clients ca.pem")]
pub(crate) struct Options {
    /// Serve on this Unix socket
    #[arg(long, value_name = "SOCKET", required_unless_present = "bind", conflicts_with = "bind")]
    socket: Option<PathBuf>,
    /// Permissions of the socket, in octal
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "600",
          conflicts_with = "bind")]
    socket_mode: u32,
    /// Serve on this TCP address, as in 127.0.0.1:10809; port 0 is any free one
    #[arg(long, value_name = "ADDRESS:PORT")]
    bind: Option<SocketAddr>,
    /// Serve for reading only
    #[arg(long)]
    read_only: bool,
    /// Name of the export; clients that name none get it too
    #[arg(long, value_name = "NAME", default_value = "", value_parser = export)]
    export: String,
    /// Speak TLS only, with the certificates in this PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Serve only clients with a certificate that an authority in this PEM file signed
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_clients: Option<PathBuf>,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

/// Most bytes of a name that all clients take.
const EXPORT_MAX: usize = 256;

fn export(text: &str) -> std::result::Result<String, String> {
    match text.len() {
        0..=EXPORT_MAX => Ok(text.to_owned()),
        _ => Err(format!("a name has at most {EXPORT_MAX} bytes")),
    }
}

fn mode(text: &str) -> std::result::Result<u32, String> {
    let parsed = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    parsed.ok_or_else(|| "a mode is an octal number such as 660".into())
}

/// Serves the image until a signal comes.
pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let of_image = |error: io::Error| Failure::host(&options.image, &error);
    let bare = |error: io::Error| Failure::bare(error.to_string());
    // From here on a signal ends the service, not the process.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(bare)?;
    let tls = match (&options.tls_cert, &options.tls_key) {
        (Some(certificate), Some(key)) => {
            let made = ServerTls::new(certificate, key, options.tls_clients.as_deref());
            Some(made.map_err(bare)?)
        }
        _ => None,
    };
    let open = if options.read_only { OpenMode::Read } else { OpenMode::Write };
    let dev = address::open(&options.image, open, images.location()).map_err(of_image)?;
    let listener = listen(options)?;
    let at = listener.address();
    let is_open = tls.is_none() && at.is_some_and(|at| !at.ip().is_loopback());
    let offered =
        ServerOptions { export: options.export.clone(), read_only: options.read_only, tls };
    let server = Server::new(listener, dev, offered).map_err(bare)?;
    let stopper = server.stopper();
    std::thread::spawn(move || {
        for _ in signals.forever() {
            stopper.stop();
        }
    });
    if let Some(at) = at {
        session.say(format!("uxfs: nbd-serve: listening on {at}").as_bytes());
    }
    if is_open {
        let text =
            "without TLS everybody who reaches this address can use the image; see --tls-cert";
        session.say(format!("uxfs: nbd-serve: {text}").as_bytes());
    }
    session.say(b"ready");
    readiness::notify("READY=1").map_err(bare)?;
    server.run().map_err(of_image)
}

fn listen(options: &Options) -> Result<Listener> {
    match (&options.socket, options.bind) {
        (Some(path), _) => Listener::unix(path, Access { mode: options.socket_mode })
            .map_err(|error| Failure::host(path, &error)),
        (None, Some(at)) => {
            Listener::tcp(at).map_err(|error| Failure::host(at.to_string(), &error))
        }
        (None, None) => Err(Failure::bare("give --socket SOCKET or --bind ADDRESS:PORT")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_modes_are_checked() {
        assert!(export("v").is_ok() && export(&"x".repeat(257)).is_err());
        assert_eq!(super::mode("660"), Ok(0o660));
        assert!(super::mode("1777").is_err() && super::mode("u+x").is_err());
    }
}
