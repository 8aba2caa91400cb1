//! Random operations on the contents of a few files, compared with a model in memory. Power cuts
//! keep all writes. Afterwards, synced data is readable, and no file has contents that were never
//! written to it.

use uxfs_format::Ino;
use uxfs_journal::Time;
use uxfs_testkit::Rng;

use super::{Volume, content, volume_of};
use crate::{DefragOptions, Fallocate, WritebackOptions};

const MIB: usize = 1 << 20;

struct Model {
    volume: Option<Volume>,
    rng: Rng,
    files: Vec<(Ino, Vec<u8>)>,
    /// The time in seconds for ticks.
    now: u64,
}

fn limits() -> WritebackOptions {
    WritebackOptions {
        dirty_bytes: 512 << 10,
        dirty_background_bytes: 128 << 10,
        ..WritebackOptions::default()
    }
}

impl Model {
    fn step(&mut self) {
        let v = self.volume.as_ref().unwrap();
        let rng = &mut self.rng;
        let at = rng.index(self.files.len());
        let (ino, data) = &mut self.files[at];
        let ino = *ino;
        let from = match rng.below(3) {
            0 => data.len(),
            1 => rng.index(data.len() + 1),
            _ => rng.index(MIB),
        };
        let from = if rng.once_in(3) { from - from % 4096 } else { from };
        let most = if rng.once_in(6) { 300_000 } else { 9000 };
        let len = 1 + rng.index(most);
        let end = from + len;
        match rng.below(17) {
            0..=8 => {
                let bytes = rng.bytes(len);
                v.fs.write_at(ino, from as u64, &bytes).unwrap();
                data.resize(data.len().max(end), 0);
                data[from..end].copy_from_slice(&bytes);
            }
            9 => {
                let size = if rng.once_in(2) { rng.index(data.len() + 1) } else { from };
                v.fs.truncate(ino, size as u64).unwrap();
                data.resize(size, 0);
            }
            10 => {
                v.fs.fallocate(ino, Fallocate::PunchHole, from as u64, len as u64).unwrap();
                let end = end.min(data.len());
                data[from.min(end)..end].fill(0);
            }
            11 => {
                let mode = Fallocate::Allocate { keep_size: false };
                v.fs.fallocate(ino, mode, from as u64, len as u64).unwrap();
                data.resize(data.len().max(end), 0);
            }
            12 if v.fs.geo.has_reflink() => {
                let source = self.rng.index(self.files.len());
                let (source, bytes) = self.files[source].clone();
                let whole = bytes.len() % v.fs.geo.block_size as usize == 0;
                if source != ino && (whole || bytes.len() >= self.files[at].1.len()) {
                    v.fs.clone_file(source, ino).unwrap();
                    let data = &mut self.files[at].1;
                    data.resize(data.len().max(bytes.len()), 0);
                    data[..bytes.len()].copy_from_slice(&bytes);
                }
            }
            13 => {
                self.now += rng.below(20);
                v.fs.writeback_tick(Time(self.now * 1_000_000_000)).unwrap();
            }
            14 => match rng.below(3) {
                0 => v.fs.fsync(ino).unwrap(),
                1 => v.fs.fdatasync(ino).unwrap(),
                _ => assert_eq!(v.fs.stat(ino).unwrap().size, data.len() as u64),
            },
            15 => {
                let shared = rng.once_in(2);
                v.fs.defrag(ino, DefragOptions { shared }).unwrap();
            }
            _ => {
                let mut found = vec![0; len];
                let got = v.fs.read_at(ino, from as u64, &mut found).unwrap();
                assert_eq!(got, data.len().saturating_sub(from).min(len));
                assert!(found[..got] == data[from.min(data.len())..][..got], "{ino:?} at {from}");
            }
        }
    }

    fn compare(&self, when: &str) {
        let fs = &self.volume.as_ref().unwrap().fs;
        for (ino, data) in &self.files {
            let found = content(fs, *ino);
            assert_eq!(found.len(), data.len(), "{when}: length of {ino:?}");
            let differs = found.iter().zip(data).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{when}: {ino:?}");
        }
    }

    /// A power cut, after everything was synced.
    fn cut(&mut self) {
        let v = self.volume.take().unwrap();
        v.fs.sync().unwrap();
        let free = v.fs.free_blocks();
        let v = v.cut();
        assert_eq!(v.fs.free_blocks(), free);
        self.volume = Some(v);
    }
}

#[test]
fn contents_match_the_model() {
    let lines = ["-m rmapbt=1", "-b size=1k", "-m reflink=0", "-b size=16k -m rmapbt=1"];
    for (seed, line) in lines.into_iter().cycle().take(8).enumerate() {
        println!("seed {seed}, {line}");
        let v = volume_of(line, 300, limits());
        let files = (0..5).map(|n| (v.file(&format!("{n}")), Vec::new())).collect();
        let mut model = Model { volume: Some(v), rng: Rng::new(seed as u64), files, now: 0 };
        for step in 0..600 {
            model.step();
            if step % 150 == 149 {
                model.compare("in memory");
                model.cut();
                model.compare("after a power cut");
            }
        }
        model.volume.take().unwrap().judge();
    }
}
