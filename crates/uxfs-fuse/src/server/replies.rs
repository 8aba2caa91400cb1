//! Replies to changes: sent now, or when the change is durable, as the options of the mount say.

use uxfs::SyncKind;
use uxfs::format::Ino;
use uxfs_transport::{Answer, Reply, ReplyEmpty, Request};

use super::Server;
use super::outcome::Result;
use crate::durability::{Caller, Scope, Waiter};
use crate::watcher::Change;

impl Server {
    /// Sends the reply to a change of metadata: now, or when it is durable.
    pub(super) fn reply_to_change<T: Answer + Send + 'static>(
        &self,
        req: &Request,
        result: Result<T>,
        reply: Reply<T>,
    ) {
        match result {
            Ok(value) if self.current_options.for_requests().wsync => {
                let reply = move |durable: Result<()>| reply.send(durable.map(|()| value));
                self.volume.make_durable(Scope::Changes, Waiter::new(Caller::of(req), reply));
            }
            other => reply.send(other),
        }
    }

    /// Sends the reply to a change of a file's content: now, or when it is durable.
    pub(super) fn reply_to_content<T: Answer + Send + 'static>(
        &self,
        req: &Request,
        (ino, is_sync): (Ino, bool),
        result: Result<T>,
        reply: Reply<T>,
    ) {
        let synced = is_sync || self.current_options.for_requests().sync;
        match result {
            Ok(value) if synced && !self.is_ordered() => {
                self.saw(req, &Ok(()), |()| Change::Synced { ino, data_only: false });
                let reply = move |done: Result<()>| reply.send(done.map(|()| value));
                let scope = Scope::File { ino, kind: SyncKind::All, cursor: None };
                self.volume.make_durable(scope, Waiter::new(Caller::of(req), reply));
            }
            other => self.reply_to_change(req, other, reply),
        }
    }

    /// Makes everything durable.
    pub(super) fn sync(&self, req: &Request, reply: ReplyEmpty) {
        self.saw(req, &Ok(()), |()| Change::SyncedAll);
        let waiter = Waiter::new(Caller::of(req), move |done| reply.send(done));
        self.volume.make_durable(Scope::Volume, waiter);
    }
}
