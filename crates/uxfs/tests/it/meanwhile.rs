//! Calls by path while other threads change what they use.
//!
//! Threads meet at a pipe or in a listener, or they race for a number of rounds; then every call must
//! still have done what it was asked for, and to no other file. xfs_repair judges the volumes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use uxfs::copy::{CopyOptions, Event, ImageSource, copy_to_writer};
use uxfs::format::inode::S_IFREG;
use uxfs::labels::{FileContexts, LabelEvent, RelabelOptions, relabel};
use uxfs::{FileOptions, NewInode, Volume, VolumeOptions, mkfs};

use crate::volume::MIB;
use crate::watchdog::Watchdog;

struct Place {
    dir: TempDir,
    image: PathBuf,
    volume: Volume,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        let mut make = mkfs::Options::default();
        make.unsupported = true;
        let volume = Volume::create_with(&image, 64 * MIB, &make, &VolumeOptions::new()).unwrap();
        Self { dir, image, volume }
    }

    fn end(self) {
        self.volume.close().unwrap();
        uxfs_oracle::repair(&self.image).unwrap();
    }
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Waits until `done`.
fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A copy into the volume whose target is removed while the data comes in.
#[test]
fn copy_in_beside_remove_and_create_does_not_touch_the_new_file() {
    let place = Place::new();
    let volume = &place.volume;
    let watchdog = Watchdog::new("a copy from a pipe".into());
    let pipe = place.dir.path().join("pipe");
    fifo(&pipe);
    std::thread::scope(|scope| {
        let copy = scope.spawn(|| {
            volume.copy_in(&pipe, "/a", CopyOptions::default(), &mut |event| {
                assert!(matches!(event, Event::Copied(..)), "{event:?}");
            })
        });
        let mut writer = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        writer.write_all(&[1; 5000]).unwrap();
        until(|| volume.exists("/a").unwrap());
        volume.remove_file("/a").unwrap();
        for name in 0..64 {
            volume.write(format!("/b{name}"), "b").unwrap();
        }
        writer.write_all(&[2; 300_000]).unwrap();
        drop(writer);
        assert!(copy.join().unwrap().unwrap());
        watchdog.step(1);
    });
    for name in 0..64 {
        let content = volume.read(format!("/b{name}")).unwrap();
        assert_eq!(content, b"b", "/b{name} has what was copied to /a");
    }
    place.end();
}

/// What a copy is written to: it calls `first` when the first data comes.
struct Out<F> {
    first: Option<F>,
    data: Vec<u8>,
}

impl<F: FnOnce()> Write for Out<F> {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.first.take().into_iter().for_each(|first| first());
        self.data.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A copy out of the volume whose source is removed before all of its data is read.
#[test]
fn copy_out_beside_remove_and_create_reads_the_old_file() {
    const SIZE: usize = 8 << 20;
    let place = Place::new();
    let volume = &place.volume;
    volume.write("a", vec![1; SIZE]).unwrap();
    let first = || {
        volume.remove_file("a").unwrap();
        for name in 0..8 {
            volume.write(format!("b{name}"), vec![2; 4 << 20]).unwrap();
        }
    };
    let mut out = Out { first: Some(first), data: Vec::new() };
    let copied = volume.with_fs(|fs| {
        let source = ImageSource::new(fs, 1);
        let (node, info) = source.open(|| fs.resolve(b"/a", false)).unwrap();
        Ok(copy_to_writer(&source, &node, &info, &mut out).is_ok())
    });
    assert!(copied.unwrap());
    assert_eq!(out.data.len(), SIZE);
    assert!(out.data.iter().all(|byte| *byte == 1), "the copy holds another file's data");
    place.end();
}

#[test]
fn readers_of_a_file_replaced_by_rename_never_miss_it() {
    const ROUNDS: u64 = 3000;
    let place = Place::new();
    let volume = &place.volume;
    volume.create_dir("d").unwrap();
    volume.write("d/f", "content").unwrap();
    volume.symlink("d/f", "link").unwrap();
    let over = AtomicBool::new(false);
    let watchdog = Watchdog::new("readers of a replaced file".into());
    std::thread::scope(|scope| {
        let running = || !over.load(Ordering::Relaxed);
        scope.spawn(move || {
            while running() {
                assert_eq!(volume.read("d/f").unwrap(), b"content");
                assert_eq!(volume.read("link").unwrap(), b"content");
            }
        });
        scope.spawn(move || {
            let options = FileOptions::new().read(true).write(true).create(true);
            while running() {
                assert_eq!(volume.metadata("d/f").unwrap().len(), 7);
                let file = volume.open_file_with("d/f", &options).unwrap();
                assert_eq!(file.metadata().unwrap().len(), 7);
            }
        });
        scope.spawn(move || {
            while running() {
                assert!(volume.exists("d/f").unwrap());
                volume.set_permissions("d/f", uxfs::files::Permissions::from_mode(0o600)).unwrap();
                volume.chown("link", Some(7), None, true).unwrap();
            }
        });
        for round in 0..ROUNDS {
            watchdog.step(round);
            volume.write("d/new", "content").unwrap();
            volume.rename("d/new", "d/f").unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    place.end();
}

#[test]
fn a_call_inside_of_another_does_not_wait_for_a_thread_that_closes() {
    let place = Place::new();
    place.volume.write("f", "content").unwrap();
    let host = place.dir.path().join("host");
    std::fs::write(&host, "x").unwrap();
    let watchdog = Watchdog::new("a listener beside a close".into());
    let (volume, listened) = (&place.volume, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let mut closer = None;
        let mut listener = |_: Event<'_>| {
            closer = Some(scope.spawn(|| volume.clone().close()));
            // Enough for the other thread to come to the lock; it passes without it, too.
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(volume.metadata("f").unwrap().len(), 7);
            let nested = volume.with_fs(|_| Ok(volume.exists("f").unwrap()));
            assert!(nested.unwrap());
            listened.store(true, Ordering::Relaxed);
        };
        assert!(volume.copy_in(&host, "/g", CopyOptions::default(), &mut listener).unwrap());
        closer.unwrap().join().unwrap().unwrap();
        watchdog.step(1);
    });
    assert!(listened.load(Ordering::Relaxed));
    assert_eq!(place.volume.metadata("f").unwrap_err().errno(), 9);
    uxfs_oracle::repair(&place.image).unwrap();
}

#[test]
fn threads_that_remove_one_tree_do_not_fail() {
    let place = Place::new();
    let volume = &place.volume;
    let watchdog = Watchdog::new("removals of one tree".into());
    for round in 0..20 {
        watchdog.step(round);
        for dir in 0..8 {
            volume.create_dir_all(format!("t/{dir}/below")).unwrap();
            for file in 0..8 {
                volume.write(format!("t/{dir}/{file}"), "x").unwrap();
                volume.write(format!("t/{dir}/below/{file}"), "x").unwrap();
            }
        }
        let outcomes = std::thread::scope(|scope| {
            let remove = || {
                let outcome = volume.remove_dir_all("t");
                // A thread that comes when all is gone finds no tree.
                let late =
                    |error: &uxfs::PathError| error.errno() == 2 && !volume.exists("t").unwrap();
                assert!(outcome.as_ref().err().is_none_or(late), "{outcome:?}");
                outcome
            };
            let threads = [(); 3].map(|()| scope.spawn(remove));
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(outcomes.iter().any(Result::is_ok));
        assert!(!volume.exists("t").unwrap());
    }
    place.end();
}

#[test]
fn a_slash_behind_a_link_removes_nothing() {
    let place = Place::new();
    let volume = &place.volume;
    volume.create_dir("target").unwrap();
    volume.write("target/kept", "x").unwrap();
    volume.symlink("target", "link").unwrap();
    // ENOTDIR, as std::fs on Linux.
    assert_eq!(volume.remove_dir_all("link/").unwrap_err().errno(), 20);
    assert!(volume.exists("target/kept").unwrap());
    volume.remove_dir_all("link").unwrap();
    assert!(volume.exists("target/kept").unwrap());
    volume.remove_dir_all("target/").unwrap();
    assert!(!volume.exists("target").unwrap());
    place.end();
}

#[test]
fn tickets_belong_to_their_volume() {
    let (one, other) = (Place::new(), Place::new());
    one.volume.write("f", "x").unwrap();
    let file = one.volume.open_file("f").unwrap();
    let tickets =
        [one.volume.ticket().unwrap(), file.ticket().unwrap(), one.volume.order().unwrap()];
    for ticket in tickets {
        one.volume.wait(ticket).unwrap();
        assert!(one.volume.is_durable(ticket).unwrap());
        assert_eq!(other.volume.wait(ticket).unwrap_err().errno(), 22);
        assert_eq!(other.volume.is_durable(ticket).unwrap_err().errno(), 22);
    }
    drop(file);
    let image = one.image.clone();
    one.volume.clone().close().unwrap();
    let again = Volume::open(&image).unwrap();
    assert_eq!(again.is_durable(tickets[0]).unwrap_err().errno(), 22);
    again.close().unwrap();
    other.end();
}

#[test]
fn a_file_without_a_mode_is_made_by_mknod() {
    let place = Place::new();
    place.volume.mknod("f", 0o640, (0, 0)).unwrap();
    assert!(place.volume.metadata("f").unwrap().is_file());
    assert_eq!(place.volume.mknod("d", 0o040_755, (0, 0)).unwrap_err().errno(), 1);
    assert_eq!(place.volume.exists("d").ok(), Some(false));
    let denied = place.volume.mknod("d", 0o040_755, (0, 0)).unwrap_err().kind();
    assert_eq!(denied, std::io::ErrorKind::PermissionDenied);
    place.end();
}

/// A walk that labels files, one of which is removed before its turn, and whose number the next file gets.
#[test]
fn labels_beside_remove_and_create_do_not_reach_the_new_file() {
    let place = Place::new();
    let volume = &place.volume;
    volume.create_dir("d").unwrap();
    volume.write("d/a", "a").unwrap();
    volume.write("d/b", "b").unwrap();
    let rules = place.dir.path().join("file_contexts");
    std::fs::write(&rules, "/.* system_u:object_r:kept_t:s0\n").unwrap();
    let contexts = FileContexts::load(&[rules]).unwrap();
    volume
        .with_fs(|fs| {
            let removed = fs.resolve(b"/d/b", false).unwrap();
            let mut failed = Vec::new();
            let mut listener = |event: LabelEvent<'_>| match event {
                LabelEvent::Changed { path: b"/d/a", .. } => {
                    fs.unlink(fs.resolve(b"/d", false).unwrap(), b"b").unwrap();
                    let new = fs.create(fs.root(), b"c", &NewInode::new(S_IFREG | 0o644)).unwrap();
                    assert_eq!(new, removed, "the new file has not the number of the removed one");
                }
                LabelEvent::Failed { path, .. } => failed.push(path.to_vec()),
                LabelEvent::Changed { .. } => {}
            };
            let options = RelabelOptions::default();
            let summary = relabel(fs, b"/d", &contexts, options, &mut listener).unwrap();
            assert_eq!((summary.changed, summary.failed), (2, 1));
            assert_eq!(failed, [b"/d/b"]);
            assert!(fs.get_xattr(removed, b"security.selinux").is_err(), "/c has a label");
            Ok(())
        })
        .unwrap();
    place.end();
}
