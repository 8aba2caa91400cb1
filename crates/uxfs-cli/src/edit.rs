//! The user who edits an image.

use rustix::fs::Mode;
use uxfs::posix::Creator;

/// The calling user: new files belong to that user, and its umask applies.
pub(crate) fn caller() -> Creator {
    Creator {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        umask: umask(),
    }
}

/// The process' umask.
pub(crate) fn umask() -> u16 {
    // The umask can only be read by setting it. No other thread creates files meanwhile.
    let old = rustix::process::umask(Mode::empty());
    rustix::process::umask(old);
    u16::try_from(old.as_raw_mode() & 0o777).unwrap_or(0o022)
}

/// Asks on standard error. Only an answer that begins with `y` means yes.
pub(crate) fn confirm(question: &[u8]) -> bool {
    use std::io::Write;
    let mut words = std::io::stderr().lock();
    let asked = words.write_all(question).and_then(|()| words.write_all(b"? "));
    let mut answer = String::new();
    let heard = std::io::stdin().read_line(&mut answer);
    asked.is_ok() && heard.is_ok() && answer.trim_start().starts_with(['y', 'Y'])
}
