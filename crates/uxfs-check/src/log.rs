//! Checks the log: is it clean, and where is its head? The log is not replayed here; the caller may
//! have replayed it ([`Replay`]).
//!
//! A log is clean if the last record before its head is an unmount record. No structure on the
//! volume may have an LSN beyond the head.

use uxfs_disk::BlockDev;
use uxfs_format::log::{self, RecordHeader};
use uxfs_format::superblock::Superblock;
use uxfs_format::{BASIC_BLOCK, Daddr, Geometry, Lsn, crc};

use crate::bytes::{be32, be64, le32};
use crate::code::{self, Code};
use crate::options::Replay;
use crate::report::LogState;

/// Distance before the head in which the start of the last record must lie: the size of the longest
/// record with its headers, in basic blocks.
const RECORD_BLOCKS_MAX: u64 = (256 << 10) / BASIC_BLOCK as u64 + 16;
/// Offset of a record's checksum.
const CRC: usize = 32;
/// Bytes of the header that the checksum covers.
const CRC_LEN: usize = 328;
/// Bytes of each extended header block that the checksum covers.
const MORE_CRC_LEN: usize = 260;
/// The byte order of all current writers.
const LITTLE_ENDIAN: u32 = 1;

/// Result of the check of the log.
#[derive(Default)]
pub(crate) struct State {
    /// LSN of the next record, if the log is readable.
    pub(crate) head: Option<Lsn>,
    /// Problems found.
    pub(crate) findings: Vec<(Code, String)>,
}

struct Log<'a> {
    dev: &'a dyn BlockDev,
    start: Daddr,
    blocks: u64,
}

type Block = [u8; BASIC_BLOCK];

impl Log<'_> {
    fn block(&self, at: u64) -> Option<Block> {
        let mut block = [0; BASIC_BLOCK];
        self.dev.read_at(Daddr(self.start.0 + at).bytes(), &mut block).ok()?;
        Some(block)
    }

    fn cycle(&self, at: u64) -> Option<u32> {
        Some(log::cycle_of(&self.block(at)?))
    }

    /// The block at which the next record will be written, and its cycle.
    fn head(&self) -> Option<(u64, u32)> {
        let (first, last) = (self.cycle(0)?, self.cycle(self.blocks - 1)?);
        if first == last {
            return Some((0, first.wrapping_add(1)));
        }
        // Blocks before the head have a later cycle than the blocks from the head on.
        let (mut before, mut from) = (0, self.blocks - 1);
        while before + 1 < from {
            let middle = before + (from - before) / 2;
            if self.cycle(middle)? == last {
                from = middle;
            } else {
                before = middle;
            }
        }
        Some((from, first))
    }

    /// The last record that starts before `head`, searched backwards with wrap-around.
    fn last_record(&self, head: u64) -> Option<(u64, Block)> {
        (1..=RECORD_BLOCKS_MAX.min(self.blocks)).find_map(|back| {
            let at = (head + self.blocks - back) % self.blocks;
            let block = self.block(at)?;
            RecordHeader::parse(&block).map(|_| (at, block))
        })
    }
}

impl State {
    /// The state of a volume's log, as the caller left it.
    pub(crate) fn of(dev: &dyn BlockDev, geo: &Geometry, sb: &Superblock, replay: &Replay) -> Self {
        if !geo.log_is_within(dev.len()) {
            let message = "it is on another device and was not checked".to_owned();
            return Self { head: None, findings: vec![(code::LOG_EXTERNAL, message)] };
        }
        match replay {
            Replay::None => check(dev, geo, sb),
            Replay::InUse { head } => Self { head: Some(*head), findings: Vec::new() },
            Replay::Failed(problem) => {
                let mut state = check(dev, geo, sb);
                let message = format!(
                    "it is dirty and cannot be replayed: {problem}; the volume is checked without it"
                );
                state.findings.push((code::LOG, message));
                state
            }
            Replay::Done { head, unfinished } => {
                let message = "it holds changes that are not on the volume yet; the volume is \
                               judged as it is with them, and the next mount replays them";
                let mut findings = vec![(code::LOG_REPLAYED, message.to_owned())];
                if let Some(problem) = unfinished {
                    let message = format!(
                        "it announces changes that could not be finished: {problem}; some of what \
                         else is found may come from that"
                    );
                    findings.push((code::LOG_UNFINISHED, message));
                }
                Self { head: Some(*head), findings }
            }
        }
    }

    /// The state as a single value for the report.
    pub(crate) fn in_short(&self) -> LogState {
        let has = |code: Code| self.findings.iter().any(|(found, _)| *found == code);
        match () {
            () if has(code::LOG) => LogState::Damaged,
            () if has(code::LOG_EXTERNAL) => LogState::External,
            () if has(code::LOG_REPLAYED) => LogState::Replayed,
            () if has(code::LOG_DIRTY) => LogState::Dirty,
            () => LogState::Clean,
        }
    }
}

impl Log<'_> {
    /// The first block behind a record.
    fn end(&self, at: u64, raw: &Block) -> Option<u64> {
        let header = RecordHeader::parse(raw)?;
        let data = u64::from(header.len) / BASIC_BLOCK as u64;
        Some((at + u64::from(header.header_blocks()) + data) % self.blocks)
    }
}

/// Checks the log.
fn check(dev: &dyn BlockDev, geo: &Geometry, sb: &Superblock) -> State {
    let mut state = State::default();
    let mut find = |code, message: &str| state.findings.push((code, message.to_owned()));
    let blocks = u64::from(geo.log_blocks) << (geo.block_log - 9);
    let inside = geo.has_external_log() || geo.fsb_valid(geo.log_start, geo.log_blocks.into());
    if !inside || blocks < 2 {
        find(code::LOG, "it lies outside the volume");
        return state;
    }
    let log = Log { dev, start: geo.log_daddr(), blocks };
    let Some((mut head, mut cycle)) = log.head() else {
        find(code::LOG, "it cannot be read");
        return state;
    };
    if cycle == 0 || log.cycle(0) == Some(0) {
        find(code::LOG, "it holds no record");
        return state;
    }
    let Some((mut at, mut header)) = log.last_record(head) else {
        find(code::LOG, "no record was found at its head");
        return state;
    };
    // A record that does not extend to the head was torn and does not count: the head is at its
    // start.
    if log.end(at, &header) != Some(head) {
        if at >= head {
            cycle = cycle.wrapping_sub(1);
        }
        head = at;
        let Some(before) = log.last_record(head) else {
            find(code::LOG, "no complete record was found at its head");
            return state;
        };
        (at, header) = before;
    }
    last_record(&log, head, at, &header, sb, &mut find);
    state.head = Some(Lsn(u64::from(cycle) << 32 | head));
    state
}

/// Checks that the last record is the record of a clean unmount; otherwise the log is dirty.
fn last_record(
    log: &Log<'_>,
    head: u64,
    at: u64,
    raw: &Block,
    sb: &Superblock,
    find: &mut dyn FnMut(Code, &str),
) {
    let Some(header) = RecordHeader::parse(raw) else { return };
    if header.fs_uuid != sb.uuid {
        find(code::LOG, "its last record belongs to another volume");
        return;
    }
    let lsn = u64::from(header.cycle) << 32 | at;
    if be64(raw, 16) != lsn || be64(raw, 24) > lsn {
        find(code::LOG, "its last record has a wrong LSN, or a tail beyond itself");
    }
    if !u64::from(header.len).is_multiple_of(BASIC_BLOCK as u64) {
        find(code::LOG, "its last record does not end on a block boundary");
    }
    if be32(raw, 8) != 2 || be32(raw, 300) != LITTLE_ENDIAN {
        find(code::LOG, "its last record has an unknown version or byte order");
    }
    let data = (at + u64::from(header.header_blocks())) % log.blocks;
    let Some(on_disk) = log.block(data) else { return };
    let mut first = on_disk;
    header.restore_first_word(&mut first);
    let ends = (data + u64::from(header.len) / BASIC_BLOCK as u64) % log.blocks;
    if header.num_ops != 1 || ends != head || !log::is_unmount(&first) {
        find(code::LOG_DIRTY, "it holds changes that are not on the volume yet");
        return;
    }
    let stored = le32(raw, CRC);
    // The record that mkfs writes has no checksum.
    if stored == 0 {
        return;
    }
    let mut all = raw[..CRC_LEN].to_vec();
    // Only the extended header blocks that the data's length needs are covered.
    for number in 1..header.len.div_ceil(32 << 10).min(header.header_blocks()) {
        let Some(more) = log.block((at + u64::from(number)) % log.blocks) else { return };
        all.extend_from_slice(&more[..MORE_CRC_LEN]);
    }
    let count = u64::from(header.len) / BASIC_BLOCK as u64;
    for block in 0..count.min(RECORD_BLOCKS_MAX) {
        let Some(bytes) = log.block((data + block) % log.blocks) else { return };
        all.extend_from_slice(&bytes);
    }
    if !crc::matches(&all, CRC) {
        find(code::LOG, "the checksum of its last record does not match");
    }
}
