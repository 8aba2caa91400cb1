//! A request that waits until its server admits changes again.
//!
//! 1. It owns its arguments: the memory that it came in takes further requests meanwhile.
//! 2. If it is dropped, its caller gets EIO.
//!
//! Made by the dispatch, kept by the server ([`crate::Filesystem::park`]).

use crate::Errno;
use crate::abi::InHeader;
use crate::dispatch;
use crate::filesystem::Filesystem;
use crate::outlet::Outlet;
use crate::request::{Args, Origin};

/// A request that waits.
pub struct Parked {
    head: InHeader,
    fixed: Box<[u8]>,
    rest: Box<[u8]>,
    origin: Origin,
    /// `None` for a request without a reply.
    outlet: Option<Outlet>,
}

impl Parked {
    pub(crate) fn new(
        head: &InHeader,
        args: Args<'_>,
        origin: Origin,
        outlet: Option<Outlet>,
    ) -> Self {
        Self { head: *head, fixed: args.fixed.into(), rest: args.rest.into(), origin, outlet }
    }

    /// Runs it. It is parked again if the server does not admit it.
    pub fn run(mut self, server: &impl Filesystem) {
        let args = Args { fixed: &self.fixed, rest: &self.rest };
        dispatch::run_again(server, &self.head, args, self.origin, self.outlet.take());
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if let Some(outlet) = self.outlet.take() {
            outlet.send(Err(Errno::IO), &[]);
        }
    }
}
