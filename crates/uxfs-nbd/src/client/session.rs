//! The connections to one server, in its present life.
//!
//! 1. They end together: the first that fails ends all.
//! 2. A further connection is made when those that exist are busy, if the server can be used by several.
//! 3. A further connection joins only after an older one has answered a request that was sent when the new one
//!    was ready. The server has then not died between the two. If it had, a flush on the new connection would
//!    succeed, and not cover the writes that the dead server confirmed on the older one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::connection::{Connection, Failed, Ticket};
use super::export::Export;
use super::handshake;
use crate::tls::ClientTls;
use crate::uri::Uri;
use crate::wire;

/// Outstanding requests with which a connection is busy.
const BUSY: usize = 8;

/// How connections are made.
pub(crate) struct Route {
    pub(crate) uri: Uri,
    pub(crate) tls: Option<ClientTls>,
    pub(crate) timeout: Duration,
    pub(crate) connections: usize,
}

pub(crate) struct Session {
    route: Arc<Route>,
    pub(crate) export: Export,
    connections: Mutex<Vec<Arc<Connection>>>,
}

/// A request that was sent.
pub(crate) struct Sent {
    connection: Arc<Connection>,
    ticket: Arc<Ticket>,
}

impl Session {
    /// Connects to a server.
    pub(crate) fn open(route: &Arc<Route>) -> io::Result<Self> {
        let (connection, export) = connect(route)?;
        let connections = Mutex::new(vec![Arc::new(connection)]);
        Ok(Self { route: Arc::clone(route), export, connections })
    }

    /// The least busy connection; a new one if all are busy.
    fn choose(&self) -> Option<Arc<Connection>> {
        let mut connections = self.connections.lock();
        let least = connections.iter().min_by_key(|connection| connection.load()).cloned()?;
        let may = self.export.multi_conn() && connections.len() < self.route.connections;
        if !may || least.load() < BUSY {
            return Some(least);
        }
        // If the server refuses another connection, those that exist are enough.
        match connect(&self.route) {
            Ok((connection, export)) if export == self.export && self.answers(&least) => {
                let connection = Arc::new(connection);
                connections.push(Arc::clone(&connection));
                Some(connection)
            }
            _ => Some(least),
        }
    }

    /// True if the server answers on a connection, even with an error. Otherwise the connection has ended.
    fn answers(&self, connection: &Connection) -> bool {
        let read = connection.send((wire::CMD_READ, 0), 0, self.export.block, &[]);
        let answer = read.and_then(|ticket| connection.wait(&ticket));
        matches!(answer, Ok(_) | Err(Failed::Refused(_)))
    }

    /// Sends a request.
    pub(crate) fn send(
        &self,
        command: (u16, u16),
        offset: u64,
        len: u32,
        data: &[u8],
    ) -> Result<Sent, Failed> {
        let ended = || Failed::Gone("the connections were closed".into());
        let connection = self.choose().ok_or_else(ended)?;
        let ticket = connection.send(command, offset, len, data)?;
        Ok(Sent { connection, ticket })
    }

    /// Ends all connections; what is outstanding fails with `why`.
    pub(crate) fn end(&self, why: &Failed) {
        let connections = std::mem::take(&mut *self.connections.lock());
        connections.iter().for_each(|connection| connection.give_up(why));
    }

    /// Says good-bye on all connections.
    pub(crate) fn disconnect(&self) {
        self.connections.lock().iter().for_each(|connection| connection.disconnect());
    }
}

impl Sent {
    pub(crate) fn wait(self) -> Result<Vec<u8>, Failed> {
        self.connection.wait(&self.ticket)
    }
}

fn connect(route: &Route) -> io::Result<(Connection, Export)> {
    let connected = handshake::connect(&route.uri, route.tls.as_ref(), route.timeout)?;
    let export = connected.export;
    Ok((Connection::new(connected, route.timeout)?, export))
}
