//! One field of one structure is changed and its checksum updated. The check must report everything
//! that `xfs_repair -n` of either release reports. No command may panic on such an image, take long
//! or use much memory.
//!
//! The field that was changed least often is next; position and new value come from the seed. The
//! environment (set by `tools/damage`) controls the extent:
//!
//! - `UXFS_DAMAGE`: number of images. Above 200, the test uses all sets of features and volumes
//!   that kernels aged. If there are as many images as fields, every field must be changed.
//! - `UXFS_SEED`: another seed, for other damage.
//! - `UXFS_IMAGES`: a directory of additional undamaged images.
//! - `UXFS_LONGEST`: maximum seconds for a command; generous, since other tests run in this
//!   process.
//! - `UXFS_MEMORY`: maximum memory of the process in MiB; unlimited by default, since other tests
//!   run in this process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use uxfs_disk::{BlockDev, Overlay};
use uxfs_format::crc;
use uxfs_oracle::Rng;

use crate::bases::{Base, Key, bases};
use crate::exercise::{Outcome, exercise};
use crate::fields::{Field, fields};
use crate::reasons::{self, Reasons};
use crate::structures::Structure;
use crate::volume::setting;

/// Attempts to find a structure with the field.
const TRIES: usize = 400;

impl Base {
    /// Makes damage to a field, in any structure that has it.
    fn next(&self, key: &Key, rng: &mut Rng) -> Damage {
        let list = &self.keys[key];
        for _ in 0..TRIES {
            let structure = list[rng.index(list.len())];
            let mut before = vec![0; structure.len];
            self.memory.read_at(structure.at, &mut before).unwrap();
            let fields = fields(structure.kind, &before, rng);
            if let Some(field) = fields.into_iter().find(|(name, ..)| *name == key.1) {
                return self.damage(&structure, key, field, before, rng);
            }
        }
        panic!("{}: {} of {} not found in {tries} attempts", self.name, key.1, key.0, tries = TRIES)
    }

    fn damage(
        &self,
        structure: &Structure,
        key: &Key,
        (field, at, len): Field,
        before: Vec<u8>,
        rng: &mut Rng,
    ) -> Damage {
        let mut after = before.clone();
        mutate(&mut after[at..at + len], rng);
        if let Some(crc) = structure.crc() {
            crc::stamp(&mut after, crc);
        }
        let what = format!(
            "{}: {} at byte {}, {field} (offset {at}): {:02x?} -> {:02x?}",
            self.name,
            key.0,
            structure.at,
            &before[at..at + len],
            &after[at..at + len]
        );
        Damage { what, key: key.clone(), at: structure.at, before, after }
    }
}

struct Damage {
    what: String,
    key: Key,
    at: u64,
    before: Vec<u8>,
    after: Vec<u8>,
}

fn mutate(field: &mut [u8], rng: &mut Rng) {
    let before = field.to_vec();
    while before == *field {
        let last = field.len() - 1;
        match rng.below(8) {
            0 => field.fill(0),
            1 => field.fill(0xff),
            2 => field[last] = field[last].wrapping_add(1),
            3 => field[last] = field[last].wrapping_sub(1),
            4 | 5 => field[rng.index(before.len())] ^= 1 << rng.below(8),
            6 => field[last] = rng.bits() as u8,
            _ => field.copy_from_slice(&rng.bytes(before.len())),
        }
    }
}

fn write(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// Peak memory use of the process in bytes since [`forget_peak`].
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// Totals over all damaged images.
#[derive(Default)]
struct Counts {
    repair: usize,
    check: usize,
    both: usize,
    neither: BTreeMap<String, usize>,
    check_only: BTreeMap<String, usize>,
    misses: Vec<String>,
    /// Damage that was not reported, without a reason in docs/DAMAGE.md.
    unexplained: Vec<String>,
    reasons: Reasons,
    slowest: (Duration, String),
    largest: (u64, String),
}

impl Counts {
    fn add(&mut self, damage: &Damage, found: Option<String>, reported: Option<Vec<String>>) {
        self.check += usize::from(found.is_some());
        self.repair += usize::from(reported.is_some());
        let key = reasons::merged(&damage.key);
        match (found, reported) {
            (Some(_), Some(_)) => self.both += 1,
            (Some(_), None) => *self.check_only.entry(key).or_default() += 1,
            (None, None) => {
                if !self.reasons.cover(&damage.key) {
                    eprintln!("not reported: {}", damage.what);
                    self.unexplained.push(damage.what.clone());
                }
                *self.neither.entry(key).or_default() += 1;
            }
            (None, Some(words)) => {
                let some = words.len().min(12);
                let miss = format!("{}\n    {}", damage.what, words[..some].join("\n    "));
                eprintln!("missed: {miss}");
                self.misses.push(miss);
            }
        }
    }

    fn print(&self, count: usize, seed: u64, turns: &BTreeMap<Key, usize>) {
        let list = |counts: &BTreeMap<String, usize>| {
            let each: Vec<String> = counts.iter().map(|(k, n)| format!("{k} ({n})")).collect();
            each.join(", ")
        };
        println!("reported by the check alone: {}", list(&self.check_only));
        println!("reported by neither: {}", list(&self.neither));
        let fields = turns.values().filter(|turns| **turns > 0).count();
        let kinds: BTreeSet<&String> = turns.keys().map(|(kind, _)| kind).collect();
        println!("longest command: {:?}, {}", self.slowest.0, self.slowest.1);
        println!("most memory: {} MiB, {}", self.largest.0 >> 20, self.largest.1);
        println!("fields changed: {fields} of {}, of {} structures", turns.len(), kinds.len());
        println!(
            "{count} images from seed {seed}: {} reported by xfs_repair, {} by the check, \
             {} by both, {} by neither, {} missed",
            self.repair,
            self.check,
            self.both,
            self.neither.values().sum::<usize>(),
            self.misses.len()
        );
    }
}

/// Runs all commands on the damaged image, in memory.
fn run(base: &Base, damage: &Damage) -> Outcome {
    let overlay = Overlay::new(Arc::clone(&base.memory) as _, usize::MAX);
    overlay.write_at(damage.at, &damage.after).unwrap();
    let dev: Arc<dyn BlockDev> = Arc::new(overlay);
    let run = std::panic::AssertUnwindSafe(|| exercise(&dev, 2));
    std::panic::catch_unwind(run).unwrap_or_else(|_| panic!("panics over {}", damage.what))
}

fn endure(base: &Base, damage: &Damage, counts: &mut Counts) -> Outcome {
    forget_peak();
    let mut outcome = run(base, damage);
    let limit = Duration::from_secs(setting("UXFS_LONGEST", 20));
    if outcome.times.longest().1 > limit {
        // A busy machine may have slowed the first run; the damage is the same.
        outcome = run(base, damage);
    }
    let (command, time) = outcome.times.longest();
    if time > counts.slowest.0 {
        counts.slowest = (time, format!("{command} of {}", damage.what));
    }
    assert!(time <= limit, "{command} took {time:?}: {}", damage.what);
    let memory = peak();
    if memory > counts.largest.0 {
        counts.largest = (memory, damage.what.clone());
    }
    let most = setting("UXFS_MEMORY", u64::MAX >> 20) << 20;
    assert!(memory <= most, "{memory} bytes of memory: {}", damage.what);
    outcome
}

/// The field that was changed least often, and a volume that has it.
fn turn<'a>(bases: &'a [Base], turns: &mut BTreeMap<Key, usize>, rng: &mut Rng) -> (&'a Base, Key) {
    let least = *turns.values().min().unwrap();
    let keys: Vec<&Key> = turns.iter().filter(|t| *t.1 == least).map(|t| t.0).collect();
    let key = keys[rng.index(keys.len())].clone();
    *turns.get_mut(&key).unwrap() += 1;
    let bases: Vec<&Base> = bases.iter().filter(|base| base.keys.contains_key(&key)).collect();
    (bases[rng.index(bases.len())], key)
}

fn one(base: &Base, key: &Key, rng: &mut Rng, counts: &mut Counts) {
    let damage = base.next(key, rng);
    let outcome = endure(base, &damage, counts);
    let path = &base.volume.path;
    write(path, damage.at, &damage.after);
    let reported = base.judged();
    write(path, damage.at, &damage.before);
    counts.add(&damage, base.news(outcome.found), reported);
}

#[test]
fn everything_xfs_repair_reports_is_reported() {
    let count = setting("UXFS_DAMAGE", 120) as usize;
    let seed = setting("UXFS_SEED", 1);
    let mut rng = Rng::new(seed);
    let mut counts = Counts::default();
    let bases = bases(count > 200);
    let keys = bases.iter().flat_map(|base| base.keys.keys().cloned());
    let mut turns: BTreeMap<Key, usize> = keys.map(|key| (key, 0)).collect();
    for number in 0..count {
        let (base, key) = turn(&bases, &mut turns, &mut rng);
        one(base, &key, &mut rng, &mut counts);
        if number % 200 == 199 {
            eprintln!("{} images, {} missed", number + 1, counts.misses.len());
        }
    }
    counts.print(count, seed, &turns);
    let misses = counts.misses;
    assert!(misses.is_empty(), "seed {seed}: {} missed:\n{}", misses.len(), misses.join("\n"));
    let why = counts.unexplained;
    assert!(why.is_empty(), "seed {seed}: not reported by anything:\n{}", why.join("\n"));
    let left: Vec<&Key> = turns.iter().filter(|(_, turns)| **turns == 0).map(|t| t.0).collect();
    assert!(count < turns.len() || left.is_empty(), "seed {seed}: never changed: {left:?}");
}

/// The base volumes must contain every kind of structure, so that all are damaged; and the fields
/// in docs/DAMAGE.md must exist.
#[test]
fn the_base_volumes_have_every_kind_of_structure() {
    let mut kinds: Vec<String> = Vec::new();
    let mut keys: Vec<Key> = Vec::new();
    for base in bases(true) {
        keys.extend(base.keys.into_keys());
    }
    let stale = Reasons::new().stale(keys.iter());
    assert!(stale.is_empty(), "docs/DAMAGE.md lists fields that do not exist: {stale:?}");
    kinds.extend(keys.into_iter().map(|(kind, field)| format!("{kind} {field}")));
    for kind in [
        "Superblock",
        "Agf",
        "Agi",
        "Agfl",
        "Btree(Bno)",
        "Btree(Cnt)",
        "Btree(Ino)",
        "Btree(FreeIno)",
        "Btree(Rmap)",
        "Btree(Refcount)",
        "Btree(Bmap)",
        "Inode",
        "DirBlock",
        "DirData",
        "DirLeaf1",
        "DirLeafN",
        "DirFree",
        "DaNode",
        "AttrLeaf",
        "AttrRemote",
        "Symlink",
        "LogRecord",
        "unlinked) next_unlinked",
    ] {
        assert!(kinds.iter().any(|k| k.contains(kind)), "no {kind} in {kinds:?}");
    }
    // Structures that depend on use, not on options, with their states.
    for (kind, field) in [
        ("Btree(Refcount) node ", "ptr"),
        ("Btree(Refcount) ", "rec.three.refcount"),
        ("Btree(Bmap) ", "rec.unwritten.flag"),
        ("Btree(Rmap) ", "rec.unwritten.flags"),
        ("Btree(Rmap) ", "rec.attr.owner"),
        ("Btree(Rmap) ", "rec.tree.owner"),
        ("Btree(Ino) ", "rec.sparse.holemask"),
        ("Inode(0x8", "unwritten.flag"),
        ("Inode(0x8", "shared.flags2"),
        ("Inode(0x8", "hint.extsize"),
        ("Inode(0x4", "hint.cowextsize"),
        ("Inode(0x8", "short.parent.generation"),
        ("AttrLeaf ", "leaf.parent.inumber"),
        ("AttrLeaf ", "name.valueblk"),
        ("DirLeaf1 ", "stale.hash"),
        ("DirLeafN ", "stale.hash"),
    ] {
        let is = |key: &&String| key.starts_with(kind) && key.ends_with(&format!(" {field}"));
        assert!(kinds.iter().any(|key| is(&key)), "no {kind}{field} in {kinds:?}");
    }
}
