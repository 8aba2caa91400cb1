//! Damage to single fields of chosen files: what shares blocks, what has no room, what is named twice.

use std::sync::Arc;

use uxfs::{Fs, NewInode, OpenOptions, XattrMode};
use uxfs_disk::{BlockDev, MemDev};
use uxfs_format::btree::TreeKind;
use uxfs_format::bytes::Field;
use uxfs_format::dquot::QuotaFlags;
use uxfs_format::features::Version;
use uxfs_format::inode::{CORE_LEN, CRC_OFFSET};
use uxfs_format::superblock::Superblock;
use uxfs_format::verify::BufKind;
use uxfs_format::{Extent, crc};

use crate::damage::{Base, changed, judge, planned};
use crate::files::{Files, kept, list};
use crate::structures::{Kind, Structure, find};
use crate::volume::Volume;
use zerocopy::IntoBytes;

const SIZE: usize = 512;
const FORKOFF: usize = 82;
const AFORMAT: usize = 83;

/// A small volume that `fill` fills.
fn filled(line: &str, fill: impl FnOnce(&Fs)) -> MemDev {
    let volume = Volume::small(64, line);
    let fs = volume.open();
    fill(&fs);
    fs.close().unwrap();
    volume.load()
}

/// Changes the inode at a path.
fn change(dev: &MemDev, path: &str, change: impl FnOnce(&mut [u8])) {
    let fs = Fs::open(Arc::new(dev.clone()), OpenOptions::read_only()).unwrap();
    let find = |dir, name: &str| fs.lookup(dir, name.as_bytes()).unwrap();
    let ino = path.split('/').fold(fs.root(), find);
    let geo = &fs.geo;
    let agino = geo.ino_agino(ino);
    let block = geo.ag_daddr(geo.ino_ag(ino), geo.agino_block(agino)).bytes();
    let at = block + (u64::from(agino.0 & (geo.inodes_per_block() - 1)) << geo.inode_log);
    let mut raw = [0; SIZE];
    dev.read_at(at, &mut raw).unwrap();
    change(&mut raw);
    crc::stamp(&mut raw, CRC_OFFSET);
    dev.write_at(at, &raw).unwrap();
}

/// The records of a data fork in the inode.
fn extents(raw: &[u8], count: usize) -> Vec<Extent> {
    let records = raw[CORE_LEN..].chunks_exact(16).take(count);
    records.map(|raw| Extent::unpack(raw.first_chunk().unwrap())).collect()
}

fn put(raw: &mut [u8], extents: &[Extent]) {
    for (slot, extent) in raw[CORE_LEN..].chunks_exact_mut(16).zip(extents) {
        slot.copy_from_slice(&extent.pack());
    }
}

/// Repairs and judges; the files afterwards, and what is lost.
fn repaired(damaged: &MemDev) -> (Files, uxfs_repair::Plan) {
    let plan = planned(damaged).unwrap();
    let dir = tempfile::tempdir().unwrap();
    judge(damaged, &plan, dir.path()).unwrap();
    (list(&changed(damaged, &plan)), plan)
}

#[test]
fn an_extent_tree_stays_when_the_attributes_are_dropped() {
    let base = Base::new("");
    let damaged = base.memory.clone();
    change(&damaged, "more/tree", |raw| {
        assert!(raw[5] == 3 && raw[FORKOFF] != 0);
        raw[AFORMAT] = 7;
    });
    let (files, plan) = repaired(&damaged);
    assert_eq!(kept(&base.files, &files), base.files.len());
    assert_eq!(plan.lost().collect::<Vec<_>>(), ["extended attributes"]);
}

#[test]
fn extents_for_which_a_fork_has_no_room_are_listed() {
    let damaged = filled("-m reflink=0", |fs| {
        for (name, blocks) in [(&b"one"[..], 1), (b"two", 3)] {
            let file = fs.create(fs.root(), name, &NewInode::file(0o600)).unwrap();
            fs.write_at(file, 0, &vec![name[0]; blocks * fs.geo.block_size as usize]).unwrap();
        }
    });
    let mut middle = 0;
    // Room for one extent; an empty attribute fork in short form follows it.
    change(&damaged, "two", |raw| {
        middle = extents(raw, 1)[0].start.0 + 1;
        (raw[FORKOFF], raw[AFORMAT]) = (2, 1);
        raw[CORE_LEN + 16..].fill(0);
        raw[CORE_LEN + 17] = 4;
    });
    change(&damaged, "one", |raw| {
        let mut own = extents(raw, 1);
        own[0].start.0 = middle;
        put(raw, &own);
    });
    let (_, plan) = repaired(&damaged);
    let lost: Vec<&str> = plan.lost().collect();
    assert!(lost.iter().any(|lost| lost.contains("no room")), "{lost:?}");
}

#[test]
fn of_many_claims_on_one_block_one_stays() {
    const COUNT: usize = 12;
    let damaged = filled("-m reflink=0", |fs| {
        let block = fs.geo.block_size as usize;
        let file = fs.create(fs.root(), b"many", &NewInode::file(0o600)).unwrap();
        for number in 0..COUNT {
            fs.write_at(file, (2 * number * block) as u64, &vec![number as u8; block]).unwrap();
        }
    });
    change(&damaged, "many", |raw| {
        let mut own = extents(raw, COUNT);
        let first = own[0].start;
        own.iter_mut().for_each(|extent| extent.start = first);
        put(raw, &own);
    });
    let (files, plan) = repaired(&damaged);
    assert_eq!(files.len(), 1);
    let step = plan.steps.iter().filter(|step| step.wrong.contains("two owners"));
    assert_eq!(
        step.map(|step| step.lost.clone()).collect::<Vec<_>>(),
        [["11 blocks of the data fork, which another owner keeps"]]
    );
}

#[test]
fn lost_inodes_go_to_another_directory_if_the_name_is_taken() {
    let damaged = filled("", |fs| {
        fs.create(fs.root(), b"lost+found", &NewInode::file(0o600)).unwrap();
        fs.create(fs.root(), b"lost+found~", &NewInode::file(0o600)).unwrap();
        let dir = fs.create(fs.root(), b"dir", &NewInode::dir(0o700)).unwrap();
        fs.create(dir, b"inside", &NewInode::file(0o600)).unwrap();
    });
    change(&damaged, "dir", |raw| raw[CORE_LEN..CORE_LEN + 2].fill(0));
    // Not judged by xfs_repair: it takes any file of this name for damage.
    let plan = planned(&damaged).unwrap();
    let after = changed(&damaged, &plan);
    assert!(planned(&after).unwrap().is_empty());
    let files = list(&after);
    let found = files.keys().filter(|path| path.starts_with(b"/lost+found1/")).count();
    assert_eq!(found, 1, "{files:?}");
}

#[test]
fn a_remote_value_belongs_to_one_attribute() {
    let names = ["user.first", "user.other"];
    let mut damaged = filled("", |fs| {
        let file = fs.create(fs.root(), b"file", &NewInode::file(0o600)).unwrap();
        for name in names {
            fs.set_xattr(file, name.as_bytes(), &[b'v'; 9000], XattrMode::Any).unwrap();
        }
        fs.set_xattr(file, b"user.short", b"value", XattrMode::Any).unwrap();
    });
    let is_leaf = |structure: &Structure| structure.kind == Kind::Buffer(BufKind::AttrLeaf);
    let leaf = find(&damaged).into_iter().find(is_leaf).unwrap();
    let mut raw = vec![0; leaf.len];
    damaged.read_at(leaf.at, &mut raw).unwrap();
    // Entries of 8 bytes follow the header of 80: hash, place of the record, flags. The record of a remote
    // value begins with its block.
    let entries = [0, 1, 2].map(|number| 80 + 8 * number);
    let is_local = |entry: &usize| raw[entry + 6] & 1 != 0;
    let (local, remote): (Vec<usize>, Vec<usize>) = entries.into_iter().partition(is_local);
    let record = |entry: usize| usize::from(Field::<u16>::at(entry + 4).get(&raw));
    let (first, second) = (record(remote[0]), record(remote[1]));
    let (first, second) = (Field::<u32>::at(first), Field::<u32>::at(second));
    let block = first.get(&raw);
    assert_ne!(block, second.get(&raw));
    second.set(&mut raw, block);
    // A wrong hash makes the repair set all attributes again.
    raw[local[0] + 3] ^= 1;
    crc::stamp(&mut raw, leaf.crc().unwrap());
    damaged.write_at(leaf.at, &raw).unwrap();
    let (_, plan) = repaired(&damaged);
    damaged = changed(&damaged, &plan);
    let fs = Fs::open(Arc::new(damaged), OpenOptions::read_only()).unwrap();
    let file = fs.lookup(fs.root(), b"file").unwrap();
    let left = names.iter().filter(|name| fs.get_xattr(file, name.as_bytes()).is_ok()).count();
    assert_eq!(left, 1);
}

#[test]
fn quota_stays_when_its_inode_is_found_by_a_scan() {
    let volume = Volume::small(64, "");
    let fs = volume.open();
    for number in 0..100 {
        let name = format!("before {number}");
        fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o600)).unwrap();
    }
    fs.close().unwrap();
    let mut options = OpenOptions::default();
    options.quota = Some(QuotaFlags::USER_ACCT);
    let dev = crate::volume::device(&volume.path, uxfs_disk::OpenMode::Write);
    let fs = Fs::open(Arc::new(dev), options).unwrap();
    for number in 0..10 {
        let name = format!("after {number}");
        fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o600)).unwrap();
    }
    fs.close().unwrap();
    let damaged = volume.load();
    let quota = |dev: &MemDev| {
        let mut sector = vec![0; 512];
        dev.read_at(0, &mut sector).unwrap();
        Superblock::verify(&sector).unwrap().uquotino.get()
    };
    let ino = quota(&damaged);
    // The tree of inodes loses the record of this chunk, its last one: the number of records follows the
    // header's magic and level.
    let change = |kind: BufKind, change: &dyn Fn(&mut [u8])| {
        let own = find(&damaged).into_iter().filter(|own| own.kind == Kind::Buffer(kind));
        let structure = own.min_by_key(|structure| structure.at).unwrap();
        let mut raw = vec![0; structure.len];
        damaged.read_at(structure.at, &mut raw).unwrap();
        change(&mut raw);
        crc::stamp(&mut raw, structure.crc().unwrap());
        damaged.write_at(structure.at, &raw).unwrap();
    };
    let records: Field<u16> = Field::at(6);
    change(BufKind::Btree(TreeKind::Ino), &|raw| {
        let count = records.get(raw) - 1;
        let last = Field::<u32>::at(56 + 16 * usize::from(count)).get(raw);
        assert!((last..last + 64).contains(&(ino as u32)), "{count} {last} {ino}");
        records.set(raw, count);
    });
    // The header agrees with the tree.
    let inodes: Field<u32> = Field::at(16);
    change(BufKind::Agi, &|raw| inodes.set(raw, inodes.get(raw) - 64));
    let (files, plan) = repaired(&damaged);
    assert_eq!(plan.lost().next(), None);
    assert_eq!(files.len(), 110);
    assert_eq!(quota(&changed(&damaged, &plan)), ino);
}

/// The superblock may name any file as that of a quota: the repair clears the field, and keeps the file.
#[test]
fn a_file_that_is_named_as_quota_stays() {
    let damaged = filled("", |fs| {
        let file = fs.create(fs.root(), b"file", &NewInode::file(0o600)).unwrap();
        fs.write_at(file, 0, &[7; 20_000]).unwrap();
    });
    let fs = Fs::open(Arc::new(damaged.clone()), OpenOptions::read_only()).unwrap();
    let before = list(&damaged);
    let (ino, groups) = (fs.lookup(fs.root(), b"file").unwrap(), fs.geo.ag_count);
    let group_bytes = u64::from(fs.geo.ag_blocks) << fs.geo.block_log;
    drop(fs);
    for group in 0..u64::from(groups) {
        let mut sector = vec![0; 512];
        damaged.read_at(group * group_bytes, &mut sector).unwrap();
        let mut sb = *Superblock::verify(&sector).unwrap();
        sb.uquotino.set(ino.0);
        sb.gquotino.set(u64::MAX);
        sb.pquotino.set(u64::MAX);
        sb.versionnum.set(sb.versionnum.get() | Version::QUOTA.bits());
        sb.qflags.set(QuotaFlags::USER_ACCT.bits());
        let bytes = sb.as_bytes();
        sector[..bytes.len()].copy_from_slice(bytes);
        crc::stamp(&mut sector, uxfs_format::superblock::CRC_OFFSET);
        damaged.write_at(group * group_bytes, &sector).unwrap();
    }
    let (files, plan) = repaired(&damaged);
    assert_eq!(plan.lost().next(), None);
    assert_eq!(kept(&before, &files), before.len());
    let mut sector = vec![0; 512];
    changed(&damaged, &plan).read_at(0, &mut sector).unwrap();
    assert_eq!(Superblock::verify(&sector).unwrap().uquotino.get(), u64::MAX);
}
