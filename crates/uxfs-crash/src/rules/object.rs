//! A metadata object, a buffer, an inode or a quota record: its safe state in place, and its states in the log.

use uxfs_format::attr::sf;
use uxfs_format::btree::{self, BmapNode, LONG, TreeKind};
use uxfs_format::bytes::Field;
use uxfs_format::extent::{Extent, RECORD_LEN};
use uxfs_format::inode::{self, CORE_LEN, CRC_OFFSET, Flags2, Fork, ForkFormat, InodeCore};
use uxfs_format::log::{CHUNK, InodeFields, LOG_CORE_LEN, core_to_disk, root_to_disk};
use uxfs_format::verify::BufKind;
use uxfs_format::{Ino, Lsn, dquot, superblock};

/// All kinds of buffers that have an LSN.
pub(super) const KINDS: [BufKind; 19] = [
    BufKind::Superblock,
    BufKind::Agf,
    BufKind::Agi,
    BufKind::Agfl,
    BufKind::Btree(TreeKind::Bno),
    BufKind::Btree(TreeKind::Cnt),
    BufKind::Btree(TreeKind::Ino),
    BufKind::Btree(TreeKind::FreeIno),
    BufKind::Btree(TreeKind::Rmap),
    BufKind::Btree(TreeKind::Refcount),
    BufKind::Btree(TreeKind::Bmap),
    BufKind::Symlink,
    BufKind::DirBlock,
    BufKind::DirData,
    BufKind::DirLeaf1,
    BufKind::DirLeafN,
    BufKind::DirFree,
    BufKind::DaNode,
    BufKind::AttrLeaf,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Buf,
    Inode(Ino),
    Dquot,
}

/// The change of an object by one log item.
pub(super) enum Patch {
    /// Bytes at offsets.
    Chunks(Vec<(usize, Box<[u8]>)>),
    Whole(Box<[u8]>),
    /// Core and forks.
    Inode {
        core: Box<[u8; LOG_CORE_LEN]>,
        fields: InodeFields,
        rdev: u32,
        data: Option<Box<[u8]>>,
        attr: Option<Box<[u8]>>,
    },
    /// The next unlinked inode.
    Next([u8; 4]),
    /// A quota record, without checksum and LSN.
    Record(Box<[u8]>),
}

impl Patch {
    /// Changes `bytes` as replay would.
    pub(super) fn apply(&self, bytes: &mut [u8], ino: Ino, lsn: Lsn) {
        match self {
            Self::Chunks(pieces) => {
                for (chunk, piece) in pieces {
                    let at = chunk * CHUNK;
                    if let Some(place) = bytes.get_mut(at..at + piece.len()) {
                        place.copy_from_slice(piece);
                    }
                }
            }
            Self::Whole(new) => bytes.copy_from_slice(new),
            Self::Record(record) => bytes[..record.len()].copy_from_slice(record),
            Self::Next(next) => {
                let at = inode::NEXT_UNLINKED_OFFSET;
                bytes[at..at + 4].copy_from_slice(next);
            }
            Self::Inode { core, fields, rdev, data, attr } => {
                let Some(old) = bytes.first_chunk::<LOG_CORE_LEN>() else { return };
                let new = core_to_disk(core, old, lsn);
                bytes[..CORE_LEN].copy_from_slice(&new);
                if fields.contains(InodeFields::DEV) {
                    inode::DEV.set(&mut bytes[CORE_LEN..], *rdev);
                }
                let Ok(decoded) = InodeCore::decode_unchecked(bytes, ino) else { return };
                let literal = bytes.len() - CORE_LEN;
                let forks = [
                    (Fork::Data, data, InodeFields::DBROOT),
                    (Fork::Attr, attr, InodeFields::ABROOT),
                ];
                for (fork, region, root) in forks {
                    let Some(region) = region else { continue };
                    let range = decoded.fork_range(fork, literal);
                    let place = &mut bytes[CORE_LEN..][range];
                    if fields.contains(root) {
                        if let Ok(root) = root_to_disk(region, place.len()) {
                            place.copy_from_slice(&root);
                        }
                    } else {
                        let len = region.len().min(place.len());
                        place[..len].copy_from_slice(&region[..len]);
                    }
                }
            }
        }
    }
}

/// An object as a checkpoint logged it.
pub(super) struct LoggedVersion {
    /// The checkpoint's number.
    pub(super) checkpoint: u64,
    pub(super) lsn: Lsn,
    pub(super) durable: bool,
    pub(super) patches: Vec<Patch>,
    /// The object after the checkpoint.
    pub(super) after: Box<[u8]>,
}

pub(super) struct Object {
    pub(super) kind: Kind,
    /// Distinguishes successive objects in the same place.
    pub(super) generation: u64,
    /// The safe state in place.
    pub(super) base: Box<[u8]>,
    pub(super) versions: Vec<LoggedVersion>,
    /// The logged chunks of a buffer that was never written in place. The content of other chunks
    /// has no meaning.
    pub(super) known: Option<Vec<bool>>,
    /// Number of the checkpoint that frees it.
    pub(super) freed_by: Option<u64>,
    /// The free is durable.
    pub(super) freed: bool,
}

/// What a write in place contains.
pub(super) enum InPlaceState {
    /// What is in place already.
    Unchanged,
    /// The state of this checkpoint.
    Checkpoint(u64),
    /// Another state, which is an error.
    Wrong(String),
}

impl Object {
    pub(super) fn ino(&self) -> Ino {
        match self.kind {
            Kind::Inode(ino) => ino,
            Kind::Buf | Kind::Dquot => Ino(0),
        }
    }

    /// Its state after the last checkpoint so far.
    pub(super) fn latest(&self) -> &[u8] {
        self.versions.last().map_or(&self.base, |version| &version.after)
    }

    /// Not durably freed.
    pub(super) fn is_live(&self) -> bool {
        !self.freed
    }

    /// Which state of the object `bytes` are, about to be written over `there`. `last` is
    /// the LSN of the last durable checkpoint.
    pub(super) fn state_written(&self, bytes: &[u8], there: &[u8], last: Lsn) -> InPlaceState {
        if bytes == there {
            return InPlaceState::Unchanged;
        }
        let stamped = lsn_of(self.kind, bytes);
        let mut wrong = None;
        for version in self.versions.iter().rev() {
            if !self.alike(bytes, &version.after) {
                continue;
            }
            if !version.durable {
                wrong.get_or_insert_with(|| {
                    format!("its checkpoint at {} is not durable", version.lsn)
                });
                continue;
            }
            let made = version.patches.iter().all(|patch| matches!(patch, Patch::Whole(_)));
            // Never too high, or replay would leave out what came after. Lower does no harm: with
            // immediate logging, transactions written together carry the position of the first;
            // replay then repeats the others, with the same result.
            let fits = match stamped {
                None => true,
                Some(_) if made => true,
                // A piece of a directory block has the LSN of the last piece that changed.
                Some((lsn, true)) => lsn <= last,
                Some((lsn, false)) => lsn <= version.lsn,
            };
            if fits {
                return InPlaceState::Checkpoint(version.checkpoint);
            }
            let lsn = stamped.map_or(Lsn(0), |(lsn, _)| lsn);
            wrong.get_or_insert_with(|| {
                format!("it is stamped {lsn}, and was logged at {}", version.lsn)
            });
        }
        // Inodes of a new chunk are written as created while others are already in use: the
        // checkpoint's changes follow.
        for version in
            self.versions.iter().filter(|version| version.durable && self.kind != Kind::Buf)
        {
            if let [Patch::Whole(made), _, ..] = &version.patches[..]
                && same(self.kind, bytes, made)
            {
                return InPlaceState::Checkpoint(version.checkpoint - 1);
            }
        }
        let newer = stamped.is_some_and(|(lsn, _)| lsn > last && lsn.0 != u64::MAX);
        if !newer && (same(self.kind, bytes, there) || same(self.kind, bytes, &self.base)) {
            return InPlaceState::Unchanged;
        }
        InPlaceState::Wrong(wrong.unwrap_or_else(|| self.difference(bytes)))
    }

    /// Are they equal where the expected content is known?
    fn alike(&self, a: &[u8], b: &[u8]) -> bool {
        let Some(known) = &self.known else { return same(self.kind, a, b) };
        let blank = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            let unknown = bytes.chunks_mut(CHUNK).zip(known).filter(|(_, known)| !**known);
            unknown.for_each(|(chunk, _)| chunk.fill(0));
            bytes
        };
        same(self.kind, &blank(a), &blank(b))
    }

    /// Notes the chunks that a buffer item logs. Of a buffer that was never written in place, only
    /// these are compared: of one in blocks that were `free`, as pieces of a directory's block without
    /// a header, and of one whose header is new.
    pub(super) fn note_logged_chunks(&mut self, patches: &[Patch], after: &[u8], free: bool) {
        let [Patch::Chunks(pieces)] = patches else {
            if let [Patch::Whole(_)] = patches {
                self.known = None;
            }
            return;
        };
        let mut logged = vec![false; after.len().div_ceil(CHUNK)];
        for (chunk, piece) in pieces {
            let to = (chunk + piece.len() / CHUNK).min(logged.len());
            logged[(*chunk).min(to)..to].fill(true);
        }
        let layout = BufKind::identify(after, &KINDS).and_then(BufKind::layout);
        let new = free
            || layout.is_some_and(|layout| {
                let lsn = layout.lsn;
                logged.get(lsn / CHUNK) == Some(&true) && after.get(lsn..lsn + 8) == Some(&[0; 8])
            });
        match &mut self.known {
            _ if new => self.known = Some(logged),
            Some(known) => known.iter_mut().zip(logged).for_each(|(known, new)| *known |= new),
            None => {}
        }
    }

    fn difference(&self, bytes: &[u8]) -> String {
        let latest = self.versions.iter().rfind(|version| version.durable);
        let (durable, lsn) =
            latest.map_or((&self.base, Lsn(0)), |version| (&version.after, version.lsn));
        let differs = |at: &usize| {
            let marks = marks(self.kind, bytes);
            bytes[*at] != durable[*at]
                && !marks.iter().any(|(from, len)| (*from..from + len).contains(at))
        };
        let first: Vec<String> = (0..bytes.len().min(durable.len()))
            .filter(differs)
            .take(8)
            .map(|at| format!("{at}: {:02x} not {:02x}", bytes[at], durable[at]))
            .collect();
        let first = first.join(", ");
        format!(
            "{:?}: its content is in no durable checkpoint (last {lsn}; bytes {first})",
            self.kind
        )
    }

    /// The durable checkpoints with changes that are not in place, for messages.
    pub(super) fn logged(&self, position: impl Fn(Lsn) -> u64) -> String {
        let durable = self.versions.iter().filter(|version| version.durable);
        let places: Vec<String> =
            durable.map(|version| position(version.lsn).to_string()).collect();
        places.join(", ")
    }

    /// Does a recovery from `tail` reach its last durable state?
    pub(super) fn is_recovered_from(&self, tail: impl Fn(Lsn) -> bool) -> bool {
        let Some(last) = self.versions.iter().rfind(|version| version.durable) else { return true };
        let lost = self.versions.iter().any(|version| version.durable && !tail(version.lsn));
        if !lost {
            return true;
        }
        let mut bytes = self.base.clone();
        for version in self.versions.iter().filter(|version| version.durable && tail(version.lsn)) {
            version
                .patches
                .iter()
                .for_each(|patch| patch.apply(&mut bytes, self.ino(), version.lsn));
        }
        self.alike(&bytes, &last.after)
    }

    /// Notes that a write in place is safe: `bytes`, the state of `checkpoint`.
    pub(super) fn written_in_place(&mut self, checkpoint: u64, bytes: Box<[u8]>) {
        self.base = bytes;
        self.versions.retain(|version| version.checkpoint > checkpoint);
        self.known = None;
        let mut now = self.base.clone();
        let ino = self.ino();
        for version in &mut self.versions {
            version.patches.iter().for_each(|patch| patch.apply(&mut now, ino, version.lsn));
            version.after = now.clone();
        }
    }
}

/// The LSN of a buffer or inode, and whether it may be a part of something larger.
fn lsn_of(kind: Kind, bytes: &[u8]) -> Option<(Lsn, bool)> {
    let (lsn, piece) = match kind {
        Kind::Inode(_) => (inode::LSN, false),
        Kind::Dquot => (dquot::LSN, false),
        Kind::Buf => {
            let kind = BufKind::identify(bytes, &KINDS)?;
            if kind == BufKind::Superblock {
                return None;
            }
            let dir = matches!(
                kind,
                BufKind::DirBlock
                    | BufKind::DirData
                    | BufKind::DirFree
                    | BufKind::DirLeaf1
                    | BufKind::DirLeafN
                    | BufKind::DaNode
            );
            (Field::at(kind.layout()?.lsn), dir)
        }
    };
    Some((lsn.try_get(bytes)?, piece))
}

/// The offsets of checksum and LSN, in this order.
fn marks(kind: Kind, bytes: &[u8]) -> [(usize, usize); 2] {
    let (crc, lsn) = match kind {
        Kind::Inode(_) => (CRC_OFFSET, inode::LSN.offset()),
        Kind::Dquot => (dquot::CRC_OFFSET, dquot::LSN.offset()),
        Kind::Buf => {
            let layout = BufKind::identify(bytes, &KINDS).and_then(BufKind::layout);
            layout.map_or((0, 0), |layout| (layout.crc, layout.lsn))
        }
    };
    if crc <= lsn { [(crc, 4), (lsn, 8)] } else { [(lsn, 8), (crc, 4)] }
}

/// Are they equal apart from checksum and LSN?
fn same(kind: Kind, a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match kind {
        Kind::Inode(ino) => same_inode(ino, a, b),
        Kind::Dquot => same_but(a, b, &marks(kind, a)),
        Kind::Buf => {
            let known = BufKind::identify(a, &KINDS);
            if known == Some(BufKind::Superblock) {
                let (a, b) = (superblock_rules(a), superblock_rules(b));
                return a == b;
            }
            match known {
                Some(_) => same_but(a, b, &marks(kind, a)),
                None => a == b,
            }
        }
    }
}

fn same_but(a: &[u8], b: &[u8], skip: &[(usize, usize)]) -> bool {
    let mut at = 0;
    for (from, len) in skip {
        if a.get(at..*from) != b.get(at..*from) {
            return false;
        }
        at = from + len;
    }
    a.get(at..) == b.get(at..)
}

/// The superblock's first part without counters, label, checksum and LSN.
fn superblock_rules(sector: &[u8]) -> Vec<u8> {
    let mut out = sector[..sector.len().min(264)].to_vec();
    for (at, len) in [(108, 12), (128, 32), (superblock::CRC_OFFSET, 4), (240, 8)] {
        if let Some(place) = out.get_mut(at..at + len) {
            place.fill(0);
        }
    }
    out
}

fn same_inode(ino: Ino, a: &[u8], b: &[u8]) -> bool {
    let skip = marks(Kind::Inode(ino), a);
    if a.len() < CORE_LEN || !same_but(&a[..CORE_LEN], &b[..CORE_LEN], &skip) {
        return false;
    }
    let Ok(core) = InodeCore::decode_unchecked(a, ino) else {
        return a[CORE_LEN..] == b[CORE_LEN..];
    };
    if core.mode == 0 {
        return true;
    }
    [Fork::Data, Fork::Attr].into_iter().all(|fork| used(&core, fork, a) == used(&core, fork, b))
}

/// The meaningful part of a fork.
fn used(core: &InodeCore, fork: Fork, raw: &[u8]) -> Vec<u8> {
    if fork == Fork::Attr && core.forkoff == 0 {
        return Vec::new();
    }
    let range = core.fork_range(fork, raw.len() - CORE_LEN);
    let bytes = &raw[CORE_LEN..][range];
    let first = |len: usize| bytes[..len.min(bytes.len())].to_vec();
    match core.fork_format(fork) {
        ForkFormat::Dev => first(4),
        ForkFormat::Local if fork == Fork::Data => first(core.size as usize),
        ForkFormat::Local => first(usize::from(sf::TOTAL.get(bytes))),
        ForkFormat::Extents => first(core.fork_extents(fork) as usize * RECORD_LEN),
        ForkFormat::Btree => {
            let node = BmapNode::root(bytes.len());
            let count = usize::from(btree::ROOT_NUMRECS.get(bytes)).min(node.max());
            let pointers = node.ptr(0).offset()..node.ptr(count).offset();
            [&bytes[..node.key(count).offset()], &bytes[pointers]].concat()
        }
    }
}

/// The blocks that a state of an object maps, and their owner.
#[derive(Clone, Debug)]
pub(super) struct Mapped {
    pub(super) extent: Extent,
    pub(super) ino: Ino,
    pub(super) shared: bool,
}

/// The written extents that an object's state maps.
pub(super) fn mapped(kind: Kind, bytes: &[u8]) -> Vec<Mapped> {
    let unpack = |raw: &[u8]| raw.first_chunk::<RECORD_LEN>().map(Extent::unpack);
    match kind {
        Kind::Inode(ino) => {
            if !inode::has_magic(bytes) {
                return Vec::new();
            }
            let Ok(core) = InodeCore::decode_unchecked(bytes, ino) else { return Vec::new() };
            if core.mode == 0 {
                return Vec::new();
            }
            let shared = core.flags2.contains(Flags2::REFLINK);
            let forks = [Fork::Data, Fork::Attr].into_iter();
            let forks = forks.filter(|fork| core.fork_format(*fork) == ForkFormat::Extents);
            let extents = forks.flat_map(|fork| {
                used(&core, fork, bytes)
                    .chunks_exact(RECORD_LEN)
                    .filter_map(unpack)
                    .collect::<Vec<_>>()
            });
            let written = extents.filter(|extent| !extent.unwritten);
            written.map(|extent| Mapped { extent, ino, shared }).collect()
        }
        Kind::Buf => {
            let leaf = BufKind::identify(bytes, &[BufKind::Btree(TreeKind::Bmap)]).is_some()
                && btree::LEVEL.get(bytes) == 0;
            if !leaf {
                return Vec::new();
            }
            let count = usize::from(btree::NUMRECS.get(bytes));
            let ino = btree::BMAP_OWNER.get(bytes);
            let records = bytes[LONG.len..].chunks_exact(RECORD_LEN).take(count).filter_map(unpack);
            let written = records.filter(|extent| !extent.unwritten);
            written.map(|extent| Mapped { extent, ino, shared: false }).collect()
        }
        Kind::Dquot => Vec::new(),
    }
}
