//! `uxfs serve`: serves a volume to a virtual machine by virtiofs.
//!
//! 1. The command writes `ready` to standard error when a monitor can connect.
//! 2. Whether the guest disconnects or a signal ends the command, it closes the volume before it exits.

use std::path::PathBuf;

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use uxfs_fuse::virtiofs::{Access, Socket};
use uxfs_fuse::{Backing, Until};

use crate::address;
use crate::cli::OPTIONS_ID;
use crate::cmd::opening::{self, Opened};
use crate::image::Images;
use crate::readiness;
use crate::session::{Failure, Result, Session};
use crate::users;

/// Serve a volume to a virtual machine by virtiofs, without root
///
/// The guest of QEMU, Cloud Hypervisor, crosvm, Kata Containers or User Mode Linux mounts the volume with
/// `mount -t virtiofs`. Its monitor connects to the socket (vhost-user) and shares the guest's memory.
/// docs/VIRTIOFS.md shows the command lines.
///
/// The command stays in the foreground. It writes `ready` to standard error, and reports it as sd_notify(3)
/// does, when a monitor can connect. It serves one guest at a time. When the guest's monitor disconnects,
/// everything is durable, the volume is closed and the command ends; with --stay it serves the next guest. A
/// SIGTERM ends it in the same way. If the process is killed instead, the next open replays the log;
/// everything that fsync or sync in the guest confirmed is there.
///
/// No other process can use the image meanwhile. Only the socket's owner can connect, unless --socket-mode
/// or --socket-group permits others: a process that connects can read and change the whole volume. The
/// command replaces a socket that a killed process left.
///
/// Options are those of `uxfs mount`, except for those that concern mounts of this machine (fuseblk,
/// io_uring, allow_other). They hold for the volume: ro, noatime, relatime, strictatime, lazytime, discard,
/// sync, wsync, commit=SECONDS, dirty_bytes=, cache_bytes=, strict_open, fsync_policy= and others, which
/// `uxfs mount --help` explains. sync(2) and syncfs(2) in the guest make everything durable.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs serve disk.img --virtiofs /run/disk.sock\n  \
    uxfs serve disk.img --virtiofs /run/disk.sock --socket-group kvm\n  \
    uxfs serve -o ro,noatime disk.img --virtiofs /run/disk.sock --tag data")]
pub(crate) struct Options {
    /// Options of the volume, separated by commas; can be given several times
    #[arg(short, long, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Takes the id of other commands' `-o`; here the log options are among the options
    #[arg(long = "log-options", id = OPTIONS_ID, hide = true, value_delimiter = ',')]
    _log_options: Vec<String>,
    /// Serve by virtiofs on this socket
    #[arg(long, value_name = "SOCKET")]
    virtiofs: PathBuf,
    /// The name to mount by, for monitors that ask the server for it (User Mode Linux, crosvm); QEMU
    /// and Cloud Hypervisor name it themselves
    #[arg(long, value_name = "NAME", value_parser = tag)]
    tag: Option<String>,
    /// Threads that answer requests [default: one per processor, at least two]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Stay after a guest has disconnected, and serve the next one
    #[arg(long)]
    stay: bool,
    /// Permissions of the socket, in octal [default: 600, with --socket-group 660]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    socket_mode: Option<u32>,
    /// Group of the socket, by name or number
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<String>,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

/// Most bytes of a name: the field in the device's configuration.
const TAG_MAX: usize = 36;

fn tag(text: &str) -> std::result::Result<String, String> {
    match text.len() {
        1..=TAG_MAX => Ok(text.to_owned()),
        _ => Err(format!("a name has 1 to {TAG_MAX} bytes")),
    }
}

fn mode(text: &str) -> std::result::Result<u32, String> {
    let parsed = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    parsed.ok_or_else(|| "a mode is an octal number such as 660".into())
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let say = |line: &str| session.say(format!("uxfs: serve: {line}").as_bytes());
    let mut text = options.options.join(",");
    if images.norecovery() {
        text.push_str(",norecovery");
    }
    let mut parsed = opening::options(&options.image, &text, false)?;
    let group = match &options.socket_group {
        None => None,
        Some(name) => {
            let no_such = || Failure::bare(format!("--socket-group: there is no group '{name}'"));
            Some(users::group(name).ok_or_else(no_such)?)
        }
    };
    if let Some(threads) = options.threads {
        parsed.threads = Some(threads.into());
    }
    let given = &options.image;
    let image = address::absolute(given).map_err(|error| Failure::host(given, &error))?;
    let of_socket = |error: std::io::Error| Failure::host(&options.virtiofs, &error);
    // From here on a signal ends the service, not the process.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(of_socket)?;
    let Opened { fs, shipping } = opening::open("serve", &image, &mut parsed, images, &say)?;
    let usual = if group.is_some() { 0o660 } else { 0o600 };
    let mode = options.socket_mode.unwrap_or(usual);
    let access = Access { mode, group };
    // The image is locked by now, so a second server of it does not come as far as the socket.
    let of_image = |error: std::io::Error| Failure::host(&image, &error);
    let serving = match Socket::bind(&options.virtiofs, access) {
        Ok(socket) => {
            let tag = options.tag.clone();
            uxfs_fuse::serve(fs, &image, socket, tag, &parsed).map_err(of_image)
        }
        Err(error) => {
            // The first error is reported.
            let _ = fs.close();
            Err(of_socket(error))
        }
    };
    let serving = opening::or_give_up(serving, shipping.as_ref(), &say)?;
    let stopper = serving.stopper();
    let on_signal = stopper.clone();
    std::thread::spawn(move || {
        for _ in signals.forever() {
            on_signal.stop();
        }
    });
    session.say(b"ready");
    let told = readiness::notify("READY=1");
    if told.is_err() {
        stopper.stop();
    }
    let until = if options.stay { Until::Stopped } else { Until::Disconnected };
    let ended = serving.run(until);
    let shipped = shipping.map_or(Ok(()), |shipping| shipping.finish());
    told.and(ended).and(shipped.map_err(std::io::Error::other)).map_err(of_image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_modes_are_checked() {
        assert_eq!(tag("data"), Ok("data".into()));
        assert!(tag("").is_err() && tag(&"x".repeat(37)).is_err());
        assert_eq!(super::mode("660"), Ok(0o660));
        assert!(super::mode("1777").is_err() && super::mode("u+x").is_err());
    }
}
