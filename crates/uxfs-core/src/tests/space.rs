//! Volumes and groups that are all but full: an operation that finds no space changes nothing, and one that
//! can have space elsewhere, or a moment later, succeeds.

use uxfs_format::btree::RmapOwner;
use uxfs_format::inode::Fork;
use uxfs_format::{AgBlock, AgNo};
use uxfs_testkit::Rng;

use super::{alloc_all_free, free_extents, volume, volume_with};
use crate::alloc::{self, Owner, Want};
use crate::ops::{Fallocate, NewInode};
use crate::tx::Tx;
use crate::{Error, OpenOptions};

/// The split of an extent is the only step of an insertion that needs a block. Without it no extent moves.
#[test]
fn a_range_is_inserted_wholly_or_not_at_all() {
    let volume = volume(&["-m", "rmapbt=0"]);
    let fs = &volume.fs;
    let file = fs.create(fs.root(), b"f", &NewInode::file(0o644)).unwrap();
    // One leaf of its extent btree, which is full.
    let extents = 251;
    for at in 0..extents {
        fs.write_at(file, at << 14, &[at as u8; 8192]).unwrap();
    }
    assert_eq!(fs.extents(file).unwrap().len() as u64, extents);
    let content = || {
        let mut all = vec![0; fs.stat(file).unwrap().size as usize];
        assert_eq!(fs.read_at(file, 0, &mut all).unwrap(), all.len());
        all
    };
    let before = content();
    let mut rng = Rng::new(6);
    let groups = (0..fs.geo.ag_count).map(AgNo);
    let taken: Vec<_> = groups.map(|ag| (ag, alloc_all_free(fs, ag, 1 << 20, &mut rng))).collect();
    // The counters say that there is space. No group has any.
    fs.unreserve(1000);
    let failed = fs.fallocate(file, Fallocate::InsertRange, 4096, 4096);
    assert!(matches!(failed, Err(Error::NoSpace)), "{failed:?}");
    assert!(content() == before, "extents have moved");
    fs.take_back(1000);
    taken.iter().for_each(|(ag, extents)| free_extents(fs, *ag, extents));
    fs.fallocate(file, Fallocate::InsertRange, 4096, 4096).unwrap();
    assert!(content() == [&before[..4096], &[0; 4096], &before[4096..]].concat());
    volume.fs.close().unwrap();
    drop(volume.dev);
    uxfs_oracle::both(&volume.path).unwrap();
}

/// The last blocks of a group whose length is no multiple of a chunk's cannot hold inodes. A search for a
/// piece of a chunk does not end there.
#[test]
fn a_sparse_chunk_is_not_looked_for_where_no_chunk_can_lie() {
    let len = 32764;
    let agsize = format!("agsize={}", len * 4096);
    let volume = volume(&["-m", "rmapbt=1", "-d", &agsize]);
    let fs = &volume.fs;
    assert_eq!((fs.geo.ag_len(AgNo(0)), fs.geo.chunk_blocks(), fs.geo.sparse_align), (len, 8, 4));
    let mut rng = Rng::new(7);
    let mut taken: Vec<(AgNo, Vec<(AgBlock, u32)>)> = Vec::new();
    for ag in (0..fs.geo.ag_count).map(AgNo) {
        taken.push((ag, alloc_all_free(fs, ag, 1 << 20, &mut rng)));
    }
    let (ag, first) = &mut taken[0];
    let at = first.iter().position(|e| e.1 > 30_000).unwrap();
    let (start, length) = first.swap_remove(at);
    // Single blocks near the root directory, then pieces that lie far from it.
    let base = start.0.next_multiple_of(8) + 8;
    let singles = (0..400).map(|at| (AgBlock(base + 2 * at), 1));
    let pieces = (0..6).map(|at| (AgBlock(base + 2000 + 16 * at), 5));
    let tail = start.0 + length;
    let lack = tail.saturating_sub(len - 4);
    let end = (lack > 0).then_some((AgBlock(len - 4), lack));
    let free: Vec<_> = singles.chain(pieces).chain(end).collect();
    let mut at = start;
    for (from, blocks) in &free {
        first.push((at, from.0 - at.0));
        at = from.plus(*blocks);
    }
    if at.0 < tail {
        first.push((at, tail - at.0));
    }
    free_extents(fs, *ag, &free);
    if tail < len - 4 {
        // What the group kept for its free list.
        let mut tx = Tx::begin(fs, 0).unwrap();
        tx.lock_ag(*ag).unwrap();
        let (blocks, near) = (len - 4 - tail, AgBlock(tail));
        let want = Want { min: blocks, max: blocks, near, ..Want::default() };
        let owner = Owner::Special(RmapOwner::INOBT);
        let got = alloc::alloc_in(&mut tx, *ag, &want, owner).unwrap().unwrap();
        assert_eq!(got, (AgBlock(tail), blocks));
        tx.commit().unwrap();
        first.push(got);
    }
    let mut names = Vec::new();
    let failed = loop {
        let name = format!("file{}", names.len()).into_bytes();
        match fs.create(fs.root(), &name, &NewInode::file(0o600)) {
            Ok(_) => names.push(name),
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, Error::NoSpace), "{failed}");
    assert!(names.len() > 64 + 4 * 32, "{} files", names.len());
    taken.iter().for_each(|(ag, extents)| free_extents(fs, *ag, extents));
    volume.fs.close().unwrap();
    drop(volume.dev);
    uxfs_oracle::both(&volume.path).unwrap();
}

/// A group with the blocks of a sparse chunk, but none for the inode tree to grow, does not end the
/// search.
#[test]
fn a_chunk_goes_to_a_group_where_its_tree_can_grow() {
    let volume = volume(&["-m", "reflink=0", "-m", "finobt=1"]);
    let fs = &volume.fs;
    // One leaf of the inode tree, which is full.
    let inodes = 252 * 64;
    let mut number = 0;
    let mut create = || {
        number += 1;
        fs.create(fs.root(), format!("{number:06}").as_bytes(), &NewInode::file(0o600))
    };
    let counts = || {
        let mut tx = Tx::begin(fs, 0).unwrap();
        tx.lock_ag(AgNo(0)).unwrap();
        (tx.agi(AgNo(0)).count.get(), tx.agi(AgNo(0)).freecount.get())
    };
    while counts() != (inodes, 0) {
        create().unwrap();
    }
    let mut rng = Rng::new(8);
    let mut taken: Vec<(AgNo, Vec<(AgBlock, u32)>)> = Vec::new();
    for ag in (0..fs.geo.ag_count).map(AgNo) {
        taken.push((ag, alloc_all_free(fs, ag, 1 << 20, &mut rng)));
    }
    for ((ag, extents), blocks) in taken.iter_mut().zip([4, 104]) {
        let at = extents.iter().position(|e| e.1 > 10_000).unwrap();
        let (start, len) = extents.swap_remove(at);
        let from = AgBlock(start.0.next_multiple_of(8) + 8);
        let behind = from.plus(blocks);
        extents.push((start, from.0 - start.0));
        extents.push((behind, start.0 + len - behind.0));
        free_extents(fs, *ag, &[(from, blocks)]);
    }
    let ino = create().unwrap();
    assert_eq!(fs.geo.ino_ag(ino), AgNo(1));
    taken.iter().for_each(|(ag, extents)| free_extents(fs, *ag, extents));
    volume.fs.close().unwrap();
    drop(volume.dev);
    uxfs_oracle::both(&volume.path).unwrap();
}

/// A truncation that has to copy a shared block waits for blocks whose freeing is not durable yet.
#[test]
fn a_truncate_takes_blocks_that_were_just_freed() {
    let volume = volume_with(&["-m", "rmapbt=1"], OpenOptions::default());
    let fs = &volume.fs;
    let file = |name: &[u8]| fs.create(fs.root(), name, &NewInode::file(0o600)).unwrap();
    let (one, two) = (file(b"one"), file(b"two"));
    fs.write_at(one, 0, &[1; 1 << 20]).unwrap();
    fs.clone_file(one, two).unwrap();
    let gone = file(b"gone");
    fs.write_at(gone, 0, &[1; 1 << 20]).unwrap();
    fs.sync().unwrap();
    let mut rng = Rng::new(10);
    let groups = (0..fs.geo.ag_count).map(AgNo);
    let taken: Vec<_> = groups.map(|ag| (ag, alloc_all_free(fs, ag, 1 << 20, &mut rng))).collect();
    fs.sync().unwrap();
    fs.unlink(fs.root(), b"gone").unwrap();
    fs.truncate(two, 100_000).unwrap();
    let mut all = vec![0; 200_000];
    assert_eq!(fs.read_at(two, 0, &mut all).unwrap(), 100_000);
    assert!(all[..100_000].iter().all(|byte| *byte == 1));
    taken.iter().for_each(|(ag, extents)| free_extents(fs, *ag, extents));
    volume.fs.close().unwrap();
    drop(volume.dev);
    uxfs_oracle::both(&volume.path).unwrap();
}

/// A directory on a full volume keeps an empty block if freeing it would take a block for its extent btree.
#[test]
fn entries_are_removed_from_a_directory_on_a_full_volume() {
    let volume = volume(&["-m", "rmapbt=1"]);
    let fs = &volume.fs;
    let dir = fs.create(fs.root(), b"dir", &NewInode::dir(0o755)).unwrap();
    let file = fs.create(fs.root(), b"file", &NewInode::file(0o600)).unwrap();
    let name = |number: usize| format!("{number:0240}").into_bytes();
    for number in 0..800 {
        fs.link(file, dir, &name(number)).unwrap();
    }
    // As many extents as fit into the inode.
    let room = fs.with_inode(dir, |inode| Ok(inode.fork(Fork::Data).len() / 16)).unwrap();
    let extents = || fs.with_inode(dir, |inode| Ok(inode.core.nextents as usize)).unwrap();
    assert!(extents() < room);
    // Runs of entries that fill some blocks.
    let mut gone = (0..800).filter(|number| number / 30 % 2 == 1);
    while extents() < room {
        fs.unlink(dir, &name(gone.next().unwrap())).unwrap();
    }
    let mut rng = Rng::new(9);
    let mut taken: Vec<(AgNo, Vec<(AgBlock, u32)>)> = Vec::new();
    let mut take_all = || {
        let groups = (0..fs.geo.ag_count).map(AgNo);
        taken.extend(groups.map(|ag| (ag, alloc_all_free(fs, ag, 1 << 20, &mut rng))));
    };
    let rest: Vec<_> = gone.take(150).collect();
    for number in &rest {
        // Also what the removals before have freed.
        take_all();
        fs.unlink(dir, &name(*number)).unwrap();
    }
    taken.iter().for_each(|(ag, extents)| free_extents(fs, *ag, extents));
    rest.iter().for_each(|number| fs.link(file, dir, &name(*number)).unwrap());
    volume.fs.close().unwrap();
    drop(volume.dev);
    uxfs_oracle::both(&volume.path).unwrap();
}
