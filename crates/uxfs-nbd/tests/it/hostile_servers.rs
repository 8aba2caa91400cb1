//! Servers that break the protocol, each in one way. The client fails, in bounded time and memory, and
//! says why.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uxfs_disk::{BlockDev, host};
use uxfs_nbd::{ClientOptions, NbdDev};

use crate::fixture::{self, address};
use crate::scripted::{
    FLAGS, LEN, Request, Scripted, chunk, data, export, greet, handshake, join, option,
    option_reply, request, simple,
};

/// A client that does not wait long.
fn open(server: &Scripted) -> io::Result<NbdDev> {
    let mut options = ClientOptions::default();
    options.timeout = Duration::from_millis(300);
    options.reconnect = Duration::from_millis(300);
    NbdDev::open(address(&server.socket(), "v").parse().unwrap(), options, true)
}

/// Does nothing until the client is gone.
fn stand_still(mut stream: UnixStream) -> io::Result<()> {
    io::copy(&mut stream, &mut io::sink()).map(drop)
}

/// A server that answers a read in this way.
fn answering(
    structured: bool,
    answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static,
) -> Scripted {
    Scripted::start(move |mut stream| {
        handshake(&mut stream, structured)?;
        loop {
            let (request, _) = request(&mut stream)?;
            stream.write_all(&answer(&request))?;
        }
    })
}

#[test]
fn wrong_handshakes_are_refused() {
    type Hello = fn(&mut UnixStream) -> io::Result<()>;
    let cases: [(&str, Hello, &str); 10] = [
        ("another protocol", |s| s.write_all(b"SSH-2.0-OpenSSH_9.2\r\n"), "does not begin"),
        ("oldstyle", |s| s.write_all(b"NBDMAGIC\0\x42\x02\x81\x86\x12\x53\0\0"), "oldstyle"),
        ("not fixed", |s| s.write_all(b"NBDMAGICIHAVEOPT\0\0"), "fixed newstyle"),
        (
            "another option",
            |s| {
                greet(s)?;
                option(s)?;
                s.write_all(&option_reply(3, 1, &[]))
            },
            "answers option 3",
        ),
        (
            "a long reply",
            |s| {
                greet(s)?;
                option(s)?;
                let mut reply = option_reply(8, 1, &[]);
                reply[16..20].fill(0xff);
                s.write_all(&reply)
            },
            "bytes",
        ),
        (
            "no export",
            |s| {
                greet(s)?;
                option(s)?;
                s.write_all(&option_reply(8, 1 << 31 | 1, &[]))?;
                option(s)?;
                s.write_all(&option_reply(7, 1, &[]))
            },
            "does not describe",
        ),
        (
            "replies without end",
            |s| {
                greet(s)?;
                option(s)?;
                s.write_all(&option_reply(8, 1 << 31 | 1, &[]))?;
                option(s)?;
                (0..100).try_for_each(|_| s.write_all(&export(LEN, FLAGS)))
            },
            "no end",
        ),
        (
            "a vast export",
            |s| {
                greet(s)?;
                option(s)?;
                s.write_all(&option_reply(8, 1, &[]))?;
                option(s)?;
                s.write_all(&join(&[&export(u64::MAX, FLAGS), &option_reply(7, 1, &[])]))
            },
            "18446744073709551615",
        ),
        (
            "blocks of no bytes",
            |s| {
                greet(s)?;
                option(s)?;
                s.write_all(&option_reply(8, 1, &[]))?;
                option(s)?;
                let sizes = join(&[&[0, 3], &[0; 12]]);
                let reply =
                    [export(LEN, FLAGS), option_reply(7, 3, &sizes), option_reply(7, 1, &[])];
                s.write_all(&reply.concat())
            },
            "blocks of 0",
        ),
        (
            "a refusal with escape sequences",
            |s| {
                greet(s)?;
                option(s)?;
                s.write_all(&option_reply(8, 1, &[]))?;
                option(s)?;
                s.write_all(&option_reply(7, 1 << 31 | 2, b"\x1b[2J no"))
            },
            "\\u{1b}[2J no",
        ),
    ];
    for (name, hello, said) in cases {
        let server = Scripted::start(move |mut stream| {
            hello(&mut stream)?;
            stand_still(stream)
        });
        let error = open(&server).err().unwrap_or_else(|| panic!("{name}: opened"));
        assert!(error.to_string().contains(said), "{name}: {error}");
    }
    let server = Scripted::start(stand_still);
    assert!(open(&server).is_err(), "a server that says nothing is not waited for");
}

#[test]
fn wrong_replies_lose_the_device() {
    type Answer = fn(&Request) -> Vec<u8>;
    let cases: [(&str, bool, Answer, &str); 14] = [
        ("another cookie", false, |r| simple(r.cookie + 1, 0, &[0; 512]), "no request"),
        ("no magic", false, |_| vec![7; 64], "begins with"),
        (
            "chunks that were not agreed on",
            false,
            |r| data(r, true, r.offset, &[0; 512]),
            "begins with",
        ),
        ("no chunks", true, |r| simple(r.cookie, 0, &[0; 512]), "without chunks"),
        ("missing bytes", true, |r| data(r, true, r.offset, &[0; 100]), "missing"),
        ("no data", true, |r| chunk(r.cookie, true, 0, &[]), "missing"),
        (
            "bytes of elsewhere",
            true,
            |r| data(r, true, r.offset + 512, &[0; 512]),
            "not of its read",
        ),
        ("an overflow", true, |r| data(r, true, u64::MAX, &[0; 512]), "not of its read"),
        (
            "repeated bytes",
            true,
            |r| join(&[&data(r, false, r.offset, &[0; 512]), &data(r, true, r.offset, &[0; 512])]),
            "repeats",
        ),
        ("too many bytes", true, |r| data(r, true, r.offset, &[0; 513]), "not of its read"),
        (
            "a vast hole",
            true,
            |r| {
                let hole = join(&[&r.offset.to_be_bytes(), &u32::MAX.to_be_bytes()]);
                chunk(r.cookie, true, 2, &hole)
            },
            "not of its read",
        ),
        ("an unknown chunk", true, |r| chunk(r.cookie, true, 77, &[]), "type 77"),
        ("an error that is none", true, |r| chunk(r.cookie, true, 0x8001, &[0; 6]), "no error"),
        (
            "a second reply",
            false,
            |r| join(&[&simple(r.cookie, 0, &[0; 512]), &simple(r.cookie, 0, &[0; 512])]),
            "no request",
        ),
    ];
    for (name, structured, answer, said) in cases {
        let server = answering(structured, answer);
        let dev = open(&server).unwrap();
        let mut buf = [0; 512];
        // A second reply is found at the next request, or before it.
        let error = (0..100)
            .find_map(|_| dev.read_at(4096, &mut buf).err())
            .unwrap_or_else(|| panic!("{name}: accepted"));
        assert!(host::is_lost(&error) && error.to_string().contains(said), "{name}: {error}");
        assert!(dev.check_present().is_err() && dev.flush().is_err(), "{name}");
    }
}

/// A server whose answers come byte by byte is not waited for much longer than one that says
/// nothing.
#[test]
fn a_handshake_that_drips_is_given_up() {
    let server = Scripted::start(|mut stream| {
        greet(&mut stream)?;
        option(&mut stream)?;
        // Less would be a handshake that has ended.
        for byte in option_reply(8, 1, &[0; 60_000]).into_iter().take(200) {
            stream.write_all(&[byte])?;
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    });
    let error = open(&server).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
}

/// A server that accepts no connection any more, and whose backlog is full.
#[test]
fn a_connection_that_is_not_accepted_is_not_awaited_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let socket = || {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
    };
    let place = rustix::net::SocketAddrUnix::new(&path).unwrap();
    let listener = socket();
    rustix::net::bind(&listener, &place).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let mut waiting = Vec::new();
    loop {
        let client = socket();
        match rustix::net::connect(&client, &place) {
            Ok(()) => waiting.push(client),
            Err(error) => break assert_eq!(error, rustix::io::Errno::AGAIN),
        }
    }
    let (sent, opened) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut options = ClientOptions::default();
        options.timeout = Duration::from_millis(300);
        let uri = address(&path, "v").parse().unwrap();
        sent.send(NbdDev::open(uri, options, true).err().map(|error| error.to_string()))
    });
    // A limit, in case it never fails.
    let error = opened.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
    assert!(error.contains("accepts no connection"), "{error}");
}

/// A server whose storage cannot zero writes what it is to zero, so a request is no longer than a
/// write, and there are few at a time.
#[test]
fn a_long_range_is_zeroed_in_pieces() {
    const WHOLE: u64 = 1 << 30;
    let seen = Arc::<Mutex<Vec<u64>>>::default();
    let of_server = Arc::clone(&seen);
    let server = Scripted::start(move |mut stream| {
        greet(&mut stream)?;
        option(&mut stream)?;
        stream.write_all(&option_reply(8, 1 << 31 | 1, &[]))?;
        option(&mut stream)?;
        stream.write_all(&join(&[&export(WHOLE, FLAGS), &option_reply(7, 1, &[])]))?;
        loop {
            let (request, _) = request(&mut stream)?;
            if request.command == 6 {
                of_server.lock().unwrap().push(request.len.into());
            }
            stream.write_all(&simple(request.cookie, 0, &[]))?;
        }
    });
    let dev = fixture::open(&address(&server.socket(), "v")).unwrap();
    dev.zero(0, WHOLE).unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.iter().sum::<u64>(), WHOLE);
    assert!(seen.iter().all(|len| *len <= 32 << 20), "{seen:?}");
}

#[test]
fn a_server_that_stands_still_is_given_up() {
    for answers in [0, 3] {
        let server = Scripted::start(move |mut stream| {
            handshake(&mut stream, false)?;
            for _ in 0..answers {
                let (request, _) = request(&mut stream)?;
                stream.write_all(&simple(request.cookie, 0, &[1; 512]))?;
            }
            stand_still(stream)
        });
        let dev = open(&server).unwrap();
        let mut buf = [0; 512];
        (0..answers).for_each(|_| dev.read_at(0, &mut buf).unwrap());
        let error = dev.read_at(0, &mut buf).unwrap_err();
        assert!(host::is_lost(&error), "{error}");
        assert!(error.to_string().contains("not answered"), "{error}");
    }
}

#[test]
fn a_flush_that_fails_is_not_a_flush() {
    let server = Scripted::start(|mut stream| {
        handshake(&mut stream, false)?;
        loop {
            let (request, _) = request(&mut stream)?;
            let error = if request.command == 3 { 5 } else { 0 };
            stream.write_all(&simple(request.cookie, error, &[]))?;
        }
    });
    let dev = open(&server).unwrap();
    dev.write_at(0, &[1; 512]).unwrap();
    assert!(dev.flush().is_err());
    // The export has no FUA.
    assert!(!dev.has_fua() && dev.write_fua_at(0, &[1; 512]).is_err());
    assert!(dev.write_at(512, &[1; 512]).is_ok(), "an error concerns its request");
}

#[test]
fn a_server_that_comes_back_with_another_export_is_given_up() {
    let first = std::sync::atomic::AtomicBool::new(true);
    let server = Scripted::start(move |mut stream| {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            handshake(&mut stream, false)?;
            return request(&mut stream).map(drop);
        }
        greet(&mut stream)?;
        option(&mut stream)?;
        stream.write_all(&option_reply(8, 1 << 31 | 1, &[]))?;
        option(&mut stream)?;
        stream.write_all(&join(&[&export(2 * LEN, FLAGS), &option_reply(7, 1, &[])]))?;
        stand_still(stream)
    });
    let dev = open(&server).unwrap();
    let error = dev.read_at(0, &mut [0; 512]).unwrap_err();
    assert!(host::is_lost(&error) && error.to_string().contains("another export"), "{error}");
}

#[test]
fn a_server_that_does_not_come_back_is_waited_for_only_so_long() {
    let first = std::sync::atomic::AtomicBool::new(true);
    let server = Scripted::start(move |mut stream| {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            handshake(&mut stream, false)?;
            return request(&mut stream).map(drop);
        }
        Ok(())
    });
    let dev = open(&server).unwrap();
    let error = dev.read_at(0, &mut [0; 512]).unwrap_err();
    assert!(host::is_lost(&error) && error.to_string().contains("did not come back"), "{error}");
}

/// What a server that greets one client has seen.
#[derive(Default)]
struct Seen {
    clients: usize,
    /// Requests that came after the second client.
    requests: usize,
    second: Option<UnixStream>,
    /// The second client left before it was ended.
    gave_up: bool,
}

/// As qemu-nbd with `--shared=1`, whose further clients wait in the backlog. The server ends the second one
/// after 100 requests of the first.
#[test]
fn a_server_that_greets_no_further_connection_delays_no_request() {
    let state = Arc::<Mutex<Seen>>::default();
    let of_server = Arc::clone(&state);
    let server = Scripted::start(move |mut stream| {
        let number = {
            let mut seen = of_server.lock().unwrap();
            seen.clients += 1;
            if seen.clients == 2 {
                seen.second = Some(stream.try_clone()?);
            }
            seen.clients
        };
        if number > 1 {
            stand_still(stream)?;
            let mut seen = of_server.lock().unwrap();
            seen.gave_up |= seen.requests < 100;
            return Ok(());
        }
        handshake(&mut stream, false)?;
        let mut held = VecDeque::new();
        loop {
            held.push_back(request(&mut stream)?.0.cookie);
            let mut seen = of_server.lock().unwrap();
            if let Some(second) = &seen.second {
                let second = second.try_clone()?;
                seen.requests += 1;
                if seen.requests == 100 {
                    second.shutdown(Shutdown::Both)?;
                }
            }
            // A connection with so many outstanding requests is busy.
            let most = if seen.second.is_some() { 0 } else { 12 };
            drop(seen);
            while held.len() > most {
                let cookie = held.pop_front().unwrap();
                stream.write_all(&simple(cookie, 0, &[1; 512]))?;
            }
        }
    });
    let dev = fixture::open(&address(&server.socket(), "v")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| (0..20).for_each(|_| dev.read_at(0, &mut [0; 512]).unwrap()));
        }
    });
    let seen = state.lock().unwrap();
    assert!(!seen.gave_up, "requests waited for the second connection");
    assert_eq!(seen.clients, 2, "a server that refused is not asked again");
}
