//! Dumps of metadata: any bytes restored, and damaged volumes dumped and copied.

use std::sync::Arc;

use uxfs_disk::{BlockDev, MemDev, Overlay};
use uxfs_format::metadump::{Content, Device, ExtentHead, Header, Index};
use uxfs_format::{Daddr, Uuid};
use uxfs_metadump::{Copier, DumpOptions, Names, Restore, Target, Version, dump};

use crate::Input;
use crate::base::full;
use crate::image::damage;

/// Damages of one image.
const DAMAGES: usize = 40;
/// Longest volume that is restored; what is beyond fails.
const LEN: u64 = 64 << 20;

/// A dump. What is restored without an error has its superblock.
pub fn mdrestore(data: &[u8]) {
    let Ok(restore) = Restore::begin(data) else { return };
    let dev = MemDev::new(restore.volume_len().min(LEN));
    let len = restore.volume_len();
    if restore.run(&dev, data.len() % 2 == 0, &mut |_| {}).is_ok() {
        assert!(len <= LEN, "a volume of {len} bytes on a device of {LEN}");
        let mut magic = [0; 4];
        dev.read_at(0, &mut magic).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(&magic, b"XFSB");
    }
}

/// The volume's number, how it is dumped, and eight bytes for each damage. Every sector is dumped at most
/// once, and what is dumped is restored.
pub fn metadump(data: &[u8]) {
    let mut input = Input(data);
    let bases = full();
    let base = &bases[usize::from(input.byte()) % bases.len()];
    let how = input.byte();
    let overlay = Overlay::new(Arc::clone(&base.memory) as _, usize::MAX);
    for _ in 0..DAMAGES {
        if input.is_empty() {
            break;
        }
        damage(base, &overlay, &mut input);
    }
    let options = DumpOptions {
        version: if how & 1 == 0 { Version::One } else { Version::Two },
        names: (how & 2 == 0).then(|| Names::new(b"fuzz")),
        whole_blocks: how & 4 != 0,
        ..DumpOptions::default()
    };
    let mut out = Vec::new();
    if let Ok(summary) = dump(&overlay, &options, &mut out, &mut |_| {}) {
        assert!(summary.bytes <= overlay.len(), "{summary:?}");
        let restore = Restore::begin(&out[..]).unwrap_or_else(|e| panic!("{e}"));
        let dev = MemDev::new(restore.volume_len());
        restore.run(&dev, true, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    }
    if how & 8 == 0 {
        return;
    }
    let Ok(copier) = Copier::new(&overlay, how & 16 == 0) else { return };
    let dev = MemDev::new(copier.volume_len());
    let uuid = if how & 16 == 0 { copier.uuid() } else { Uuid([how; 16]) };
    let _ = copier.run(&[Target { dev: &dev, blank: true, uuid }], &mut |_, _| {});
}

/// Small dumps of both versions: the superblock and the sectors behind it.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for base in full() {
        let mut head = vec![0; 8 * 512];
        base.memory.read_at(0, &mut head).unwrap_or_else(|e| panic!("{e}"));
        let addresses: Vec<Daddr> = (0..8).map(Daddr).collect();
        let index = Index::new(Content::OBFUSCATED, &addresses).encode();
        all.push([&index[..], &head].concat());
        let extent = |daddr, sectors| {
            ExtentHead { device: Device::Data, daddr: Daddr(daddr), sectors }.encode()
        };
        let header = Header::new(Content::WHOLE_BLOCKS).encode();
        let parts = [&header[..], &extent(0, 1), &head[..512], &extent(1, 7), &head[512..]];
        all.push(parts.concat());
    }
    all
}
