//! The power switch of a disk that `uxfs disk serve` serves: the server's side and the command.
//!
//! A connection carries lines. An order is `off SEED`, `on` or `status`; the answer is a JSON document in one
//! line.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use uxfs_host::ListeningSocket;
use uxfs_models::SwitchedDev;

use crate::session::{Failure, Result, Session};

/// Cut the power of a disk that `uxfs disk serve` serves, or give it back
///
/// Without power every request to the disk fails. What was flushed is there afterwards; of other writes, whole
/// ones, parts or nothing, as the seed decides.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs disk power /run/power.sock off\n  \
    uxfs disk power /run/power.sock off --seed 7\n  \
    uxfs disk power /run/power.sock on\n  \
    uxfs disk power /run/power.sock status --json")]
pub(crate) struct Power {
    /// Decides what is left of the cache
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print a JSON document
    #[arg(long)]
    pub(super) json: bool,
    /// The socket that `uxfs disk serve --control` names
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    /// What to do
    #[arg(value_name = "off|on|status")]
    order: Order,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    Off,
    On,
    Status,
}

/// The server's side. It ends with the process; its socket goes when this is dropped.
pub(super) struct Switch {
    _socket: ListeningSocket,
}

impl Switch {
    pub(super) fn start(path: &Path, disk: &Arc<SwitchedDev>) -> io::Result<Self> {
        let socket = ListeningSocket::bind(path, 0o600, None)?;
        let (listening, disk) = (socket.listener().try_clone()?, Arc::clone(disk));
        std::thread::Builder::new().name("power".into()).spawn(move || {
            for client in listening.incoming().flatten() {
                // A client that goes away has its answer, or wants none.
                let _ = serve(&client, &disk);
            }
        })?;
        Ok(Self { _socket: socket })
    }
}

fn serve(client: &UnixStream, disk: &SwitchedDev) -> io::Result<()> {
    for line in BufReader::new(client).lines() {
        let mut answer = obey(&line?, disk);
        if let Some(answer) = answer.as_object_mut() {
            let (writes, bytes) = disk.cached();
            answer.insert("power".into(), if disk.is_on() { "on" } else { "off" }.into());
            answer.insert("cached_writes".into(), writes.into());
            answer.insert("cached_bytes".into(), bytes.into());
        }
        let mut to = client;
        to.write_all(format!("{answer}\n").as_bytes())?;
    }
    Ok(())
}

fn obey(order: &str, disk: &SwitchedDev) -> Value {
    let mut words = order.split_whitespace();
    match (words.next(), words.next().map(str::parse::<u64>), words.next()) {
        (Some("off"), seed @ (None | Some(Ok(_))), None) => {
            let seed = seed.and_then(std::result::Result::ok).unwrap_or(1);
            match disk.cut(seed) {
                Ok(cut) => json!({ "writes_lost": cut.lost, "writes_torn": cut.torn }),
                Err(error) => json!({ "error": error.to_string() }),
            }
        }
        (Some("on"), None, _) => {
            disk.restore();
            json!({})
        }
        (Some("status"), None, _) => json!({}),
        _ => json!({ "error": "an order is off [SEED], on or status" }),
    }
}

/// Sends an order, and returns the answer.
fn ask(socket: &Path, order: &str) -> io::Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(format!("{order}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(|_| io::Error::other("no disk answers on this socket"))
}

pub(super) fn run(options: &Power, session: &Session) -> Result<()> {
    let order = match options.order {
        Order::Off => format!("off {}", options.seed),
        Order::On => "on".into(),
        Order::Status => "status".into(),
    };
    let answer = ask(&options.socket, &order).map_err(|e| Failure::host(&options.socket, &e))?;
    if let Some(error) = answer.get("error").and_then(Value::as_str) {
        return Err(Failure::new(&options.socket, error));
    }
    if options.json {
        return session.print(format!("{answer}\n"));
    }
    let number = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or_default();
    let power = answer.get("power").and_then(Value::as_str).unwrap_or("unknown");
    session.print(match options.order {
        Order::Off => {
            format!(
                "power {power}: {} writes lost, {} torn\n",
                number("writes_lost"),
                number("writes_torn")
            )
        }
        Order::On => format!("power {power}\n"),
        Order::Status => format!(
            "power {power}: {} writes in the cache, {} bytes\n",
            number("cached_writes"),
            number("cached_bytes")
        ),
    })
}

#[cfg(test)]
mod tests {
    use uxfs::disk::{BlockDev, MemDev};

    use super::*;

    #[test]
    fn orders_are_obeyed_and_others_refused() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(SwitchedDev::new(Arc::new(MemDev::new(1 << 20)), 1 << 20, None));
        let path = dir.path().join("s");
        let switch = Switch::start(&path, &disk).unwrap();
        let ask = |order: &str| ask(&path, order).unwrap();
        disk.write_at(0, &[1; 512]).unwrap();
        let status = ask("status");
        assert_eq!((&status["power"], &status["cached_bytes"]), (&json!("on"), &json!(512)));
        let off = ask("off 3");
        assert_eq!((&off["power"], &off["cached_bytes"]), (&json!("off"), &json!(0)));
        assert!(off["writes_lost"].is_u64() && disk.read_at(0, &mut [0]).is_err());
        assert_eq!(ask("on")["power"], json!("on"));
        disk.read_at(0, &mut [0]).unwrap();
        for wrong in ["", "of", "off x", "off 1 2", "on 1"] {
            assert!(ask(wrong)["error"].is_string(), "{wrong:?}");
        }
        assert!(disk.is_on());
        drop(switch);
        assert!(!path.exists());
    }
}
