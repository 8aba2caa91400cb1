//! Behaviour without a counterpart in the kernel's XFS: mounts that are busy, read-only or full.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use uxfs_fuse::{Options, mount, mounts};

use crate::rig::{Image, Ours, Volume, run, unmount};

#[test]
fn the_list_of_mounts_contains_a_mount() {
    let volume = Box::new(Ours::new(320 << 20, ""));
    let listed = mounts::list().unwrap();
    let dir = volume.dir().canonicalize().unwrap();
    assert!(listed.iter().any(|mount| mount.dir == dir), "{listed:?}");
    volume.end();
}

#[test]
fn a_volume_is_mounted_once_and_can_be_bind_mounted() {
    let volume = Box::new(Ours::new(320 << 20, ""));
    let dir = volume.dir();
    std::fs::write(dir.join("f"), b"content").unwrap();
    let again =
        uxfs::disk::FileDev::open(&dir.with_file_name("image"), uxfs::disk::OpenMode::Write);
    assert!(again.is_err(), "opened for a second mount");
    let elsewhere = dir.with_file_name("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    run("mount", &["--bind".as_ref(), dir.as_os_str(), elsewhere.as_os_str()]);
    let seen = std::fs::read(elsewhere.join("f"));
    unmount(&elsewhere);
    assert_eq!(seen.unwrap(), b"content");
    volume.end();
}

#[test]
fn a_busy_mount_is_detached() {
    let image = Image::new(320 << 20, &[]);
    let dir = image.mount_point();
    let mounted = mount(image.open(), &image.path(), &dir, &Options::default()).unwrap();
    let mut file = File::create(dir.join("open")).unwrap();
    file.write_all(b"content").unwrap();
    mounted.ender().end().unwrap();
    assert!(mounted.wait().unwrap().is_some(), "said that it was in use");
    assert!(file.write_all(b"more").is_err());
    drop(file);
    image.judge();
    let again = Box::new(Ours::of(image, ""));
    assert_eq!(std::fs::read(again.dir().join("open")).unwrap(), b"content");
    again.end();
}

#[test]
fn a_mount_that_is_busy_for_a_moment_is_not_detached() {
    loop {
        let image = Image::new(320 << 20, &[]);
        let dir = image.mount_point();
        let mounted = mount(image.open(), &image.path(), &dir, &Options::default()).unwrap();
        let file = File::create(dir.join("open")).unwrap();
        let began = Instant::now();
        let held = std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                drop(file);
                began.elapsed()
            });
            mounted.ender().end().unwrap();
            holder.join().unwrap()
        });
        let said = mounted.wait().unwrap();
        image.judge();
        // On a busy machine the holder may run too late. Then try again.
        if held < Duration::from_secs(1) {
            assert_eq!(said, None, "busy for {held:?}");
            return;
        }
    }
}

#[test]
fn a_read_only_mount_never_changes() {
    let first = Ours::new(320 << 20, "");
    std::fs::write(first.dir().join("f"), b"content").unwrap();
    let image = first.unmount();
    let before = std::fs::metadata(image.path()).unwrap().modified().unwrap();
    let options = Options::parse("ro,allow_other").unwrap();
    let dev = image.device(uxfs::disk::OpenMode::Read);
    let fs = uxfs::Fs::open(std::sync::Arc::new(dev), uxfs::OpenOptions::read_only()).unwrap();
    let mounted = mount(fs, &image.path(), &image.mount_point(), &options).unwrap();
    assert_eq!(std::fs::read(image.mount_point().join("f")).unwrap(), b"content");
    let refused = std::fs::write(image.mount_point().join("g"), b"").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    mounted.ender().end().unwrap();
    mounted.wait().unwrap();
    assert_eq!(std::fs::metadata(image.path()).unwrap().modified().unwrap(), before);
    image.judge();
}

/// The kernel checks the callers of one number of the ioctl, and forwards the other.
#[test]
fn flags_change_only_for_those_who_may() {
    let volume = Box::new(Ours::new(320 << 20, ""));
    let script = "import errno, fcntl, os, struct, sys\n\
        NODUMP, IMMUTABLE = 0x40, 0x10\n\
        for name in ('theirs', 'mine'):\n \
        open(name, 'w').close()\n\
        os.chown('mine', 1000, 1000)\n\
        os.setgroups([]); os.setgid(1000); os.setuid(1000)\n\
        def change(name, number, flags):\n \
        fd = os.open(name, os.O_RDONLY)\n \
        try:\n  \
        fcntl.ioctl(fd, number, struct.pack('Q', flags))\n  \
        return 'done'\n \
        except OSError as error:\n  \
        return errno.errorcode[error.errno]\n\
        for number in (0x40086602, 0x40046602):\n \
        print(change('theirs', number, NODUMP), change('theirs', number, IMMUTABLE),\n  \
        change('mine', number, IMMUTABLE), change('mine', number, NODUMP), change('mine', number, 0))\n";
    let output = std::process::Command::new("python3")
        .args(["-B", "-c", script])
        .current_dir(volume.dir())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "EPERM EPERM EPERM done done\n".repeat(2));
    volume.end();
}

#[test]
fn a_full_volume_reports_enospc_and_continues() {
    let volume = Box::new(Ours::new(320 << 20, ""));
    let big = volume.dir().join("big");
    let file = File::create(&big).unwrap();
    let chunk = vec![1; 1 << 20];
    let mut at = 0;
    let full = loop {
        match file.write_all_at(&chunk, at) {
            Ok(()) => at += chunk.len() as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
    assert!(at > 100 << 20);
    drop(file);
    std::fs::remove_file(&big).unwrap();
    // The space is free when the kernel has forgotten the inode, which is soon; the limit catches a hang.
    let small = volume.dir().join("small");
    let written = (0..30_000).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        std::fs::write(&small, &chunk).is_ok()
    });
    assert!(written, "there is room again");
    volume.end();
}
