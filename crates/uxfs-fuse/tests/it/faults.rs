//! Full and read-only volumes and failing devices: the right errno, no hang, and a usable mount.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Barrier, Mutex};

use uxfs::Fs;
use uxfs::disk::{BlockDev, OpenMode};
use uxfs_disk::fault::{Fault as Planted, plant};
use uxfs_fuse::{Options, control, mount};
use uxfs_testkit::{EIO, FaultDev, Op, Rule};

use crate::clients::{Client, check};
use crate::programs::sh;
use crate::rig::{Image, Ours, Volume};

/// All operations that need space, on a full volume; then those that free space.
#[test]
fn nothing_but_enospc_on_a_full_volume() {
    let volume = Box::new(Ours::new(300 << 20, ""));
    let dir = volume.dir();
    sh(&dir, "mkdir made kept && for n in $(seq 200); do echo $n > kept/$n; done");
    sh(&dir, "sqlite3 kept/db 'create table t(b); insert into t values(zeroblob(20000));'");
    sh(&dir, "not dd if=/dev/zero of=big bs=1M status=none 2> said; grep -q 'No space left' said");
    // Fill the rest with small files, down to the last block.
    let script = format!(
        "import os, errno\nos.chdir({dir:?})\n{}",
        r#"
ok = fails = 0
def attempt(what, f):
    global ok, fails
    try:
        f()
        ok += 1
    except OSError as error:
        assert error.errno == errno.ENOSPC, (what, error)
        fails += 1
def fill(n):
    fd = os.open(f"made/{n}", os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.write(fd, b"x" * 4096)
        os.fsync(fd)
    finally:
        os.close(fd)
for n in range(1500):
    attempt("fill", lambda: fill(n))
assert fails > 100, (ok, fails)
for n in range(300):
    attempt("mkdir", lambda: os.mkdir(f"made/{'d' * 200}{n}"))
    attempt("symlink", lambda: os.symlink("x" * 900, f"made/{'s' * 200}{n}"))
    attempt("link", lambda: os.link("kept/1", f"made/{'l' * 200}{n}"))
    attempt("mknod", lambda: os.mkfifo(f"made/{'p' * 200}{n}"))
    attempt("xattr", lambda: os.setxattr(f"kept/{n % 200 + 1}", "user.x", b"v" * 30000))
    attempt("rename", lambda: os.rename(f"kept/{n % 200 + 1}", f"kept/{n % 200 + 1}"))
    attempt("fallocate", lambda: os.posix_fallocate(os.open("kept/2", os.O_WRONLY), 1 << 20, 1 << 20))
    attempt("append", lambda: os.write(os.open("kept/3", os.O_WRONLY | os.O_APPEND), b"x" * 100000))
# Reading, overwriting what is there, and statfs need none.
assert open("kept/7").read() == "7\n"
with open("kept/9", "r+b") as file:
    file.write(b"9")
    os.fsync(file.fileno())
assert os.statvfs(".").f_bavail < 4000
"#
    );
    sh(&dir, &format!("python3 -c '{}'", script.replace('\'', "'\\''")));
    sh(
        &dir,
        "not sqlite3 kept/db 'insert into t values(zeroblob(20000000));' 2> /dev/null
        test \"$(sqlite3 kept/db 'pragma integrity_check')\" = ok",
    );
    // Everything can be removed, and then there is space.
    sh(&dir, "truncate -s 1000 big && rm -r big made/* && rm said");
    sh(
        &dir,
        "for n in $(seq 12000); do fallocate -l 200M again 2> /dev/null && break; sleep 0.05; done
        test $(stat -c %s again) = 209715200
        sqlite3 kept/db 'insert into t values(zeroblob(2000000)); pragma integrity_check;'",
    );
    volume.end();
}

/// Calls that change something, and calls that do not.
#[test]
fn a_read_only_mount_refuses_changes_with_erofs() {
    let first = Ours::new(320 << 20, "");
    sh(
        &first.dir(),
        "echo x > f; mkdir d; ln -s f l; setfattr -n user.a -v b f; chmod 666 f; ln f h",
    );
    let image = first.unmount();
    let options = Options::parse("ro,allow_other").unwrap();
    let dev = image.device(OpenMode::Read);
    let fs = Fs::open(Arc::new(dev), uxfs::OpenOptions::read_only()).unwrap();
    let mounted = mount(fs, &image.path(), &image.mount_point(), &options).unwrap();
    let script = r#"
import os, errno, fcntl, struct
calls = {
    "write": lambda: os.open("f", os.O_WRONLY), "create": lambda: os.open("n", os.O_CREAT | os.O_RDWR),
    "truncate": lambda: os.truncate("f", 0), "mkdir": lambda: os.mkdir("n"), "rmdir": lambda: os.rmdir("d"),
    "unlink": lambda: os.unlink("f"), "rename": lambda: os.rename("f", "n"), "link": lambda: os.link("f", "n"),
    "symlink": lambda: os.symlink("f", "n"), "mknod": lambda: os.mkfifo("n"), "chmod": lambda: os.chmod("f", 0o600),
    "chown": lambda: os.chown("f", 1, 1), "utime": lambda: os.utime("f"), "setxattr": lambda: os.setxattr("f", "user.x", b""),
    "removexattr": lambda: os.removexattr("f", "user.a"), "O_TRUNC": lambda: os.open("f", os.O_RDONLY | os.O_TRUNC),
    "flags": lambda: fcntl.ioctl(os.open("f", os.O_RDONLY), 0x40086602, struct.pack("L", 0x40)),
}
for name, call in calls.items():
    try:
        call()
        raise SystemExit(f"{name} went through")
    except OSError as error:
        assert error.errno == errno.EROFS, (name, error)
assert not os.access("f", os.W_OK)
assert open("f").read() == "x\n" and os.readlink("l") == "f" and os.getxattr("f", "user.a") == b"b"
fcntl.flock(os.open("f", os.O_RDONLY), fcntl.LOCK_EX)
os.fsync(os.open("f", os.O_RDONLY))
"#;
    sh(&image.mount_point(), &format!("python3 -c '{script}'"));
    mounted.ender().end().unwrap();
    mounted.wait().unwrap();
    image.judge();
}

/// One kind of device call begins to fail while programs run. They get errors, every request is
/// answered, and acknowledged steps are there when the device works again.
#[test]
fn programs_get_errors_when_the_device_fails() {
    let faults: [(&'static [Op], u64); 4] =
        [(Op::WRITES, 300), (Op::WRITES, 900), (&[Op::Flush], 40), (&[Op::Flush], 200)];
    for (ops, number) in faults {
        let image = Image::new(320 << 20, &[]);
        let dev = Arc::new(FaultDev::new(image.device(OpenMode::Write)).in_pieces());
        dev.add(Rule::on(ops).after(number).fail(EIO));
        let options = Options::parse("allow_other").unwrap();
        let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, options.open_options()).unwrap();
        let dir = image.mount_point();
        let mounted = mount(fs, &image.path(), &dir, &options).unwrap();
        let kinds = ["wal", "store", "git"];
        let durable: [Arc<Mutex<usize>>; 3] = Default::default();
        let clients: Vec<Client> = kinds
            .iter()
            .zip(&durable)
            .map(|(kind, durable)| {
                let durable = Arc::clone(durable);
                Client::start(&dir, kind, 100_000, move |step| *durable.lock().unwrap() = step)
            })
            .collect();
        for client in clients {
            assert!(
                !client.wait().success(),
                "{ops:?} {number}: a program went on without an error"
            );
        }
        assert!(dev.failed());
        // Every request gets an answer.
        answers(&dir);
        mounted.ender().end().unwrap();
        assert!(mounted.wait().is_err(), "{ops:?} {number}: unmounting reports the failure");
        drop(dev);
        let again = Box::new(Ours::of(image, ""));
        let steps = durable.map(|step| *step.lock().unwrap());
        let wrong: Vec<String> = kinds
            .iter()
            .zip(steps)
            .filter_map(|(kind, steps)| check(&again.dir(), kind, steps).err())
            .collect();
        assert!(wrong.is_empty(), "{ops:?} {number}: {}", wrong.join("\n"));
        again.end();
    }
}

/// A removal panics in the server when half of it is done. It gets an answer, as do all other requests;
/// the volume has no half of it, and everything that was acknowledged.
#[test]
fn a_panicking_request_returns_eio_and_stops_the_volume() {
    for options in ["allow_other,threads=2", "allow_other,threads=2,wsync,nodelaylog"] {
        let image = Image::new(320 << 20, &[]);
        let options = Options::parse(options).unwrap();
        let fs = image.open_with(&options);
        plant(Some(Planted::RemovalPanics));
        let mounted = mount(fs, &image.path(), &image.mount_point(), &options).unwrap();
        plant(None);
        let dir = image.mount_point();
        std::fs::write(dir.join("victim"), b"content").unwrap();
        control::sync(&dir).unwrap();
        // Each thread counts its files on stable storage.
        let begun = Arc::new(Barrier::new(5));
        let writers: Vec<_> = (0..4)
            .map(|who| (who, dir.clone(), Arc::clone(&begun)))
            .map(|(who, dir, begun)| {
                std::thread::spawn(move || {
                    for n in 0.. {
                        if n == 20 {
                            begun.wait();
                        }
                        let path = dir.join(format!("w{who}-{n}"));
                        let file = File::create(path).and_then(|mut file| {
                            file.write_all(format!("{who} {n}").as_bytes())?;
                            file.sync_all()
                        });
                        if let Err(error) = file {
                            assert_eq!(error.raw_os_error(), Some(5), "{who} {n}: {error}");
                            return n;
                        }
                    }
                    unreachable!()
                })
            })
            .collect();
        begun.wait();
        // More requests than the server has threads.
        for _ in 0..4 {
            let refused = std::fs::remove_file(dir.join("victim")).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(5), "{refused}");
        }
        let sure: Vec<u32> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        answers(&dir);
        let status = control::ask(&dir, control::STATUS).unwrap();
        let why = status.iter().find(|(name, _)| name == "stopped");
        assert!(why.is_some_and(|(_, why)| why.contains("panicked")), "{status:?}");
        mounted.ender().end().unwrap();
        let ended = mounted.wait().unwrap_err().to_string();
        assert!(ended.contains("panicked"), "{ended}");
        let again = Box::new(Ours::of(image, ""));
        assert_eq!(std::fs::read(again.dir().join("victim")).unwrap(), b"content");
        for (who, n) in
            sure.iter().enumerate().flat_map(|(who, sure)| (0..*sure).map(move |n| (who, n)))
        {
            let path = again.dir().join(format!("w{who}-{n}"));
            assert_eq!(std::fs::read(path).unwrap(), format!("{who} {n}").as_bytes());
        }
        again.end();
    }
}

/// Sends several requests. Each may fail, because the failure has shut down the volume.
fn answers(dir: &Path) {
    let asked = [
        std::fs::create_dir(dir.join("new")),
        std::fs::read_dir(dir).map(drop),
        std::fs::metadata(dir.join("store")).map(drop),
        std::fs::write(dir.join("file"), b"content"),
        std::fs::remove_dir(dir.join("new")),
    ];
    for error in asked.into_iter().filter_map(Result::err) {
        let allowed = [5, 30, 2].map(Some);
        assert!(allowed.contains(&error.raw_os_error()), "{error}");
    }
}
