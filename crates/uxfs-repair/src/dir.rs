//! What is left of a directory: the entries of every block that can be read, whatever became of its
//! index.
//!
//! 1. In a damaged block the search goes on behind the damage: an entry is known by its own offset at its
//!    end, a possible name and a possible inode number.
//! 2. A directory is *sound* here if all its data blocks are; its index is judged by the check.

use uxfs_format::bytes::Field;
use uxfs_format::dir::data::{self, Item};
use uxfs_format::dir::{DATA_START, DOT, DOTDOT, block, name_problem, sf};
use uxfs_format::inode::{CORE_LEN, CRC_OFFSET, Fork, ForkFormat, InodeCore};
use uxfs_format::verify::{self, BufKind, Owner};
use uxfs_format::{Ino, crc};

use crate::error::Result;
use crate::fork::ForkMap;
use crate::volume::{StepId, Volume};

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The name.
    pub(crate) name: Box<[u8]>,
    /// The inode.
    pub(crate) ino: Ino,
    /// The file type, as stored.
    pub(crate) ftype: u8,
}

/// What is left of a directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    /// The inode of "..", if it can be read.
    pub(crate) dotdot: Option<Ino>,
    /// All entries but "." and "..".
    pub(crate) entries: Vec<Entry>,
    /// What is wrong with the data blocks; empty if they are sound.
    pub(crate) wrong: Vec<String>,
}

/// Reads a directory.
pub(crate) fn read(
    volume: &Volume,
    ino: Ino,
    core: &InodeCore,
    raw: &[u8],
    map: &ForkMap,
) -> Result<Content> {
    let mut content = Content::default();
    if core.format == ForkFormat::Local {
        let range = core.fork_range(Fork::Data, raw.len() - CORE_LEN);
        short(volume, &raw[CORE_LEN..][range], core.size, &mut content);
        return Ok(content);
    }
    let (fsbs, leaf) = (volume.geo.dir_block_fsbs(), volume.geo.dir_leaf_start().0);
    let end = map.extents.last().map_or(0, |extent| extent.end().0);
    let kind = if end == fsbs { BufKind::DirBlock } else { BufKind::DirData };
    let mut next = 0;
    for extent in map.extents.iter().take_while(|extent| extent.offset.0 < leaf) {
        let last = (extent.end().0.min(leaf) - 1) / fsbs;
        for number in (extent.offset.0 / fsbs).max(next)..=last {
            next = number + 1;
            let mut bytes = Vec::new();
            for part in 0..fsbs {
                match map.get(number * fsbs + part) {
                    Some(fsb) => bytes.extend(volume.blocks(fsb, 1)?),
                    None => bytes.resize(bytes.len() + volume.geo.block_size as usize, 0),
                }
            }
            let Some(first) = map.get(number * fsbs) else {
                content.wrong.push(format!("data block {number} is not whole"));
                continue;
            };
            let daddr = volume.geo.fsb_daddr(first);
            let sound = verify::check(&bytes, kind, daddr, &volume.geo)
                .and_then(|()| verify::check_owner(&bytes, kind, daddr, Owner::Inode(ino)));
            let own = is_own(&bytes, ino);
            if let Err(problem) = sound {
                content.wrong.push(format!("data block {number}: {}", problem.detail));
            } else if !verify::checksum_matches(&bytes, kind) {
                content.wrong.push(format!("data block {number}: checksum does not match"));
            }
            if own {
                entries(volume, ino, &bytes, kind, number == 0, &mut content);
            }
        }
    }
    if content.dotdot.is_none() {
        content.wrong.push("no \"..\"".into());
    }
    Ok(content)
}

/// Does a block say that it is one of this directory, by its kind or by its owner?
fn is_own(bytes: &[u8], ino: Ino) -> bool {
    let kind = BufKind::identify(bytes, &[BufKind::DirBlock, BufKind::DirData]);
    let owner: Field<Ino> = Field::at(block::OWNER);
    let named = owner.get(bytes) == ino;
    named
        || kind.is_some() && bytes[DATA_START..].iter().any(|byte| *byte != 0) && {
            // The owner was changed, if the first entry is the directory's own.
            data::entry_at(bytes, DOT, bytes.len())
                .is_some_and(|dot| dot.name == b"." && dot.ino == ino)
        }
}

fn short(volume: &Volume, fork: &[u8], size: u64, content: &mut Content) {
    let len = usize::try_from(size).unwrap_or(usize::MAX).min(fork.len());
    let parsed = sf::Shortform::parse(&fork[..len]);
    if let Ok(form) = &parsed {
        content.dotdot = Some(form.parent());
        let entries = form.entries().map(|entry| Entry {
            name: entry.name.into(),
            ino: entry.ino,
            ftype: entry.ftype,
        });
        content.entries.extend(entries);
        let most = block::data_limit(volume.geo.dir_block_size() as usize, form.count() + 2);
        if form.end() > most {
            content.wrong.push("offsets of entries do not fit a block".into());
        }
        return;
    }
    if let Err(problem) = parsed {
        content.wrong.push(problem.detail);
    }
    salvage_short(volume, &fork[..len], content);
}

/// The entries of a damaged short form: in both widths of inode numbers; the one that gives more.
fn salvage_short(volume: &Volume, fork: &[u8], content: &mut Content) {
    let mut best: Vec<Entry> = Vec::new();
    for wide in [false, true] {
        let mut found = Vec::new();
        let mut at = sf::header_len(wide);
        let len = if wide { 8 } else { 4 };
        while at + sf::sf_entry_len(1, wide) <= fork.len() {
            let name = usize::from(fork[at]);
            let end = at + sf::sf_entry_len(name, wide);
            let entry = fork.get(at..end).filter(|_| name > 0).map(|raw| Entry {
                name: raw[3..3 + name].into(),
                ino: number(&raw[raw.len() - len..]),
                ftype: raw[3 + name],
            });
            match entry.filter(|entry| is_possible(volume, entry)) {
                Some(entry) => {
                    found.push(entry);
                    at = end;
                }
                None => at += 1,
            }
        }
        if found.len() > best.len() {
            best = found;
        }
        let parent = fork.get(2..2 + len).map(number);
        if content.dotdot.is_none() {
            content.dotdot = parent.filter(|parent| volume.geo.ino_valid(*parent));
        }
    }
    content.entries = best;
}

fn number(raw: &[u8]) -> Ino {
    match raw.len() {
        4 => Ino(Field::<u32>::at(0).get(raw).into()),
        _ => Field::at(0).get(raw),
    }
}

fn is_possible(volume: &Volume, entry: &Entry) -> bool {
    leads_somewhere(volume, entry) && uxfs_format::dir::FileType::from_raw(entry.ftype).is_some()
}

/// Is all of an entry possible but its type? The type follows from the inode.
fn leads_somewhere(volume: &Volume, entry: &Entry) -> bool {
    name_problem(&entry.name).is_none()
        && !matches!(&*entry.name, b"." | b"..")
        && volume.geo.ino_valid(entry.ino)
}

/// The entries of a data block, damaged or not.
fn entries(
    volume: &Volume,
    ino: Ino,
    bytes: &[u8],
    kind: BufKind,
    first: bool,
    content: &mut Content,
) {
    let limit = match kind {
        BufKind::DirBlock => block::Tail::of(bytes).leaf_start(bytes.len()),
        _ => bytes.len(),
    };
    let end = if limit > DATA_START { limit } else { bytes.len() };
    let mut at = DATA_START;
    while at + 8 <= end {
        match data::item_at(bytes, at, end) {
            Some(Item::Free(free)) => at = free.end(),
            Some(Item::Entry(entry)) if first && at == DOT && entry.name == b"." => {
                if entry.ino != ino || entry.ftype != 2 {
                    content.wrong.push("\".\" leads elsewhere".into());
                }
                at += entry.space();
            }
            Some(Item::Entry(entry)) if first && at == DOTDOT && entry.name == b".." => {
                content.dotdot = Some(entry.ino).filter(|parent| volume.geo.ino_valid(*parent));
                if entry.ftype != 2 {
                    content.wrong.push("\"..\" has another type".into());
                }
                at += entry.space();
            }
            Some(Item::Entry(entry)) => {
                let own = Entry { name: entry.name.into(), ino: entry.ino, ftype: entry.ftype };
                // It ends with its own offset, so it is an entry, whatever its type says.
                if leads_somewhere(volume, &own) {
                    content.entries.push(own);
                    at += entry.space();
                } else {
                    content.wrong.push(format!("an impossible entry at offset {at}"));
                    at += 8;
                }
            }
            None => at += 8,
        }
    }
    if first && data::entry_at(bytes, DOT, end).is_none_or(|dot| dot.name != b".") {
        content.wrong.push("\".\" is not the first entry".into());
    }
}

/// Sets ".." of a directory whose data is sound, in place. False if that is not possible.
pub(crate) fn set_parent(
    volume: &mut Volume,
    step: StepId,
    ino: Ino,
    core: &InodeCore,
    map: &ForkMap,
    parent: Ino,
) -> Result<bool> {
    let mut raw = volume.inode(ino)?;
    if core.format == ForkFormat::Local {
        let range = core.fork_range(Fork::Data, raw.len() - CORE_LEN);
        let fork = &mut raw[CORE_LEN..][range];
        let wide = fork[1] > 0;
        if sf::is_wide(parent) || wide {
            return Ok(false);
        }
        Field::<u32>::at(2).set(fork, parent.0 as u32);
        crc::stamp(&mut raw, CRC_OFFSET);
        volume.write(step, volume.inode_at(ino), &raw)?;
        return Ok(true);
    }
    let Some(first) = map.get(0) else { return Ok(false) };
    let mut bytes = volume.blocks(first, volume.geo.dir_block_fsbs())?;
    let kinds = [BufKind::DirBlock, BufKind::DirData];
    let Some(kind) = BufKind::identify(&bytes, &kinds) else { return Ok(false) };
    let contiguous =
        (0..volume.geo.dir_block_fsbs()).all(|part| map.get(part) == Some(first.plus(part)));
    if !contiguous {
        return Ok(false);
    }
    data::ino_at(DOTDOT).set(&mut bytes, parent);
    let daddr = volume.geo.fsb_daddr(first);
    volume.write_buffer(step, daddr, &mut bytes, kind)?;
    Ok(true)
}

/// Makes a directory empty, in its inode. Its entries are entered again by the engine.
pub(crate) fn reset(
    volume: &mut Volume,
    step: StepId,
    ino: Ino,
    parent: Ino,
    attr_blocks: u64,
) -> Result<()> {
    let mut raw = volume.inode(ino)?;
    let mut core = InodeCore::decode_unchecked(&raw, ino).unwrap_or_default();
    core.forkoff = raw[82];
    let literal = raw.len() - CORE_LEN;
    let range = core.fork_range(Fork::Data, literal);
    let empty = sf::build(parent, core::iter::empty());
    raw[CORE_LEN..][range.clone()].fill(0);
    raw[CORE_LEN + range.start..][..empty.len()].copy_from_slice(&empty);
    raw[5] = ForkFormat::Local as u8;
    Field::<u64>::at(56).set(&mut raw, empty.len() as u64);
    Field::<u64>::at(64).set(&mut raw, attr_blocks);
    match Field::<u64>::at(120).get(&raw) & uxfs_format::inode::Flags2::NREXT64.bits() {
        0 => Field::<u32>::at(76).set(&mut raw, 0),
        _ => Field::<u64>::at(24).set(&mut raw, 0),
    }
    crc::stamp(&mut raw, CRC_OFFSET);
    volume.write(step, volume.inode_at(ino), &raw)
}
