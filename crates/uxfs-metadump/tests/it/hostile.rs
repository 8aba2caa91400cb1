//! Dumps that are damaged, or made to do harm: refused, with an error that says where.

use uxfs_disk::MemDev;
use uxfs_format::metadump::{
    Content, Device, EXTENT_HEAD_LEN, ExtentHead, HEADER_LEN, INDEX_LEN, Index,
};
use uxfs_format::{Daddr, superblock};
use uxfs_metadump::{DumpOptions, Restore, RestoreError, Version};
use uxfs_oracle::Rng;

use crate::fixture::dumped;
use crate::volume::{Volume, setting};

const LEN: u64 = 64 << 20;

fn sound(version: Version) -> Vec<u8> {
    let volume = Volume::small(LEN >> 20, "");
    dumped(&volume.path, &DumpOptions { version, ..DumpOptions::default() }).0
}

/// Restores into memory. Returns the device's first sector, too.
fn restore(dump: &[u8]) -> Result<(), RestoreError> {
    let restore = Restore::begin(dump)?;
    let dev = MemDev::new(restore.volume_len().min(2 * LEN));
    restore.run(&dev, true, &mut |_| {}).map(drop)
}

#[track_caller]
fn refused(dump: &[u8], why: &str) {
    let error = restore(dump).unwrap_err().to_string();
    assert!(error.contains(why), "{error:?} is not about {why:?}");
}

#[test]
fn a_dump_that_is_cut_off_is_refused() {
    for version in [Version::One, Version::Two] {
        let dump = sound(version);
        restore(&dump).unwrap();
        for len in [0, 3] {
            refused(&dump[..len], "no dump");
        }
        for len in [4, 23, 40, 511, 513, 1023, 5000, dump.len() / 2, dump.len() - 1] {
            let error = restore(&dump[..len]).unwrap_err();
            assert!(matches!(error, RestoreError::CutOff { .. }), "{version:?} {len}: {error}");
        }
    }
    refused(&[7; 1000], "no dump");
}

#[test]
fn headers_that_lie_are_refused() {
    let one = sound(Version::One);
    let changed = |at: usize, bytes: &[u8]| {
        let mut dump = one.clone();
        dump[at..at + bytes.len()].copy_from_slice(bytes);
        dump
    };
    refused(&changed(4, &[0xff, 0xff]), "63 is the most");
    refused(&changed(4, &[0, 0]), "something follows");
    refused(&changed(6, &[12]), "sectors of 2^12");
    refused(&changed(8, &[0, 0, 0, 0, 0, 0, 0, 5]), "does not begin with the superblock");
    refused(&changed(16, &[0, 0, 0, 0, 0x10, 0, 0, 0]), "behind the end");
    refused(&changed(16, &[0xff; 8]), "behind the end");
    refused(&changed(16, &[0; 8]), "a second superblock");
    refused(&changed(INDEX_LEN, b"YFSB"), "does not begin with a superblock");
    refused(&changed(INDEX_LEN + 4, &[0, 0, 0x30, 0]), "blocks of 12288 bytes");
    refused(&changed(INDEX_LEN + 8, &[0xff; 8]), "blocks of 4096 bytes");
    refused(&changed(INDEX_LEN + 8, &[0; 8]), "superblock has 0 blocks");
    refused(&changed(64 * INDEX_LEN, b"XFSN"), "no index where one has to be");
    let mut more = one.clone();
    more.push(0);
    refused(&more, "something follows");

    let two = sound(Version::Two);
    let changed = |at: usize, bytes: &[u8]| {
        let mut dump = two.clone();
        dump[at..at + bytes.len()].copy_from_slice(bytes);
        dump
    };
    refused(&changed(7, &[3]), "version 3");
    refused(&changed(15, &[8]), "features 0x8");
    refused(&changed(HEADER_LEN, &[0xff]), "device");
    let second = HEADER_LEN + EXTENT_HEAD_LEN + 512;
    let head = |device, daddr, sectors| {
        let head = ExtentHead { device, daddr: Daddr(daddr), sectors };
        changed(second, &head.encode())
    };
    refused(&head(Device::Log, 8, 1), "external log");
    refused(&head(Device::Realtime, 8, 1), "realtime");
    refused(&head(Device::Data, 8, 0), "empty extent");
    refused(&head(Device::Data, LEN >> 9, 1), "behind the end");
    refused(&head(Device::Data, (1 << 54) - 1, u32::MAX), "behind the end");
    refused(&head(Device::Data, 0, 1), "a second superblock");
}

/// A dump that was cut off leaves a volume that nothing mounts.
#[test]
fn what_is_unfinished_is_marked() {
    use uxfs_disk::BlockDev;
    let dump = sound(Version::Two);
    let dev = MemDev::new(LEN);
    let restore = Restore::begin(&dump[..dump.len() - 1]).unwrap();
    restore.run(&dev, true, &mut |_| {}).unwrap_err();
    let mut sector = [0; 512];
    dev.read_at(0, &mut sector).unwrap();
    assert_eq!(superblock::Superblock::view(&sector).unwrap().inprogress, 1);
    Restore::begin(&dump[..]).unwrap().run(&dev, true, &mut |_| {}).unwrap();
    dev.read_at(0, &mut sector).unwrap();
    assert_eq!(superblock::Superblock::view(&sector).unwrap().inprogress, 0);
    let small = MemDev::new(LEN - 512);
    let error = Restore::begin(&dump[..]).unwrap().run(&small, true, &mut |_| {}).unwrap_err();
    assert!(matches!(error, RestoreError::TooSmall { wanted: LEN, .. }), "{error}");
}

/// Whatever is changed in a dump, it is restored or refused.
#[test]
fn random_damage_never_panics() {
    let mut rng = Rng::new(setting("UXFS_SEED", 1));
    for version in [Version::One, Version::Two] {
        let dump = sound(version);
        let mut seen = 0;
        for _ in 0..200 {
            let mut dump = dump[..1 << 20].to_vec();
            for _ in 0..=rng.below(8) {
                let end = if rng.once_in(2) { 2048 } else { dump.len() };
                let at = rng.index(end);
                dump[at] = rng.bits() as u8;
            }
            seen += usize::from(restore(&dump).is_err());
        }
        assert!(seen > 150, "{seen} damages were seen");
    }
}

/// An index says more than one of a few bytes can hold.
#[test]
fn an_index_without_its_sectors_takes_no_memory() {
    let addresses: Vec<Daddr> = (0..63).map(Daddr).collect();
    let index = Index::new(Content::empty(), &addresses).encode();
    assert!(matches!(restore(&index).unwrap_err(), RestoreError::CutOff { at: 512 }));
}
