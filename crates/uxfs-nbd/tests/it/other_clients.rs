//! The server with clients of other people: qemu-io, qemu-img, nbdinfo, nbdcopy.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use uxfs_disk::{BlockDev, FileDev, MemDev, OpenMode};
use uxfs_nbd::{ServerOptions, ServerTls};
use uxfs_oracle::program;

use crate::certificates;
use crate::fixture::{Ours, address, run};

const LEN: u64 = 8 << 20;

fn options(read_only: bool) -> ServerOptions {
    ServerOptions { export: "v".into(), read_only, tls: None }
}

fn qemu_io(address: &str, commands: &[&str]) -> (String, bool) {
    let mut command = Command::new(program("qemu-io", "qemu-utils"));
    command.args(["-f", "raw"]);
    commands.iter().for_each(|line| {
        command.arg("-c").arg(line);
    });
    let output = command.arg(address).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&text).into_owned(), output.status.success())
}

#[test]
fn qemu_io_reads_what_it_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("v.img");
    let dev = Arc::new(FileDev::open(&file, OpenMode::Create(LEN)).unwrap());
    let ours = Ours::start(dev, options(false));
    let to = address(&ours.socket(), "v");
    let (text, ok) = qemu_io(
        &to,
        &[
            "write -P 5 1M 2M",
            "write -f -P 6 4k 512",
            "write -z 2M 64k",
            "discard 5M 1M",
            "flush",
            "read -P 5 1M 1M",
            "read -P 0 2M 64k",
            "read -P 6 4k 512",
            "read -P 5 2162688 64k",
            "aio_write -P 7 6M 1M",
            "aio_write -P 8 7M 1M",
            "aio_flush",
            "read -P 7 6M 1M",
        ],
    );
    assert!(ok && !text.contains("failed"), "{text}");
    let held = std::fs::read(&file).unwrap();
    assert!(held[7 << 20..].iter().all(|byte| *byte == 8));
    let (text, ok) = qemu_io(&to, &["read 7M 2M"]);
    assert!(!ok || text.contains("failed"), "{text}");
    ours.stop().unwrap();
}

#[test]
fn a_read_only_export_is_not_written() {
    let mem = Arc::new(MemDev::new(LEN));
    mem.write_at(0, &[3; 512]).unwrap();
    let ours = Ours::start(Arc::<MemDev>::clone(&mem), options(true));
    let (text, ok) = qemu_io(&address(&ours.socket(), "v"), &["write -P 5 0 512"]);
    assert!(!ok, "{text}");
    let mut held = [0; 512];
    mem.read_at(0, &mut held).unwrap();
    assert_eq!(held, [3; 512]);
}

fn nbdinfo(address: &str) -> String {
    let output = run(Command::new(program("nbdinfo", "libnbd-bin")).args(["--json", address]));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn nbdinfo_describes_the_export() {
    let ours = Ours::start(Arc::new(MemDev::new(LEN)), options(false));
    let text = nbdinfo(&address(&ours.socket(), "v"));
    for said in [
        "\"export-size\": 8388608",
        "\"can_multi_conn\": true",
        "\"can_fua\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"is_read_only\": false",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let list = run(Command::new(program("nbdinfo", "libnbd-bin"))
        .args(["--list", &address(&ours.socket(), "")]));
    assert!(String::from_utf8_lossy(&list.stdout).contains("export=\"v\""));
}

fn copies_are_equal(from: &Path, dir: &Path, to: &str, back: &str) {
    let copy = |from: &str, to: &str| {
        run(Command::new(program("nbdcopy", "libnbd-bin")).args(["--flush", from, to]));
    };
    let file = dir.join("back");
    copy(from.to_str().unwrap(), to);
    copy(back, file.to_str().unwrap());
    assert!(std::fs::read(from).unwrap() == std::fs::read(&file).unwrap());
}

#[test]
fn nbdcopy_and_qemu_img_copy_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    let mut data: Vec<u8> = (0..LEN).map(|at| (at / 777 + at % 251) as u8).collect();
    data[1 << 20..3 << 20].fill(0);
    std::fs::write(&from, &data).unwrap();
    let ours = Ours::start(Arc::new(MemDev::new(LEN)), options(false));
    let to = address(&ours.socket(), "v");
    copies_are_equal(&from, dir.path(), &to, &to);
    let mut command = Command::new(program("qemu-img", "qemu-utils"));
    run(command.args(["compare", "-f", "raw", "-F", "raw"]).arg(&from).arg(&to));
}

#[test]
fn libnbd_speaks_tls_with_the_server() {
    let pki = certificates::make();
    let of = |name: &str| pki.path().join(name);
    let tls = ServerTls::new(&of("server-cert.pem"), &of("server-key.pem"), None).unwrap();
    let ours =
        Ours::start(Arc::new(MemDev::new(LEN)), ServerOptions { tls: Some(tls), ..options(false) });
    let plain = address(&ours.socket(), "v");
    let refused = Command::new(program("nbdinfo", "libnbd-bin")).arg(&plain).output().unwrap();
    assert!(!refused.status.success());
    let secure = plain.replace("nbd+", "nbds+");
    let secure = format!("{secure}&tls-certificates={}", pki.path().display());
    assert!(nbdinfo(&secure).contains("\"export-size\": 8388608"));
    let from = of("from");
    std::fs::write(&from, vec![0xa5; LEN as usize]).unwrap();
    copies_are_equal(&from, pki.path(), &secure, &secure);
}
