//! Ordered mode: how split a file becomes that is overwritten at random, with and without a hint, and what
//! mends it.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::Duration;

use uxfs_disk::{BlockDev, MemDev};
use uxfs_format::Ino;
use uxfs_testkit::Rng;

use super::options;
use crate::ops::NewInode;
use crate::{DefragOptions, Fs, Fsx, OpenOptions, SyncMode, WritebackOptions, Xflags};

const FILE: usize = 64 << 20;
const EPOCHS: usize = 32;
const WRITES: usize = 64;
const LEN: usize = 8192;

fn ordered(defrag: bool) -> OpenOptions {
    let mut options = options(WritebackOptions::default());
    options.sync = SyncMode::Ordered { loss: Duration::from_secs(3600) };
    options.defrag = defrag;
    options
}

/// A file that was written in sequence, with this hint for copies on write in bytes.
fn written(hint: u64, options: OpenOptions) -> (MemDev, Fs, Ino, Vec<u8>) {
    let dev = MemDev::new(512 << 20);
    let mut mkfs = uxfs_mkfs::Options::default();
    mkfs.apply('m', "rmapbt=1").unwrap();
    let layout = uxfs_mkfs::Layout::new(&mkfs, dev.len()).unwrap();
    uxfs_mkfs::write(&layout, &dev, &uxfs_mkfs::WriteOptions::default()).unwrap();
    let fs = Fs::open(Arc::new(dev.clone()) as Arc<dyn BlockDev>, options).unwrap();
    let file = fs.create(fs.root(), b"a", &NewInode::file(0o644)).unwrap();
    if hint > 0 {
        let old = fs.get_fsx(file).unwrap();
        let xflags = old.xflags | Xflags::COWEXTSIZE;
        fs.set_fsx(file, &Fsx { xflags, cowextsize: hint, ..old }).unwrap();
    }
    let content: Vec<u8> = (0..FILE).map(|at| (at / 4096 % 251) as u8).collect();
    for (at, part) in content.chunks(1 << 20).enumerate() {
        fs.write_at(file, (at << 20) as u64, part).unwrap();
    }
    fs.wait(fs.durable().unwrap()).unwrap();
    (dev, fs, file, content)
}

/// Overwrites it in many epochs, `writes` times in each. Returns how many extents it has after each.
fn overwrite(
    fs: &Fs,
    file: Ino,
    content: &mut [u8],
    writes: usize,
    after_epoch: &dyn Fn(),
) -> Vec<u64> {
    let mut rng = Rng::new(19);
    let mut extents = Vec::new();
    for epoch in 0..EPOCHS {
        for _ in 0..writes {
            let at = rng.index(FILE / LEN) * LEN;
            let bytes = [epoch as u8 + 1; LEN];
            fs.write_at(file, at as u64, &bytes).unwrap();
            content[at..at + LEN].copy_from_slice(&bytes);
        }
        fs.wait(fs.durable().unwrap()).unwrap();
        after_epoch();
        extents.push(fs.fragmentation(file).unwrap().extents);
    }
    extents
}

/// What the file holds, in memory and after everything is written in place.
fn check(dev: &MemDev, fs: Fs, file: Ino, content: &[u8]) {
    let mut found = vec![0; FILE];
    fs.read_at(file, 0, &mut found).unwrap();
    assert!(found == content);
    fs.close().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let mut image = File::create(&path).unwrap();
    image.set_len(dev.len()).unwrap();
    let put = |offset, bytes: &[u8]| {
        image.seek(SeekFrom::Start(offset))?;
        image.write_all(bytes)
    };
    dev.for_written(put).unwrap();
    super::xfsprogs(&path).unwrap();
}

#[test]
fn an_extent_size_hint_bounds_how_split_a_file_becomes() {
    let mut last = Vec::new();
    for hint in [0, 64 << 10, 1 << 20] {
        let (dev, fs, file, mut content) = written(hint, ordered(false));
        let logged = fs.stats().log_bytes;
        let extents = overwrite(&fs, file, &mut content, WRITES, &|| ());
        let logged = fs.stats().log_bytes - logged;
        let end = *extents.last().unwrap();
        println!(
            "hint {hint}: {:?} extents after 1, 8, 16, 32 epochs, {logged} bytes of log",
            [0, 7, 15, 31].map(|at| extents[at])
        );
        // Each unit is one extent or a part of one.
        if let Some(units) = (FILE as u64).checked_div(hint) {
            assert!(end <= units, "{extents:?}");
        }
        last.push(end);
        check(&dev, fs, file, &content);
    }
    assert!(last.is_sorted_by(|more, fewer| more >= fewer), "{last:?}");
}

#[test]
fn the_background_pass_keeps_a_file_together() {
    let (_, fs, file, mut content) = written(0, ordered(false));
    let alone = *overwrite(&fs, file, &mut content, WRITES, &|| ()).last().unwrap();
    let (dev, fs, file, mut content) = written(0, ordered(true));
    let pass = || assert!(fs.defrag_pass(4 << 20).unwrap() < 64 << 20);
    let extents = overwrite(&fs, file, &mut content, WRITES, &pass);
    let end = *extents.last().unwrap();
    println!("{alone} extents without the pass, {end} with it: {extents:?}");
    assert!(end * 3 < alone * 2, "{extents:?}, {alone} without the pass");
    // 64 KiB and more on average.
    assert!(end <= FILE as u64 / (64 << 10), "{extents:?}");
    // While no program writes, the pass moves the rest.
    while fs.defrag_pass(4 << 20).unwrap() > 0 {}
    fs.defrag(file, DefragOptions::default()).unwrap();
    let rest = fs.fragmentation(file).unwrap().extents;
    println!("{rest} extents after all is moved");
    assert!(rest <= 8, "{rest}");
    check(&dev, fs, file, &content);
}

/// A run that is overwritten goes to one place, also if it lay in many.
#[test]
fn a_file_that_is_overwritten_densely_stays_in_units() {
    let (dev, fs, file, mut content) = written(0, ordered(false));
    let before = fs.stats().data_bytes;
    let extents = overwrite(&fs, file, &mut content, FILE / LEN / 2, &|| ());
    let written = (fs.stats().data_bytes - before) as f64 / (EPOCHS * FILE / 2) as f64;
    let most = extents.iter().max().unwrap();
    println!("at most {most} extents; {written:.2} times the bytes of the calls");
    // 128 KiB and more on average.
    assert!(*most <= FILE as u64 / (128 << 10), "{extents:?}");
    check(&dev, fs, file, &content);
}

#[test]
fn an_overwritten_run_becomes_one_extent() {
    let (dev, fs, file, mut content) = written(0, ordered(false));
    let split = *overwrite(&fs, file, &mut content, WRITES, &|| ()).last().unwrap();
    let half = FILE / 2;
    content[..half].fill(200);
    for (at, part) in content[..half].chunks(1 << 20).enumerate() {
        fs.write_at(file, (at << 20) as u64, part).unwrap();
    }
    fs.wait(fs.durable().unwrap()).unwrap();
    let rest = fs.extents(file).unwrap();
    let first = rest.iter().filter(|e| e.offset.0 < (half / 4096) as u64).count();
    println!("{split} extents before; {first} in the half that was overwritten");
    assert!(first as u64 <= 40, "{first}");
    check(&dev, fs, file, &content);
}
