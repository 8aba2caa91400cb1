//! Encodes and parses random items; parses random bytes.

use uxfs_testkit::Rng;

use super::*;
use crate::bytes::le32;
use crate::inode::InodeCore;
use crate::types::{AgBlock, AgNo, BASIC_BLOCK, Daddr, FileBlock, FsBlock, Ino, Lsn, Uuid};

/// Random values that these tests need in addition to [`Rng`]'s.
trait Draw {
    fn bool(&mut self) -> bool;
    fn run(&mut self) -> ExtentRun;
}

impl Draw for Rng {
    fn bool(&mut self) -> bool {
        self.once_in(2)
    }

    fn run(&mut self) -> ExtentRun {
        ExtentRun { start: FsBlock(self.bits()), len: self.bits() as u32 }
    }
}

fn borrow(regions: &[Vec<u8>]) -> Vec<&[u8]> {
    regions.iter().map(Vec::as_slice).collect()
}

fn round_trip(item: &Item<'_>) {
    let regions = item.encode();
    let views = borrow(&regions);
    assert_eq!(Item::parse(&views).as_ref(), Ok(item));
    let (kind, count) = Item::first(views[0]).unwrap();
    assert!(kind.is_ok() && count == regions.len());
    assert!(regions.iter().all(|region| region.len() % 4 == 0));
}

fn attr(rng: &mut Rng) -> AttrIntent {
    let op = [
        AttrOp::Set,
        AttrOp::Remove,
        AttrOp::Replace,
        AttrOp::ParentSet,
        AttrOp::ParentRemove,
        AttrOp::ParentReplace,
    ][rng.index(6)];
    let name_len = 1 + rng.index(255);
    let value_len = match op {
        AttrOp::Remove => 0,
        _ if op.is_parent() => 12,
        _ => rng.index(500),
    };
    let (new_name, new_value) = match op {
        AttrOp::ParentReplace => (1 + rng.index(255), 12),
        _ => (0, 0),
    };
    AttrIntent {
        op,
        ino: Ino(rng.bits()),
        generation: rng.bits() as u32,
        filter: if op.is_parent() { 8 } else { [0, 2, 4][rng.index(3)] },
        name: rng.bytes(name_len),
        new_name: rng.bytes(new_name),
        value: rng.bytes(value_len),
        new_value: rng.bytes(new_value),
    }
}

fn intent(rng: &mut Rng) -> IntentItem {
    use IntentKind as K;
    let kind = [
        K::Free,
        K::Rmap,
        K::Refcount,
        K::Bmap,
        K::Attr,
        K::Exchange,
        K::FreeRt,
        K::RmapRt,
        K::RefcountRt,
    ][rng.index(9)];
    let count = rng.index(5);
    let rmap = |rng: &mut Rng| RmapStep {
        op: [RmapOp::Map, RmapOp::UnmapShared, RmapOp::Convert, RmapOp::Free][rng.index(4)],
        owner: rng.bits(),
        run: rng.run(),
        offset: FileBlock(rng.bits()),
        attr: rng.bool(),
        bmbt: rng.bool(),
        unwritten: rng.bool(),
    };
    let refcount = |rng: &mut Rng| RefcountStep {
        op: [RefcountOp::Increase, RefcountOp::Decrease, RefcountOp::FreeCow][rng.index(3)],
        run: rng.run(),
    };
    let bmap = |rng: &mut Rng| BmapStep {
        op: [BmapOp::Map, BmapOp::Unmap][rng.index(2)],
        ino: Ino(rng.bits()),
        run: rng.run(),
        offset: FileBlock(rng.bits()),
        attr: rng.bool(),
        unwritten: rng.bool(),
        realtime: rng.bool(),
    };
    let intent = match kind {
        K::Free | K::FreeRt => Intent::Free((0..count).map(|_| rng.run()).collect()),
        K::Rmap | K::RmapRt => Intent::Rmap((0..count).map(|_| rmap(rng)).collect()),
        K::Refcount | K::RefcountRt => {
            Intent::Refcount((0..count).map(|_| refcount(rng)).collect())
        }
        K::Bmap => Intent::Bmap((0..count).map(|_| bmap(rng)).collect()),
        K::Attr => Intent::Attr(attr(rng)),
        K::Exchange => Intent::Exchange(ExchangeIntent {
            inos: [Ino(rng.bits()), Ino(rng.bits())],
            generations: [rng.bits() as u32, rng.bits() as u32],
            starts: [FileBlock(rng.bits()), FileBlock(rng.bits())],
            blocks: rng.bits(),
            flags: ExchangeFlags::from_bits_truncate(rng.bits()),
            sizes: [rng.bits(), rng.bits()],
        }),
    };
    IntentItem { kind, id: rng.bits(), intent }
}

#[test]
fn intents_and_dones_round_trip() {
    let seed = 0x1_0905;
    let mut rng = Rng::new(seed);
    for _ in 0..2000 {
        let item = intent(&mut rng);
        let extents = match item.kind {
            IntentKind::Free | IntentKind::FreeRt => (0..rng.index(4)).map(|_| rng.run()).collect(),
            _ => Vec::new(),
        };
        round_trip(&Item::Done(DoneItem { kind: item.kind, id: item.id, extents }));
        round_trip(&Item::Intent(item));
    }
}

#[test]
fn buffer_items_round_trip() {
    let mut rng = Rng::new(2);
    for _ in 0..500 {
        let bytes = BASIC_BLOCK << rng.index(8);
        let kind = BufType::from_code(rng.index(21) as u8).unwrap();
        let mut format = BufItem::new(kind, Daddr(rng.bits()), bytes);
        let density = 1 + rng.index(8);
        for chunk in 0..bytes / CHUNK {
            if rng.index(density) == 0 {
                format.set_chunk(chunk);
            }
        }
        let runs: Vec<_> = format.runs().collect();
        let set: usize = runs.iter().map(|(_, count)| count).sum();
        assert_eq!(set, (0..bytes / CHUNK).filter(|c| format.has_chunk(*c)).count());
        assert!(runs.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0));
        let data: Vec<_> = runs.iter().map(|(_, count)| rng.bytes(count * CHUNK)).collect();
        let pieces: Vec<_> =
            runs.iter().zip(&data).map(|((chunk, _), bytes)| (*chunk, bytes.as_slice())).collect();
        // One run may be split into several regions.
        let mut cut = pieces.clone();
        if let Some((chunk, bytes)) = cut.pop() {
            let at = rng.index(bytes.len() / CHUNK);
            if at > 0 {
                cut.push((chunk, &bytes[..at * CHUNK]));
            }
            cut.push((chunk + at, &bytes[at * CHUNK..]));
        }
        let whole = Item::Buf(format.clone(), pieces);
        assert_eq!(whole.encode()[0], format.encode());
        round_trip(&whole);
        round_trip(&Item::Buf(format, cut));
        round_trip(&Item::Buf(BufItem::cancel(Daddr(rng.bits()), bytes), Vec::new()));
    }
}

#[test]
fn other_items_round_trip() {
    let mut rng = Rng::new(3);
    for _ in 0..500 {
        let mut fields = InodeFields::CORE;
        let (mut data, mut attr) = (None, None);
        let (dbytes, abytes) = (rng.bytes(16), rng.bytes(8));
        if rng.bool() {
            fields |= [InodeFields::DDATA, InodeFields::DEXT, InodeFields::DBROOT][rng.index(3)];
            data = Some(&dbytes[..]);
        }
        if rng.bool() {
            fields |= [InodeFields::ADATA, InodeFields::AEXT, InodeFields::ABROOT][rng.index(3)];
            attr = Some(&abytes[..]);
        }
        let core: [u8; LOG_CORE_LEN] = rng.bytes(LOG_CORE_LEN).try_into().unwrap();
        let format = InodeItem {
            regions: InodeItem::regions_of(fields),
            fields,
            asize: attr.map_or(0, |_| 5),
            dsize: data.map_or(0, |_| 16),
            ino: Ino(rng.bits()),
            rdev: rng.bits() as u32,
            blkno: Daddr(rng.bits()),
            len: 32,
            boffset: 512 * rng.index(32) as i32,
        };
        round_trip(&Item::Inode { format, core: &core, data, attr });
        round_trip(&Item::Icreate(Icreate {
            ag: AgNo(rng.bits() as u32),
            agbno: AgBlock(rng.bits() as u32),
            count: 64,
            isize: 512,
            length: 8,
            generation: rng.bits() as u32,
        }));
        let record = rng.bytes(136);
        let (id, blkno) = (rng.bits() as u32, Daddr(rng.bits()));
        round_trip(&Item::Dquot(DquotItem { id, blkno, len: 8, boffset: 136 }, &record));
        round_trip(&Item::QuotaOff(QuotaOff { flags: id }));
    }
}

/// The bytes that a kernel wrote when a parent pointer changed its directory.
#[test]
fn an_intent_of_the_kernel() {
    fn hex(text: &str) -> Vec<u8> {
        let text: String = text.split_whitespace().collect();
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
            .collect()
    }
    let regions = [
        hex("46120500 d792b570 7012d6468188ffff 8800000000000000 06000000 1000 1100 \
             0c000000 08000000"),
        b"some_long_name_4".to_vec(),
        b"other_long_name_4\0\0\0".to_vec(),
        hex("0000000000000083 5bbf867f"),
        hex("0000000000040080 8c0ec547"),
    ];
    let Ok(Item::Intent(item)) = Item::parse(&borrow(&regions)) else { panic!("no intent") };
    assert_eq!(item.id, 0xffff_8881_46d6_1270);
    let Intent::Attr(attr) = &item.intent else { panic!("no attribute") };
    assert_eq!((attr.op, attr.ino), (AttrOp::ParentReplace, Ino(136)));
    assert_eq!(attr.new_name, b"other_long_name_4");
    assert_eq!(attr.value, regions[3]);
    assert_eq!(item.encode(), regions);
}

/// The first checkpoint of a kernel on a new volume, as its record stores it.
#[test]
fn operations_of_the_kernel() {
    let tid = 0x1234_5678;
    let header = TransHeader::new(tid, 2);
    let mut data = Vec::new();
    let format = BufItem::parse(&[
        0x3c, 0x12, 2, 0, 0, 0x90, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0,
    ])
    .unwrap();
    assert_eq!((format.kind, format.len, format.blkno), (BufType::Superblock, 1, Daddr(0)));
    assert_eq!(format.runs().collect::<Vec<_>>(), [(0, 3)]);
    let bodies: [(&[u8], OpFlags); 5] = [
        (&[], OpFlags::START),
        (&header.encode(), OpFlags::empty()),
        (&format.encode(), OpFlags::empty()),
        (&[9; 384], OpFlags::empty()),
        (&[], OpFlags::COMMIT),
    ];
    for (body, flags) in bodies {
        data.extend_from_slice(&OpHeader::new(tid, body.len() as u32, flags).encode());
        data.extend_from_slice(body);
    }
    let ops: Vec<_> = Ops::new(&data, 5).map(Result::unwrap).collect();
    assert_eq!(ops.len(), 5);
    assert_eq!(TransHeader::parse(ops[1].1), Some(header));
    assert_eq!(ops[4].0.flags, OpFlags::COMMIT);
    assert!(Ops::new(&data, 6).last().unwrap().is_err());
}

#[test]
fn cores_swap_both_ways() {
    let mut rng = Rng::new(5);
    let uuid = Uuid([7; 16]);
    for bigtime in [false, true] {
        let mut core =
            InodeCore { mode: 0o100_644, nlink: 1, generation: 77, ..Default::default() };
        core.flags2.set(crate::inode::Flags2::BIGTIME, bigtime);
        core.mtime = crate::timestamp::Timestamp { sec: 1_700_000_000, nsec: 5 };
        let mut disk = vec![0; 512];
        core.encode(&mut disk, Ino(131), &uuid);
        let disk: &[u8; LOG_CORE_LEN] = disk.first_chunk().unwrap();
        let log = core_to_log(disk);
        assert_eq!(log[..2], *b"NI");
        assert_eq!(le32(&log, 92), 77);
        if !bigtime {
            assert_eq!((le32(&log, 40), le32(&log, 44)), (1_700_000_000, 5));
        }
        let mut back = core_to_disk(&log, disk, Lsn::new(3, 4));
        assert_eq!(back[112..120], [0, 0, 0, 3, 0, 0, 0, 4]);
        back[112..120].copy_from_slice(&disk[112..120]);
        assert_eq!(&back, disk);
    }
    // A btree root with three children, in a fork of 336 bytes.
    let mut root = vec![0; 336];
    root[..4].copy_from_slice(&[0, 1, 0, 3]);
    root[4..28].copy_from_slice(&rng.bytes(24));
    root[4 + 8 * 20..4 + 8 * 20 + 24].copy_from_slice(&rng.bytes(24));
    let region = root_to_log(&root, Ino(131), &uuid).unwrap();
    assert_eq!(region.len(), 72 + 48);
    assert_eq!(root_to_disk(&region, 336).unwrap(), root);
    assert!(root_to_disk(&region, 40).is_err());
}

/// Parsing random bytes never panics.
#[test]
fn random_bytes_are_refused_or_read() {
    let mut rng = Rng::new(6);
    for _ in 0..20_000 {
        let good = match rng.index(2) {
            0 => intent(&mut rng).encode(),
            _ => {
                let mut format = BufItem::new(BufType::Agf, Daddr(1), 512);
                format.set_chunk(rng.index(8));
                vec![format.encode(), rng.bytes(128)]
            }
        };
        let mut regions = good;
        for _ in 0..1 + rng.index(4) {
            let at = rng.index(regions.len());
            let region = &mut regions[at];
            match rng.index(3) {
                0 if !region.is_empty() => {
                    let byte = rng.index(region.len());
                    region[byte] = rng.bits() as u8;
                }
                1 => region.truncate(rng.index(region.len() + 1)),
                _ => region.extend(rng.bytes(4)),
            }
        }
        let _ = Item::parse(&borrow(&regions));
        let _ = root_to_disk(&regions[0], rng.index(400));
        let _ = Ops::new(&regions[0], rng.bits() as u32).count();
        let _ = InodeItem::parse(&rng.bytes(56));
    }
}
