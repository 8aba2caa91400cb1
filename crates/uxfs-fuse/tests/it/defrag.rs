//! Files on a mount are moved to fewer extents while programs use them: asked for by a program, or in the
//! background.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use uxfs_fuse::{control, defrag};
use uxfs_oracle::Rng;

use crate::rig::{Ours, Volume, run, transport};

const BLOCK: usize = 4096;
const BLOCKS: usize = 96;

/// A file whose blocks lie apart, because another file grew beside it.
fn split_file(root: &Path, name: &str) -> (PathBuf, Vec<u8>) {
    let path = root.join(name);
    let files = [&path, &root.join(format!("beside-{name}"))].map(|p| File::create(p).unwrap());
    let content: Vec<u8> = (0..BLOCKS * BLOCK).map(|at| (at / BLOCK + 1) as u8).collect();
    for (number, part) in content.chunks(BLOCK).enumerate() {
        for file in &files {
            file.write_all_at(part, (number * BLOCK) as u64).unwrap();
            file.sync_all().unwrap();
        }
        control::sync(root).unwrap();
    }
    (path, content)
}

/// Moves a file until there is nothing left.
fn move_all(path: &Path) -> u64 {
    let (mut next, mut moved) = (Some(0), 0);
    while let Some(from) = next {
        let part = defrag::part(path, from, false).unwrap();
        assert_eq!(part.kept, None);
        moved += part.moved;
        next = part.next;
    }
    moved
}

fn count(root: &Path, name: &str) -> u64 {
    let pairs = control::ask(root, control::STATS).unwrap();
    pairs.into_iter().find(|(known, _)| known == name).map_or(0, |(_, n)| n.parse().unwrap())
}

#[test]
fn a_program_has_a_file_moved() {
    for (number, mode) in ["", "sync=ordered,"].into_iter().enumerate() {
        let options = format!("{mode}{}", transport(number as u64));
        let volume = Box::new(Ours::new(512 << 20, &options));
        let root = volume.dir();
        let (path, content) = split_file(&root, "a");
        let before = defrag::fragmentation(&path).unwrap();
        assert!(before.extents > BLOCKS as u64 / 2 && before.possible == 1, "{before:?}");
        let times = |path: &Path| {
            let meta = std::fs::metadata(path).unwrap();
            use std::os::unix::fs::MetadataExt;
            (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec())
        };
        let old = times(&path);
        assert!(move_all(&path) > 0);
        assert_eq!(defrag::fragmentation(&path).unwrap().extents, 1);
        assert_eq!(times(&path), old);
        assert!(std::fs::read(&path).unwrap() == content);
        assert!(count(&root, "defrag_runs") > 0);
        // Only its owner and root may ask.
        let ask = "setpriv --reuid 1234 --clear-groups getfattr --only-values -n \"$1\" \"$0\"";
        let path = path.to_str().unwrap();
        let counted = run("sh", &["-ec", ask, path, "uxfs.extents"]);
        assert_eq!(counted, "extents 1\npossible 1\n");
        let refused = run("sh", &["-c", &format!("{ask} 2>&1; true"), path, "uxfs.defrag=0"]);
        assert!(refused.contains("Operation not permitted"), "{refused}");
        run("chown", &["1234", path]);
        let moved = run("sh", &["-ec", ask, path, "uxfs.defrag=0"]);
        assert_eq!(moved, "moved 0\n");
        volume.end();
    }
}

/// Mapped pages, direct and ordinary writes, while the file is moved again and again.
#[test]
fn a_file_in_use_keeps_its_content() {
    for (number, mode) in ["", "sync=ordered,"].into_iter().enumerate() {
        let options = format!("{mode}{}", transport(number as u64));
        let volume = Box::new(Ours::new(512 << 20, &options));
        let root = volume.dir();
        let (path, mut content) = split_file(&root, "a");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let mut moved = 0;
                while !done.load(Ordering::Acquire) {
                    moved += move_all(&path);
                }
                moved
            });
            let plain = File::options().read(true).write(true).open(&path).unwrap();
            let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
            let direct =
                File::options().read(true).write(true).custom_flags(direct).open(&path).unwrap();
            let mut rng = Rng::new(3);
            for step in 0..400 {
                let number = rng.index(BLOCKS);
                let (at, byte) = (number * BLOCK, step as u8);
                let mut block = uxfs_disk::AlignedBuf::new(BLOCK);
                block.fill(byte);
                match step % 3 {
                    0 => direct.write_all_at(&block, at as u64).unwrap(),
                    _ => plain.write_all_at(&block, at as u64).unwrap(),
                }
                content[at..at + BLOCK].fill(byte);
                if step % 10 == 0 {
                    plain.sync_all().unwrap();
                }
                let number = rng.index(BLOCKS);
                let at = number * BLOCK;
                match step % 2 {
                    0 => direct.read_exact_at(&mut block, at as u64).unwrap(),
                    _ => plain.read_exact_at(&mut block, at as u64).unwrap(),
                }
                assert!(block[..] == content[at..at + BLOCK], "step {step}, block {number}");
            }
            // A program that stores into a mapping.
            let script = "import mmap,sys\n\
                          with open(sys.argv[1],'r+b') as f:\n\
                          \x20 m = mmap.mmap(f.fileno(), 0)\n\
                          \x20 for n in range(0, len(m), 8192):\n\
                          \x20   m[n] = 77\n\
                          \x20   if n % 65536 == 0: m.flush()\n\
                          \x20 m.flush()\n";
            run("python3", &["-c", script, path.to_str().unwrap()]);
            content.iter_mut().step_by(8192).for_each(|byte| *byte = 77);
            done.store(true, Ordering::Release);
            assert!(mover.join().unwrap() > 0);
        });
        control::sync(&root).unwrap();
        assert!(std::fs::read(&path).unwrap() == content);
        volume.end();
    }
}

#[test]
fn what_writes_split_is_moved_in_the_background() {
    let options = format!("sync=ordered,autodefrag=64m,{}", transport(0));
    let volume = Box::new(Ours::new(512 << 20, &options));
    let root = volume.dir();
    let path = root.join("a");
    let mut content = vec![1; 8 << 20];
    std::fs::write(&path, &content).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let status = control::ask(&root, control::STATUS).unwrap();
    let rate = ("autodefrag_bytes_per_second".to_owned(), (64 << 20).to_string());
    assert!(status.contains(&rate), "{status:?}");
    let mut rng = Rng::new(5);
    // Until the background has found it: the mount's own time decides when.
    while count(&root, "defrag_runs") == 0 {
        for _ in 0..64 {
            let at = rng.index(content.len() / BLOCK) * BLOCK;
            file.write_all_at(&[9; BLOCK], at as u64).unwrap();
            content[at..at + BLOCK].fill(9);
        }
        control::sync(&root).unwrap();
    }
    assert!(count(&root, "defrag_bytes") > 0);
    assert!(std::fs::read(&path).unwrap() == content);
    drop(file);
    volume.end();
}
