//! Damage of whole structures: each kind of block of a volume destroyed, all trees of all groups, the
//! primary superblock, the root of everything that leads to files.

use uxfs::NewInode;
use uxfs_disk::BlockDev;
use uxfs_format::btree::TreeKind;
use uxfs_format::verify::BufKind;
use uxfs_oracle::Rng;

use crate::damage::{Base, changed, judge, planned};
use crate::files::{kept, list};
use crate::structures::{Kind, Structure};
use crate::volume::Volume;

fn destroy(base: &Base, wanted: impl Fn(&Structure) -> bool) -> uxfs_disk::MemDev {
    let dev = base.memory.clone();
    let mut rng = Rng::new(5);
    for structure in base.structures.iter().filter(|structure| wanted(structure)) {
        dev.write_at(structure.at, &rng.bytes(structure.len)).unwrap();
    }
    dev
}

fn all_kept(base: &Base, damaged: &uxfs_disk::MemDev, what: &str) {
    let plan = planned(damaged).unwrap_or_else(|e| panic!("{what}: {e}"));
    let after = changed(damaged, &plan);
    let (own, all) = (kept(&base.files, &list(&after)), base.files.len());
    assert_eq!(own, all, "{what}: files kept");
    let dir = tempfile::tempdir().unwrap();
    judge(damaged, &plan, dir.path()).unwrap_or_else(|e| panic!("{what}: {e}"));
}

#[test]
fn all_trees_and_headers_of_the_groups_are_made_anew() {
    use TreeKind::{Bno, Cnt, FreeIno, Ino, Refcount, Rmap};
    for line in ["", "-b size=1024 -m rmapbt=1", "-i sparse=0 -m finobt=0,inobtcount=0,reflink=0"] {
        let base = Base::new(line);
        let trees = [Bno, Cnt, Ino, FreeIno, Rmap, Refcount].map(BufKind::Btree);
        let headers = [BufKind::Agf, BufKind::Agi, BufKind::Agfl];
        let lost = |structure: &Structure| match structure.kind {
            Kind::Buffer(kind) => trees.contains(&kind) || headers.contains(&kind),
            _ => false,
        };
        all_kept(&base, &destroy(&base, lost), &format!("[{line}] trees and headers"));
    }
}

#[test]
fn the_primary_superblock_comes_from_a_copy() {
    let base = Base::new("-m rmapbt=1");
    let primary = |structure: &Structure| structure.at == 0;
    all_kept(&base, &destroy(&base, primary), "the primary superblock");
    let copies = |s: &Structure| s.at != 0 && s.kind == Kind::Buffer(BufKind::Superblock);
    all_kept(&base, &destroy(&base, copies), "all copies");
}

#[test]
fn indexes_of_directories_and_attributes_are_made_anew() {
    let base = Base::new("");
    for kind in [BufKind::DirLeaf1, BufKind::DirLeafN, BufKind::DirFree, BufKind::DaNode] {
        let lost = |structure: &Structure| structure.kind == Kind::Buffer(kind);
        all_kept(&base, &destroy(&base, lost), &format!("{kind:?}"));
    }
}

/// Where names compare without case: lost indexes, an index of hashes of unlowered names, and a
/// name in two spellings.
#[test]
fn directories_of_volumes_without_case_are_made_anew() {
    let base = Base::new("-n version=ci");
    for kind in [BufKind::DirLeaf1, BufKind::DirLeafN, BufKind::DirFree, BufKind::DaNode] {
        let lost = |structure: &Structure| structure.kind == Kind::Buffer(kind);
        all_kept(&base, &destroy(&base, lost), &format!("without case, {kind:?}"));
    }
    let volume = Volume::small(64, "");
    let fs = volume.open();
    for (dir, count) in [(&b"Block"[..], 30), (b"Leaf", 300), (b"Node", 3000)] {
        let dir = fs.create(fs.root(), dir, &NewInode::dir(0o755)).unwrap();
        let first = fs.create(dir, b"NAME-0", &NewInode::file(0o644)).unwrap();
        for number in 1..count {
            fs.link(first, dir, format!("NAME-{number}").as_bytes()).unwrap();
        }
        fs.create(dir, b"name-0", &NewInode::file(0o644)).unwrap();
    }
    fs.close().unwrap();
    let before = list(&volume.load());
    volume.ignore_case();
    let damaged = volume.load();
    let plan = planned(&damaged).unwrap();
    let after = list(&changed(&damaged, &plan));
    // One of two spellings stays in each directory; the file of the other goes to lost+found.
    let found = after.keys().filter(|path| path.starts_with(b"/lost+found/")).count();
    assert_eq!((found, after.len()), (3, before.len() + 1));
    let dir = tempfile::tempdir().unwrap();
    judge(&damaged, &plan, dir.path()).unwrap();
}

#[test]
fn a_flipped_bit_is_put_back() {
    let base = Base::new("");
    let mut rng = Rng::new(9);
    for kind in [
        Kind::Inode,
        Kind::Buffer(BufKind::DirBlock),
        Kind::Buffer(BufKind::DirData),
        Kind::Buffer(BufKind::AttrLeaf),
        Kind::Buffer(BufKind::Btree(TreeKind::Bmap)),
        Kind::Buffer(BufKind::Symlink),
    ] {
        let own: Vec<&Structure> = base.structures.iter().filter(|s| s.kind == kind).collect();
        for _ in 0..4 {
            let structure = own[rng.index(own.len())];
            let dev = base.memory.clone();
            let at = structure.at + rng.below(structure.len as u64);
            let mut byte = [0];
            dev.read_at(at, &mut byte).unwrap();
            dev.write_at(at, &[byte[0] ^ 1 << rng.below(8)]).unwrap();
            let plan = planned(&dev).unwrap_or_else(|e| panic!("{kind:?} at {at}: {e}"));
            assert_eq!(plan.lost().next(), None, "{kind:?} at {at}");
            let after = changed(&dev, &plan);
            assert_eq!(kept(&base.files, &list(&after)), base.files.len(), "{kind:?} at {at}");
        }
    }
}

#[test]
fn lost_entries_lead_to_lost_and_found() {
    let base = Base::new("");
    let dirs = |structure: &Structure| {
        matches!(structure.kind, Kind::Buffer(BufKind::DirBlock | BufKind::DirData))
    };
    let damaged = destroy(&base, dirs);
    let plan = planned(&damaged).unwrap();
    let after = list(&changed(&damaged, &plan));
    let found = after.keys().filter(|path| path.starts_with(b"/lost+found/")).count();
    assert!(found > 500, "{found} in lost+found");
    let dir = tempfile::tempdir().unwrap();
    judge(&damaged, &plan, dir.path()).unwrap();
}

#[test]
fn a_sound_volume_has_an_empty_plan() {
    for line in ["", "-b size=1024 -m rmapbt=1"] {
        assert!(planned(&Base::new(line).memory).unwrap().is_empty());
    }
}

#[test]
fn any_bytes_end_in_an_error_or_a_sound_volume() {
    let base = Base::new("");
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let dev = base.memory.clone();
        for _ in 0..200 << seed {
            let at = rng.below(base.memory.len() - 4096);
            let len = 1 + rng.index(4096);
            dev.write_at(at, &rng.bytes(len)).unwrap();
        }
        if let Ok(plan) = planned(&dev) {
            crate::damage::sound(&changed(&dev, &plan)).unwrap();
        }
    }
}
