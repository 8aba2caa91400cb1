//! An inode mended: its identity, and every field of its core that breaks a rule.
//!
//! 1. A short burst of flipped bits is put back by the checksum, so that nothing is lost.
//! 2. An inode whose checksum then does not match is *doubtful*: what its content says of its type counts
//!    more than its mode.
//! 3. An inode is given up only if it cannot be told what it was.
//!
//! Called for every inode in use by [`crate::pass`].

use uxfs_format::attr::sf as attr_sf;
use uxfs_format::btree::{self, TreeKind};
use uxfs_format::bytes::Field;
use uxfs_format::dir::sf::{self, Shortform};
use uxfs_format::extent::MAX_EXTENT_LEN;
use uxfs_format::inode::{
    self, CORE_LEN, CRC_OFFSET, Flags, Flags2, Fork, ForkFormat, INO, InodeCore, LSN, MAGIC, MODE,
    S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK,
};
use uxfs_format::symlink::{self, MAX_TARGET};
use uxfs_format::verify::{self, BufKind, Owner};
use uxfs_format::{AgIno, Extent, FsBlock, Ino, Lsn, crc};

use crate::burst;
use crate::error::Result;
use crate::fork::{self, ForkMap};
use crate::volume::Volume;

const MAGIC_AT: Field<u16> = Field::at(0);
const VERSION: usize = 4;
const FORMAT: usize = 5;
const ONLINK: Field<u16> = Field::at(6);
const NLINK: Field<u32> = Field::at(16);
const WIDE_NEXTENTS: Field<u64> = Field::at(24);
const SIZE: Field<u64> = Field::at(56);
const NBLOCKS: Field<u64> = Field::at(64);
const EXTSIZE: Field<u32> = Field::at(72);
const NEXTENTS: Field<u32> = Field::at(76);
const ANEXTENTS: Field<u16> = Field::at(80);
const FORKOFF: usize = 82;
const AFORMAT: usize = 83;
const FLAGS: Field<u16> = Field::at(90);
/// Place of the generation.
pub(crate) const GENERATION: Field<u32> = Field::at(92);
const NEXT_UNLINKED: Field<AgIno> = Field::at(inode::NEXT_UNLINKED_OFFSET);
const FLAGS2: Field<u64> = Field::at(120);
const COWEXTSIZE: Field<u32> = Field::at(128);
const UUID: core::ops::Range<usize> = 160..176;
/// Names and places of the timestamps' nanoseconds.
const NANOSECONDS: [(&str, Field<u32>); 4] = [
    ("atime", Field::at(36)),
    ("mtime", Field::at(44)),
    ("ctime", Field::at(52)),
    ("crtime", Field::at(148)),
];
const SECOND: u32 = 1_000_000_000;

/// An inode in use.
pub(crate) struct Mended {
    /// The whole inode; its checksum is not stamped.
    pub(crate) raw: Vec<u8>,
    /// The decoded core, with counts as they are found.
    pub(crate) core: InodeCore,
    /// What the forks map.
    pub(crate) maps: [ForkMap; 2],
    /// What is wrong; empty if the inode is sound.
    pub(crate) wrong: Vec<String>,
    /// What is lost.
    pub(crate) lost: Vec<String>,
    /// Did its checksum fail for more than a few bits?
    pub(crate) doubtful: bool,
    /// Must a fork be written anew?
    pub(crate) rewrite: [bool; 2],
    /// Blocks of a link's target whose headers were put right, with their places.
    pub(crate) targets: Vec<(FsBlock, Vec<u8>)>,
}

/// What an inode turned out to be.
pub(crate) enum State {
    /// Free and sound.
    Free,
    /// Free, with fields that a free inode must not have.
    FreeDamaged(String),
    /// In use.
    Used(Box<Mended>),
    /// Not to be told what it was.
    Lost(String),
}

/// The fork at an index of [`Mended::maps`].
pub(crate) const FORKS: [Fork; 2] = [Fork::Data, Fork::Attr];

struct Mender<'v> {
    volume: &'v Volume,
    ino: Ino,
    raw: Vec<u8>,
    wrong: Vec<String>,
    lost: Vec<String>,
    doubtful: bool,
    targets: Vec<(FsBlock, Vec<u8>)>,
}

/// Mends an inode.
pub(crate) fn mend(volume: &Volume, ino: Ino, raw: &[u8]) -> Result<State> {
    let (wrong, lost, targets) = (Vec::new(), Vec::new(), Vec::new());
    let mut mender =
        Mender { volume, ino, raw: raw.to_vec(), wrong, lost, doubtful: false, targets };
    if !mender.identity() {
        return Ok(State::Lost("nothing says that this is an inode".into()));
    }
    if MODE.get(&mender.raw) == 0 && !mender.has_traces_of_use() {
        return Ok(mender.free());
    }
    mender.used()
}

impl Mender<'_> {
    fn bad(&mut self, what: impl Into<String>) {
        self.wrong.push(what.into());
    }

    /// Magic number, checksum, own number, UUID, LSN. False if none of them is right.
    fn identity(&mut self) -> bool {
        if !crc::matches(&self.raw, CRC_OFFSET) {
            if burst::undo(&mut self.raw, CRC_OFFSET) {
                self.bad("a few bits were changed, which its checksum tells");
            } else {
                self.doubtful = true;
                self.bad("its checksum does not match");
            }
        }
        let uuid = self.volume.geo.meta_uuid.0;
        let signs = [
            inode::has_magic(&self.raw),
            INO.get(&self.raw) == self.ino,
            self.raw[UUID] == uuid,
            self.raw[VERSION] == 3,
        ];
        if signs.iter().filter(|sign| **sign).count() < 2 {
            return false;
        }
        if signs.contains(&false) {
            self.bad("its magic number, version, inode number or UUID is wrong");
        }
        MAGIC_AT.set(&mut self.raw, MAGIC);
        self.raw[VERSION] = 3;
        INO.set(&mut self.raw, self.ino);
        self.raw[UUID].copy_from_slice(&uuid);
        if self.volume.is_ahead(LSN.get(&self.raw)) {
            self.bad("its LSN is ahead of the log");
            LSN.set(&mut self.raw, Lsn(0));
        }
        true
    }

    /// Is something left of a use, although the mode says free?
    fn has_traces_of_use(&self) -> bool {
        let extents = u64::from(NEXTENTS.get(&self.raw)) | WIDE_NEXTENTS.get(&self.raw);
        let content = NBLOCKS.get(&self.raw) != 0 && extents != 0
            || self.raw[FORMAT] == ForkFormat::Local as u8;
        self.doubtful && content && NLINK.get(&self.raw) != 0
    }

    fn free(mut self) -> State {
        let raw = &self.raw;
        let geo = &self.volume.geo;
        let mut stay = Flags2::empty();
        stay.set(Flags2::BIGTIME, geo.has_bigtime());
        stay.set(Flags2::NREXT64, geo.has_nrext64());
        let known = [ForkFormat::Dev as u8, ForkFormat::Extents as u8];
        let zero = [
            u64::from(ONLINK.get(raw)),
            NLINK.get(raw).into(),
            NBLOCKS.get(raw),
            WIDE_NEXTENTS.get(raw),
            NEXTENTS.get(raw).into(),
            ANEXTENTS.get(raw).into(),
            raw[FORKOFF].into(),
            FLAGS.get(raw).into(),
            FLAGS2.get(raw) & !stay.bits(),
            SIZE.get(raw) >> 63,
        ];
        let hint = self.hint_max();
        let fine = zero.iter().all(|field| *field == 0)
            && NEXT_UNLINKED.get(raw).is_null()
            && known.contains(&raw[FORMAT])
            && known.contains(&raw[AFORMAT])
            && u64::from(EXTSIZE.get(raw)) <= hint
            && u64::from(COWEXTSIZE.get(raw)) <= hint
            && (FLAGS2.get(raw) & Flags2::BIGTIME.bits() != 0
                || NANOSECONDS.iter().all(|(_, at)| at.get(raw) < SECOND));
        if !fine {
            self.bad("fields of a free inode are set");
        }
        match self.wrong.is_empty() {
            true => State::Free,
            false => State::FreeDamaged(self.wrong.join("; ")),
        }
    }

    /// The longest extent size hint in blocks.
    fn hint_max(&self) -> u64 {
        MAX_EXTENT_LEN.min(u64::from(self.volume.geo.ag_blocks) / 2)
    }

    fn used(mut self) -> Result<State> {
        self.features();
        self.fork_offset();
        if let Some(problem) = self.kind()? {
            return Ok(State::Lost(problem));
        }
        self.flags();
        self.hints();
        self.rest();
        self.forks()
    }

    /// Flags of [`Flags2`] that the volume does not have.
    fn features(&mut self) {
        let geo = &self.volume.geo;
        let mut known = Flags2::DAX | Flags2::REFLINK | Flags2::COWEXTSIZE;
        known.set(Flags2::BIGTIME, geo.has_bigtime());
        known.set(Flags2::NREXT64, geo.has_nrext64());
        let flags = FLAGS2.get(&self.raw);
        if flags & !known.bits() != 0 {
            self.bad(format!("unknown flags in {flags:#x}"));
            FLAGS2.set(&mut self.raw, flags & known.bits());
        }
        let wide = flags & known.bits() & Flags2::NREXT64.bits() != 0;
        if wide && ANEXTENTS.get(&self.raw) != 0 {
            self.bad("the padding of wide extent counters is not 0");
            ANEXTENTS.set(&mut self.raw, 0);
        } else if !wide && WIDE_NEXTENTS.get(&self.raw) != 0 {
            self.bad("the unused wide extent counter is not 0");
            WIDE_NEXTENTS.set(&mut self.raw, 0);
        }
    }

    fn is_wide(&self) -> bool {
        FLAGS2.get(&self.raw) & Flags2::NREXT64.bits() != 0
    }

    fn count(&self, fork: Fork) -> u64 {
        match (fork, self.is_wide()) {
            (Fork::Data, true) => WIDE_NEXTENTS.get(&self.raw),
            (Fork::Data, false) | (Fork::Attr, true) => NEXTENTS.get(&self.raw).into(),
            (Fork::Attr, false) => ANEXTENTS.get(&self.raw).into(),
        }
    }

    /// Stores a count of extents; forks of inodes that are kept have fewer than their field holds.
    fn set_count(&mut self, fork: Fork, count: u64) {
        match (fork, self.is_wide()) {
            (Fork::Data, true) => WIDE_NEXTENTS.set(&mut self.raw, count),
            (Fork::Data, false) | (Fork::Attr, true) => NEXTENTS.set(&mut self.raw, count as u32),
            (Fork::Attr, false) => ANEXTENTS.set(&mut self.raw, count as u16),
        }
    }

    fn range(&self, fork: Fork) -> core::ops::Range<usize> {
        let split = CORE_LEN + usize::from(self.raw[FORKOFF]) * 8;
        match (fork, self.raw[FORKOFF]) {
            (Fork::Data, 0) => CORE_LEN..self.raw.len(),
            (Fork::Attr, 0) => self.raw.len()..self.raw.len(),
            (Fork::Data, _) => CORE_LEN..split,
            (Fork::Attr, _) => split..self.raw.len(),
        }
    }

    /// Makes room and format of the attribute fork possible.
    fn fork_offset(&mut self) {
        let (offset, format) = (self.raw[FORKOFF], self.raw[AFORMAT]);
        let outside = CORE_LEN + usize::from(offset) * 8 >= self.raw.len();
        let drop = match ForkFormat::from_raw(format) {
            _ if offset == 0 => format != ForkFormat::Extents as u8 || self.count(Fork::Attr) != 0,
            None | Some(ForkFormat::Dev) => true,
            Some(_) => outside,
        };
        if !drop {
            return;
        }
        self.bad(format!("attribute fork at {offset} of format {format}"));
        if offset != 0 || self.count(Fork::Attr) != 0 {
            self.lost.push("extended attributes".into());
        }
        self.drop_attributes();
    }

    fn drop_attributes(&mut self) {
        self.set_count(Fork::Attr, 0);
        let split = CORE_LEN + usize::from(self.raw[FORKOFF]) * 8;
        let room = self.raw.len().saturating_sub(split);
        // The root of an extent tree has its pointers behind as many keys as its fork has room for.
        if self.raw[FORMAT] == ForkFormat::Btree as u8
            && split > CORE_LEN
            && room >= attr_sf::HEADER_LEN
        {
            self.raw[AFORMAT] = ForkFormat::Local as u8;
            attr_sf::clear(&mut self.raw[split..]);
        } else {
            self.raw[FORKOFF] = 0;
            self.raw[AFORMAT] = ForkFormat::Extents as u8;
        }
    }

    /// Makes type and format of the data fork agree. Returns the reason if that cannot be.
    fn kind(&mut self) -> Result<Option<String>> {
        let mode = MODE.get(&self.raw);
        let (kind, format) = (mode & S_IFMT, self.raw[FORMAT]);
        let root = self.ino == self.volume.geo.root_ino;
        let mut wanted = match (kind, ForkFormat::from_raw(format)) {
            _ if root => S_IFDIR,
            (S_IFREG, Some(ForkFormat::Extents | ForkFormat::Btree)) => kind,
            (S_IFDIR | S_IFLNK, Some(ForkFormat::Local)) if !self.doubtful => kind,
            (S_IFDIR | S_IFLNK, Some(ForkFormat::Extents | ForkFormat::Btree)) => kind,
            (S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK, Some(ForkFormat::Dev)) => kind,
            (_, Some(ForkFormat::Local)) if self.short_directory().is_some() => S_IFDIR,
            (_, Some(ForkFormat::Local)) if kind != S_IFDIR && self.is_short_link() => S_IFLNK,
            (S_IFREG | S_IFDIR | S_IFLNK, _) => kind,
            (_, Some(ForkFormat::Extents | ForkFormat::Btree)) => S_IFREG,
            (S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK, _) => kind,
            _ => return Ok(Some(format!("mode {mode:#o} with a data fork of format {format}"))),
        };
        let mapped = ForkFormat::from_raw(format)
            .is_some_and(|format| matches!(format, ForkFormat::Extents | ForkFormat::Btree));
        if self.doubtful && mapped && !root {
            wanted =
                self.kind_of_content()?.unwrap_or(if kind == S_IFDIR { kind } else { S_IFREG });
        }
        if wanted != kind {
            self.bad(format!("mode {mode:#o} with a data fork of format {format}"));
            let permissions = if mode == 0 { 0o600 } else { mode & 0o7777 };
            MODE.set(&mut self.raw, wanted | permissions);
        }
        let right = match wanted {
            S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK => format == ForkFormat::Dev as u8,
            S_IFREG => mapped,
            _ => mapped || format == ForkFormat::Local as u8,
        };
        if !right {
            self.bad(format!("data fork of format {format}"));
            self.raw[FORMAT] = match wanted {
                S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK => ForkFormat::Dev,
                S_IFREG if self.is_root() => ForkFormat::Btree,
                S_IFREG => ForkFormat::Extents,
                _ if self.count(Fork::Data) == 0 => ForkFormat::Local,
                _ if self.is_root() => ForkFormat::Btree,
                _ => ForkFormat::Extents,
            } as u8;
        }
        Ok(None)
    }

    /// Does the data fork begin like the root of an extent tree?
    fn is_root(&self) -> bool {
        let fork = &self.raw[self.range(Fork::Data)];
        let (level, count) = (btree::ROOT_LEVEL.get(fork), btree::ROOT_NUMRECS.get(fork));
        (1..btree::MAX_LEVELS as u16).contains(&level)
            && (1..=TreeKind::max_bmap_root(fork.len())).contains(&count.into())
    }

    /// The type that the first block of the data fork tells, if it does.
    fn kind_of_content(&self) -> Result<Option<u16>> {
        if self.raw[FORMAT] != ForkFormat::Extents as u8 {
            return Ok(None);
        }
        let fork = &self.raw[self.range(Fork::Data)];
        let Some(first) = fork.first_chunk().map(Extent::unpack) else { return Ok(None) };
        if first.len == 0 || !self.volume.geo.fsb_valid(first.start, 1) {
            return Ok(None);
        }
        let block = self.volume.blocks(first.start, 1)?;
        let kinds = [BufKind::DirBlock, BufKind::DirData, BufKind::Symlink];
        let Some(kind) = BufKind::identify(&block, &kinds) else { return Ok(None) };
        let owner: Field<Ino> = match kind.layout().map(|layout| layout.owner) {
            Some(uxfs_format::verify::OwnerField::Inode(at)) => Field::at(at),
            _ => return Ok(None),
        };
        let own = owner.get(&block) == self.ino;
        Ok(own.then_some(if kind == BufKind::Symlink { S_IFLNK } else { S_IFDIR }))
    }

    /// Length of the directory in short form that the data fork holds, if it holds one.
    fn short_directory(&self) -> Option<usize> {
        let fork = &self.raw[self.range(Fork::Data)];
        let fits = |len: usize| fork.get(..len).is_some_and(|raw| Shortform::parse(raw).is_ok());
        let stated = usize::try_from(SIZE.get(&self.raw)).ok()?;
        if fits(stated) {
            return Some(stated);
        }
        (sf::header_len(false)..=fork.len()).find(|len| fits(*len))
    }

    fn is_short_link(&self) -> bool {
        let fork = &self.raw[self.range(Fork::Data)];
        let size = usize::try_from(SIZE.get(&self.raw)).unwrap_or(usize::MAX);
        fork.get(..size).is_some_and(|target| !target.is_empty() && !target.contains(&0))
    }

    fn flags(&mut self) {
        let kind = MODE.get(&self.raw) & S_IFMT;
        let (dir, reg) = (kind == S_IFDIR, kind == S_IFREG);
        let before = FLAGS.get(&self.raw);
        let mut flags = Flags::from_bits_truncate(before) - Flags::REALTIME - Flags::RTINHERIT;
        if self.ino != self.volume.geo.rt_inos[0] {
            flags -= Flags::NEWRTBM;
        }
        if !dir {
            flags -= Flags::EXTSZINHERIT | Flags::PROJINHERIT | Flags::NOSYMLINKS;
        }
        if !reg {
            flags -= Flags::EXTSIZE;
        }
        if flags.bits() != before {
            self.bad(format!("flags {before:#x} that do not fit it"));
            FLAGS.set(&mut self.raw, flags.bits());
        }
        let before = FLAGS2.get(&self.raw);
        let mut flags2 = Flags2::from_bits_retain(before);
        if !reg || !self.volume.geo.has_reflink() {
            flags2 -= Flags2::REFLINK;
        }
        if !reg && !dir {
            flags2 -= Flags2::DAX;
        }
        if !self.volume.geo.has_reflink() || !(reg || dir) {
            flags2 -= Flags2::COWEXTSIZE;
        }
        if flags2.bits() != before {
            self.bad(format!("flags {before:#x} that do not fit it"));
            FLAGS2.set(&mut self.raw, flags2.bits());
        }
    }

    /// Extent size hints: a hint and its flag go together.
    fn hints(&mut self) {
        let most = self.hint_max();
        let flags = Flags::from_bits_retain(FLAGS.get(&self.raw));
        let hint = EXTSIZE.get(&self.raw);
        let flagged = flags.intersects(Flags::EXTSIZE | Flags::EXTSZINHERIT);
        if flagged != (hint != 0) || u64::from(hint) > most {
            self.bad(format!("extent size hint {hint}"));
            EXTSIZE.set(&mut self.raw, 0);
            let flags = flags - Flags::EXTSIZE - Flags::EXTSZINHERIT;
            FLAGS.set(&mut self.raw, flags.bits());
        }
        let flags = Flags2::from_bits_retain(FLAGS2.get(&self.raw));
        let hint = COWEXTSIZE.get(&self.raw);
        if flags.contains(Flags2::COWEXTSIZE) != (hint != 0) || u64::from(hint) > most {
            self.bad(format!("copy-on-write extent size hint {hint}"));
            COWEXTSIZE.set(&mut self.raw, 0);
            FLAGS2.set(&mut self.raw, (flags - Flags2::COWEXTSIZE).bits());
        }
    }

    /// Fields that stand alone.
    fn rest(&mut self) {
        let kind = MODE.get(&self.raw) & S_IFMT;
        if ONLINK.get(&self.raw) != 0 {
            self.bad("di_onlink is not 0");
            ONLINK.set(&mut self.raw, 0);
        }
        if self.raw[132..144].iter().any(|byte| *byte != 0) {
            self.bad("di_pad2 is not 0");
            self.raw[132..144].fill(0);
        }
        if !NEXT_UNLINKED.get(&self.raw).is_null() {
            self.bad("it is on a list of unlinked inodes");
            NEXT_UNLINKED.set(&mut self.raw, AgIno::NULL);
        }
        if FLAGS2.get(&self.raw) & Flags2::BIGTIME.bits() == 0 {
            for (name, at) in NANOSECONDS {
                if at.get(&self.raw) >= SECOND {
                    self.bad(format!("{name} has {} nanoseconds", at.get(&self.raw)));
                    at.set(&mut self.raw, 0);
                }
            }
        }
        let special = matches!(kind, S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK);
        let internal = self.volume.geo.rt_inos.contains(&self.ino);
        if (special || internal) && SIZE.get(&self.raw) != 0 {
            self.bad("a size where there can be none");
            SIZE.set(&mut self.raw, 0);
        }
        if special && self.raw[FORKOFF] > 1 {
            self.bad("the attribute fork of a special file is misplaced");
            self.lost.push("extended attributes".into());
            self.drop_attributes();
        }
    }

    /// Reads both forks and settles counts and sizes.
    fn forks(mut self) -> Result<State> {
        for fork in FORKS {
            self.plausible_count(fork);
        }
        let mut maps = [ForkMap::default(), ForkMap::default()];
        let mut rewrite = [false; 2];
        let stored = (NBLOCKS.get(&self.raw), FORKS.map(|fork| self.count(fork)));
        let core = match self.lenient() {
            Ok(core) => core,
            Err(problem) => return Ok(State::Lost(problem)),
        };
        for (index, fork) in FORKS.into_iter().enumerate() {
            let raw = self.raw[self.range(fork)].to_vec();
            let map = fork::read(self.volume, self.ino, &core, fork, &raw)?;
            let tree = core.fork_format(fork) == ForkFormat::Btree;
            let inline = map.extents.len() <= raw.len() / 16;
            if !map.wrong.is_empty() || tree && inline {
                self.wrong.extend(map.wrong.iter().map(|w| format!("{}: {w}", fork::name(fork))));
                rewrite[index] = true;
            }
            self.lost.extend(map.lost.iter().cloned());
            self.set_count(fork, map.extents.len() as u64);
            if stored.1[index] != map.extents.len() as u64 && map.wrong.is_empty() {
                self.bad(format!("{} extents, counted {}", stored.1[index], map.extents.len()));
            }
            maps[index] = map;
        }
        let blocks = maps.iter().map(ForkMap::blocks).sum::<u64>();
        if stored.0 != blocks {
            self.bad(format!("di_nblocks is {}, counted {blocks}", stored.0));
            NBLOCKS.set(&mut self.raw, blocks);
        }
        self.size(&core, &maps[0]);
        if core.is_symlink()
            && let Some(problem) = self.target(&core, &maps[0])?
        {
            return Ok(State::Lost(problem));
        }
        let core = match self.lenient() {
            Ok(mut core) => {
                core.nblocks = blocks;
                core.nextents = maps[0].extents.len() as u64;
                core.anextents = maps[1].extents.len() as u32;
                core
            }
            Err(problem) => return Ok(State::Lost(problem)),
        };
        let Self { raw, wrong, lost, doubtful, targets, .. } = self;
        let mended = Mended { raw, core, maps, wrong, lost, doubtful, rewrite, targets };
        Ok(State::Used(Box::new(mended)))
    }

    /// The core, with counts that pass its check although they are not settled yet.
    fn lenient(&self) -> core::result::Result<InodeCore, String> {
        let (wrong, lost, targets) = (Vec::new(), Vec::new(), Vec::new());
        let mut copy = Self { raw: self.raw.clone(), wrong, lost, targets, ..*self };
        NBLOCKS.set(&mut copy.raw, u64::MAX);
        for (fork, format) in [(Fork::Data, FORMAT), (Fork::Attr, AFORMAT)] {
            let room = (copy.range(fork).len() / 16) as u64;
            let count = copy.count(fork);
            match ForkFormat::from_raw(copy.raw[format]) {
                Some(ForkFormat::Btree) => copy.set_count(fork, count.max(room + 1)),
                Some(ForkFormat::Extents) => copy.set_count(fork, count.min(room)),
                _ => copy.set_count(fork, 0),
            }
        }
        let room = copy.range(Fork::Data).len() as u64;
        if SIZE.get(&copy.raw) >> 63 != 0 {
            SIZE.set(&mut copy.raw, 1);
        }
        if copy.raw[FORMAT] == ForkFormat::Local as u8 {
            SIZE.set(&mut copy.raw, SIZE.get(&self.raw).clamp(1, room.max(1)));
        } else {
            let least = u64::from(MODE.get(&copy.raw) & S_IFMT != S_IFREG);
            let special = copy.raw[FORMAT] == ForkFormat::Dev as u8;
            let size = SIZE.get(&copy.raw).max(if special { 0 } else { least });
            SIZE.set(&mut copy.raw, size);
        }
        let mut core =
            InodeCore::decode_unchecked(&copy.raw, self.ino).map_err(|problem| problem.detail)?;
        core.size = SIZE.get(&self.raw);
        core.nextents = self.count(Fork::Data);
        core.anextents = self.count(Fork::Attr) as u32;
        Ok(core)
    }

    /// Corrects a count that contradicts the records in the inode.
    fn plausible_count(&mut self, fork: Fork) {
        let format = if fork == Fork::Data { self.raw[FORMAT] } else { self.raw[AFORMAT] };
        let (count, raw) = (self.count(fork), &self.raw[self.range(fork)]);
        let mapped = format == ForkFormat::Extents as u8;
        let room = (raw.len() / 16) as u64;
        let wanted = if mapped && (count > room || self.doubtful) {
            let valid = |raw: &[u8]| {
                raw.first_chunk().map(Extent::unpack).is_some_and(|extent| {
                    extent.len > 0 && self.volume.geo.fsb_valid(extent.start, extent.len)
                })
            };
            let leading = raw.chunks_exact(16).take_while(|raw| valid(raw)).count() as u64;
            // A bad record among good ones is dropped by itself.
            if count <= room { leading.max(count) } else { leading }
        } else if !mapped && format != ForkFormat::Btree as u8 {
            0
        } else {
            count
        };
        if wanted != count {
            self.bad(format!("{count} extents in the {}", fork::name(fork)));
            self.set_count(fork, wanted);
        }
    }

    fn size(&mut self, core: &InodeCore, data: &ForkMap) {
        let size = SIZE.get(&self.raw);
        let end = data.extents.last().map_or(0, |e| e.end().0) << self.volume.geo.block_log;
        let room = self.range(Fork::Data).len() as u64;
        let wanted = if core.is_dir() && core.format == ForkFormat::Local {
            self.short_directory().map_or(size.clamp(1, room), |len| len as u64)
        } else if core.format == ForkFormat::Local {
            size.min(room)
        } else if size >> 63 != 0 {
            end
        } else {
            size
        };
        if wanted != size {
            self.bad(format!("a size of {size} bytes"));
            SIZE.set(&mut self.raw, wanted);
        }
    }

    /// Why a link's target is lost; `None` if it is sound.
    fn target(&mut self, core: &InodeCore, data: &ForkMap) -> Result<Option<String>> {
        let size = SIZE.get(&self.raw);
        if size == 0 || size > MAX_TARGET as u64 {
            return Ok(Some(format!("a link's target of {size} bytes")));
        }
        let mut target = Vec::new();
        if core.format == ForkFormat::Local {
            let fork = self.range(Fork::Data);
            target.extend_from_slice(&self.raw[fork][..size as usize]);
        }
        for extent in &data.extents {
            let part = size as usize - target.len().min(size as usize);
            match self.target_block(extent, target.len(), part)? {
                Some(part) => target.extend(part),
                None => return Ok(Some("the block of a link's target is damaged".into())),
            }
        }
        if target.contains(&0) || target.len() as u64 != size {
            return Ok(Some("a link's target is damaged".into()));
        }
        Ok(None)
    }
}

impl Mender<'_> {
    /// The part of a link's target in an extent, behind `before` bytes, of which `left` are missing. Puts the
    /// header right if all else is sound.
    fn target_block(
        &mut self,
        extent: &Extent,
        before: usize,
        left: usize,
    ) -> Result<Option<Vec<u8>>> {
        let geo = &self.volume.geo;
        let daddr = geo.fsb_daddr(extent.start);
        let mut bytes = self.volume.blocks(extent.start, extent.len.min(16))?;
        let kind = BufKind::Symlink;
        let room = bytes.len() - symlink::HEADER_LEN;
        let is_sound = |bytes: &[u8]| {
            verify::check(bytes, kind, daddr, geo)
                .and_then(|()| verify::check_owner(bytes, kind, daddr, Owner::Inode(self.ino)))
                .is_ok()
        };
        let checksum = crc::matches(&bytes, symlink::CRC_OFFSET);
        if !checksum && !burst::undo(&mut bytes, symlink::CRC_OFFSET) && !is_sound(&bytes) {
            return Ok(None);
        }
        // Each block holds as much of the target as there is room for.
        let len = left.min(room);
        let ahead = self.volume.is_ahead(Lsn(symlink::SymlinkHeader::view(&bytes).lsn.get()));
        let header = symlink::SymlinkHeader::view_mut(&mut bytes);
        if header.offset.get() as usize != before || header.bytes.get() as usize != len {
            return Ok(None);
        }
        header.magic.set(symlink::MAGIC);
        header.owner.set(self.ino.0);
        header.blkno.set(daddr.0);
        header.uuid = geo.meta_uuid.0;
        if ahead {
            header.lsn.set(0);
        }
        crc::stamp(&mut bytes, symlink::CRC_OFFSET);
        let part = bytes.get(symlink::HEADER_LEN..symlink::HEADER_LEN + len).map(<[u8]>::to_vec);
        if !is_sound(&bytes) {
            return Ok(None);
        }
        if bytes != self.volume.blocks(extent.start, extent.len.min(16))? {
            self.bad("the header of a link's target breaks rules");
            self.targets.push((extent.start, bytes));
        }
        Ok(part)
    }
}

/// Does this look like an inode of this number? Two of its signs are enough.
pub(crate) fn is_likely(volume: &Volume, ino: Ino, raw: &[u8]) -> bool {
    let signs = [
        inode::has_magic(raw) && raw[VERSION] == 3,
        INO.get(raw) == ino,
        raw[UUID] == volume.geo.meta_uuid.0,
    ];
    signs.iter().filter(|sign| **sign).count() >= 2
}

/// An inode that every volume has, made anew and empty; `None` for all others.
pub(crate) fn made_anew(volume: &Volume, ino: Ino) -> Option<Vec<u8>> {
    let geo = &volume.geo;
    let mut raw = vec![0; geo.inode_size as usize];
    let mut core = InodeCore { nlink: 1, next_unlinked: AgIno::NULL, ..InodeCore::default() };
    core.flags2.set(Flags2::BIGTIME, geo.has_bigtime());
    core.flags2.set(Flags2::NREXT64, geo.has_nrext64());
    if ino == geo.root_ino {
        let empty = sf::build(ino, std::iter::empty());
        raw[CORE_LEN..][..empty.len()].copy_from_slice(&empty);
        (core.mode, core.nlink) = (S_IFDIR | 0o755, 2);
        (core.format, core.size) = (ForkFormat::Local, empty.len() as u64);
    } else if geo.rt_inos.contains(&ino) {
        core.mode = S_IFREG;
        core.flags.set(Flags::NEWRTBM, ino == geo.rt_inos[0]);
    } else {
        return None;
    }
    core.encode(&mut raw, ino, &geo.meta_uuid);
    Some(raw)
}

/// Makes an inode free.
pub(crate) fn encode_free(volume: &Volume, ino: Ino, raw: &mut [u8]) {
    let generation = GENERATION.get(raw).wrapping_add(1);
    InodeCore::encode_free(raw, ino, &volume.geo.meta_uuid, generation);
}
