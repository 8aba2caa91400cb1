//! Tests of the whole journal: tickets, log modes, the log worker, a clean log on a mounted volume,
//! failing devices. Tools and kernels that read the same format check the results.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use uxfs_disk::{BlockDev, FileDev, OpenMode};
use uxfs_format::superblock::Superblock;
use uxfs_journal::recovery::{Log, State};
use uxfs_oracle::vm::{self, Kernel};
use uxfs_testkit::{Answer, ETIMEDOUT, FaultDev, Op, Rng, Rule};

use super::{JournalOptions, LogWorkOptions};
use crate::Drive;
use crate::ops::NewInode;
use crate::tx::Tx;
use crate::{Error, Fallocate, Fs, LogWorker, OpenOptions, Result};

struct Volume {
    dir: tempfile::TempDir,
    path: PathBuf,
}

impl Volume {
    fn new(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        uxfs_oracle::mkfs(&path, 320 << 20, options);
        Self { dir, path }
    }

    fn open(&self, words: &str) -> Fs {
        open(&self.path, words)
    }

    /// The contents after a power cut that kept all writes.
    fn cut(&self, name: &str) -> PathBuf {
        let copy = self.dir.path().join(name);
        std::fs::copy(&self.path, &copy).unwrap();
        copy
    }
}

fn options(words: &str) -> OpenOptions {
    let mut journal = JournalOptions::default();
    for word in words.split(',').filter(|word| !word.is_empty()) {
        assert!(journal.apply(word).unwrap(), "{word}");
    }
    OpenOptions { journal, seed: Some(1), ..OpenOptions::default() }
}

fn device(path: &Path) -> FileDev {
    FileDev::open(path, OpenMode::Write).unwrap()
}

fn open(path: &Path, words: &str) -> Fs {
    let dev = device(path);
    Fs::open(Arc::new(dev), options(words)).unwrap()
}

/// Creates files and directories, and writes, renames and removes some, as determined by `seed`.
fn work(fs: &Fs, seed: u64, count: u64) -> Result<()> {
    let mut rng = Rng::new(seed);
    let mut dirs = vec![fs.root()];
    let mut files: Vec<(uxfs_format::Ino, Vec<u8>)> = Vec::new();
    for step in 0..count {
        let dir = dirs[rng.below(dirs.len() as u64) as usize];
        let name = format!("s{seed}-{step}").into_bytes();
        match rng.below(8) {
            0 => dirs.push(fs.create(dir, &name, &NewInode::dir(0o755))?),
            1 if !files.is_empty() => {
                let (dir, name) = files.swap_remove(rng.below(files.len() as u64) as usize);
                fs.unlink(dir, &name)?;
            }
            2 if !files.is_empty() => {
                let ino = {
                    let (dir, name) = &files[rng.below(files.len() as u64) as usize];
                    fs.lookup(*dir, name)?
                };
                let value = vec![step as u8; rng.below(6000) as usize];
                fs.set_xattr(ino, b"user.x", &value, crate::XattrMode::Any)?;
            }
            _ => {
                let file = fs.create(dir, &name, &NewInode::file(0o644))?;
                let len = rng.below(20_000) as usize;
                fs.write_at(file, 0, &vec![step as u8; len])?;
                files.push((dir, name));
            }
        }
    }
    Ok(())
}

/// All names in the tree.
fn names(fs: &Fs) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut todo = vec![(fs.root(), Vec::new())];
    while let Some((dir, path)) = todo.pop() {
        let mut found = Vec::new();
        fs.read_dir(dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                found.push((entry.ino, [&path[..], b"/", entry.name].concat()));
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        for (ino, path) in found {
            if fs.stat(ino).unwrap().mode & 0o170_000 == 0o040_000 {
                todo.push((ino, path.clone()));
            }
            out.push(path);
        }
    }
    out.sort();
    out
}

fn clean_log(path: &Path) -> State {
    let dev = FileDev::open(path, OpenMode::Read).unwrap();
    let dev: Arc<dyn BlockDev> = Arc::new(dev);
    let norecovery = OpenOptions { norecovery: true, ..OpenOptions::read_only() };
    let fs = Fs::open(Arc::clone(&dev), norecovery).unwrap();
    Log::new(&fs.superblock()).unwrap().find(&*dev).unwrap().state
}

const LOG_MODES: [&str; 6] = [
    "delaylog",
    "nodelaylog",
    "nodelaylog,logbsize=256k,logbufs=2",
    "delaylog,wsync,logbsize=16k",
    "nodelaylog,wsync",
    "delaylog,nobarrier,logbsize=64k,logbufs=3",
];

/// Kernels and uxfs recover dirty images of each log mode to the same names.
#[test]
fn kernels_recover_each_log_mode() {
    let mut copies = Vec::new();
    let mut expected = Vec::new();
    let volumes: Vec<Volume> = LOG_MODES.iter().map(|_| Volume::new(&["-m", "rmapbt=1"])).collect();
    for ((words, volume), seed) in LOG_MODES.iter().zip(&volumes).zip(1..) {
        let fs = volume.open(words);
        work(&fs, seed, 400).unwrap();
        fs.sync().unwrap();
        expected.push(names(&fs));
        copies.push(volume.cut("dirty"));
        drop(fs);
        assert_eq!(clean_log(copies.last().unwrap()), State::Dirty, "{words}");
        let out = std::process::Command::new(uxfs_oracle::program("xfs_logprint", "xfsprogs"))
            .arg("-t")
            .arg(copies.last().unwrap())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && text.contains("<DIRTY>"), "{words}: {text:.300}");
        assert!(!text.contains("ERROR"), "{words}: {text}");
    }
    let paths: Vec<&Path> = copies.iter().map(PathBuf::as_path).collect();
    for kernel in Kernel::ALL {
        let listings = vm::list(kernel, &paths).unwrap();
        for ((listing, names), words) in listings.iter().zip(&expected).zip(LOG_MODES) {
            let missing = names.iter().find(|name| listing.get(name).is_none());
            assert_eq!(missing, None, "{words}, {kernel:?}");
        }
    }
    for ((copy, expected), words) in copies.iter().zip(&expected).zip(LOG_MODES) {
        let fs = open(copy, "");
        assert_eq!(names(&fs), *expected, "{words}");
        fs.close().unwrap();
        uxfs_oracle::repair(copy).unwrap_or_else(|f| panic!("{words}: {f}"));
    }
}

#[test]
fn a_ticket_covers_all_earlier_changes() {
    let volume = Volume::new(&[]);
    let fs = Arc::new(volume.open(""));
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (fs, send) = (Arc::clone(&fs), send.clone());
            scope.spawn(move || {
                let mut tickets = Vec::new();
                for number in 0..1500 {
                    let name = format!("{thread}-{number}");
                    fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o600)).unwrap();
                    let ticket = fs.ticket();
                    let send = send.clone();
                    fs.when_durable(ticket, move |result| send.send((number, result)).unwrap());
                    tickets.push(ticket);
                }
                // The last ticket covers all before it.
                fs.wait(tickets[tickets.len() - 1]).unwrap();
                assert!(tickets.iter().all(|ticket| fs.is_durable(*ticket)));
                tickets.iter().for_each(|ticket| fs.wait(*ticket).unwrap());
            });
        }
    });
    drop(send);
    // The next driver sends the notifications that the last waiter did not.
    fs.sync().unwrap();
    assert_eq!(receive.iter().inspect(|(_, result)| result.clone().unwrap()).count(), 6000);
    let stats = fs.stats();
    assert!(stats.checkpoints < 6000 && stats.trans_async >= 6000, "{stats:?}");
    assert_eq!(stats.force_wait.count(), stats.log_force_sleep);
    let (ino, ticket) =
        fs.ticketed(|fs| fs.create(fs.root(), b"one more", &NewInode::file(0o600))).unwrap();
    assert!(!fs.is_durable(ticket));
    fs.wait(ticket).unwrap();
    assert_eq!(fs.lookup(fs.root(), b"one more").unwrap(), ino);
}

#[test]
fn wsync_makes_each_change_durable() {
    for words in ["wsync", "nodelaylog,wsync"] {
        let volume = Volume::new(&[]);
        let fs = volume.open(words);
        for number in 0..20 {
            let name = format!("{number}");
            fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o600)).unwrap();
            assert!(fs.is_durable(fs.ticket()), "{words}");
        }
        let copy = volume.cut("copy");
        assert_eq!(names(&open(&copy, "")).len(), 20, "{words}");
        let stats = fs.stats();
        assert!(stats.trans_sync >= 20 && stats.trans_async == 0, "{words}: {stats:?}");
        assert!(stats.fua_writes + stats.flushes >= 20, "{words}: {stats:?}");
    }
}

#[test]
fn nobarrier_counts_omitted_flushes() {
    let volume = Volume::new(&[]);
    let fs = volume.open("nobarrier");
    assert!(fs.journal_options().is_some_and(|options| !options.barrier));
    work(&fs, 3, 100).unwrap();
    fs.sync().unwrap();
    let stats = fs.stats();
    assert_eq!((stats.flushes, stats.fua_writes), (0, 0));
    assert!(stats.flushes_left_out > 0 && stats.log_writes > 0 && stats.log_bytes > 0);
    fs.close().unwrap();
    uxfs_oracle::repair(&volume.path).unwrap();
}

/// The cost of a busy log in both modes: immediate logging repeats what delayed logging logs once.
#[test]
fn immediate_logging_costs_more() {
    let bytes = |words: &str| {
        let volume = Volume::new(&["-l", "size=64m", "-d", "agcount=4"]);
        let fs = volume.open(words);
        for number in 0..3000 {
            let name = format!("{number:08}~~~~~~~~~~~~~~~~~~~~");
            fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o600)).unwrap();
        }
        fs.sync().unwrap();
        let stats = fs.stats();
        assert_eq!(stats.log_blocks * 512, stats.log_bytes);
        assert!(stats.items_relogged <= stats.items, "{words}: {stats:?}");
        fs.close().unwrap();
        stats.log_bytes
    };
    let (delayed, immediate) = (bytes("logbsize=256k"), bytes("nodelaylog,logbsize=256k"));
    assert!(immediate >= 4 * delayed, "{delayed} bytes, {immediate} bytes");
}

#[test]
fn stripe_units_and_buffers_must_fit() {
    let volume = Volume::new(&["-l", "su=64k"]);
    let open = |words: &str| {
        let dev = device(&volume.path);
        Fs::open(Arc::new(dev), options(words))
    };
    let error = open("logbsize=32k").err().unwrap();
    assert_eq!(error.errno(), 22);
    assert!(error.to_string().contains("stripe unit"), "{error}");
    for (seed, words) in ["", "logbsize=64k", "logbsize=256k,nodelaylog"].iter().enumerate() {
        let fs = open(words).unwrap();
        work(&fs, seed as u64, 50).unwrap();
        fs.close().unwrap();
    }
    uxfs_oracle::repair(&volume.path).unwrap();
}

/// The log worker writes commits without a waiter, and covers an idle log.
#[test]
fn log_worker_writes_and_covers_an_idle_log() {
    for words in ["", "nodelaylog"] {
        let volume = Volume::new(&[]);
        let dev = device(&volume.path);
        let mut opening = options(words);
        opening.journal.pipeline.age_max = Duration::from_millis(20);
        let fs = Arc::new(Fs::open(Arc::new(dev), opening).unwrap());
        let log_work = LogWorkOptions {
            old: Duration::from_millis(20),
            idle: Duration::from_millis(20),
            ..LogWorkOptions::default()
        };
        let worker = LogWorker::start(&fs, log_work).unwrap();
        assert!(LogWorker::start(&fs, log_work).is_err());
        fs.create(fs.root(), b"without a waiter", &NewInode::file(0o600)).unwrap();
        while fs.stats().covers < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(fs.is_durable(fs.ticket()));
        worker.stop();
        assert_eq!(fs.stats().covers, 2);
        let copy = volume.cut("idle");
        // A reader that does not replay finds the file, and a replay has almost nothing to do.
        let dev = FileDev::open(&copy, OpenMode::Read).unwrap();
        let norecovery = OpenOptions { norecovery: true, ..OpenOptions::read_only() };
        let norecovery_fs = Fs::open(Arc::new(dev), norecovery).unwrap();
        assert_eq!(names(&norecovery_fs), [b"/without a waiter".to_vec()]);
        drop(norecovery_fs);
        let recovered = open(&copy, "");
        let replay = &recovered.recovery().unwrap().replay;
        assert!(replay.transactions <= 1, "{replay:?}");
        drop(recovered);
        Arc::into_inner(fs).unwrap().close().unwrap();
        uxfs_oracle::repair(&volume.path).unwrap();
    }
}

/// The log worker pushes the tail of a log that fills up.
#[test]
fn log_worker_pushes_the_tail() {
    let volume = Volume::new(&["-l", "size=64m"]);
    let fs = Arc::new(volume.open("nodelaylog,logbsize=256k"));
    let worker = LogWorker::start(&fs, LogWorkOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let fs = &fs;
            scope.spawn(move || work(fs, thread, 3000).unwrap());
        }
    });
    fs.sync().unwrap();
    let stats = fs.stats();
    worker.stop();
    assert!(stats.log_bytes > 32 << 20 && stats.push_ail > 0 && stats.tail_pushes > 0, "{stats:?}");
    Arc::into_inner(fs).unwrap().close().unwrap();
    uxfs_oracle::repair(&volume.path).unwrap();
}

/// The volume is quiesced while other threads work. A reader that does not replay then finds
/// everything done before, and afterwards nothing is lost.
#[test]
fn quiesce_works_while_other_threads_change_the_volume() {
    for words in ["", "nodelaylog"] {
        let volume = Volume::new(&["-m", "rmapbt=1"]);
        let fs = volume.open(words);
        work(&fs, 11, 300).unwrap();
        let before = names(&fs);
        fs.quiesce().unwrap();
        let copy = volume.cut("quiesced");
        assert_eq!(clean_log(&copy), State::Clean, "{words}");
        uxfs_oracle::repair(&copy).unwrap();
        let dev = FileDev::open(&copy, OpenMode::Read).unwrap();
        let norecovery = OpenOptions { norecovery: true, ..OpenOptions::read_only() };
        assert_eq!(names(&Fs::open(Arc::new(dev), norecovery).unwrap()), before);
        std::thread::scope(|scope| {
            for thread in 20..23 {
                let fs = &fs;
                scope.spawn(move || work(fs, thread, 200).unwrap());
            }
            for _ in 0..10 {
                fs.quiesce().unwrap();
            }
        });
        fs.sync().unwrap();
        let all = names(&fs);
        let copy = volume.cut("cut");
        drop(fs);
        let fs = open(&copy, "");
        assert_eq!(names(&fs), all, "{words}");
        fs.close().unwrap();
        uxfs_oracle::repair(&copy).unwrap();
    }
}

/// After the first failed write or flush, whichever it is, everything fails with EIO, and the next
/// open recovers what was durable.
#[test]
fn a_failing_device_shuts_the_volume_down() {
    let mut rng = Rng::new(7);
    for round in 0..24 {
        let volume = Volume::new(&["-l", "size=64m"]);
        let dev = FaultDev::new(device(&volume.path)).with_fua().in_pieces().unsynced();
        let dev = Arc::new(dev);
        let words = if round % 2 == 0 { "" } else { "nodelaylog" };
        let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, options(words)).unwrap();
        work(&fs, 1, 60).unwrap();
        fs.sync().unwrap();
        let safe = names(&fs);
        dev.add(Rule::on(Op::CHANGES).after(rng.below(30)).fail(ETIMEDOUT));
        let mut failed = None;
        for seed in 2..200 {
            let done = work(&fs, seed, 5).and_then(|()| match seed % 3 {
                0 => fs.quiesce(),
                _ => fs.sync(),
            });
            if let Err(error) = done {
                failed = Some(error);
                break;
            }
        }
        let at = format!("round {round}");
        assert!(matches!(failed, Some(Error::Shutdown(_) | Error::Io { .. })), "{at}: {failed:?}");
        // A failed data write alone does not shut the volume down.
        if fs.check_running().is_err() {
            dev.clear();
            let written = std::fs::read(&volume.path).unwrap();
            let eio = |error: Error| assert_eq!(error.errno(), 5, "{at}: {error}");
            eio(fs.create(fs.root(), b"late", &NewInode::file(0o600)).unwrap_err());
            eio(fs.lookup(fs.root(), b"s1-1").unwrap_err());
            eio(fs.sync().unwrap_err());
            eio(fs.quiesce().unwrap_err());
            eio(fs.wait(fs.ticket()).unwrap_err());
            let (send, receive) = mpsc::channel();
            fs.when_durable(fs.ticket(), move |result| send.send(result).unwrap());
            assert!(receive.recv().unwrap().is_err(), "{at}");
            eio(fs.close().unwrap_err());
            assert!(written == std::fs::read(&volume.path).unwrap(), "{at}: something was written");
        } else {
            drop(fs);
        }
        drop(dev);
        let fs = volume.open("");
        let found = names(&fs);
        assert!(safe.iter().all(|name| found.binary_search(name).is_ok()), "{at}");
        fs.close().unwrap();
        uxfs_oracle::repair(&volume.path).unwrap_or_else(|f| panic!("{at}: {f}"));
    }
}

/// A transaction that is dropped after a roll, or by a panic, fails all waiters of the journal, even
/// if no thread drives it.
#[test]
fn a_half_made_change_fails_all_waiters() {
    for panics in [false, true] {
        let volume = Volume::new(&[]);
        let fs = volume.open("");
        let file = fs.create(fs.root(), b"file", &NewInode::file(0o600)).unwrap();
        let (send, receive) = mpsc::channel();
        let mut tx = Tx::begin(&fs, 0).unwrap();
        let slot = tx.lock_inode(file).unwrap();
        tx.core_mut(slot).uid = 7;
        fs.when_durable(fs.ticket(), move |result| send.send(result).unwrap());
        if panics {
            let planted = std::panic::AssertUnwindSafe(move || {
                let _tx = tx;
                panic!("planted");
            });
            std::panic::catch_unwind(planted).unwrap_err();
        } else {
            tx.roll().unwrap();
            drop(tx);
        }
        assert!(receive.try_recv().unwrap().is_err(), "panics: {panics}");
        assert!(matches!(fs.wait(fs.ticket()), Err(Error::Shutdown(_))));
        let why = fs.stopped_by().unwrap();
        assert_eq!(why.contains("panicked"), panics, "{why}");
    }
}

/// What changed in the superblock is in place only when it is durable in the log.
#[test]
fn a_superblock_is_not_written_in_place_before_it_is_durable() {
    for words in ["", "nodelaylog"] {
        let volume = Volume::new(&[]);
        let fs = volume.open(words);
        let journal = fs.journal.as_ref().unwrap();
        let dev = Arc::clone(&fs.bare_dev);
        let label = || {
            let sector = crate::sb::read(&*dev).unwrap();
            Superblock::verify(&sector).unwrap().fname[..3].to_vec()
        };
        let change = |label: &[u8; 3]| {
            fs.change_superblock(|sb| sb.fname[..3].copy_from_slice(label));
            fs.begin_tx(0).unwrap().commit().unwrap();
        };
        change(b"one");
        fs.sync().unwrap();
        change(b"two");
        journal.push_whole_ail(&fs).unwrap();
        assert_ne!(label(), b"two", "{words}");
        journal.force_and_push(&fs).unwrap();
        assert_eq!(label(), b"two", "{words}");
        // Changed in memory, and in no transaction yet.
        change(b"six");
        fs.sync().unwrap();
        fs.change_superblock(|sb| sb.fname[..3].copy_from_slice(b"ten"));
        journal.push_whole_ail(&fs).unwrap();
        assert_eq!(label(), b"six", "{words}");
        fs.begin_tx(0).unwrap().commit().unwrap();
        fs.close().unwrap();
        assert_eq!(label(), b"ten", "{words}");
        uxfs_oracle::repair(&volume.path).unwrap();
    }
}

/// A callback panics in the thread of the log worker.
#[test]
fn a_panic_in_the_log_worker_fails_all_waiters() {
    let volume = Volume::new(&[]);
    let fs = Arc::new(volume.open(""));
    work(&fs, 1, 20).unwrap();
    fs.sync().unwrap();
    let safe = names(&fs);
    let worker = LogWorker::start(&fs, LogWorkOptions::default()).unwrap();
    fs.create(fs.root(), b"new", &NewInode::file(0o600)).unwrap();
    fs.when_durable(fs.ticket(), |_| panic!("planted"));
    while fs.stopped_by().is_none() {
        std::thread::yield_now();
    }
    let (send, receive) = mpsc::channel();
    fs.when_durable(fs.ticket(), move |result| send.send(result).unwrap());
    assert!(receive.recv().unwrap().is_err());
    assert!(matches!(fs.wait(fs.ticket()), Err(Error::Shutdown(_))));
    assert!(fs.create(fs.root(), b"late", &NewInode::file(0o600)).is_err());
    worker.stop();
    drop(fs);
    let fs = volume.open("");
    let found = names(&fs);
    assert!(safe.iter().all(|name| found.binary_search(name).is_ok()));
    fs.close().unwrap();
    uxfs_oracle::repair(&volume.path).unwrap();
}

#[test]
fn a_journaled_volume_shrinks_and_grows() {
    let volume = Volume::new(&["-l", "size=64m"]);
    let fs = volume.open("");
    work(&fs, 4, 200).unwrap();
    let before = names(&fs);
    let blocks = fs.geo.dblocks;
    assert!(fs.shrink(blocks - 500).unwrap());
    uxfs_oracle::repair(&volume.path).unwrap();
    let fs = volume.open("nodelaylog");
    assert_eq!(fs.geo.dblocks, blocks - 500);
    work(&fs, 5, 50).unwrap();
    fs.grow(blocks, 0).unwrap();
    uxfs_oracle::repair(&volume.path).unwrap();
    let fs = volume.open("");
    assert_eq!(fs.geo.dblocks, blocks);
    let after = names(&fs);
    assert!(before.iter().all(|name| after.binary_search(name).is_ok()));
    fs.close().unwrap();
}

/// A record torn by a power cut ends the log. A complete record whose changes were written in place,
/// and that was damaged later, is an error: recovery without it would mix old and new metadata.
#[test]
fn a_damaged_record_with_written_changes_is_not_treated_as_torn() {
    for (written_back, in_inode) in [(false, false), (true, false), (true, true)] {
        let volume = Volume::new(&[]);
        let fs = volume.open("logbsize=32k");
        let one = fs.create(fs.root(), b"one", &NewInode::file(0o644)).unwrap();
        fs.sync().unwrap();
        let journal = fs.journal.as_ref().unwrap();
        let head = journal.head();
        if in_inode {
            fs.set_attr(one, &crate::SetAttr { uid: Some(7), ..Default::default() }).unwrap();
        } else {
            fs.create(fs.root(), b"two", &NewInode::file(0o644)).unwrap();
        }
        fs.sync().unwrap();
        assert!(journal.head() > head);
        if written_back {
            journal.force_and_push(&fs).unwrap();
        }
        // After the record's header.
        let at = fs.geo.fsb_daddr(fs.geo.log_start).bytes()
            + head.0 % journal.geometry().length
            + 512
            + 40;
        let copy = volume.cut("cut");
        drop(fs);
        let dev = device(&copy);
        let mut byte = [0];
        dev.read_at(at, &mut byte).unwrap();
        dev.write_at(at, &[byte[0] ^ 1]).unwrap();
        drop(dev);
        let opened = Fs::open(Arc::new(device(&copy)), options(""));
        if !written_back {
            let fs = opened.unwrap();
            assert_eq!(names(&fs), [b"/one".to_vec()]);
            fs.close().unwrap();
            uxfs_oracle::repair(&copy).unwrap();
            continue;
        }
        match opened {
            Err(Error::DirtyLog(why)) => assert!(why.contains("was logged behind that"), "{why}"),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("a damaged log was replayed as if torn"),
        }
    }
}

/// A checkpoint that frees an inode chunk does not allocate a chunk in the same blocks again: the
/// icreate item would undo the cancel items of the freed blocks.
#[test]
fn an_inode_chunk_is_reused_only_after_its_freeing_is_durable() {
    let volume = Volume::new(&["-d", "agcount=2", "-i", "sparse=0"]);
    let fs = volume.open("");
    let chunks = |round: u32| -> Vec<u64> {
        let make = |n: u32| {
            let name = format!("{round}-{n}");
            let ino = fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o600)).unwrap();
            // The root is the first inode of its chunk.
            (ino.0 - fs.root().0) / 64
        };
        let mut all: Vec<u64> = (0..300).map(make).collect();
        all.dedup();
        all
    };
    let remove = |round: u32| {
        for n in 0..300 {
            fs.unlink(fs.root(), format!("{round}-{n}").as_bytes()).unwrap();
        }
    };
    let first = chunks(0);
    remove(0);
    // The root's chunk stays.
    let left = usize::try_from(fs.inode_counts().0 / 64).unwrap();
    assert!(left < first.len(), "{left} chunks are left of {first:?}");
    let again = |chunks: &[u64]| chunks.iter().filter(|chunk| first.contains(chunk)).count();
    let second = chunks(1);
    assert!(again(&second) <= left, "{second:?} after {first:?}, of which {left} were left");
    remove(1);
    fs.sync().unwrap();
    let third = chunks(2);
    assert!(again(&third) > left, "{third:?} after {first:?}");
    fs.sync().unwrap();
    let copy = volume.cut("cut");
    drop(fs);
    let fs = open(&copy, "");
    assert_eq!(names(&fs).len(), 300);
    fs.close().unwrap();
    uxfs_oracle::repair(&copy).unwrap();
}

/// A block that a file maps twice is not zeroed in place when one mapping becomes a hole: after a
/// power cut the file may have both mappings again.
#[test]
fn a_block_mapped_twice_by_a_file_is_not_zeroed_in_place() {
    let volume = Volume::new(&["-m", "reflink=1"]);
    let fs = volume.open("");
    let file = fs.create(fs.root(), b"file", &NewInode::file(0o600)).unwrap();
    fs.write_at(file, 0, &[7; 8192]).unwrap();
    fs.share(file, 4096, file, 24576, 4096).unwrap();
    fs.sync().unwrap();
    fs.fallocate(file, Fallocate::PunchHole, 412, 27_143).unwrap();
    let copy = volume.cut("cut");
    drop(fs);
    let fs = open(&copy, "");
    let mut content = vec![0; 28_672];
    assert_eq!(fs.read_at(file, 0, &mut content).unwrap(), content.len());
    for (from, to) in [(0, 412), (4096, 8192), (24_576, 28_672)] {
        assert!(content[from..to].iter().all(|byte| *byte == 7), "{from}..{to}");
    }
    fs.close().unwrap();
    uxfs_oracle::repair(&copy).unwrap();
}

/// Threads that wait and callbacks, under every policy: all get a result, and what was reported as
/// durable survives a power cut.
#[test]
fn every_fsync_policy_makes_forced_changes_durable() {
    let words = [
        "own",
        "journal",
        "average",
        "fixed:200",
        "greedy",
        "gather",
        "gather:32",
        "overlap:4",
        "auto",
    ];
    for (number, word) in words.iter().enumerate() {
        let volume = Volume::new(&["-d", "agcount=4"]);
        let elision = ["both", "covered", "clean", "none"][number % 4];
        let words = format!("fsync_policy={word},flush_elision={elision}");
        let fs = Arc::new(volume.open(&words));
        // The log worker makes changes without a waiter durable.
        let worker =
            (number % 2 == 0).then(|| LogWorker::start(&fs, LogWorkOptions::default()).unwrap());
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (fs, words, send) = (&fs, &words, send.clone());
                let has_worker = worker.is_some();
                scope.spawn(move || {
                    for step in 0..40 {
                        let name = format!("t{thread}-{step}");
                        fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o600)).unwrap();
                        let ticket = fs.ticket();
                        if has_worker && step % 4 == thread {
                            let send = send.clone();
                            let notify = move |result| send.send((name, result)).unwrap();
                            fs.when_durable_for(1000 + step, ticket, Drive::Worker, notify);
                        } else {
                            fs.wait(ticket).unwrap();
                            assert!(fs.is_durable(ticket), "{words}");
                            send.send((name, Ok(()))).unwrap();
                        }
                    }
                });
            }
        });
        drop(send);
        let results: Vec<_> = receive.iter().collect();
        assert_eq!(results.len(), 160, "{words}");
        assert!(results.iter().all(|(_, result)| result.is_ok()), "{words}: {results:?}");
        let copy = volume.cut("durable");
        drop(worker);
        drop(fs);
        let found = names(&open(&copy, ""));
        for (name, _) in results {
            assert!(found.contains(&format!("/{name}").into_bytes()), "{words}: {name} is lost");
        }
        uxfs_oracle::repair(&copy).unwrap();
    }
}

/// Under a policy that overlaps flushes, a caller that needs only a flush does not wait for one
/// that began earlier.
#[test]
fn flushes_overlap_if_the_policy_allows_it() {
    // Only so that a failing test ends.
    const LIMIT: Duration = Duration::from_secs(600);
    for (word, threads) in [("own", 5), ("overlap:3", 3)] {
        let volume = Volume::new(&[]);
        let dev = Arc::new(FaultDev::new(device(&volume.path)).unsynced());
        let words = options(&format!("fsync_policy={word}"));
        let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, words).unwrap();
        // No flush ends before this many are in progress.
        let flushes = Arc::new((Mutex::new(0), Condvar::new()));
        let at_device = Arc::clone(&flushes);
        dev.add(Rule::on(&[Op::Flush]).times(threads).before(move |_| {
            let (flushing, more) = &*at_device;
            let mut flushing = flushing.lock();
            *flushing += 1;
            more.notify_all();
            match more.wait_while_for(&mut flushing, |n| *n < threads, LIMIT).timed_out() {
                true => Answer::Fail(ETIMEDOUT),
                false => Answer::Pass,
            }
        }));
        let (engine, journal) = (&fs, fs.journal.as_ref().unwrap());
        std::thread::scope(|scope| {
            for thread in 1..=threads {
                // Its data is written after the earlier flushes began, so that none of them
                // covers it.
                let data = journal.data_written();
                let need = uxfs_journal::Need { seq: uxfs_journal::Seq(0), data };
                scope.spawn(move || {
                    journal.wait_with_others(engine, super::Ticket(need)).unwrap();
                });
                let (flushing, more) = &*flushes;
                let mut flushing = flushing.lock();
                let waited = more.wait_while_for(&mut flushing, |n| *n < thread, LIMIT);
                assert!(!waited.timed_out(), "{word}: flush {thread} waits for an earlier one");
            }
        });
        fs.close().unwrap();
    }
}
