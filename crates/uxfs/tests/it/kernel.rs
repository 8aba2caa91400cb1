//! The kernel and the library alternate on one image: each reads and edits the other's changes.

use uxfs_format::inode::{S_IFMT, S_IFREG};
use uxfs_oracle::{Fields, Kernel, Listing, Rng, db_value, vm};

use crate::edit::{self, Editor};
use crate::listing;
use crate::volume::{Volume, setting};

/// Everything but free space, of which the kernel subtracts its reserve.
pub(crate) const ALL: Fields = Fields::ALL.difference(Fields::SPACE);

pub(crate) fn age(kernel: Kernel, volume: &Volume, seed: u64, ops: u32) -> Listing {
    let aged = vm::age(kernel, &volume.path, seed, ops);
    listing::without_raw_lists(aged.unwrap_or_else(|f| panic!("seed {seed}: {f}")))
}

/// Kernel and library alternate on one image; after each turn both list the same tree.
fn turns(line: &str, mib: u64, rounds: u64, ops: u32) {
    let base = setting("UXFS_SEED", 0) * 1000;
    let volume = Volume::real(mib, line);
    let mut rng = Rng::new(base);
    for round in 0..rounds {
        let seed = base + round;
        let at = format!("{line}, seed {seed}");
        let kernel = if round % 2 == 0 { Kernel::Stable } else { Kernel::Current };
        let aged = age(kernel, &volume, seed, ops);
        println!("{at}: {} entries", aged.entries.len());
        listing::list(&volume.open_read_only()).assert_same(&aged, ALL);
        for part in 0..3 {
            let fs = volume.open_at(1_800_000_000 + seed as i64, 1 << (16 + 4 * part));
            edit::edit(&fs, &mut rng, 150, &at);
            fs.close().unwrap_or_else(|e| panic!("{at}: {e}"));
            volume.judge_aged(&at);
        }
        let ours = listing::list(&volume.open_read_only());
        let other = if round % 2 == 0 { Kernel::Current } else { Kernel::Stable };
        ours.assert_same(&listing::of_kernel(other, &[&volume.path])[0], ALL);
    }
}

#[test]
fn uxfs_and_the_kernel_alternate() {
    turns("-m rmapbt=1", 400, setting("UXFS_ROUNDS", 2), 600);
}

#[test]
fn uxfs_and_the_kernel_alternate_with_small_blocks() {
    turns("-b size=1k -n size=4k -i sparse=1,nrext64=1", 320, setting("UXFS_ROUNDS", 1), 600);
}

#[test]
fn uxfs_and_the_kernel_alternate_with_few_features() {
    let line = "-m reflink=0,finobt=0,inobtcount=0,bigtime=0 -i sparse=0";
    turns(line, 300, setting("UXFS_ROUNDS", 1), 400);
}

/// Edits of files with shared blocks leave the other owners unchanged.
#[test]
fn a_write_to_a_shared_block_leaves_the_other_files_unchanged() {
    let lines = [(5, "-m reflink=1,rmapbt=1"), (6, "-b size=1k -m reflink=1")];
    let count = if setting("UXFS_ROUNDS", 1) > 1 { 2 } else { 1 };
    for (seed, line) in lines.into_iter().take(count) {
        let seed = seed + setting("UXFS_SEED", 0) * 1000;
        let volume = Volume::real(400, line);
        let at = format!("{line}, seed {seed}");
        let before = age(Kernel::Current, &volume, seed, 1800);
        let shared: u64 = (0..4)
            .map(|ag| {
                let commands = [&format!("agf {ag}")[..], "addr refcntroot"];
                db_value(&volume.path, &commands, "numrecs").parse::<u64>().unwrap()
            })
            .sum();
        println!("{at}: {shared} shared runs");
        assert!(shared >= 3, "{at}: {shared} shared runs");
        let fs = volume.open();
        let mut rng = Rng::new(seed);
        let mut editor = Editor::new(&fs, &mut rng).unwrap();
        let victims: Vec<_> = editor
            .all
            .iter()
            .filter(|f| f.mode & S_IFMT == S_IFREG && f.ino.0 % 2 == 0)
            .cloned()
            .collect();
        for _ in 0..4 {
            for victim in &victims {
                match editor.change_content(victim) {
                    Err(e) if !edit::expected(&e) => panic!("{at}: {e}"),
                    _ => {}
                }
            }
        }
        fs.close().unwrap();
        volume.judge(&at);
        let ours = listing::list(&volume.open_read_only());
        let theirs = listing::of_kernel(Kernel::Stable, &[&volume.path]).remove(0);
        ours.assert_same(&theirs, ALL);
        let untouched = |listing: &Listing| {
            let mut listing = listing.clone();
            listing.entries.retain(|e| e.ino % 2 == 1 && e.content.is_some());
            listing
        };
        let before = untouched(&before);
        assert!(before.entries.len() > 50, "{at}: {} others", before.entries.len());
        before.assert_same(&untouched(&theirs), ALL);
    }
}
