//! Volumes with every kind of structure, damage to their fields, and the judges of a repair.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use uxfs::{Fs, NewInode, XattrMode};
use uxfs_check::{CheckOptions, Severity, check};
use uxfs_disk::{BlockDev, FileDev, MemDev, OpenMode};
use uxfs_format::crc;
use uxfs_oracle::{Rng, Xfsprogs, both};
use uxfs_repair::{Plan, RepairError, RepairOptions, apply, plan, undo};

use crate::fields::fields;
use crate::files::{Files, kept, list};
use crate::structures::{Kind, Structure, find};
use crate::volume::{Volume, fill};

/// A sound volume and its structures.
pub(crate) struct Base {
    pub(crate) name: String,
    pub(crate) memory: MemDev,
    pub(crate) structures: Vec<Structure>,
    pub(crate) files: Files,
}

impl Base {
    /// A filled volume with these features.
    pub(crate) fn new(line: &str) -> Self {
        let volume = Volume::small(64, line);
        let fs = volume.open();
        fill(&fs);
        more(&fs);
        fs.close().unwrap();
        let memory = volume.load();
        let (structures, files) = (find(&memory), list(&memory));
        assert!(files.len() > 1000);
        Self { name: format!("[{line}]"), memory, structures, files }
    }

    /// A copy with `count` damaged fields, and what they are. Half of them have a right checksum.
    pub(crate) fn damaged(&self, count: u64, rng: &mut Rng) -> (MemDev, String) {
        let dev = self.memory.clone();
        let mut what = Vec::new();
        for _ in 0..count {
            // First a kind, so that the few headers are not lost among thousands of inodes.
            let kind = self.structures[rng.index(self.structures.len())].kind;
            let kind = if rng.once_in(2) { kind } else { self.rare(rng) };
            let own: Vec<&Structure> = self.structures.iter().filter(|s| s.kind == kind).collect();
            let structure = own[rng.index(own.len())];
            let mut bytes = vec![0; structure.len];
            dev.read_at(structure.at, &mut bytes).unwrap();
            let all = fields(structure.kind, &bytes, rng);
            let (name, at, len) = &all[rng.index(all.len())];
            mutate(&mut bytes[*at..at + len], rng);
            let stamped = rng.once_in(2);
            if let Some(crc) = structure.crc().filter(|_| stamped) {
                crc::stamp(&mut bytes, crc);
            }
            dev.write_at(structure.at, &bytes).unwrap();
            let hex = &bytes[*at..at + len];
            what.push(format!("{kind:?} at {} {name} {hex:02x?} {stamped}", structure.at));
        }
        (dev, what.join("; "))
    }

    fn rare(&self, rng: &mut Rng) -> Kind {
        let mut kinds: Vec<Kind> = Vec::new();
        for structure in &self.structures {
            if !kinds.contains(&structure.kind) && structure.kind != Kind::LogRecord {
                kinds.push(structure.kind);
            }
        }
        kinds[rng.index(kinds.len())]
    }
}

/// Adds a file that shares blocks with itself, its clone, and an extent tree beside attributes.
fn more(fs: &Fs) {
    let block = u64::from(fs.geo.block_size);
    let dir = fs.create(fs.root(), b"more", &NewInode::dir(0o755)).unwrap();
    let file = |name: &[u8]| fs.create(dir, name, &NewInode::file(0o640)).unwrap();
    let tree = file(b"tree");
    fs.set_xattr(tree, b"user.name", b"value", XattrMode::Any).unwrap();
    for extent in 0..60 {
        fs.write_at(tree, extent * 3 * block, &vec![8; block as usize]).unwrap();
    }
    if fs.geo.has_reflink() {
        let (within, clone) = (file(b"within"), file(b"clone"));
        fs.write_at(within, 0, &vec![9; 8 * block as usize]).unwrap();
        fs.share(within, 2 * block, within, 16 * block, 5 * block).unwrap();
        fs.share(within, 3 * block, within, 32 * block, block).unwrap();
        fs.clone_file(within, clone).unwrap();
    }
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

/// Plans a repair.
pub(crate) fn planned(dev: &MemDev) -> Result<Plan, RepairError> {
    let mut options = RepairOptions::default();
    options.drop_log = true;
    plan(Arc::new(dev.clone()), &options, &|_| {})
}

/// A copy with the changes of a plan.
pub(crate) fn changed(dev: &MemDev, plan: &Plan) -> MemDev {
    let after = dev.clone();
    for change in &plan.changes {
        after.write_at(change.offset, &change.after).unwrap();
    }
    after
}

/// Fails unless the check finds nothing but notes and warnings.
pub(crate) fn sound(dev: &dyn BlockDev) -> Result<(), String> {
    let report = check(dev, &CheckOptions::default(), &|_| {}).map_err(|e| e.to_string())?;
    match report.findings.iter().find(|finding| finding.severity == Severity::Error) {
        Some(finding) => Err(finding.to_string()),
        None => Ok(()),
    }
}

/// All bytes of a device.
pub(crate) fn bytes(dev: &dyn BlockDev) -> Vec<u8> {
    let mut bytes = vec![0; dev.len() as usize];
    dev.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Writes a device to a file.
pub(crate) fn save(dev: &MemDev, path: &Path) {
    let file = FileDev::open(path, OpenMode::Create(dev.len())).unwrap();
    dev.for_written(|offset, bytes| file.write_at(offset, bytes)).unwrap();
}

/// Reads a file to memory.
pub(crate) fn load(path: &Path) -> MemDev {
    MemDev::from_bytes(&std::fs::read(path).unwrap())
}

/// How many of the files xfs_repair keeps on its own copy; `None` if it fails.
pub(crate) fn kept_by_xfs_repair(base: &Base, damaged: &MemDev, dir: &Path) -> Option<usize> {
    let path = dir.join("theirs.img");
    save(damaged, &path);
    let tool = Xfsprogs::Current.program("xfs_repair");
    // -L: some damage is to the log, and both drop it then.
    let out = Command::new(tool).arg("-L").arg(&path).output().unwrap();
    let files = out.status.success().then(|| kept(&base.files, &list(&load(&path))));
    std::fs::remove_file(&path).unwrap();
    files
}

/// Judges the repair of a damaged volume: applied to a file, looked at by all judges, undone.
pub(crate) fn judge(damaged: &MemDev, plan: &Plan, dir: &Path) -> Result<(), String> {
    let (path, file) = (dir.join("ours.img"), dir.join("ours.undo"));
    save(damaged, &path);
    let dev = FileDev::open(&path, OpenMode::Write).unwrap();
    apply(plan, &dev, &file).map_err(|error| error.to_string())?;
    drop(dev);
    both(&path).map_err(|finding| finding.to_string())?;
    let repaired = load(&path);
    sound(&repaired)?;
    if !planned(&repaired).map_err(|error| error.to_string())?.is_empty() {
        return Err("a second repair finds something".into());
    }
    if !plan.is_empty() {
        let dev = FileDev::open(&path, OpenMode::Write).unwrap();
        undo(&dev, &file).map_err(|error| error.to_string())?;
    }
    match std::fs::read(&path).unwrap() == bytes(damaged) {
        true => Ok(()),
        false => Err("the undo is not exact".into()),
    }
}
