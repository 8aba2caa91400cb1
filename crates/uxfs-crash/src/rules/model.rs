//! A model of the volume, built from the writes: objects, blocks, the log.
//!
//! 1. An object is known from its first log item on. Other writes are data, unless they carry the
//!    marks of this volume's metadata.
//! 2. A checkpoint is added when the record with its commit is written, and is durable when that
//!    record and all before it are safe.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use uxfs_disk::BlockDev;
use uxfs_format::features::Incompat;
use uxfs_format::inode::{self, InodeCore};
use uxfs_format::log::{BufFlags, Item, RecordHeader};
use uxfs_format::superblock::Superblock;
use uxfs_format::verify::BufKind;
use uxfs_format::{AgIno, AgNo, BASIC_BLOCK, Daddr, Geometry, Ino, Lsn, dquot};
use uxfs_journal::recovery::{Log, State, Transaction};

use super::log::{RecordEffects, Stream};
use super::object::{InPlaceState, KINDS, Kind, LoggedVersion, Mapped, Object, Patch, mapped};
use super::space::Blocks;
use super::{Broken, DeviceState, Rule};

/// Most bytes of a buffer.
const BUFFER_MAX: u64 = 64 << 10;

/// Place and length of an object.
type Key = (u64, u32);

/// A checkpoint that is not durable.
struct PendingCheckpoint {
    number: u64,
    lsn: Lsn,
    logged: Vec<Key>,
    cancelled: Vec<Key>,
    freed: Vec<(u64, u64)>,
}

/// A write in place that is not safe yet.
struct PendingWrite {
    event: u64,
    key: Key,
    generation: u64,
    checkpoint: u64,
    bytes: Box<[u8]>,
}

/// What a write that has begun changes.
enum Begun {
    Log,
    InPlace { writes: Vec<PendingWrite>, data: Vec<(u64, u64)> },
}

pub(super) struct Model {
    geo: Geometry,
    log: Stream,
    objects: BTreeMap<Key, Object>,
    /// Objects with logged changes that are not written in place.
    active: BTreeSet<Key>,
    blocks: Blocks,
    /// Blocks may change owners inside a checkpoint.
    exchanging: bool,
    next_checkpoint: u64,
    next_generation: u64,
    durable: Lsn,
    pending: VecDeque<PendingCheckpoint>,
    pending_writes: Vec<PendingWrite>,
    begun: BTreeMap<u64, Begun>,
}

fn read(dev: &dyn BlockDev, at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    dev.read_at(at, &mut bytes).ok()?;
    Some(bytes)
}

impl Model {
    /// The volume on `dev`, if its log is clean.
    pub(super) fn from_clean_log(dev: &dyn BlockDev) -> Option<Self> {
        let sector = read(dev, 0, BASIC_BLOCK)?;
        let size = Superblock::view(&sector).map(|sb| sb.sectsize.get())?;
        let sector = read(dev, 0, usize::from(size))?;
        let sb = Superblock::verify(&sector).ok()?;
        if sb.is_v4() || sb.logstart.get() == 0 {
            return None;
        }
        let geo = Geometry::new(sb);
        let log = Log::new(sb).ok()?;
        let bounds = log.find(dev).ok()?;
        if bounds.state != State::Clean || bounds.torn.is_some() {
            return None;
        }
        let start = geo.fsb_daddr(geo.log_start).bytes();
        let length = u64::from(geo.log_blocks) << geo.block_log;
        let mut objects = BTreeMap::new();
        let superblock = Object {
            kind: Kind::Buf,
            generation: 0,
            base: sector.clone().into(),
            versions: Vec::new(),
            known: None,
            freed_by: None,
            freed: false,
        };
        objects.insert((0, u32::from(size)), superblock);
        Some(Self {
            blocks: Blocks::new(&geo, &|at, len| read(dev, at, len))?,
            log: Stream::new(start, length, sb.uuid, bounds.head),
            exchanging: sb.incompat().contains(Incompat::EXCHRANGE),
            geo,
            objects,
            active: BTreeSet::new(),
            next_checkpoint: 1,
            next_generation: 1,
            durable: bounds.head,
            pending: VecDeque::new(),
            pending_writes: Vec::new(),
            begun: BTreeMap::new(),
        })
    }

    /// Number of checkpoints so far.
    pub(super) fn checkpoints(&self) -> u64 {
        self.next_checkpoint - 1
    }

    /// Did the write that began as this event contain only data?
    pub(super) fn is_data(&self, begun: u64) -> bool {
        matches!(self.begun.get(&begun), Some(Begun::InPlace { writes, .. }) if writes.is_empty())
    }

    /// Is it an empty record, with which recovery clears stale blocks ahead of the head?
    pub(super) fn is_cleared(&self, offset: u64, data: &[u8]) -> bool {
        let header = data.first_chunk().and_then(RecordHeader::parse);
        self.log.holds(offset) && header.is_some_and(|h| h.len == 0 && h.size == 0)
    }

    /// Checks a write before it is made.
    pub(super) fn write(
        &mut self,
        dev: &dyn BlockDev,
        device: &DeviceState,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Broken> {
        let begun = if self.log.holds(offset) {
            let effects = self.log.write(offset, data, self.next_checkpoint);
            for one in effects.map_err(|(rule, problem)| (rule, offset, problem))? {
                self.record_written(dev, device.flushed, one)
                    .map_err(|(rule, p)| (rule, offset, p))?;
            }
            Begun::Log
        } else {
            self.in_place(dev, offset, data)?
        };
        self.begun.insert(device.event, begun);
        Ok(())
    }

    /// The write that began as event `begun` has ended.
    pub(super) fn written(&mut self, len: u64, begun: u64, ended: u64, forced: bool, flushed: u64) {
        match self.begun.remove(&begun) {
            Some(Begun::Log) => {
                self.log.written(len, ended, forced);
                if forced {
                    self.flushed(flushed);
                }
            }
            Some(Begun::InPlace { writes, data }) => {
                let event = if forced { 0 } else { ended };
                self.pending_writes
                    .extend(writes.into_iter().map(|write| PendingWrite { event, ..write }));
                data.iter().for_each(|(at, len)| self.blocks.written(*at, *len, event));
            }
            None => {}
        }
    }

    /// The write that began as event `begun` failed because the host is full. True if it was in place.
    pub(super) fn refused(&mut self, begun: u64) -> bool {
        matches!(self.begun.remove(&begun), Some(Begun::InPlace { .. }))
    }

    /// Writes up to this event are safe.
    pub(super) fn flushed(&mut self, flushed: u64) {
        for number in self.log.flushed(flushed) {
            let Some(checkpoint) = self.pending.pop_front() else { break };
            debug_assert_eq!(checkpoint.number, number);
            self.checkpoint_durable(checkpoint);
        }
        let (safe, unsafe_writes) = core::mem::take(&mut self.pending_writes)
            .into_iter()
            .partition(|write| write.event <= flushed);
        self.pending_writes = unsafe_writes;
        for PendingWrite { key, generation, checkpoint, bytes, .. } in safe {
            if let Some(object) =
                self.objects.get_mut(&key).filter(|object| object.generation == generation)
            {
                object.written_in_place(checkpoint, bytes);
                if object.versions.is_empty() {
                    self.active.remove(&key);
                }
            }
        }
    }

    fn checkpoint_durable(&mut self, checkpoint: PendingCheckpoint) {
        let number = checkpoint.number;
        self.durable = self.durable.max(checkpoint.lsn);
        for key in checkpoint.logged {
            if let Some(object) = self.objects.get_mut(&key) {
                for version in
                    object.versions.iter_mut().filter(|version| version.checkpoint == number)
                {
                    version.durable = true;
                }
            }
        }
        for key in checkpoint.cancelled {
            let Some(object) = self.objects.get_mut(&key) else { continue };
            if object.freed_by == Some(number) {
                object.versions.retain(|version| version.checkpoint > number);
                object.freed = object.versions.is_empty();
                if object.freed {
                    self.active.remove(&key);
                }
            }
        }
        self.blocks.frees_durable(&checkpoint.freed);
    }

    /// Handles a record that is being written.
    fn record_written(
        &mut self,
        dev: &dyn BlockDev,
        flushed: u64,
        effects: RecordEffects,
    ) -> Result<(), (Rule, String)> {
        if let Some(tail) = effects.tail {
            for key in &self.active {
                let Some(object) = self.objects.get(key).filter(|object| !object.freed) else {
                    continue;
                };
                if !object.is_recovered_from(|lsn| self.log.position(lsn) >= tail) {
                    let (at, daddr) = (effects.at, key.0 / 512);
                    let logged = object.logged(|lsn| self.log.position(lsn));
                    let kind = object.kind;
                    let problem = format!(
                        "tail {tail} of the record at {at}: {kind:?} at daddr {daddr} is not written in place; \
                         logged at {logged}"
                    );
                    return Err((Rule::Tail, problem));
                }
            }
        }
        effects.transactions.iter().try_for_each(|one| self.checkpoint(dev, flushed, one))
    }

    /// Handles a checkpoint whose commit is written.
    fn checkpoint(
        &mut self,
        dev: &dyn BlockDev,
        flushed: u64,
        transaction: &Transaction,
    ) -> Result<(), (Rule, String)> {
        let number = self.next_checkpoint;
        self.next_checkpoint += 1;
        let (logged, mut cancelled) =
            self.patches(transaction).map_err(|problem| (Rule::Order, problem))?;
        cancelled.extend(self.replaced(&logged));
        let mut before: Vec<Mapped> = Vec::new();
        let mut after: Vec<Mapped> = Vec::new();
        let mut groups = BTreeSet::new();
        for key in &cancelled {
            if let Some(object) = self.objects.get_mut(key) {
                before.extend(mapped(object.kind, object.latest()));
                object.freed_by = Some(number);
            }
        }
        let mut keys = Vec::new();
        for ((key, kind), patches) in logged {
            keys.push(key);
            let whole = matches!(&patches[..], [Patch::Whole(_), ..]);
            let known = self.objects.get(&key).is_some_and(|o| o.kind == kind && !o.freed);
            if !known {
                let base = read(dev, key.0, key.1 as usize)
                    .ok_or_else(|| (Rule::Order, format!("item beyond the device: {key:?}")))?;
                let generation = self.next_generation;
                self.next_generation += 1;
                let base = base.into();
                let (versions, known, freed_by) = (Vec::new(), None, None);
                let object =
                    Object { kind, generation, base, versions, known, freed_by, freed: false };
                self.objects.insert(key, object);
            }
            let Some(object) = self.objects.get_mut(&key) else { continue };
            object.freed_by = None;
            let mut bytes: Box<[u8]> = object.latest().into();
            let block = self.blocks.of(key.0, 1).start;
            let new = whole || !known && self.blocks.is_free(block);
            let owner = |bytes: &[u8]| mapped(kind, bytes).first().map(|m| m.ino);
            let was = (!new).then(|| (mapped(kind, &bytes), owner(&bytes)));
            for patch in &patches {
                patch.apply(&mut bytes, object.ino(), transaction.lsn);
            }
            // A block of another file's tree, once.
            if let Some((was, old)) = was
                && (known || old == owner(&bytes) || kind != Kind::Buf)
            {
                before.extend(was);
            }
            after.extend(mapped(kind, &bytes));
            if kind == Kind::Buf && BufKind::identify(&bytes, &[BufKind::Agf]).is_some() {
                groups.insert(AgNo(self.geo.daddr_ag(Daddr(key.0 / 512)).0.0));
            }
            if kind == Kind::Buf {
                object.note_logged_chunks(&patches, &bytes, new);
            }
            let (lsn, durable) = (transaction.lsn, false);
            object.versions.push(LoggedVersion {
                checkpoint: number,
                lsn,
                durable,
                patches,
                after: bytes,
            });
            self.active.insert(key);
        }
        self.check_mapped(flushed, before, &after, &cancelled)?;
        let freed = self.read_groups(dev, groups)?;
        let lsn = transaction.lsn;
        self.pending.push_back(PendingCheckpoint { number, lsn, logged: keys, cancelled, freed });
        Ok(())
    }

    /// Buffers in whose place a checkpoint creates inodes: what is overwritten needs no cancel.
    fn replaced(&self, logged: &LoggedPatches) -> Vec<Key> {
        let made = logged.iter().filter_map(|((key, kind), patches)| match (kind, &patches[..]) {
            (Kind::Inode(_), [Patch::Whole(_), ..]) => Some(key),
            _ => None,
        });
        let buffers = made.flat_map(|key| {
            self.overlapping(key.0, 1)
                .filter(|(_, object)| object.kind == Kind::Buf && !object.freed)
        });
        let mut keys: Vec<Key> = buffers.map(|(key, _)| *key).collect();
        keys.dedup();
        keys
    }

    /// Reads the free space of changed groups, as it will be.
    fn read_groups(
        &mut self,
        dev: &dyn BlockDev,
        groups: BTreeSet<AgNo>,
    ) -> Result<Vec<(u64, u64)>, (Rule, String)> {
        let objects = &self.objects;
        let now = |at: u64, len: usize| match objects.get(&(at, len as u32)) {
            Some(object) => Some(object.latest().to_vec()),
            None => read(dev, at, len),
        };
        let mut freed = Vec::new();
        for ag in groups {
            let new = self.blocks.read_group(&self.geo, ag, &now);
            let problem = || (Rule::Order, format!("the free space of group {ag} is damaged"));
            freed.extend(new.ok_or_else(problem)?);
        }
        Ok(freed)
    }

    /// Checks rules 2 and 3 for what a checkpoint maps.
    fn check_mapped(
        &self,
        flushed: u64,
        before: Vec<Mapped>,
        after: &[Mapped],
        cancelled: &[Key],
    ) -> Result<(), (Rule, String)> {
        let mut owners: BTreeMap<u64, (u64, Ino)> = BTreeMap::new();
        for old in &before {
            owners.insert(old.extent.start.0, (old.extent.len, old.ino));
        }
        for Mapped { extent, ino, shared } in after {
            let same = before.iter().any(|old| old.ino == *ino && old.extent == *extent);
            if same {
                continue;
            }
            let shared = *shared || self.exchanging || self.geo.has_reflink();
            for fsb in extent.start.0..extent.start.0 + extent.len {
                let old =
                    owners.range(..=fsb).next_back().filter(|(at, (len, _))| fsb - *at < *len);
                match old {
                    Some((_, (_, owner))) if owner == ino || shared => continue,
                    Some((_, (_, owner))) => {
                        let problem = format!(
                            "inode {ino} maps block {fsb}, which inode {owner} loses in the same checkpoint"
                        );
                        return Err((Rule::Reuse, problem));
                    }
                    None => {}
                }
                let at = self.geo.fsb_daddr(uxfs_format::FsBlock(fsb)).bytes();
                let taken = |key: &Key| key.0 <= at && at < key.0 + u64::from(key.1);
                if self.is_metadata(at, false) {
                    continue;
                }
                if cancelled.iter().any(taken) {
                    let problem =
                        format!("inode {ino} maps block {fsb}, which the same checkpoint frees");
                    return Err((Rule::Reuse, problem));
                }
                self.check_data(flushed, fsb, at, *ino)?;
            }
        }
        Ok(())
    }

    fn check_data(&self, flushed: u64, fsb: u64, at: u64, ino: Ino) -> Result<(), (Rule, String)> {
        let block = self.blocks.of(at, 1).start;
        let problem = if !self.blocks.is_fresh(block) {
            "nothing was written into it since it was free"
        } else if !self.blocks.is_safe(block, flushed) {
            "what was written into it is not flushed"
        } else {
            return Ok(());
        };
        Err((Rule::DataFirst, format!("inode {ino} maps block {fsb} as written, but {problem}")))
    }

    /// Is a byte part of a live object? `freeing` includes objects whose free is not durable.
    fn is_metadata(&self, at: u64, freeing: bool) -> bool {
        self.overlapping(at, 1)
            .any(|(_, object)| object.is_live() && (freeing || object.freed_by.is_none()))
    }

    /// Objects that overlap a range.
    fn overlapping(&self, at: u64, len: u64) -> impl Iterator<Item = (&Key, &Object)> {
        let from = at.saturating_sub(BUFFER_MAX);
        self.objects
            .range((from, 0)..(at + len, 0))
            .filter(move |(key, _)| key.0 + u64::from(key.1) > at)
    }

    /// Checks a write outside the log, piece by piece: objects, and the parts in between.
    fn in_place(&mut self, dev: &dyn BlockDev, offset: u64, data: &[u8]) -> Result<Begun, Broken> {
        let there = read(dev, offset, data.len())
            .ok_or_else(|| (Rule::Order, offset, "beyond the device".into()))?;
        let end = offset + data.len() as u64;
        let (mut writes, mut plain) = (Vec::new(), Vec::new());
        let mut at = offset;
        while at < end {
            let from = (at - offset) as usize;
            if let Some(len) = self.object(at, &data[from..], &there[from..], &mut writes)? {
                at += len;
                continue;
            }
            let next = self.objects.range((at + 1, 0)..).next().map_or(end, |(key, _)| key.0);
            let block = ((at >> self.geo.block_log) + 1) << self.geo.block_log;
            let stop = end.min(next).min(block);
            let range = from..(stop - offset) as usize;
            if data[range.clone()] != there[range.clone()] {
                self.unknown(at, &data[range.clone()], &there[range])?;
            }
            plain.push((at, stop - at));
            at = stop;
        }
        plain.iter().for_each(|(at, len)| self.blocks.write(*at, *len));
        Ok(Begun::InPlace { writes, data: plain })
    }

    /// Checks an object at the start of a write. Returns its length.
    fn object(
        &self,
        at: u64,
        data: &[u8],
        there: &[u8],
        writes: &mut Vec<PendingWrite>,
    ) -> Result<Option<u64>, Broken> {
        let mut wrong = None;
        let mut here: Vec<_> = self.objects.range((at, 0)..(at + 1, 0)).collect();
        // A freed object may lie at the start of a live one.
        here.sort_by_key(|(_, object)| object.freed);
        for (key, object) in here {
            if object.freed && wrong.is_some() {
                break;
            }
            let len = key.1 as usize;
            let (Some(bytes), Some(there)) = (data.get(..len), there.get(..len)) else { continue };
            match object.state_written(bytes, there, self.durable) {
                // A freed object may be data now, written again unchanged.
                InPlaceState::Unchanged if object.freed => {}
                InPlaceState::Unchanged => return Ok(Some(key.1.into())),
                InPlaceState::Checkpoint(checkpoint) => {
                    let (generation, bytes) = (object.generation, bytes.into());
                    writes.push(PendingWrite {
                        event: 0,
                        key: *key,
                        generation,
                        checkpoint,
                        bytes,
                    });
                    return Ok(Some(key.1.into()));
                }
                InPlaceState::Wrong(_) if object.freed => {}
                InPlaceState::Wrong(problem) => {
                    let marked = self.is_marked(at, bytes) || object.kind != Kind::Buf;
                    let rule = if marked { Rule::InPlace } else { Rule::Reuse };
                    let seen = object.versions.iter().any(|version| version.durable)
                        || object.versions.is_empty();
                    if seen || marked {
                        wrong.get_or_insert((rule, at, problem));
                    }
                }
            }
        }
        wrong.map_or(Ok(None), Err)
    }

    /// Checks a piece of a block that matches no known object.
    fn unknown(&mut self, at: u64, data: &[u8], there: &[u8]) -> Result<(), Broken> {
        if self.is_marked(at, data) {
            // Of a directory block in pieces, one may change nothing but the marks.
            let kind = BufKind::identify(data, &KINDS);
            if let Some(layout) = kind.and_then(BufKind::layout) {
                let mut old = there.to_vec();
                for (at, len) in [(layout.crc, 4), (layout.lsn, 8)] {
                    old[at..at + len].copy_from_slice(&data[at..at + len]);
                }
                if old == data {
                    return Ok(());
                }
            }
            return Err((Rule::InPlace, at, "metadata that no checkpoint logged".into()));
        }
        let len = data.len() as u64;
        let metadata = self
            .overlapping(at, len)
            .find(|(_, o)| o.is_live() && o.versions.iter().any(|s| s.durable) && !o.freed);
        if let Some((key, object)) = metadata {
            let problem = format!("data over {:?} at daddr {}", object.kind, key.0 / 512);
            return Err((Rule::Reuse, at, problem));
        }
        if let Some(block) = self.blocks.pending(at, len) {
            let problem = format!("data into block {block}, whose free is not durable");
            return Err((Rule::Reuse, at, problem));
        }
        let gone: Vec<Key> = self
            .overlapping(at, len)
            .filter(|(_, object)| object.freed)
            .map(|(key, _)| *key)
            .collect();
        gone.iter().for_each(|key| drop(self.objects.remove(key)));
        Ok(())
    }

    /// Does it carry the marks of this volume's metadata, other than remote values and copies of the
    /// superblock?
    fn is_marked(&self, at: u64, data: &[u8]) -> bool {
        if inode::has_magic(data) {
            let uuid = data.get(160..176) == Some(&self.geo.meta_uuid.0[..]);
            return uuid && inode::INO.try_get(data) == Some(self.ino_at(at));
        }
        let Some(kind) = BufKind::identify(data, &KINDS) else { return false };
        let Some(layout) = kind.layout().filter(|_| kind != BufKind::Superblock) else {
            return false;
        };
        data.get(layout.uuid..layout.uuid + 16) == Some(&self.geo.meta_uuid.0[..])
            && layout.is_at(data, Daddr(at / BASIC_BLOCK as u64))
    }

    fn ino_at(&self, at: u64) -> Ino {
        let (ag, block) = self.geo.daddr_ag(Daddr(at / 512));
        let inside = (at & u64::from(self.geo.block_size - 1)) >> self.geo.inode_log;
        self.geo.ino(ag, AgIno(block.0 << self.geo.inopb_log | inside as u32))
    }
}

/// The items of each object in a transaction, in the order of replay.
type LoggedPatches = BTreeMap<(Key, Kind), Vec<Patch>>;

impl Model {
    fn patches(&self, transaction: &Transaction) -> Result<(LoggedPatches, Vec<Key>), String> {
        let mut first: LoggedPatches = BTreeMap::new();
        let mut links = Vec::new();
        let (mut cancelled, mut cancels) = (Vec::new(), Vec::new());
        for raw in transaction.items() {
            match raw.parse().map_err(|e| e.to_string())? {
                Item::Buf(format, _) if format.flags.contains(BufFlags::CANCEL) => {
                    let (at, len) = (format.blkno.bytes(), format.bytes() as u32);
                    let all = self.objects.range((at, 0)..(at + u64::from(len), 0));
                    cancelled.extend(all.map(|(key, _)| *key));
                    cancels.push((at, len));
                }
                Item::Buf(format, pieces) if format.flags.contains(BufFlags::INODE) => {
                    links.push((
                        format,
                        pieces.iter().map(|(c, b)| (*c, b.to_vec())).collect::<Vec<_>>(),
                    ));
                }
                // Records are written in place one by one.
                Item::Buf(format, pieces) if format.flags.intersects(BufFlags::DQUOT) => {
                    let block: Vec<u8> =
                        pieces.iter().flat_map(|(_, b)| b.iter().copied()).collect();
                    for (index, raw) in (0u64..).zip(block.chunks_exact(dquot::LEN)) {
                        let at = format.blkno.bytes() + index * dquot::LEN as u64;
                        let key = (at, dquot::LEN as u32);
                        let patches = first.entry((key, Kind::Dquot)).or_default();
                        patches.insert(0, Patch::Whole(raw.into()));
                    }
                }
                Item::Dquot(format, record) => {
                    let at = format.blkno.bytes() + u64::from(format.boffset);
                    let key = (at, dquot::LEN as u32);
                    first.entry((key, Kind::Dquot)).or_default().push(Patch::Record(record.into()));
                }
                Item::Buf(format, pieces) => {
                    let key = (format.blkno.bytes(), format.bytes() as u32);
                    let pieces: Vec<(usize, Box<[u8]>)> =
                        pieces.iter().map(|(chunk, bytes)| (*chunk, Box::from(*bytes))).collect();
                    let whole =
                        pieces.iter().map(|(_, b)| b.len()).sum::<usize>() == format.bytes();
                    let patch = match whole {
                        true => Patch::Whole(
                            pieces.iter().flat_map(|(_, b)| b.iter().copied()).collect(),
                        ),
                        false => Patch::Chunks(pieces),
                    };
                    first.entry((key, Kind::Buf)).or_default().push(patch);
                }
                Item::Inode { format, core, data, attr } => {
                    let at = format.blkno.bytes() + u64::try_from(format.boffset).unwrap_or(0);
                    let patch = Patch::Inode {
                        core: Box::new(*core),
                        fields: format.fields,
                        rdev: format.rdev,
                        data: data.map(Box::from),
                        attr: attr.map(Box::from),
                    };
                    let key = (at, self.geo.inode_size);
                    first.entry((key, Kind::Inode(format.ino))).or_default().push(patch);
                }
                Item::Icreate(new) => {
                    let size = self.geo.inode_size;
                    let start = self.geo.ag_daddr(new.ag, new.agbno).bytes();
                    let ino = self.geo.ino(new.ag, AgIno(new.agbno.0 << self.geo.inopb_log));
                    for index in 0..new.count {
                        let ino = Ino(ino.0 + u64::from(index));
                        let mut raw = vec![0; size as usize];
                        InodeCore::encode_free(&mut raw, ino, &self.geo.meta_uuid, new.generation);
                        let key = (start + u64::from(index * size), size);
                        let patches = first.entry((key, Kind::Inode(ino))).or_default();
                        // A chunk may be created twice; the items of its inodes follow.
                        let made =
                            patches.iter().take_while(|p| matches!(p, Patch::Whole(_))).count();
                        patches.insert(made, Patch::Whole(raw.into()));
                    }
                }
                _ => {}
            }
        }
        for (format, pieces) in links {
            for (chunk, bytes) in pieces {
                let size = self.geo.inode_size as usize;
                let logged = chunk * 128..chunk * 128 + bytes.len();
                for index in 0..format.bytes() / size {
                    let field = index * size + inode::NEXT_UNLINKED_OFFSET;
                    if !logged.contains(&field) {
                        continue;
                    }
                    let at = field - logged.start;
                    let Some(next) = bytes.get(at..at + 4).and_then(|raw| raw.first_chunk()) else {
                        continue;
                    };
                    let at = format.blkno.bytes() + (index * size) as u64;
                    let key = (at, self.geo.inode_size);
                    let kind = Kind::Inode(self.ino_at(at));
                    first.entry((key, kind)).or_default().push(Patch::Next(*next));
                }
            }
        }
        let cluster = self.geo.cluster_blocks() << self.geo.block_log;
        // Items of a buffer that the same checkpoint cancels are not replayed.
        first.retain(|((at, len), kind), _| {
            !cancels.iter().any(|(from, bytes)| match kind {
                Kind::Buf => (from, bytes) == (at, len),
                Kind::Dquot => false,
                Kind::Inode(_) => {
                    *bytes == cluster && (*from..from + u64::from(*bytes)).contains(at)
                }
            })
        });
        Ok((first, cancelled))
    }
}
