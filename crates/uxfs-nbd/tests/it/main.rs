//! The client and the server against each other, against those of other people, and against hostile ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod certificates;
mod fixture;
mod hostile_clients;
mod hostile_servers;
mod lives;
mod other_clients;
mod other_servers;
mod scripted;
