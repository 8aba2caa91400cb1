//! The volumes that workloads run on.

use uxfs::mkfs;
use uxfs_format::timestamp::Timestamp;

use uxfs_disk::MemDev;

/// Bytes of a volume.
const LENGTH: u64 = 48 << 20;

/// Volumes that workloads run on, as options of mkfs. Any two values of block size, sector, inode
/// size, directory block, features, log stripe unit and log size occur together in one of them, as
/// far as they are compatible. Without a log size the log is the smallest legal one. With the
/// largest stripe unit every checkpoint takes that much, so the log is full after a few dozen and
/// wraps. Kernel 7.2 refuses the smallest log of mkfs.xfs 6.1 with rmapbt and without reflink and
/// finobt. Sizes of logs end in `m`: those in `k` are of blocks ([`largest_block`]).
pub const VOLUMES: &[&str] = &[
    "-m rmapbt=0,reflink=1 -l su=256k",
    "-m rmapbt=1,reflink=1 -l size=16m",
    "-b size=1k -m rmapbt=0,reflink=1 -l size=6m",
    "-m rmapbt=0,reflink=0,finobt=0,inobtcount=0,bigtime=0 -i sparse=0 -l su=256k",
    "-m rmapbt=0,reflink=1 -n size=8k -i size=1024,nrext64=1 -l size=16m,su=32k",
    "-i exchange=1 -n parent=1 -m rmapbt=1,reflink=1 -l size=16m",
    "-s size=4096 -b size=4k -m rmapbt=1,reflink=1",
    "-b size=1k -m rmapbt=1,reflink=1 -i nrext64=1 -l su=256k",
    "-b size=2k -m rmapbt=0,reflink=0,inobtcount=0 -n size=4k -i size=1024",
    "-b size=2k -m rmapbt=1,reflink=1,bigtime=0 -i size=1024,sparse=0 -n size=16k -l su=4k",
    "-m rmapbt=1,reflink=0,finobt=0,inobtcount=0 -i nrext64=0 -l size=4m,su=32k",
    "-b size=1k -m rmapbt=0,reflink=0,bigtime=0 -n size=8k -i sparse=0,nrext64=1",
    "-i exchange=1 -n parent=1 -m rmapbt=0,reflink=1,finobt=0,inobtcount=0 -b size=1k",
    "-i exchange=1,sparse=0,nrext64=1 -n parent=1,size=8k -m rmapbt=0,reflink=0 -l su=256k",
    "-s size=4096 -b size=4k -m rmapbt=0,reflink=1,bigtime=0 -i size=2048 -l su=4k",
    "-s size=4096 -b size=4k -i exchange=1,size=1024 -n parent=1 -m rmapbt=1,reflink=1 -l su=32k",
    "-b size=4k -n size=64k -m rmapbt=1,reflink=1 -i nrext64=1,sparse=0",
    "-b size=1k -n size=16k -m rmapbt=1,reflink=0,finobt=0,inobtcount=0 -i size=512 -l su=4k",
    "-d agcount=3 -m rmapbt=0,reflink=1,finobt=0,inobtcount=0 -i sparse=0,nrext64=1 -b size=2k",
    "-d agcount=3 -m rmapbt=0,reflink=0 -l size=8m,su=256k",
    "-b size=2k -i exchange=1,nrext64=0 -n parent=1,size=4k -m rmapbt=1,reflink=1 -l size=12m",
];

/// Makes a volume.
///
/// # Errors
/// An error of mkfs.
pub(crate) fn make(line: &str) -> Result<MemDev, String> {
    // Always the same bytes, so that a run repeats exactly.
    let uuid = "75786673-0000-4000-8000-000000000001".parse().ok();
    let mut options = mkfs::Options::default();
    (options.unsupported, options.uuid) = (true, uuid);
    let words: Vec<&str> = line.split_whitespace().collect();
    for pair in words.chunks(2) {
        let letter = pair[0].chars().nth(1).unwrap_or('?');
        options.apply(letter, pair[1]).map_err(|e| e.to_string())?;
    }
    let layout = mkfs::Layout::new(&options, LENGTH).map_err(|e| format!("{line}: {e}"))?;
    let disk = MemDev::new(LENGTH);
    let now = Some(Timestamp { sec: 1_600_000_000, nsec: 7 });
    let mut how = mkfs::WriteOptions::default();
    how.now = now;
    let made = mkfs::write(&layout, &disk, &how);
    made.map_err(|e| format!("{line}: {e}"))?;
    Ok(disk)
}

/// Does the workload account quotas on the volume? Then it begins with the first count.
pub(crate) fn accounts_quotas(line: &str) -> bool {
    line.contains("nrext64=1")
}

/// The unit of atomic writes: the volume's sector.
pub(crate) fn sector(line: &str) -> usize {
    if line.contains("-s size=4096") { 4096 } else { 512 }
}

/// Bytes of the largest block of metadata: a directory's, or the volume's.
pub(crate) fn largest_block(line: &str) -> usize {
    let sizes = line.split([' ', ',']).filter_map(|word| word.strip_prefix("size="));
    let bytes = |size: &str| match size.strip_suffix('k') {
        Some(kib) => kib.parse().map_or(0, |kib: usize| kib << 10),
        None => size.parse().unwrap_or(0),
    };
    sizes.map(bytes).max().unwrap_or(0).max(4096)
}

/// Bytes of the log's stripe unit.
pub(crate) fn log_unit(line: &str) -> u32 {
    let words = line.split([' ', ',']).find_map(|word| word.strip_prefix("su="));
    let kib = words.and_then(|su| su.strip_suffix('k')).and_then(|su| su.parse::<u32>().ok());
    kib.map_or(0, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mkfs_accepts_all_volumes() {
        for line in VOLUMES {
            make(line).unwrap_or_else(|e| panic!("{e}"));
            assert!(largest_block(line) <= 64 << 10, "{line}: a log's size is taken for a block's");
        }
    }
}
