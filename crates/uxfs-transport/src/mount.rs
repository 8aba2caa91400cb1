//! Mounts a connection: with mount(2) where that is allowed, otherwise through `fusermount3`.

use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use crate::device::Device;

/// How a connection is mounted.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// What the list of mounts shows as the source.
    pub source: String,
    /// The type in the list of mounts: `fuse.NAME`, or `fuseblk.NAME` if the source is a block
    /// device. Such a mount takes root; the kernel sends it `sync(2)`, and waits for its end.
    pub fs_type: String,
    /// Words of mount(8) that the kernel handles for every file system (`ro`, `nosuid`, …), and
    /// `default_permissions` and `allow_other`.
    pub words: Vec<String>,
}

/// Words that are flags of mount(2).
const FLAGS: [(&str, MountFlags); 8] = [
    ("ro", MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("sync", MountFlags::SYNCHRONOUS),
    ("dirsync", MountFlags::DIRSYNC),
];
/// Words that are the absence of a flag.
const DEFAULTS: [&str; 6] = ["rw", "suid", "dev", "exec", "atime", "async"];

/// Mounts a new connection on a directory.
///
/// # Errors
/// Those of the kernel and of `fusermount3`.
pub(crate) fn mount(dir: &Path, options: &MountOptions) -> io::Result<Device> {
    match mount_directly(dir, options) {
        // Neither root nor an owner of this mount namespace, or /dev/fuse cannot be opened.
        Err(error)
            if error.kind() == io::ErrorKind::PermissionDenied
                && options.fs_type.starts_with("fuse.") =>
        {
            mount_by_helper(dir, options)
        }
        other => other,
    }
}

fn mount_directly(dir: &Path, options: &MountOptions) -> io::Result<Device> {
    let device = Device::open()?;
    let (flags, data) = split(&options.words);
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}{data}",
        device.as_fd().as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let data = CString::new(data)?;
    rustix::mount::mount(&*options.source, dir, &*options.fs_type, flags, data.as_c_str())?;
    Ok(device)
}

/// Flags of mount(2), and the words for FUSE, each after a comma.
fn split(words: &[String]) -> (MountFlags, String) {
    let (mut flags, mut data) = (MountFlags::empty(), String::new());
    for word in words {
        match FLAGS.iter().find(|(name, _)| name == word) {
            Some((_, flag)) => flags |= *flag,
            None if DEFAULTS.contains(&&**word) => {}
            None => {
                data.push(',');
                data.push_str(word);
            }
        }
    }
    (flags, data)
}

/// Mounts through `fusermount3`, which sends the descriptor of the connection over its standard
/// input.
fn mount_by_helper(dir: &Path, options: &MountOptions) -> io::Result<Device> {
    // It separates options at commas.
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = vec![format!("fsname={source}")];
    words.extend(options.fs_type.split_once('.').map(|(_, name)| format!("subtype={name}")));
    words.extend(options.words.iter().cloned());
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let output = Command::new("fusermount3")
        .args(["-o", &words.join(","), "--"])
        .arg(dir)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::other("fusermount3 is missing: install fuse3"),
            _ => error,
        })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(io::Error::other(said));
    }
    receive(&ours).map(Device::from_fd)
}

/// Receives one descriptor.
fn receive(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(fd) = fds.next()
        {
            return Ok(fd);
        }
    }
    Err(io::Error::other("fusermount3 sent no connection"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_flags_of_the_kernel_or_options_of_fuse() {
        let words = ["ro", "dev", "default_permissions", "nosuid", "allow_other"];
        let (flags, data) = split(&words.map(String::from));
        assert_eq!(flags, MountFlags::RDONLY | MountFlags::NOSUID);
        assert_eq!(data, ",default_permissions,allow_other");
    }
}
