//! A server that dies and comes back, again and again, and each time has lost what was not flushed. What a
//! flush confirmed has to be there at every moment, and at the end everything.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use uxfs_disk::BlockDev;
use uxfs_disk::fault::{Fault, plant};
use uxfs_nbd::{ClientOptions, NbdDev};
use uxfs_testkit::Rng;

use crate::fixture::{address, open};
use crate::scripted::{LEN, Scripted, handshake, request, simple};

/// What the server of all lives has.
struct Store {
    rng: Rng,
    /// What it says it has.
    volatile: Vec<u8>,
    /// What it has after it died.
    stable: Vec<u8>,
    life: u64,
    /// Requests until it dies.
    left: u64,
    clients: Vec<UnixStream>,
}

impl Store {
    /// Loses what is volatile and disconnects all clients.
    fn die(&mut self) {
        self.life += 1;
        // Some lives are long enough to receive everything that was not flushed.
        let most = if self.rng.below(4) == 0 { 1000 } else { 60 };
        self.left = 1 + self.rng.below(most);
        self.volatile = self.stable.clone();
        for client in self.clients.drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

fn server(seed: u64) -> (Arc<Mutex<Store>>, Scripted) {
    let zeroes = vec![0; LEN as usize];
    let store = Arc::new(Mutex::new(Store {
        rng: Rng::spread(seed),
        volatile: zeroes.clone(),
        stable: zeroes,
        life: 0,
        left: 20,
        clients: Vec::new(),
    }));
    let of_server = Arc::clone(&store);
    let script = move |mut stream: UnixStream| -> io::Result<()> {
        let life = {
            let mut store = of_server.lock().unwrap();
            store.clients.push(stream.try_clone()?);
            store.life
        };
        handshake(&mut stream, false)?;
        loop {
            let (request, data) = request(&mut stream)?;
            let mut store = of_server.lock().unwrap();
            if store.life != life {
                return Ok(());
            }
            store.left -= 1;
            let dies = store.left == 0;
            // It dies before it does the request, after it, or after it has answered.
            let moment = if dies { store.rng.below(3) } else { 3 };
            let mut answer = Vec::new();
            if moment > 0 {
                let range =
                    request.offset as usize..(request.offset as usize + request.len as usize);
                match request.command {
                    0 => answer.extend_from_slice(&store.volatile[range]),
                    1 => store.volatile[range].copy_from_slice(&data),
                    3 => store.stable = store.volatile.clone(),
                    6 => store.volatile[range].fill(0),
                    _ => {}
                }
            }
            let answered = match moment {
                0 | 1 => Ok(()),
                _ => stream.write_all(&simple(request.cookie, 0, &answer)),
            };
            if dies {
                store.die();
                return Ok(());
            }
            answered?;
        }
    };
    (store, Scripted::start(script))
}

/// Writes and flushes in several threads while the server dies. Returns false if something that a flush
/// confirmed is not stable.
fn holds(seed: u64, fault: Option<Fault>, unflushed_bytes: usize) -> bool {
    const THREADS: usize = 3;
    let (store, server) = server(seed);
    let mut options = ClientOptions::default();
    options.timeout = Duration::from_secs(120);
    options.reconnect = Duration::from_secs(120);
    options.unflushed_bytes = unflushed_bytes;
    let dev = NbdDev::open(address(&server.socket(), "v").parse().unwrap(), options, true).unwrap();
    let part = LEN as usize / THREADS / 4096 * 4096;
    let work = |number: usize| {
        plant(fault);
        let start = number * part;
        let mut rng = Rng::spread(seed ^ (number as u64 + 1) << 32);
        let mut model = vec![0; part];
        for _ in 0..40 {
            let at = rng.index(part - 8192) / 512 * 512;
            let len = 512 * (1 + rng.index(16));
            let offset = (start + at) as u64;
            match rng.below(8) {
                0 => {
                    dev.zero(offset, len as u64).unwrap();
                    model[at..at + len].fill(0);
                }
                1 => {
                    let mut read = vec![0; len];
                    dev.read_at(offset, &mut read).unwrap();
                    if read != model[at..at + len] {
                        return false;
                    }
                }
                2 => {
                    dev.flush().unwrap();
                    if store.lock().unwrap().stable[start..start + part] != model {
                        return false;
                    }
                }
                _ => {
                    let byte = rng.below(256) as u8;
                    dev.write_at(offset, &vec![byte; len]).unwrap();
                    model[at..at + len].fill(byte);
                }
            }
        }
        dev.flush().unwrap();
        store.lock().unwrap().stable[start..start + part] == model
    };
    let all = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || work(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(store.lock().unwrap().life > 0, "the server never died");
    all.into_iter().all(|held| held)
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str, usual| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
    };
    let first = number("UXFS_SEED", 1);
    first..first + number("UXFS_ROUNDS", 25)
}

#[test]
fn what_a_flush_confirmed_outlives_the_server() {
    for seed in seeds() {
        assert!(holds(seed, None, 64 << 20), "UXFS_SEED={seed} UXFS_ROUNDS=1");
        // The memory for writes is so small that the client flushes by itself.
        assert!(holds(seed, None, 20_000), "UXFS_SEED={seed} UXFS_ROUNDS=1, little memory");
    }
}

#[test]
fn a_client_that_forgets_what_was_not_flushed_is_found() {
    let found = seeds().any(|seed| !holds(seed, Some(Fault::UnflushedForgotten), 64 << 20));
    assert!(found, "writes that the server lost were not missed");
}

/// The server dies when the client, which is busy, has made its second connection, and what it confirmed on the
/// first is lost. A flush on the second would succeed and not cover it, so the second must not be used.
#[test]
fn a_connection_to_a_later_life_of_the_server_does_not_join() {
    /// Requests with which a connection is busy.
    const BUSY: u64 = 8;
    #[derive(Default)]
    struct Lives {
        connections: u64,
        used_second: bool,
        /// The blocks that the present server has.
        held: BTreeSet<u64>,
    }
    let lives = Arc::new((Mutex::new(Lives::default()), Condvar::new()));
    let of_server = Arc::clone(&lives);
    let server = Scripted::start(move |mut stream| {
        handshake(&mut stream, false)?;
        let (lives, changed) = &*of_server;
        let number = {
            let mut lives = lives.lock().unwrap();
            lives.connections += 1;
            changed.notify_all();
            lives.connections
        };
        let mut answers = Vec::new();
        loop {
            let (request, _) = request(&mut stream)?;
            let mut now = lives.lock().unwrap();
            now.used_second |= number == 2 && request.command != 2;
            if request.command == 1 {
                now.held.insert(request.offset);
                changed.notify_all();
            }
            let data = vec![0; if request.command == 0 { request.len as usize } else { 0 }];
            answers.extend(simple(request.cookie, 0, &data));
            if number == 1 {
                if now.held.len() as u64 == BUSY {
                    let mut now = changed.wait_while(now, |now| now.connections < 2).unwrap();
                    now.held.clear();
                    return stream.write_all(&answers);
                }
                continue;
            }
            stream.write_all(&answers)?;
            answers.clear();
        }
    });
    let dev = open(&address(&server.socket(), "v")).unwrap();
    let write = |number: u64| dev.write_at(number * 512, &[1; 512]).unwrap();
    std::thread::scope(|scope| {
        let first: Vec<_> = (0..BUSY).map(|n| scope.spawn(move || write(n))).collect();
        let (lives, changed) = &*lives;
        drop(changed.wait_while(lives.lock().unwrap(), |now| (now.held.len() as u64) < BUSY));
        write(BUSY);
        first.into_iter().for_each(|thread| thread.join().unwrap());
    });
    dev.flush().unwrap();
    let now = lives.0.lock().unwrap();
    assert!(!now.used_second);
    assert_eq!(now.held, (0..=BUSY).map(|number| number * 512).collect());
}
