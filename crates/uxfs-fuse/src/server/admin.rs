//! Requests that act on the whole mount or run for long: options, growth, freeze, scrub, trim, defragmentation.
//!
//! 1. What takes long runs in a thread of its own, and its reply is sent from there. If the thread cannot be
//!    started, dropping the reply answers with an error.
//! 2. What costs memory or threads is bounded; one request more is refused with EBUSY.
//! 3. Only root and the user who mounted the volume may administer it.
//!
//! Called by the dispatch of attributes' names and ioctls.

use std::sync::Arc;

use uxfs_transport::{Errno, Node, ReplyIoctl, ReplyXattr, Request};

use super::outcome::Result;
use super::{Server, ioctl};
use crate::{control, defrag, growth};

/// Most FITRIMs at once.
const TRIMS_MAX: usize = 16;
/// Most parts of files that are moved at a time: each takes a thread, and memory for up to 16 MiB of content.
const DEFRAGS_MAX: usize = 4;

impl Server {
    /// Discards free space. The reply is sent when that is done.
    pub(super) fn trim(&self, call: &ioctl::Call<'_>, reply: ReplyIoctl) {
        let trim = self.volume.with(|fs| Ok(ioctl::Trim::of(fs, call)));
        let trim = match trim {
            Ok(Ok(trim)) => trim,
            Ok(Err(error)) | Err(error) => return reply.error(error),
        };
        let (range, least) = (trim.range.clone(), trim.least);
        let share = Arc::clone(&self.trims);
        // The server has a share too.
        if Arc::strong_count(&share) > TRIMS_MAX + 1 {
            return reply.error(Errno::BUSY);
        }
        // If no thread can be started, dropping the reply answers with an error.
        let _ = self.volume.trim(range, least, move |done| {
            drop(share);
            match done {
                Ok(trimmed) => reply.send(Ok(&trim.answer(trimmed))),
                Err(error) => reply.error(error),
            }
        });
    }

    /// Changes the options of the mount in a thread of its own. Other requests continue as far as
    /// they need not wait for the volume.
    pub(super) fn remount(&self, req: &Request, words: &[u8], reply: ReplyXattr) {
        // The options say how much of this machine's memory is used.
        if let Err(error) = may_administer(req) {
            return reply.error(error);
        }
        let (volume, words) = (Arc::clone(&self.volume), String::from_utf8_lossy(words).into());
        let work = std::thread::Builder::new().name("uxfs-remount".into());
        // If no thread can be started, dropping the reply answers with an error.
        let _ = work.spawn(move || {
            reply.send(Ok(&control::remounted(volume.remount(words))));
        });
    }

    /// Grows the volume in a thread of its own.
    pub(super) fn grow(&self, req: &Request, words: &[u8], reply: ReplyXattr) {
        // A growth lengthens files of this machine.
        if let Err(error) = may_administer(req) {
            return reply.error(error);
        }
        let (volume, words) =
            (Arc::clone(&self.volume), String::from_utf8_lossy(words).into_owned());
        let work = std::thread::Builder::new().name("uxfs-growth".into());
        // If no thread can be started, dropping the reply answers with an error.
        let _ = work.spawn(move || {
            reply.send(Ok(&volume.grow(&words).unwrap_or_else(growth::refused)));
        });
    }

    /// Freezes or thaws the volume. A failed freeze thaws what it held back.
    pub(super) fn freeze_or_thaw(&self, req: &Request, freezes: bool, reply: ReplyXattr) {
        // All users of this machine wait for the thaw.
        if let Err(error) = may_administer(req) {
            return reply.error(error);
        }
        let done = if freezes { self.volume.freeze() } else { self.volume.thaw() };
        let value = control::froze(freezes);
        reply.send(done.map(|()| &*value));
        self.volume.freeze.run_waiting();
    }

    /// Begins a scrub, or ends it.
    pub(super) fn scrub(&self, req: &Request, begins: Option<&[u8]>, reply: ReplyXattr) {
        if let Err(error) = may_administer(req) {
            return reply.error(error);
        }
        let done = match begins {
            Some(words) => self.volume.begin_scrub(words),
            None => {
                self.volume.end_scrub("it was interrupted", false);
                Ok(Vec::new())
            }
        };
        reply.send(done.as_deref().map_err(|error| *error));
    }

    /// Moves a part of a file, in a thread of its own.
    pub(super) fn defrag(&self, req: &Request, node: Node, words: &[u8], reply: ReplyXattr) {
        let Some(request) = defrag::Request::parse(words) else {
            return reply.error(Errno::INVAL);
        };
        let ino = self.ino(node);
        let owner = match self.volume.with(|fs| fs.stat(ino)) {
            Ok(stat) => stat.uid,
            Err(error) => return reply.error(error),
        };
        let server = rustix::process::geteuid().as_raw();
        let of_mount = !req.is_of_guest() && req.uid() == server;
        if req.uid() != 0 && req.uid() != owner && !of_mount {
            return reply.error(Errno::PERM);
        }
        let share = Arc::clone(&self.defrags);
        // The server has a share too.
        if Arc::strong_count(&share) > DEFRAGS_MAX + 1 {
            return reply.error(Errno::BUSY);
        }
        let volume = Arc::clone(&self.volume);
        let work = std::thread::Builder::new().name("uxfs-defrag".into());
        // If no thread can be started, dropping the reply answers with an error.
        let _ = work.spawn(move || {
            let value = volume.with(|fs| request.run(fs, ino));
            drop(share);
            reply.send(value.as_deref().map_err(|error| *error));
        });
    }
}

/// Only root and the user who mounted the volume, and no guest.
pub(super) fn may_administer(req: &Request) -> Result<()> {
    let owner = rustix::process::geteuid().as_raw();
    match !req.is_of_guest() && (req.uid() == 0 || req.uid() == owner) {
        true => Ok(()),
        false => Err(Errno::PERM),
    }
}
