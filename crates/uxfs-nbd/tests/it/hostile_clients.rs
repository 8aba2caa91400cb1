//! Clients that break the protocol: the server disconnects them, or answers with an error, and serves the
//! others.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use uxfs_disk::{BlockDev, MemDev};
use uxfs_nbd::ServerOptions;
use uxfs_testkit::Rng;

use crate::fixture::{Ours, address, open};

const LEN: u64 = 1 << 20;

fn server() -> (Arc<MemDev>, Ours) {
    let mem = Arc::new(MemDev::new(LEN));
    let options = ServerOptions { export: "v".into(), ..ServerOptions::default() };
    (Arc::clone(&mem), Ours::start(mem, options))
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let len = data.len() as u32;
    [b"IHAVEOPT", &number.to_be_bytes()[..], &len.to_be_bytes(), data].concat()
}

/// A client that has chosen the export.
fn connected(ours: &Ours) -> UnixStream {
    let mut stream = UnixStream::connect(ours.socket()).unwrap();
    let choose = option(1, b"v");
    stream.write_all(&[&[0, 0, 0, 3][..], &choose].concat()).unwrap();
    let mut hello = [0; 18 + 10];
    stream.read_exact(&mut hello).unwrap();
    assert_eq!(hello[18..26], LEN.to_be_bytes());
    stream
}

fn request(command: u16, flags: u16, offset: u64, len: u32) -> Vec<u8> {
    let parts: [&[u8]; 6] = [
        &0x2560_9513_u32.to_be_bytes(),
        &flags.to_be_bytes(),
        &command.to_be_bytes(),
        &7_u64.to_be_bytes(),
        &offset.to_be_bytes(),
        &len.to_be_bytes(),
    ];
    parts.concat()
}

#[test]
fn requests_that_cannot_be_done_are_answered_with_errors() {
    let (_, ours) = server();
    let mut stream = connected(&ours);
    for (command, flags, offset, len, error) in [
        (0, 0, LEN, 1, 22),
        (0, 0, u64::MAX, 512, 22),
        (0, 0, 0, u32::MAX, 22),
        (1, 0, LEN - 1, 2, 28),
        (4, 0, LEN, 1, 28),
        (6, 0, u64::MAX, u32::MAX, 28),
        (0, 1 << 4, 0, 512, 22),
        (99, 0, 0, 0, 22),
        (7, 0, 0, 512, 22),
        (3, 0, u64::MAX, u32::MAX, 0),
    ] {
        let payload = if command == 1 { vec![9; len as usize] } else { Vec::new() };
        stream.write_all(&[request(command, flags, offset, len), payload].concat()).unwrap();
        let mut reply = [0; 16];
        stream.read_exact(&mut reply).unwrap();
        let found = u32::from_be_bytes(reply[4..8].try_into().unwrap());
        assert_eq!(found, error, "command {command} at {offset}, {len} bytes");
    }
}

/// Greets the server, and sends options.
fn greeted(ours: &Ours, options: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(ours.socket()).unwrap();
    stream.write_all(&[&[0, 0, 0, 3][..], options].concat()).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream
}

/// The kind of the next reply to an option.
fn reply_kind(stream: &mut UnixStream) -> u32 {
    let mut head = [0; 20];
    stream.read_exact(&mut head).unwrap();
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    stream.read_exact(&mut vec![0; number(16) as usize]).unwrap();
    number(12)
}

/// By the protocol's mode without TLS; the client may go on without.
#[test]
fn a_server_without_tls_says_so() {
    let (_, ours) = server();
    let go = [&1_u32.to_be_bytes()[..], b"v", &[0, 0]].concat();
    let mut stream = greeted(&ours, &[option(5, &[]), option(7, &go)].concat());
    assert_eq!(reply_kind(&mut stream), 1 << 31 | 2, "NBD_REP_ERR_POLICY");
    assert_eq!(reply_kind(&mut stream), 3, "the export is described all the same");
}

/// A chunk of data has at least one byte of it, so there is none.
#[test]
fn a_read_of_no_bytes_is_answered_without_data() {
    let (_, ours) = server();
    let mut stream = greeted(&ours, &[option(8, &[]), option(1, b"v")].concat());
    assert_eq!(reply_kind(&mut stream), 1);
    stream.read_exact(&mut [0; 10]).unwrap();
    stream.write_all(&request(0, 0, 512, 0)).unwrap();
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).unwrap();
    // Done, no content, the cookie, no bytes.
    assert_eq!(reply[..4], 0x668e_33ef_u32.to_be_bytes());
    assert_eq!(reply[4..8], [0, 1, 0, 0]);
    assert_eq!((&reply[8..16], &reply[16..]), (&7_u64.to_be_bytes()[..], &[0; 4][..]));
    stream.write_all(&request(0, 0, 512, 512)).unwrap();
    stream.read_exact(&mut [0; 28 + 512]).unwrap();
}

/// One takes its answers slowly, one has begun a request and is silent, one is silent in the
/// handshake.
#[test]
fn clients_do_not_keep_a_server_that_is_stopped() {
    const PIECE: u32 = 32 << 20;
    let options = ServerOptions { export: "v".into(), ..ServerOptions::default() };
    let ours = Ours::start(Arc::new(MemDev::new(PIECE.into())), options);
    let mut slow = greeted(&ours, &option(1, b"v"));
    slow.read_exact(&mut [0; 10]).unwrap();
    slow.write_all(&request(0, 0, 0, PIECE).repeat(8)).unwrap();
    slow.read_exact(&mut [0; 100]).unwrap();
    let mut silent = greeted(&ours, &option(1, b"v"));
    silent.write_all(&request(1, 0, 0, PIECE)).unwrap();
    let _greeted = greeted(&ours, &[]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) && slow.read_exact(&mut [0; 65536]).is_ok() {
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let (ended, end) = channel();
        std::thread::spawn(move || ended.send(ours.stop()));
        // A limit, in case it never ends.
        let stopped = end.recv_timeout(Duration::from_secs(60));
        over.store(true, Ordering::SeqCst);
        stopped.unwrap().unwrap();
    });
}

#[test]
fn clients_that_break_the_protocol_are_disconnected_alone() {
    let (mem, ours) = server();
    let dev = open(&address(&ours.socket(), "v")).unwrap();
    dev.write_at(0, &[5; 4096]).unwrap();
    for wrong in [request(1, 0, 0, u32::MAX), vec![0; 28], request(2, 0, 0, 0)] {
        let mut stream = connected(&ours);
        stream.write_all(&wrong).unwrap();
        let mut rest = Vec::new();
        // It is disconnected, with or without a reset.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
    for wrong in [
        [&[0, 0, 0, 1][..], &[0xff; 64]].concat(),
        [&[0xff; 4][..], &option(7, &[])].concat(),
        [&[0, 0, 0, 3][..], b"IHAVEOPT", &7_u32.to_be_bytes(), &u32::MAX.to_be_bytes()].concat(),
        [&[0, 0, 0, 3][..], &option(1, b"no such export")].concat(),
        [&[0, 0, 0, 3][..], &option(55, &[]).repeat(100)].concat(),
    ] {
        let mut stream = UnixStream::connect(ours.socket()).unwrap();
        // The server may be faster in ending the connection.
        let _ = stream.write_all(&wrong);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let mut held = [0; 4096];
    dev.read_at(0, &mut held).unwrap();
    mem.read_at(0, &mut held).unwrap();
    assert_eq!(held, [5; 4096]);
}

#[test]
fn nonsense_from_a_seed_never_ends_the_server() {
    let first = std::env::var("UXFS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (_, ours) = server();
    for seed in first..first + 300 {
        let mut rng = Rng::spread(seed);
        let mut stream = if rng.below(2) == 0 {
            connected(&ours)
        } else {
            UnixStream::connect(ours.socket()).unwrap()
        };
        for _ in 0..rng.below(20) {
            let mut bytes = match rng.below(3) {
                0 => (0..rng.below(100)).map(|_| rng.below(256) as u8).collect(),
                1 => option(rng.below(12) as u32, &vec![rng.below(3) as u8; rng.index(40)]),
                _ => {
                    let (offset, len) = (rng.below(2 * LEN), rng.below(2 * LEN) as u32);
                    request(rng.below(8) as u16, rng.below(4) as u16, offset, len)
                }
            };
            if rng.below(4) == 0 && !bytes.is_empty() {
                let at = rng.index(bytes.len());
                bytes[at] ^= 1 << rng.below(8);
            }
            if stream.write_all(&bytes).is_err() {
                break;
            }
        }
    }
    open(&address(&ours.socket(), "v")).unwrap().flush().unwrap();
    ours.stop().unwrap();
}
