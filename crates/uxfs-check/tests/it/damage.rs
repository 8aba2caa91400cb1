//! One field of one structure changed, its checksum made right again: whatever `xfs_repair -n`
//! reports, the check reports.
//!
//! Structures of every kind take turns, and so do the fields of each kind; which structure, which
//! record, and the new value come from the seed. `UXFS_DAMAGE` is the number of images.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use uxfs::disk::OpenMode;
use uxfs::format::crc;
use uxfs_oracle::{Rng, program};

use crate::fields::fields;
use crate::structures::{Structure, find};
use crate::volume::{FEATURES, Volume, device, examine, fill, setting};

/// No damage may keep the check busy for longer; generous, for a machine that does other things.
const LONGEST: Duration = Duration::from_secs(20);

/// A sound image and what is on it.
struct Base {
    volume: Volume,
    name: String,
    kinds: Vec<(String, Vec<Structure>)>,
    turns: BTreeMap<String, usize>,
}

impl Base {
    fn new(volume: Volume, name: String) -> Self {
        let dev = device(&volume.path, OpenMode::Read);
        let mut kinds: BTreeMap<String, Vec<Structure>> = BTreeMap::new();
        for structure in find(&dev) {
            kinds.entry(format!("{:?}", structure.kind)).or_default().push(structure);
        }
        let kinds = kinds.into_iter().collect();
        Self { volume, name, kinds, turns: BTreeMap::new() }
    }

    fn random(&mut self, number: usize, rng: &mut Rng) -> Damage {
        let (kind, list) = &self.kinds[number % self.kinds.len()];
        // Of the inodes, and of the primary superblock, there is more to be seen.
        let structure = if kind.contains("Superblock") && rng.once_in(2) {
            list[0]
        } else {
            list[rng.index(list.len())]
        };
        let file = File::open(&self.volume.path).unwrap();
        let mut before = vec![0; structure.len];
        file.read_exact_at(&mut before, structure.at).unwrap();
        let fields = fields(structure.kind, &before, rng);
        let turn = self.turns.entry(kind.clone()).or_insert_with(|| rng.index(1000));
        *turn += 1;
        let (field, at, len) = fields[*turn % fields.len()].clone();
        let mut after = before.clone();
        mutate(&mut after[at..at + len], rng);
        if let Some(crc) = structure.crc() {
            crc::stamp(&mut after, crc);
        }
        let what = format!(
            "{}: {kind} at byte {}, {field} (offset {at}): {:02x?} -> {:02x?}",
            self.name,
            structure.at,
            &before[at..at + len],
            &after[at..at + len]
        );
        Damage { what, kind: kind.clone(), field, at: structure.at, before, after }
    }
}

struct Damage {
    what: String,
    kind: String,
    field: String,
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

/// Counts over all damaged images.
#[derive(Default)]
struct Counts {
    both: usize,
    neither: BTreeMap<String, usize>,
    check_only: BTreeMap<String, usize>,
    misses: Vec<String>,
}

fn one(base: &mut Base, number: usize, rng: &mut Rng, tool: &Path, counts: &mut Counts) {
    let damage = base.random(number, rng);
    let path: PathBuf = base.volume.path.clone();
    write(&path, damage.at, &damage.after);
    let began = Instant::now();
    let found = match examine(&path) {
        Ok(report) => {
            let clean = report.is_clean() && !report.incomplete;
            (!clean).then(|| report.to_string())
        }
        Err(e) => Some(e.to_string()),
    };
    assert!(began.elapsed() < LONGEST, "{}: took {:?}", damage.what, began.elapsed());
    let reported = repair(&path, tool);
    write(&path, damage.at, &damage.before);
    let key = format!("{} {}", damage.kind, damage.field);
    match (found, reported) {
        (Some(_), Some(_)) => counts.both += 1,
        (Some(_), None) => *counts.check_only.entry(key).or_default() += 1,
        (None, None) => *counts.neither.entry(key).or_default() += 1,
        (None, Some(words)) => {
            let phases = |line: &&str| {
                !line.starts_with("Phase") && !line.starts_with("        -") && !line.is_empty()
            };
            let words: Vec<&str> = words.lines().filter(phases).take(12).collect();
            counts.misses.push(format!("{}\n    {}", damage.what, words.join("\n    ")));
        }
    }
}

fn bases(all: bool) -> Vec<Base> {
    let mut bases = Vec::new();
    let features = if all { FEATURES } else { &FEATURES[..2] };
    for line in features {
        let volume = Volume::small(64, line);
        let fs = volume.open();
        fill(&fs);
        fs.close().unwrap();
        bases.push(Base::new(volume, format!("[{line}]")));
    }
    if let Some(dir) = std::env::var_os("UXFS_IMAGES") {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            bases.push(Base::new(Volume::copy(&path), name));
        }
    }
    for base in &bases {
        base.volume.clean(&base.name);
    }
    bases
}

#[test]
fn whatever_xfs_repair_reports_is_reported() {
    let count = setting("UXFS_DAMAGE", 120) as usize;
    let seed = setting("UXFS_SEED", 1);
    let tool = program("xfs_repair", "xfsprogs");
    let mut rng = Rng::new(seed);
    let mut counts = Counts::default();
    let mut bases = bases(count > 200);
    let total = bases.len();
    for number in 0..count {
        one(&mut bases[number % total], number / total, &mut rng, &tool, &mut counts);
    }
    println!("{count} images from seed {seed}: {} reported by both", counts.both);
    println!("reported by the check alone: {:#?}", counts.check_only);
    println!("reported by neither: {:#?}", counts.neither);
    let misses = counts.misses;
    assert!(misses.is_empty(), "seed {seed}: {} missed:\n{}", misses.len(), misses.join("\n"));
}

/// Kinds of structure that the volumes made here must have, so that nothing is left undamaged.
#[test]
fn every_kind_of_structure_is_there() {
    let mut kinds: Vec<String> = Vec::new();
    for base in bases(false) {
        kinds.extend(base.kinds.into_iter().map(|(kind, _)| kind));
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
