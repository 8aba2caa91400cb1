//! The user for whom images are edited: owner and umask of new files, and confirmation.

use rustix::fs::Mode;
use uxfs::posix::Creator;

/// The user that runs the command. New files get this owner, group and umask.
pub(crate) fn caller() -> Creator {
    Creator {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        umask: umask(),
    }
}

pub(crate) fn umask() -> u16 {
    // The umask can be read only by setting it. No other thread creates files meanwhile.
    let old = rustix::process::umask(Mode::empty());
    rustix::process::umask(old);
    u16::try_from(old.as_raw_mode() & 0o777).unwrap_or(0o022)
}

/// Asks on standard error. True if the answer on standard input begins with `y`.
pub(crate) fn confirm(question: &[u8]) -> bool {
    use std::io::Write;
    let mut stderr = std::io::stderr().lock();
    let asked = stderr.write_all(question).and_then(|()| stderr.write_all(b"? "));
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    asked.is_ok() && read.is_ok() && answer.trim_start().starts_with(['y', 'Y'])
}
