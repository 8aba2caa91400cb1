//! Reads a tree and prints the time that it took: `walk skip|read|chunk|tar SOURCE`.
//!
//! `skip` reads only the entries; `read` and `chunk` also read all data, through the method of that
//! name; `tar` writes the tree as a tar to standard output.

use std::io::stdout;
use std::path::Path;
use std::time::Instant;

use uxfs_archive::{ArchiveError, DataReader, TarWriter, open};

fn main() -> Result<(), ArchiveError> {
    let mut arguments = std::env::args_os().skip(1);
    let mode = arguments.next().unwrap_or_default();
    let source = arguments.next().unwrap_or_default();
    let start = Instant::now();
    let mut source = open(Path::new(&source))?;
    let (mut entries, mut bytes) = (0_u64, 0);
    let mut buffer = vec![0; 1 << 20];
    let tar = mode == "tar";
    let mut writer = TarWriter::new(stdout().lock());
    while let Some(entry) = source.next()? {
        entries += 1;
        if tar {
            writer.entry(&entry, &mut DataReader(source.as_mut()))?;
        }
        loop {
            let count = match mode.as_encoded_bytes() {
                b"read" => source.read(&mut buffer)?,
                b"chunk" => {
                    let count = source.chunk()?.len();
                    source.consume(count);
                    count
                }
                _ => 0,
            };
            if count == 0 {
                break;
            }
            bytes += count;
        }
    }
    if tar {
        drop(writer.finish()?);
    }
    for warning in source.warnings() {
        eprintln!("{warning}");
    }
    eprintln!("{entries} entries, {bytes} bytes of data, {:?}", start.elapsed());
    Ok(())
}
