//! Writing volumes: unfinished, over old ones, without zeroing; and newer features.

use uxfs_disk::{BlockDev, MemDev};
use uxfs_format::features::{Incompat, Version};
use uxfs_format::superblock::Superblock;
use uxfs_format::timestamp::Timestamp;
use uxfs_mkfs::{Layout, Options, WriteOptions, signature, table, table_of, write};

use crate::pair::{GIB, MIB, options};

fn first_sector(dev: &dyn BlockDev) -> Vec<u8> {
    let mut sector = vec![0; 512];
    dev.read_at(0, &mut sector).unwrap();
    sector
}

#[test]
fn only_an_unfinished_volume_has_the_in_progress_flag() {
    let layout = Layout::new(&Options::default(), 300 * MIB).unwrap();
    for in_progress in [true, false] {
        let dev = MemDev::new(layout.size_bytes());
        let mut how = WriteOptions::default();
        how.in_progress = in_progress;
        write(&layout, &dev, &how).unwrap();
        let sector = first_sector(&dev);
        assert_eq!(Superblock::verify(&sector).unwrap().inprogress, u8::from(in_progress));
    }
}

#[test]
fn an_old_volumes_secondary_superblocks_are_zeroed() {
    let dev = MemDev::new(GIB);
    assert_eq!(signature::existing(&dev).unwrap(), None);
    let old = Layout::new(&options("-d agcount=7").unwrap(), GIB).unwrap();
    write(&old, &dev, &WriteOptions::default()).unwrap();
    assert_eq!(signature::existing(&dev).unwrap(), Some("xfs"));
    let new = Layout::new(&Options::default(), GIB).unwrap();
    let mut how = WriteOptions::default();
    how.now = Some(Timestamp::default());
    write(&new, &dev, &how).unwrap();
    let copies: Vec<u64> = (0..GIB / 4096)
        .map(|block| block * 4096)
        .filter(|at| {
            let mut magic = [0; 4];
            dev.read_at(*at, &mut magic).unwrap();
            &magic == b"XFSB"
        })
        .collect();
    assert_eq!(copies, [0, GIB / 4, GIB / 2, GIB / 4 * 3]);
}

#[test]
fn a_log_over_old_content_is_zeroed_and_a_zero_device_is_not_written() {
    let options = options("-m uuid=01234567-89ab-4def-8123-456789abcdef").unwrap();
    let layout = Layout::new(&options, 300 * MIB).unwrap();
    let mut how = WriteOptions::default();
    how.now = Some(Timestamp::default());
    let (dirty, clean) = (MemDev::new(300 * MIB), MemDev::new(300 * MIB));
    // The log is in AG 2 behind six blocks.
    let log = 150 * MIB + 6 * 4096;
    dirty.write_at(log, &vec![0xaa; 64 << 20]).unwrap();
    write(&layout, &dirty, &how).unwrap();
    how.zero_log = true;
    write(&layout, &clean, &how).unwrap();
    let (mut a, mut b) = (vec![0; 64 << 20], vec![0; 64 << 20]);
    dirty.read_at(log, &mut a).unwrap();
    clean.read_at(log, &mut b).unwrap();
    assert!(a == b && a[1024..].iter().all(|byte| *byte == 0));
    assert_eq!(first_sector(&dirty), first_sector(&clean));
}

#[test]
fn a_short_device_is_refused() {
    let layout = Layout::new(&Options::default(), 300 * MIB).unwrap();
    let dev = MemDev::new(299 * MIB);
    assert!(write(&layout, &dev, &WriteOptions::default()).is_err());
    assert!(Layout::new(&Options::default(), u64::MAX).is_err());
    let sized = options("-d size=400m").unwrap();
    assert_eq!(Layout::new(&sized, u64::MAX).unwrap().size_bytes(), 400 * MIB);
    for len in [0, 1, 4096, MIB, 8 * MIB] {
        let mut options = Options::default();
        options.unsupported = true;
        assert!(Layout::new(&options, len).is_err());
        options.block_size = Some(65536);
        assert!(Layout::new(&options, len).is_err());
    }
}

#[test]
fn newer_features_set_their_bits_and_show_in_the_table() {
    let line = "-m rmapbt=1 -i nrext64=1,exchange=1 -n parent=1";
    let layout = Layout::new(&options(line).unwrap(), GIB).unwrap();
    let dev = MemDev::new(GIB);
    write(&layout, &dev, &WriteOptions::default()).unwrap();
    let sector = first_sector(&dev);
    let sb = Superblock::verify(&sector).unwrap();
    assert!(sb.incompat().contains(Incompat::EXCHRANGE | Incompat::PARENT));
    assert!(sb.version_flags().contains(Version::ATTR));
    let text = table_of(sb, "x");
    assert!(text.contains("exchange=1   metadir=0\n"), "{text}");
    assert!(text.contains("ftype=1, parent=1\n"), "{text}");
    assert_eq!(text, table(&layout, "x"));
    let plain = table(&Layout::new(&Options::default(), GIB).unwrap(), "x");
    assert!(!plain.contains("exchange") && !plain.contains("parent"));
}
