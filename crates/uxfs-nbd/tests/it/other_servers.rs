//! The client with servers of other people: qemu-nbd, and nbdkit with filters that delay, fail, and want
//! large blocks.

use std::io;
use std::sync::Arc;

use uxfs_disk::BlockDev;
use uxfs_nbd::{ServerOptions, ServerTls};
use uxfs_testkit::Rng;

use crate::certificates;
use crate::fixture::{Ours, address, nbdkit, open, qemu_nbd};

const LEN: u64 = 8 << 20;

/// Writes, zeroes, trims and reads at random, in several threads, each in its own part, and compares with
/// what memory says. Returns what the device has to hold where nothing was trimmed.
fn exercise(dev: &dyn BlockDev, seed: u64) -> Vec<u8> {
    const THREADS: u64 = 4;
    let part = dev.len() / THREADS;
    let mut whole = vec![0; dev.len() as usize];
    dev.read_at(0, &mut whole).unwrap();
    std::thread::scope(|scope| {
        for (number, model) in whole.chunks_mut(part as usize).enumerate() {
            let start = number as u64 * part;
            scope.spawn(move || {
                let mut rng = Rng::spread(seed + number as u64);
                for step in 0..60 {
                    let at = rng.below(part - 1);
                    let len = 1 + rng.below((part - at).min(200_000)) as usize;
                    let range = at as usize..at as usize + len;
                    match rng.below(6) {
                        0 => {
                            dev.zero(start + at, len as u64).unwrap();
                            model[range].fill(0);
                        }
                        1 => {
                            let mut read = vec![0; len];
                            dev.read_at(start + at, &mut read).unwrap();
                            assert!(read == model[range], "seed {seed} step {step}");
                        }
                        2 => dev.flush().unwrap(),
                        kind => {
                            let byte = rng.below(256) as u8;
                            model[range.clone()].fill(byte);
                            let data = &model[range];
                            match kind {
                                3 => dev.write_fua_at(start + at, data).unwrap(),
                                _ => dev.write_at(start + at, data).unwrap(),
                            }
                        }
                    }
                }
            });
        }
    });
    let mut read = vec![0; whole.len()];
    dev.read_at(0, &mut read).unwrap();
    assert!(read == whole, "seed {seed}");
    dev.flush().unwrap();
    whole
}

#[test]
fn qemu_nbd_holds_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let (file, socket) = (dir.path().join("v.img"), dir.path().join("s"));
    std::fs::write(&file, vec![7; LEN as usize]).unwrap();
    let _server = qemu_nbd(&file, &socket);
    let dev = open(&address(&socket, "v")).unwrap();
    assert_eq!((dev.len(), dev.read_only()), (LEN, false));
    let whole = exercise(&dev, 1);
    assert!(std::fs::read(&file).unwrap() == whole);
    let missing = open(&address(&socket, "other")).err().unwrap();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound, "{missing}");
}

#[test]
fn nbdkit_with_delays_and_large_blocks() {
    let dir = tempfile::tempdir().unwrap();
    for (name, arguments) in [
        ("delay", &["--filter=delay", "memory", "8M", "rdelay=1ms", "wdelay=2ms"][..]),
        ("cow", &["--filter=cow", "--filter=cache", "memory", "8M"]),
        (
            "blocks",
            &[
                "--filter=blocksize-policy",
                "memory",
                "8M",
                "blocksize-minimum=4096",
                "blocksize-maximum=65536",
                "blocksize-error-policy=error",
            ],
        ),
        ("nozero", &["--filter=nozero", "--filter=fua", "memory", "8M", "fuamode=discard"]),
    ] {
        let socket = dir.path().join(name);
        let _server = nbdkit(&socket, arguments);
        let dev = open(&address(&socket, "")).unwrap();
        exercise(&dev, 2);
        if name == "blocks" {
            assert_eq!(dev.sector_size(), 4096);
        }
    }
}

#[test]
fn errors_of_the_server_are_errors_of_the_request_alone() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let full = ["--filter=error", "memory", "1M", "error-pwrite=ENOSPC", "error-pwrite-rate=100%"];
    let _server = nbdkit(&socket, &full);
    let dev = open(&address(&socket, "")).unwrap();
    let error = dev.write_at(0, &[1; 512]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
    let mut read = [9; 512];
    dev.read_at(0, &mut read).unwrap();
    assert_eq!(read, [0; 512]);
    let socket = dir.path().join("ro");
    let _server = nbdkit(&socket, &["--readonly", "memory", "1M"]);
    let error = open(&address(&socket, "")).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem, "{error}");
}

#[test]
fn tls_with_nbdkit_and_with_ours() {
    let pki = certificates::make();
    let of = |name: &str| pki.path().join(name);
    let query = format!("tls-certificates={}", pki.path().display());
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let with = format!("--tls-certificates={}", pki.path().display());
    let _server = nbdkit(&socket, &["--tls=require", &with, "--tls-verify-peer", "memory", "8M"]);
    let plain = address(&socket, "");
    let refused = open(&plain).err().unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
    let secure = format!("{}&{query}", plain.replace("nbd+", "nbds+"));
    exercise(&open(&secure).unwrap(), 3);

    let clients = of("ca-cert.pem");
    let tls =
        ServerTls::new(&of("server-cert.pem"), &of("server-key.pem"), Some(&clients)).unwrap();
    let options = ServerOptions { tls: Some(tls), ..ServerOptions::default() };
    let ours = Ours::start(Arc::new(uxfs_disk::MemDev::new(LEN)), options);
    let plain = address(&ours.socket(), "");
    assert_eq!(open(&plain).err().unwrap().kind(), io::ErrorKind::PermissionDenied);
    let secure = format!("{}&{query}", plain.replace("nbd+", "nbds+"));
    exercise(&open(&secure).unwrap(), 4);
    // A name that the certificate does not bear; an authority that did not sign it.
    assert!(open(&format!("{secure}&tls-hostname=other")).is_err());
    let others = certificates::make();
    assert!(
        open(&secure.replace(pki.path().to_str().unwrap(), others.path().to_str().unwrap()))
            .is_err()
    );
}
