//! One field of one structure changed, its checksum made right again: whatever `xfs_repair -n` of
//! either release reports, the check reports; and nothing that commands do with such an image ends
//! in a panic, takes long, or takes much memory.
//!
//! The field that was changed least takes its turn; where, and to what, comes from the seed. The
//! environment sets the size of it, `tools/damage` for people:
//!
//! - `UXFS_DAMAGE`: number of images. Above 200, every set of features takes part, volumes that
//!   kernels aged too, and every field must have had its turn.
//! - `UXFS_SEED`: another seed, other damage.
//! - `UXFS_IMAGES`: a directory of more sound images.
//! - `UXFS_LONGEST`: seconds that a command may take; generous, as tests share machines.
//! - `UXFS_MEMORY`: MiB that the process may take; without limit, as it may run other tests too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use uxfs::disk::{BlockDev, MemDev, OpenMode};
use uxfs::format::crc;
use uxfs_oracle::{Kernel, Rng, Xfsprogs, program, vm};

use crate::exercise::{Outcome, examine, exercise};
use crate::fields::{Field, fields};
use crate::overlay::Overlay;
use crate::structures::{Kind, Structure, find};
use crate::volume::{FEATURES, Volume, device, fill, setting};

/// Images from which on every field must have been changed.
const WHOLE: usize = 2000;
/// Attempts to find a structure with a field.
const TRIES: usize = 400;

/// A field of a kind of structure: what must have its turn.
type Key = (String, String);

/// A sound image and what is on it.
struct Base {
    volume: Volume,
    name: String,
    memory: Arc<MemDev>,
    /// Structures by their kind.
    kinds: BTreeMap<String, Vec<Structure>>,
    keys: BTreeSet<Key>,
    /// Judges that know all of its features.
    judges: Vec<PathBuf>,
}

/// The kind of a structure, finer than [`Kind`]: the primary superblock and its copies are not the
/// same, nor are inodes of other types and forms.
fn kind_name(structure: &Structure, bytes: &[u8]) -> String {
    match structure.kind {
        Kind::Inode => {
            let (mode, nlink) = (bytes[2] >> 4, u32::from_be_bytes([0, 0, bytes[18], bytes[19]]));
            let forks = if bytes[82] == 0 { "-".into() } else { bytes[83].to_string() };
            match mode {
                0 => "Inode(free)".into(),
                _ if nlink == 0 => format!("Inode({mode:#x} unlinked)"),
                _ => format!("Inode({mode:#x} {}/{forks})", bytes[5]),
            }
        }
        Kind::Buffer(kind) if structure.at == 0 => format!("primary {kind:?}"),
        Kind::Buffer(kind) => format!("{kind:?}"),
        other => format!("{other:?}"),
    }
}

/// Is it part of the volume, not what was left of blocks that are free now? If it is, the check
/// sees that it is gone.
fn is_live(memory: &Arc<MemDev>, structure: &Structure) -> bool {
    if !matches!(structure.kind, Kind::Buffer(_)) {
        return true;
    }
    let overlay = Overlay::new(memory);
    overlay.write_at(structure.at, &vec![0; structure.len]).unwrap();
    examine(&overlay, 2).is_some()
}

impl Base {
    fn new(volume: Volume, name: String, judges: Vec<PathBuf>) -> Self {
        let dev = device(&volume.path, OpenMode::Read);
        let mut kinds: BTreeMap<String, Vec<Structure>> = BTreeMap::new();
        let mut keys = BTreeSet::new();
        let mut rng = Rng::new(1);
        let memory = Arc::new(volume.load());
        for structure in find(&dev).into_iter().filter(|found| is_live(&memory, found)) {
            let mut bytes = vec![0; structure.len];
            dev.read_at(structure.at, &mut bytes).unwrap();
            let kind = kind_name(&structure, &bytes);
            let fields = fields(structure.kind, &bytes, &mut rng);
            keys.extend(fields.into_iter().map(|(field, ..)| (kind.clone(), field)));
            kinds.entry(kind).or_default().push(structure);
        }
        drop(dev);
        Self { volume, name, memory, kinds, keys, judges }
    }

    /// Damage to a field, of any structure that has it.
    fn next(&self, key: &Key, rng: &mut Rng) -> Damage {
        let list = &self.kinds[&key.0];
        for _ in 0..TRIES {
            let structure = list[rng.index(list.len())];
            let mut before = vec![0; structure.len];
            self.memory.read_at(structure.at, &mut before).unwrap();
            let fields = fields(structure.kind, &before, rng);
            if let Some(field) = fields.into_iter().find(|(name, ..)| *name == key.1) {
                return self.damage(&structure, key, field, before, rng);
            }
        }
        panic!("{}: no {} found again in {}", self.name, key.1, key.0);
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

/// What `xfs_repair -n` says, if it finds something wrong and does not itself fail.
fn repair(path: &Path, tool: &Path) -> Option<String> {
    let mut command = Command::new(program("timeout", "coreutils"));
    command.args(["-s", "KILL", "60"]).arg(tool).arg("-n").arg(path);
    let out = command.stdin(Stdio::null()).env("LC_ALL", "C").output().unwrap();
    // 1: something is wrong. Anything else is a failure of the tool's own, or a sound volume.
    (out.status.code() == Some(1)).then(|| {
        let all = [out.stdout, out.stderr].concat();
        String::from_utf8_lossy(&all).into_owned()
    })
}

fn write(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// The most memory that the process has taken since [`forget_peak`], in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// Counts over all damaged images.
#[derive(Default)]
struct Counts {
    repair: usize,
    check: usize,
    both: usize,
    neither: BTreeMap<String, usize>,
    check_only: BTreeMap<String, usize>,
    misses: Vec<String>,
    slowest: (Duration, String),
    largest: (u64, String),
}

impl Counts {
    fn add(&mut self, damage: &Damage, found: Option<String>, reported: Option<String>) {
        self.check += usize::from(found.is_some());
        self.repair += usize::from(reported.is_some());
        // Of inodes, whatever their form: what the field is.
        let kind = damage.key.0.split(' ').next().unwrap_or_default();
        let kind = if kind.starts_with("Inode(0x") { "Inode" } else { &damage.key.0 };
        let key = format!("{kind} {}", damage.key.1);
        match (found, reported) {
            (Some(_), Some(_)) => self.both += 1,
            (Some(_), None) => *self.check_only.entry(key).or_default() += 1,
            (None, None) => *self.neither.entry(key).or_default() += 1,
            (None, Some(words)) => {
                let phases = |line: &&str| {
                    !line.starts_with("Phase") && !line.starts_with("        -") && !line.is_empty()
                };
                let words: Vec<&str> = words.lines().filter(phases).take(12).collect();
                let miss = format!("{}\n    {}", damage.what, words.join("\n    "));
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

/// Does everything to the damaged image, in memory.
fn run(base: &Base, damage: &Damage) -> Outcome {
    let overlay = Overlay::new(&base.memory);
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
        // The machine may have been busy with something else; the damage is as it was.
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

/// The field that has been changed least, and a volume that has it.
fn turn<'a>(bases: &'a [Base], turns: &mut BTreeMap<Key, usize>, rng: &mut Rng) -> (&'a Base, Key) {
    let least = *turns.values().min().unwrap();
    let keys: Vec<&Key> = turns.iter().filter(|t| *t.1 == least).map(|t| t.0).collect();
    let key = keys[rng.index(keys.len())].clone();
    *turns.get_mut(&key).unwrap() += 1;
    let bases: Vec<&Base> = bases.iter().filter(|base| base.keys.contains(&key)).collect();
    (bases[rng.index(bases.len())], key)
}

fn one(base: &Base, key: &Key, rng: &mut Rng, counts: &mut Counts) {
    let damage = base.next(key, rng);
    let outcome = endure(base, &damage, counts);
    let path = &base.volume.path;
    write(path, damage.at, &damage.after);
    let reported = base.judges.iter().find_map(|tool| repair(path, tool));
    write(path, damage.at, &damage.before);
    counts.add(&damage, outcome.found, reported);
}

/// Features that only newer tools know.
const NEW: &str = "-n parent=1 -i nrext64=1,exchange=1 -m rmapbt=1";

fn bases(all: bool) -> Vec<Base> {
    let both = Xfsprogs::ALL.map(|release| release.program("xfs_repair")).to_vec();
    let new = both[1..].to_vec();
    let mut bases = Vec::new();
    let features = if all { FEATURES } else { &FEATURES[..2] };
    for (line, judges) in features.iter().map(|line| (*line, &both)).chain([(NEW, &new)]) {
        let volume = Volume::small(64, line);
        let fs = volume.open();
        fill(&fs);
        fs.close().unwrap();
        bases.push(Base::new(volume, format!("[{line}]"), judges.clone()));
    }
    if all {
        for (kernel, line) in Kernel::ALL.into_iter().zip([FEATURES[1], FEATURES[3]]) {
            let volume = Volume::small(64, line);
            vm::age(kernel, &volume.path, 5, 1200).unwrap_or_else(|f| panic!("{f}"));
            bases.push(Base::new(volume, format!("[{line}] aged by {kernel:?}"), both.clone()));
        }
    }
    if let Some(dir) = std::env::var_os("UXFS_IMAGES") {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            bases.push(Base::new(Volume::copy(&path), name, both.clone()));
        }
    }
    for base in &bases {
        base.volume.clean(&base.name);
        for tool in &base.judges {
            let words = repair(&base.volume.path, tool);
            assert!(words.is_none(), "{}, undamaged: {}", base.name, words.unwrap());
        }
        let sound: Arc<dyn BlockDev> = Arc::new(Overlay::new(&base.memory));
        assert_eq!(exercise(&sound, 2).found, None, "{}, undamaged", base.name);
    }
    bases
}

#[test]
fn whatever_xfs_repair_reports_is_reported() {
    let count = setting("UXFS_DAMAGE", 120) as usize;
    let seed = setting("UXFS_SEED", 1);
    let mut rng = Rng::new(seed);
    let mut counts = Counts::default();
    let bases = bases(count > 200);
    let keys = bases.iter().flat_map(|base| base.keys.iter().cloned());
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
    let left: Vec<&Key> = turns.iter().filter(|(_, turns)| **turns == 0).map(|t| t.0).collect();
    assert!(count < WHOLE || left.is_empty(), "seed {seed}: never changed: {left:?}");
}

/// Kinds of structure that the volumes made here must have, so that nothing is left undamaged.
#[test]
fn every_kind_of_structure_is_there() {
    let mut kinds: Vec<String> = Vec::new();
    for base in bases(false) {
        kinds.extend(base.kinds.into_keys());
    }
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
    ] {
        assert!(kinds.iter().any(|k| k.contains(kind)), "no {kind} in {kinds:?}");
    }
}
