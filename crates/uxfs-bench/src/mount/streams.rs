//! A large file, written and read from start to end: the mount against a server that forwards to
//! files of the host.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use super::options::Options;
use super::subject::{self, MOUNT, THROUGH};
use crate::host::{Scratch, drop_from_cache, read_into_cache};
use crate::{BenchError, Report, Result, Row};

/// Default length of the file.
const BYTES: u64 = 1 << 30;
const HOST: &str = "host file, no FUSE";
const STABLE: &str = "on stable storage (fsync included)";
const READ: &str = "nothing written";
const CACHED: &str = "what a row reads first is in the host's page cache, as its backing file, and in no cache of the mount";
/// Bytes of one call.
const CALL: usize = 1 << 20;

/// Rates of a file in MB/s: written, read from the server, read from the page cache.
type Rates = [f64; 3];

pub(super) fn run_all(
    options: &Options,
    scratch: &Scratch,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Report>> {
    let titles = ["written, with fsync", "read from the server", "read again, from the page cache"];
    let mut rows: Vec<Vec<Row>> = [STABLE, READ, READ]
        .iter()
        .map(|cost| [MOUNT, THROUGH, HOST].iter().map(|name| Row::new(*name, *cost)).collect())
        .collect();
    for round in 1..=options.rounds {
        say(&format!("a large file, round {round} of {}", options.rounds));
        for (at, name) in [MOUNT, THROUGH, HOST].iter().enumerate() {
            let (rates, memory) = one(options, scratch, name)?;
            for (rows, rate) in rows.iter_mut().zip(rates) {
                rows[at].samples.push(rate);
                rows[at].memory_kib = rows[at].memory_kib.max(memory);
            }
        }
    }
    let size = options.bytes.unwrap_or(BYTES) >> 20;
    let reports = rows.into_iter().zip(titles).map(|(rows, what)| Report {
        title: format!("a file of {size} MiB {what}, {} KiB a call", CALL >> 10),
        unit: "MB/s",
        rows,
        base: if what.contains("again") { HOST.into() } else { THROUGH.into() },
        notes: vec![CACHED.into()],
    });
    Ok(reports.collect())
}

fn one(options: &Options, scratch: &Scratch, name: &str) -> Result<(Rates, Option<u64>)> {
    let bytes = options.bytes.unwrap_or(BYTES);
    fill_page_cache(&scratch.file("warm"), 2 * bytes)?;
    if name == HOST {
        return Ok((stream(&scratch.file("large"), bytes, true)?, None));
    }
    subject::with(name, options, scratch, |subject| {
        Ok((stream(&subject.dir().join("large"), bytes, false)?, subject.memory_kib()))
    })
}

/// Fills the page cache with data that is dropped at once. In a virtual machine, memory that was
/// not used for some time belongs to its host, and the first use costs many times a copy. A mount
/// takes twice the file: in its own cache and in the host file's.
fn fill_page_cache(path: &Path, bytes: u64) -> Result<()> {
    let fail = |e: std::io::Error| BenchError::new(path.display().to_string(), e);
    let call = vec![0x5a_u8; CALL];
    let mut file = File::create(path).map_err(fail)?;
    for _ in 0..bytes.div_ceil(CALL as u64) {
        file.write_all(&call).map_err(fail)?;
    }
    std::fs::remove_file(path).map_err(fail)
}

/// Writes and reads a file, which is one of a mount or a host's own.
fn stream(path: &Path, bytes: u64, is_of_host: bool) -> Result<Rates> {
    let fail = |e: std::io::Error| BenchError::new(path.display().to_string(), e);
    let rate = |begun: Instant| bytes as f64 / 1e6 / begun.elapsed().as_secs_f64();
    let mut call = vec![0x5a_u8; CALL];
    let begun = Instant::now();
    let mut file = File::create(path).map_err(fail)?;
    let mut left = bytes;
    while left > 0 {
        let len = left.min(CALL as u64) as usize;
        file.write_all(&call[..len]).map_err(fail)?;
        left -= len as u64;
    }
    file.sync_all().map_err(fail)?;
    let written = rate(begun);
    drop(file);
    ready_to_read(path, is_of_host)?;
    let mut read = || -> Result<f64> {
        let mut file = File::open(path).map_err(fail)?;
        let begun = Instant::now();
        while file.read(&mut call).map_err(fail)? > 0 {}
        Ok(rate(begun))
    };
    let rates = [written, read()?, read()?];
    std::fs::remove_file(path).map_err(fail)?;
    Ok(rates)
}

/// Makes the first read of each row one from the host's page cache: a mount's own pages of the file are
/// dropped, and the backing file's are not. A host's own file is its backing file.
fn ready_to_read(path: &Path, is_of_host: bool) -> Result<()> {
    match is_of_host {
        true => read_into_cache(path).map(|_| ()),
        false => drop_from_cache(path),
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;

    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    use super::*;

    /// Is the first page in the page cache?
    fn is_cached(path: &Path) -> bool {
        let file = File::open(path).unwrap();
        let mut page = [0; 4096];
        let read = preadv2(&file, &mut [IoSliceMut::new(&mut page)], 0, ReadWriteFlags::NOWAIT);
        assert!(matches!(read, Ok(4096) | Err(Errno::AGAIN)), "{read:?}");
        read.is_ok()
    }

    #[test]
    fn the_host_row_reads_from_the_page_cache_as_the_others_do() {
        // Not in memory, where nothing can be dropped.
        let scratch = Scratch::new(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let path = scratch.file("large");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        crate::host::sync(&path).unwrap();
        ready_to_read(&path, false).unwrap();
        assert!(!is_cached(&path), "the file system here keeps what it is advised to drop");
        ready_to_read(&path, true).unwrap();
        assert!(is_cached(&path));
    }
}
