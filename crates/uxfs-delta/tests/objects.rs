//! Deltas and manifests are read back as they were written; what was changed is refused.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use uxfs_delta::{
    Delta, Error, Hash, Head, Holder, Index, Key, Layer, Manifest, Place, TRAILER_LEN, Trailer,
    Writer,
};
use uxfs_testkit::Rng;

const BLOCK: usize = 4096;

fn key() -> Key {
    Key::from_file(&[9; 32]).unwrap()
}

/// Blocks of random content: noise, text and zeroes.
fn blocks(rng: &mut Rng, of: u64) -> BTreeMap<u64, Vec<u8>> {
    let mut blocks = BTreeMap::new();
    let mut at = 0;
    while at < of {
        at += rng.below(4) * rng.below(10);
        for _ in 0..rng.below(30) {
            let mut data = vec![0; BLOCK];
            match rng.below(3) {
                0 => data.iter_mut().for_each(|byte| *byte = rng.bits() as u8),
                1 => data.fill(rng.bits() as u8),
                _ => {}
            }
            if at < of {
                blocks.insert(at, data);
            }
            at += 1;
        }
    }
    blocks
}

fn write(head: &Head, blocks: &BTreeMap<u64, Vec<u8>>, key: Option<&Key>) -> (Vec<u8>, Delta) {
    let mut writer = Writer::new(head.clone(), key).unwrap();
    let mut object = Vec::new();
    for (at, data) in blocks {
        writer.push(*at, data).unwrap();
        if writer.ready() > 100_000 {
            object.append(&mut writer.take());
        }
    }
    let (mut rest, delta) = writer.finish().unwrap();
    object.append(&mut rest);
    assert_eq!(delta.object_len, object.len() as u64);
    (object, delta)
}

/// All blocks of an object.
fn read(object: &[u8], key: Option<&Key>) -> Result<BTreeMap<u64, Vec<u8>>, Error> {
    let end = &object[object.len().saturating_sub(TRAILER_LEN)..];
    let trailer = Trailer::parse(end, object.len() as u64)?;
    let index = Index::parse(&trailer, &object[trailer.table()], key)?;
    let mut content = Vec::new();
    for chunk in 0..index.chunks() {
        content.extend_from_slice(&index.open(chunk, &object[index.chunk_at(chunk)?], key)?);
    }
    let mut blocks = BTreeMap::new();
    for extent in index.extents() {
        for number in 0..extent.count {
            let data = match extent.at {
                Some(at) => {
                    let at = at as usize + number as usize * BLOCK;
                    content[at..at + BLOCK].to_vec()
                }
                None => vec![0; BLOCK],
            };
            blocks.insert(extent.first + number, data);
        }
    }
    Ok(blocks)
}

#[test]
fn what_is_written_is_read() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let head = Head { image_len: (BLOCK * 500) as u64 - 7, ..Head::default() };
        let blocks = blocks(&mut rng, head.blocks());
        for key in [None, Some(&key())] {
            let (object, delta) = write(&head, &blocks, key);
            assert_eq!(read(&object, key).unwrap(), blocks, "seed {seed}");
            assert_eq!(delta.blocks, blocks.len() as u64);
        }
    }
}

#[test]
fn the_same_blocks_give_the_same_object_and_a_sealed_one_never() {
    let blocks = BTreeMap::from([(3, vec![1; BLOCK])]);
    let head = Head { image_len: 1 << 20, ..Head::default() };
    assert_eq!(write(&head, &blocks, None), write(&head, &blocks, None));
    assert_ne!(write(&head, &blocks, Some(&key())).0, write(&head, &blocks, Some(&key())).0);
}

#[test]
fn every_changed_bit_is_found() {
    let mut rng = Rng::new(1);
    let head = Head { image_len: (BLOCK * 60) as u64, chunk_size: 16 << 10, ..Head::default() };
    let blocks = blocks(&mut rng, 40);
    for key in [None, Some(&key())] {
        let (object, _) = write(&head, &blocks, key);
        // The preamble is for people; nothing is read from it.
        for _ in 0..2000 {
            let at = 16 + rng.index(object.len() - 16);
            let mut changed = object.clone();
            changed[at] ^= 1 << rng.below(8);
            assert!(read(&changed, key).is_err(), "byte {at}");
        }
        for len in [0, 1, TRAILER_LEN, object.len() / 2, object.len() - 1] {
            assert!(read(&object[..len], key).is_err(), "{len} bytes");
        }
    }
}

#[test]
fn a_key_is_needed_where_one_was_used_and_only_there() {
    let head = Head { image_len: 1 << 20, ..Head::default() };
    let blocks = BTreeMap::from([(3, vec![1; BLOCK])]);
    let (sealed, _) = write(&head, &blocks, Some(&key()));
    let (plain, _) = write(&head, &blocks, None);
    let other = Key::from_file(&[8; 32]).unwrap();
    assert!(matches!(read(&sealed, None), Err(Error::NeedsKey)));
    assert!(matches!(read(&sealed, Some(&other)), Err(Error::WrongKey)));
    assert!(matches!(read(&plain, Some(&other)), Err(Error::NotSealed)));
}

#[test]
fn blocks_out_of_order_or_place_are_refused() {
    let head = Head { image_len: 10 * BLOCK as u64, ..Head::default() };
    let mut writer = Writer::new(head.clone(), None).unwrap();
    let data = [0; BLOCK];
    writer.push(4, &data).unwrap();
    assert!(writer.push(4, &data).is_err());
    assert!(writer.push(3, &data).is_err());
    assert!(writer.push(10, &data).is_err());
    assert!(writer.push(5, &data[1..]).is_err());
    for wrong in [
        Head { block_size: 1000, ..head.clone() },
        Head { chunk_size: 2048, ..head.clone() },
        Head { image_len: u64::MAX, ..head },
    ] {
        assert!(Writer::new(wrong, None).is_err());
    }
}

#[test]
fn a_delta_follows_its_parent_or_what_stands_for_it() {
    let make = |parent, stands_for, fill: u8| {
        let head = Head { image_len: 1 << 20, parent, stands_for, ..Head::default() };
        let (object, _) = write(&head, &BTreeMap::from([(3, vec![fill; BLOCK])]), None);
        Trailer::parse(&object[object.len() - TRAILER_LEN..], object.len() as u64).unwrap()
    };
    let base = make(None, None, 1);
    let first = make(Some(base.id()), None, 2);
    let second = make(Some(first.id()), None, 3);
    let merged = make(None, Some(first.id()), 4);
    assert!(base.follows(None) && first.follows(Some(&base)) && second.follows(Some(&first)));
    assert!(merged.follows(None) && second.follows(Some(&merged)));
    assert!(!second.follows(Some(&base)) && !first.follows(None) && !base.follows(Some(&first)));
    assert!(!first.follows(Some(&merged)));
}

#[test]
fn manifests_are_read_as_written_and_nothing_else() {
    let layer = |n: u64| Layer {
        id: Hash::of(&[n as u8]),
        sequence: n,
        place: Place::Object(u64::MAX / 4 * n),
        object_len: 100 * n,
        table_at: n,
        blocks: 7,
    };
    let manifest = Manifest {
        uuid: [4; 16],
        number: 42,
        parent: Some(Hash::of(b"before")),
        writer: [5; 16],
        epoch: 3,
        made_at: 1_700_000_000_000,
        image_len: 1 << 30,
        block_size: 4096,
        changed_bytes: 10,
        stored_bytes: 9,
        layers: (1..5).map(layer).collect(),
        holder: None,
    };
    let holder = Holder { name: "a machine".into(), since: 7 };
    let held = Manifest { holder: Some(holder), ..manifest.clone() };
    let mut inside = held.clone();
    inside.layers[2].place = Place::Manifest(u64::MAX / 2);
    let mut rng = Rng::new(2);
    let with = key();
    let all =
        [&manifest, &held, &inside].map(|manifest| [(manifest, None), (manifest, Some(&with))]);
    for (manifest, key) in all.into_iter().flatten() {
        let (bytes, hash) = manifest.build(key).unwrap();
        assert_eq!(manifest.stored_len(key.is_some()), bytes.len() as u64);
        assert_eq!(Manifest::parse(42, &bytes, key).unwrap(), (manifest.clone(), hash));
        let followed = [&bytes[..], b"a delta"].concat();
        match manifest.layers[2].place {
            Place::Object(_) => {
                assert_eq!(Manifest::len_in(&bytes), None);
                assert!(Manifest::parse(42, &followed, key).is_err());
            }
            Place::Manifest(_) => {
                assert_eq!(Manifest::len_in(&bytes[..200]), Some(bytes.len() as u64));
                assert_eq!(Manifest::parse(42, &followed, key).unwrap().0, *manifest);
            }
        }
        assert!(Manifest::parse(43, &bytes, key).is_err());
        for _ in 0..1000 {
            let mut changed = bytes.clone();
            changed[rng.index(bytes.len())] ^= 1 << rng.below(8);
            assert!(Manifest::parse(42, &changed, key).is_err());
        }
        for len in 0..bytes.len() {
            assert!(Manifest::parse(42, &bytes[..len], key).is_err());
        }
    }
}
