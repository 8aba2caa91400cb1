//! A busy volume shipped by its mount: each of its checkpoints is whole, and holds the tree that was recorded then.
//!
//! `tools/checkpoints` runs it with more rounds.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use uxfs_oracle::Rng;

use crate::fixture::Fixture;

/// A file of a tree: its mode and, of a regular file or a symbolic link, its content.
type Entry = (u32, Vec<u8>);

fn tree(root: &Path) -> BTreeMap<String, Entry> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let content = if meta.is_dir() {
                dirs.push(path.clone());
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.insert(name, (meta.mode(), content));
        }
    }
    found
}

/// Changes something in the tree. What is not possible is left out.
fn change(root: &Path, rng: &mut Rng) {
    let dir = root.join(format!("d{}", rng.below(6)));
    let file = dir.join(format!("f{}", rng.below(12)));
    let other = root.join(format!("d{}", rng.below(6))).join(format!("f{}", rng.below(12)));
    let data = vec![rng.bits() as u8; rng.below(30_000) as usize];
    let done = match rng.below(10) {
        0..5 => fs::create_dir_all(&dir).and_then(|()| fs::write(&file, &data)),
        5 => fs::OpenOptions::new().write(true).open(&file).and_then(|file| file.set_len(9_000)),
        6 => fs::rename(&file, &other),
        7 => fs::remove_file(&file),
        8 => symlink(&other, &file),
        _ => fs::remove_dir_all(&dir),
    };
    drop(done);
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

#[test]
fn every_checkpoint_of_a_busy_volume_is_whole() {
    let (rounds, mut rng) = (number("UXFS_ROUNDS", 10), Rng::new(number("UXFS_SEED", 1)));
    let fixture = Fixture::with_image(&[]);
    let url = format!("file://{}", fixture.path("store").display());
    fixture.sh("mkdir m then");
    fixture.uxfs(&["mount", "-o", &format!("ship={url}"), "a.img", "m"]).good();
    let mut recorded = BTreeMap::new();
    for _ in 0..rounds {
        for _ in 0..40 {
            change(&fixture.path("m"), &mut rng);
        }
        let shipped = fixture.uxfs(&["ship", "m", &url]).good();
        recorded.insert(shipped.replace("checkpoint", ""), tree(&fixture.path("m")));
    }
    fixture.unmount("m");

    let list = fixture.uxfs(&["restore", "--list", &url]).good();
    let numbers: Vec<&str> =
        list.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert!(numbers.len() as u64 >= rounds, "{list}");
    let mut compared = 0;
    for number in &numbers {
        fixture.uxfs(&["restore", "-q", "--at", number, &url, "then.img"]).good();
        fixture.check("then.img");
        if let Some(wanted) = recorded.get(&format!(" {number}\n")) {
            fixture.uxfs(&["mount", "-o", "ro", "then.img", "then"]).good();
            assert!(tree(&fixture.path("then")) == *wanted, "checkpoint {number} has another tree");
            fixture.unmount("then");
            compared += 1;
        }
        fixture.sh("rm then.img");
    }
    println!("{} checkpoints whole, {compared} trees compared", numbers.len());
    assert_eq!(compared, recorded.len(), "a checkpoint is missing");
}
