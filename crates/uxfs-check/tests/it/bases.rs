//! The undamaged images that the damage tests start from: volumes with every kind of structure and
//! every set of features, as the library, kernels and a crash leave them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use uxfs::NewInode;
use uxfs_disk::{BlockDev, MemDev, OpenMode, Overlay};
use uxfs_format::verify::BufKind;
use uxfs_format::{Ino, crc};
use uxfs_oracle::{HangLimits, Kernel, Rng, Xfsprogs, vm};

use crate::exercise::{examine, exercise};
use crate::fields::fields;
use crate::structures::{Kind, Structure, find};
use crate::volume::{FEATURES, Volume, device, fill};

/// Feature sets that only newer tools support.
const NEW: [&str; 2] = [
    "-n parent=1 -i nrext64=1,exchange=1 -m rmapbt=1",
    "-b size=1024 -n parent=1 -i exchange=1 -m rmapbt=1",
];

/// A field of a kind of structure, the unit in which damage is distributed.
pub(crate) type Key = (String, String);

/// Output of a checker: lines, in order.
type Lines = Vec<String>;

/// An undamaged image and its structures.
pub(crate) struct Base {
    pub(crate) volume: Volume,
    pub(crate) name: String,
    pub(crate) memory: Arc<MemDev>,
    /// Fields, with the structures that have them.
    pub(crate) keys: BTreeMap<Key, Vec<Structure>>,
    /// Checkers that support all features of the image, with their output for the undamaged image,
    /// normally none.
    judges: Vec<(PathBuf, Option<Lines>)>,
    /// Output of the check for the undamaged image.
    quiet: Option<String>,
}

/// The kind of a structure, finer than [`Kind`]: it distinguishes primary and secondary
/// superblocks, and inodes by type and form.
pub(crate) fn kind_name(structure: &Structure, bytes: &[u8]) -> String {
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
        Kind::Buffer(kind @ BufKind::Btree(_)) if bytes[4..6] != [0, 0] => format!("{kind:?} node"),
        Kind::Buffer(kind) => format!("{kind:?}"),
        other => format!("{other:?}"),
    }
}

/// Time limit for `xfs_repair`, which hangs on some damage.
const HANG_LIMITS: HangLimits =
    HangLimits { idle: Duration::from_secs(120), work: Duration::from_secs(60) };

/// Output of `xfs_repair -n`, if it finds a problem and does not fail itself.
fn repair(path: &Path, tool: &Path) -> Option<Lines> {
    // The output goes to files, because nothing reads pipes during the wait.
    let [stdout, stderr] = [(); 2].map(|()| tempfile::tempfile().unwrap());
    let mut command = Command::new(tool);
    command.arg("-n").arg(path).stdin(Stdio::null()).env("LC_ALL", "C");
    command.stdout(stdout.try_clone().unwrap()).stderr(stderr.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    let Ok(status) = HANG_LIMITS.wait(&mut child, || 0).unwrap() else {
        child.kill().unwrap();
        child.wait().unwrap();
        return None;
    };
    let said = |mut file: File| {
        let mut text = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut text).unwrap();
        text
    };
    // 1: a problem was found. Other codes: the tool failed, or the volume is undamaged.
    (status.code() == Some(1)).then(|| {
        let all = [said(stdout), said(stderr)].concat();
        let progress = |line: &&str| {
            line.starts_with("Phase") || line.starts_with("        -") || line.is_empty()
        };
        let lines = String::from_utf8_lossy(&all);
        let mut words: Lines = lines.lines().filter(|l| !progress(l)).map(str::to_owned).collect();
        words.sort();
        words
    })
}

impl Base {
    fn new(volume: Volume, name: String, judges: &[PathBuf]) -> Self {
        let memory = Arc::new(volume.load());
        let said = |tool: &PathBuf| (tool.clone(), repair(&volume.path, tool));
        let judges = judges.iter().map(said).collect();
        let sound: Arc<dyn BlockDev> = Arc::new(Overlay::new(Arc::clone(&memory) as _, usize::MAX));
        let quiet = exercise(&sound, 2).found;
        let mut base = Self { volume, name, memory, keys: BTreeMap::new(), judges, quiet };
        base.find_fields();
        base
    }

    /// A base in which no checker may find anything.
    fn sound(volume: Volume, name: String, judges: &[PathBuf]) -> Self {
        let base = Self::new(volume, name, judges);
        assert_eq!(base.quiet, None, "{}, undamaged", base.name);
        assert!(base.judges.iter().all(|j| j.1.is_none()), "{}: {:?}", base.name, base.judges);
        base
    }

    fn find_fields(&mut self) {
        let dev = device(&self.volume.path, OpenMode::Read);
        let mut rng = Rng::new(1);
        let mut live = find(&dev);
        live.retain(|structure| self.is_live(structure));
        for structure in live {
            let mut bytes = vec![0; structure.len];
            dev.read_at(structure.at, &mut bytes).unwrap();
            let kind = kind_name(&structure, &bytes);
            for (field, ..) in fields(structure.kind, &bytes, &mut rng) {
                self.keys.entry((kind.clone(), field)).or_default().push(structure);
            }
        }
    }

    /// Is the structure part of the volume, not a remnant in free blocks? If it is, the check
    /// notices when it is erased.
    fn is_live(&self, structure: &Structure) -> bool {
        if !matches!(structure.kind, Kind::Buffer(_)) {
            return true;
        }
        let overlay = Overlay::new(Arc::clone(&self.memory) as _, usize::MAX);
        overlay.write_at(structure.at, &vec![0; structure.len]).unwrap();
        self.news(examine(&overlay, 2)).is_some()
    }

    /// Lines of the check that are not in its output for the undamaged image.
    pub(crate) fn news(&self, found: Option<String>) -> Option<String> {
        found.filter(|words| Some(words) != self.quiet.as_ref())
    }

    /// Lines of a checker about the image's current state that are not in its output for the
    /// undamaged image.
    pub(crate) fn judged(&self) -> Option<Lines> {
        self.judges.iter().find_map(|(tool, sound)| {
            let words = repair(&self.volume.path, tool)?;
            (Some(&words) != sound.as_ref()).then_some(words)
        })
    }
}

/// A volume with every kind of structure.
fn filled(line: &str) -> Volume {
    let volume = Volume::small(64, line);
    let fs = volume.open();
    fill(&fs);
    fs.close().unwrap();
    volume
}

/// Removes the names of three files by hand and puts the files on unlinked lists, two on one list,
/// as a crash with a lost log leaves them. Both xfsprogs releases and the check report this; the
/// tests look at what they report in addition.
fn orphaned(line: &str) -> Volume {
    let volume = filled(line);
    let fs = volume.open();
    let pool = fs.create(fs.root(), b"pool", &NewInode::dir(0o755)).unwrap();
    let made = |number: u32| {
        let ino = fs.create(pool, format!("{number}").as_bytes(), &NewInode::file(0o600)).unwrap();
        fs.write_at(ino, 0, &[1; 5000]).unwrap();
        ino
    };
    let all: Vec<Ino> = (0..200).map(made).collect();
    let bucket = |ino: &Ino| (fs.geo.ino_ag(*ino), fs.geo.ino_agino(*ino).0 % 64);
    let same = |first: &Ino| all.iter().find(|ino| *ino != first && bucket(ino) == bucket(first));
    let (first, second) = all.iter().find_map(|ino| Some((*ino, *same(ino)?))).unwrap();
    let third = *all.iter().find(|ino| bucket(ino) != bucket(&first)).unwrap();
    let dir = fs.create(fs.root(), b"orphans", &NewInode::dir(0o755)).unwrap();
    for ino in [first, second, third] {
        let number = all.iter().position(|other| *other == ino).unwrap();
        let name = format!("{number}").into_bytes();
        fs.rename(pool, &name, dir, &name, uxfs::RenameFlags::NoReplace).unwrap();
    }
    let geo = fs.geo.clone();
    fs.close().unwrap();
    let dev = device(&volume.path, OpenMode::Write);
    let structures = find(&dev);
    let change = |structure: &Structure, put: &[(usize, &[u8])]| {
        let mut bytes = vec![0; structure.len];
        dev.read_at(structure.at, &mut bytes).unwrap();
        put.iter().for_each(|(at, new)| bytes[*at..at + new.len()].copy_from_slice(new));
        crc::stamp(&mut bytes, structure.crc().unwrap());
        dev.write_at(structure.at, &bytes).unwrap();
    };
    let inode = |ino: Ino| {
        structures.iter().find(|structure| {
            let mut own = [0; 8];
            dev.read_at(structure.at + 152, &mut own).unwrap();
            structure.kind == Kind::Inode && own == ino.0.to_be_bytes()
        })
    };
    let agino = |ino: Ino| geo.ino_agino(ino).0.to_be_bytes();
    // An empty short form has no entries, but a size.
    change(inode(dir).unwrap(), &[(176, &[0]), (56, &6u64.to_be_bytes())]);
    for (ino, next) in [(first, agino(second)), (second, [0xff; 4]), (third, [0xff; 4])] {
        change(inode(ino).unwrap(), &[(16, &[0; 4]), (96, &next)]);
    }
    for ino in [first, third] {
        let at = geo.agi_daddr(geo.ino_ag(ino)).bytes();
        let is_agi = |s: &&Structure| s.at == at && s.kind == Kind::Buffer(BufKind::Agi);
        let head = 40 + 4 * (geo.ino_agino(ino).0 % 64) as usize;
        change(structures.iter().find(is_agi).unwrap(), &[(head, &agino(ino))]);
    }
    volume
}

/// A volume with user, group and project quota accounting.
pub(crate) fn accounted(line: &str) -> Volume {
    let volume = filled(line);
    let script = "set -e\nmount -t xfs -o uquota,gquota,pquota /drive/0 /mnt\n\
        for n in 1 2 3 4 5 6; do echo data >/mnt/of-$n; chown 100$n:200$n /mnt/of-$n; done\n\
        umount /mnt\n";
    let machine = vm::Vm::new(Kernel::Stable).drive(&volume.path, true).script(script);
    machine.run().unwrap_or_else(|f| panic!("{f}"));
    volume
}

/// The base images; only some of them unless `all`.
pub(crate) fn bases(all: bool) -> Vec<Base> {
    let both = Xfsprogs::ALL.map(|release| release.program("xfs_repair"));
    let new = &both[1..];
    let mut bases = Vec::new();
    let (features, newer) = if all { (FEATURES, &NEW[..]) } else { (&FEATURES[..2], &NEW[..1]) };
    let judged = features.iter().map(|line| (line, &both[..]));
    for (line, judges) in judged.chain(newer.iter().map(|line| (line, new))) {
        bases.push(Base::sound(filled(line), format!("[{line}]"), judges));
    }
    let line = FEATURES[1];
    bases.push(Base::new(orphaned(line), format!("[{line}] with unlinked inodes"), &both));
    if all {
        bases.push(Base::sound(accounted(line), format!("[{line}] with quota"), &both));
        for (kernel, line) in Kernel::ALL.into_iter().zip([FEATURES[1], FEATURES[3]]) {
            let volume = Volume::small(64, line);
            vm::age(kernel, &volume.path, 5, 1200).unwrap_or_else(|f| panic!("{f}"));
            let name = format!("[{line}] aged by {kernel:?}");
            bases.push(Base::sound(volume, name, &both));
        }
    }
    if let Some(dir) = std::env::var_os("UXFS_IMAGES") {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            bases.push(Base::sound(Volume::copy(&path), name, &both));
        }
    }
    bases
}
