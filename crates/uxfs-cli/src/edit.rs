//! The user for whom images are edited: owner and umask of new files, and confirmation.

use uxfs::posix::Creator;
use uxfs_host::{User, umask};

/// The user that runs the command. New files get this owner, group and umask.
pub(crate) fn caller() -> Creator {
    let User { uid, gid } = User::current();
    // No other thread creates files meanwhile.
    Creator { uid, gid, umask: umask() }
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
