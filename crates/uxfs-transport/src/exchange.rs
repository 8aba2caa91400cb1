//! Requests from memory, without a kernel: for tests and fuzzers of servers.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::count::Tally;
use crate::dispatch;
use crate::filesystem::Filesystem;
use crate::outlet::Outlet;

/// Runs a request given as the bytes that a read of the device returns, and returns the bytes of
/// the replies that were sent meanwhile: none for a request without one or with a later one.
pub fn exchange(server: &impl Filesystem, request: &[u8]) -> Vec<Vec<u8>> {
    let replies = Arc::default();
    dispatch::run_message(server, request, &Tally::default(), |unique| Outlet::Memory {
        replies: Arc::clone(&replies),
        unique,
    });
    let taken: &Mutex<Vec<Vec<u8>>> = &replies;
    std::mem::take(&mut *taken.lock())
}
