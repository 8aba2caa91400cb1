//! The connections to one server, in its present life.
//!
//! 1. They end together: the first that fails ends all.
//! 2. A further connection is made when those that exist are busy, if the server can be used by
//!    several. A thread of its own makes it: no request waits for it. A server that refuses one, or
//!    does not answer, is not asked for another.
//! 3. A further connection joins only after an older one has answered a request that was sent when
//!    the new one was ready. The server has then not died between the two. If it had, a flush on
//!    the new connection would succeed, and not cover the writes that the dead server confirmed on
//!    the older one.

use std::io;
use std::sync::{Arc, Weak};
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
    pool: Arc<Pool>,
}

/// The connections of a session.
struct Pool {
    export: Export,
    state: Mutex<State>,
}

struct State {
    /// Empty when the session has ended.
    connections: Vec<Arc<Connection>>,
    /// A further connection is being made, or the server refused one.
    is_full: bool,
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
        let is_full = !export.multi_conn() || route.connections < 2;
        let state = Mutex::new(State { connections: vec![Arc::new(connection)], is_full });
        Ok(Self { route: Arc::clone(route), export, pool: Arc::new(Pool { export, state }) })
    }

    /// The least busy connection. If all are busy, a new one is made meanwhile.
    fn choose(&self) -> Option<Arc<Connection>> {
        let mut state = self.pool.state.lock();
        let least = state.connections.iter().min_by_key(|connection| connection.load()).cloned()?;
        if state.is_full || least.load() < BUSY {
            return Some(least);
        }
        state.is_full = true;
        drop(state);
        // The thread keeps no connection open that the device has given up.
        let (route, pool) = (Arc::clone(&self.route), Arc::downgrade(&self.pool));
        let thread = std::thread::Builder::new().name("nbd-connect".into());
        // Without a thread, the connections that exist are enough.
        let _ = thread.spawn(move || grow(&route, &pool));
        Some(least)
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
        let connections = std::mem::take(&mut self.pool.state.lock().connections);
        connections.iter().for_each(|connection| connection.give_up(why));
    }

    /// Says good-bye on all connections.
    pub(crate) fn disconnect(&self) {
        let connections = self.pool.state.lock().connections.clone();
        connections.iter().for_each(|connection| connection.disconnect());
    }
}

/// Makes a further connection. One that fails leaves the pool full.
fn grow(route: &Route, pool: &Weak<Pool>) {
    let made = connect(route);
    if let (Ok((connection, export)), Some(pool)) = (made, pool.upgrade()) {
        pool.join(connection, export, route.connections);
    }
}

impl Pool {
    /// Takes a new connection in, if it leads to the server of the older ones.
    fn join(&self, connection: Connection, export: Export, most: usize) {
        let Some(older) = self.state.lock().connections.first().cloned() else { return };
        if export != self.export || !self.answers(&older) {
            return;
        }
        let mut state = self.state.lock();
        if !state.connections.is_empty() {
            state.connections.push(Arc::new(connection));
            state.is_full = state.connections.len() >= most;
        }
    }

    /// True if the server answers on a connection, even with an error. Otherwise the connection has ended.
    fn answers(&self, connection: &Connection) -> bool {
        let read = connection.send((wire::CMD_READ, 0), 0, self.export.block, &[]);
        let answer = read.and_then(|ticket| connection.wait(&ticket));
        matches!(answer, Ok(_) | Err(Failed::Refused(_)))
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
