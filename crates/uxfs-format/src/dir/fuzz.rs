//! Random sequences of changes to single blocks, and random damage to blocks.

use std::collections::BTreeMap;

use uxfs_testkit::Rng;
use zerocopy::FromZeros;

use super::block::{self, Tail};
use super::data::{self, DataEntry, Item, Plan};
use super::{DOT, DOTDOT, FIRST, entry_len, free, leaf};
use crate::da;
use crate::geometry::Geometry;
use crate::naming::Naming;
use crate::superblock::Superblock;
use crate::types::{Daddr, Ino};
use crate::verify::{self, BufKind};

fn geometry() -> Geometry {
    let mut sb = Superblock::new_zeroed();
    sb.blocksize.set(4096);
    sb.blocklog = 12;
    sb.sectsize.set(512);
    sb.inodesize.set(512);
    sb.inodelog = 9;
    sb.inopblog = 3;
    sb.dblocks.set(131_072);
    sb.agblocks.set(32_768);
    sb.agblklog = 15;
    sb.agcount.set(4);
    Geometry::new(&sb)
}

const OWNER: Ino = Ino(128);

/// An empty one-block directory.
fn empty(len: usize) -> Vec<u8> {
    let mut raw = vec![0; len];
    raw[block::OWNER..block::OWNER + 8].copy_from_slice(&OWNER.0.to_be_bytes());
    let dots = [(DOT, &b"."[..]), (DOTDOT, b"..")];
    let dots = dots.map(|(at, name)| DataEntry { at, ino: OWNER, name, ftype: 2 });
    block::fill(&mut raw, Naming::Exact, dots.into_iter());
    raw
}

/// Carries out a plan.
fn apply(raw: &mut [u8], plan: &Plan) {
    for area in plan.added.iter().flatten() {
        let at = usize::from(area.at);
        raw[at..at + data::FREE_HEADER_LEN].copy_from_slice(&area.header());
        raw[area.end() - 2..area.end()].copy_from_slice(&area.at.to_be_bytes());
    }
    let best = data::encode_best(&plan.best);
    raw[data::BESTFREE..data::BESTFREE + best.len()].copy_from_slice(&best);
}

fn put_tail(raw: &mut [u8], tail: Tail) {
    let at = raw.len() - block::TAIL_LEN;
    raw[at..].copy_from_slice(&tail.encode());
}

fn insert(raw: &mut [u8], name: &[u8], ino: Ino) -> bool {
    let hash = Naming::Exact.hash(name);
    let Some(plan) = block::plan_insert(raw, hash, entry_len(name.len())) else { return false };
    apply(raw, &plan.data);
    let entry = DataEntry { at: plan.data.at, ino, name, ftype: 1 };
    entry.put(&mut raw[entry.at..entry.at + entry.space()]);
    let start = plan.tail.leaf_start(raw.len());
    let range = start + plan.spot.first * 8..start + (plan.spot.last + 1) * 8;
    plan.spot.apply(&mut raw[range], hash, super::address(plan.data.at as u64));
    put_tail(raw, plan.tail);
    true
}

fn remove(raw: &mut [u8], name: &[u8]) {
    let tail = Tail::of(raw);
    let start = tail.leaf_start(raw.len());
    let named = |raw: &[u8], at| data::entry_at(raw, at, start).is_some_and(|e| e.name == name);
    let index = (0..tail.count)
        .find(|i| named(raw, leaf::address(&raw[start..], *i) as usize * 8))
        .unwrap();
    let at = leaf::address(&raw[start..], index) as usize * 8;
    let plan = data::plan_remove(raw, start, at, entry_len(name.len()));
    apply(raw, &plan);
    raw[start + index * 8 + 4..start + index * 8 + 8].fill(0);
    put_tail(raw, Tail { stale: tail.stale + 1, ..tail });
}

fn content(raw: &[u8]) -> BTreeMap<Vec<u8>, Ino> {
    let entries = data::items(raw, Tail::of(raw).leaf_start(raw.len()));
    let named = entries.filter_map(|item| match item {
        Item::Entry(entry) if entry.at >= FIRST => Some((entry.name.to_vec(), entry.ino)),
        _ => None,
    });
    named.collect()
}

#[test]
fn a_block_agrees_with_its_model() {
    let geo = geometry();
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let mut raw = empty([1024, 4096, 65536][seed as usize % 3]);
        let mut model = BTreeMap::new();
        for step in 0..600 {
            let number = rng.index(100);
            let mut name = format!("{number}").into_bytes();
            name.resize(name.len() + number * 5 % 80, b'n');
            let ino = Ino(128 + rng.index(1000) as u64);
            if model.remove(&name).is_some() {
                remove(&mut raw, &name);
            } else if insert(&mut raw, &name, ino) {
                model.insert(name, ino);
            } else if Tail::of(&raw).stale > 0 {
                let plan = block::plan_compact(&raw);
                apply(&mut raw, &plan.data);
                let start = plan.tail.leaf_start(raw.len());
                raw[start..start + plan.entries.len()].copy_from_slice(&plan.entries);
                put_tail(&mut raw, plan.tail);
            }
            assert_eq!(block::check(&raw, &geo), Ok(()), "seed {seed} step {step}");
            assert!(content(&raw) == model, "seed {seed} step {step}");
        }
    }
}

/// One undamaged block of each kind.
fn sound(rng: &mut Rng) -> Vec<(BufKind, Vec<u8>)> {
    let mut one = empty(4096);
    for number in 0..40 {
        let name = format!("{number}{}", "n".repeat(number * 3 % 50));
        insert(&mut one, name.as_bytes(), OWNER);
        if number % 3 == 0 {
            remove(&mut one, name.as_bytes());
        }
    }
    let mut many = one.clone();
    let start = Tail::of(&many).leaf_start(4096);
    super::MAGIC.set(&mut many, data::MAGIC);
    let plan = data::plan_remove(&one, start, start, 4096 - start);
    apply(&mut many, &plan);
    let mut leaf1 = vec![0; 4096];
    let count = 20 + rng.index(100);
    da::MAGIC.set(&mut leaf1, da::DIR_LEAF1_MAGIC);
    da::COUNT.set(&mut leaf1, count as u16);
    for index in 0..count {
        let at = da::ENTRIES + index * da::ENTRY_LEN;
        leaf1[at..at + 8].copy_from_slice(&da::entry(index as u32 * 7, 8 + index as u32));
    }
    let mut leafn = leaf1.clone();
    da::MAGIC.set(&mut leafn, da::DIR_LEAFN_MAGIC);
    let mut node = leafn.clone();
    da::put_node_header(&mut node, count, 1);
    leaf1[4095] = 3;
    leaf1[4086..4092].copy_from_slice(&[0, 16, 0xff, 0xff, 1, 0]);
    let mut index = vec![0; 4096];
    super::MAGIC.set(&mut index, free::MAGIC);
    free::NVALID.set(&mut index, 4);
    free::NUSED.set(&mut index, 3);
    index[free::BESTS..free::BESTS + 8].copy_from_slice(&[0, 8, 0xff, 0xff, 3, 0, 0, 0]);
    vec![
        (BufKind::DirBlock, one),
        (BufKind::DirData, many),
        (BufKind::DirLeaf1, leaf1),
        (BufKind::DirLeafN, leafn),
        (BufKind::DaNode, node),
        (BufKind::DirFree, index),
    ]
}

#[test]
fn damage_is_detected_or_harmless() {
    let geo = geometry();
    let mut rng = Rng::new(7);
    let mut seen = 0;
    for (kind, mut raw) in sound(&mut rng) {
        let at = kind.layout().unwrap().blkno.unwrap();
        raw[at..at + 8].copy_from_slice(&64u64.to_be_bytes());
        assert_eq!(verify::check(&raw, kind, Daddr(64), &geo), Ok(()));
        for _ in 0..4000 {
            let mut bad = raw.clone();
            for _ in 0..=rng.index(4) {
                let at = match rng.index(3) {
                    0 => rng.index(200),
                    1 => 4096 - 1 - rng.index(64),
                    _ => rng.index(4096),
                };
                bad[at] = [0, 0xff, 1, rng.index(256) as u8][rng.index(4)];
            }
            if verify::check(&bad, kind, Daddr(64), &geo).is_err() {
                seen += 1;
                continue;
            }
            // A block that passed the checks must be usable.
            if kind == BufKind::DirBlock {
                assert!(content(&bad).len() >= content(&raw).len());
                let name = b"one more";
                if insert(&mut bad, name, OWNER) {
                    remove(&mut bad, name);
                }
                assert_eq!(block::check(&bad, &geo), Ok(()));
            }
        }
    }
    assert!(seen > 8000, "only {seen} of 24000 were detected");
}

#[test]
fn no_bytes_make_the_checks_panic() {
    let geo = geometry();
    let mut rng = Rng::new(11);
    let kinds = sound(&mut rng);
    for _ in 0..3000 {
        for (kind, raw) in &kinds {
            let len = [1024, 4096][rng.index(2)];
            let mut bad: Vec<u8> = (0..len).map(|_| rng.index(256) as u8).collect();
            bad[..64].copy_from_slice(&raw[..64]);
            if rng.index(2) == 0 {
                bad[48..64].fill(0);
                bad[57] = rng.index(256) as u8;
            }
            if verify::check(&bad, *kind, Daddr(0), &geo).is_err() {
                continue;
            }
            let _ = data::plan_insert(&bad, len, 24);
        }
    }
}
