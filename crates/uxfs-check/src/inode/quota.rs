//! Checks quota inodes: blocks of quota records, one for each user, group or project, in order of
//! ids.

use uxfs_format::{FileBlock, Ino, Lsn, crc};

use super::fork::Map;
use super::pass::{Inode, Local};
use crate::bytes::{be16, be32, be64};
use crate::code;
use crate::ctx::Ctx;
use crate::usage::Used;

/// "DQ".
const MAGIC: u16 = 0x4451;
/// Bytes of a record.
const LEN: usize = 136;
/// Offset of a record's checksum.
const CRC: usize = 108;
/// Flag of records with 64-bit timestamps.
const BIGTIME: u8 = 0x80;

/// The record type of a quota inode; `None` if `ino` is not a quota inode.
pub(crate) fn kind(ctx: &Ctx<'_>, ino: Ino) -> Option<u8> {
    let sb = &ctx.sb;
    let kinds = [(sb.uquotino.get(), 1), (sb.pquotino.get(), 2), (sb.gquotino.get(), 4)];
    let used = crate::sb::quota_inodes(sb).any(|quota| quota == ino);
    kinds.into_iter().find(|(quota, _)| used && *quota == ino.0).map(|(_, kind)| kind)
}

/// Checks the records of a quota inode and records the usage in them.
pub(crate) fn check(ctx: &Ctx<'_>, inode: &Inode<'_>, map: &Map, kind: u8, local: &mut Local) {
    let bad = |message: String| ctx.find(code::QUOTA, inode.place(), message);
    if !inode.core.is_reg() {
        bad("a quota inode that is not a regular file".into());
    }
    let mut block = vec![0; ctx.geo.block_size as usize];
    let each = (block.len() / LEN) as u64;
    for extent in map.extents().iter().filter(|_| map.sound) {
        for number in extent.offset.0..extent.end().0 {
            if map.read(ctx, inode, FileBlock(number), &mut block).is_none() {
                return;
            }
            for (index, record) in (0u64..).zip(block.chunks_exact(LEN)) {
                let id = number * each + index;
                if let Some(problem) = problem(ctx, record, id, kind) {
                    bad(format!("record {id}: {problem}"));
                    return;
                }
                ctx.check_lsn(Lsn(be64(record, 112)), &inode.place());
                let used = Used { blocks: be64(record, 40), inodes: be64(record, 48) };
                // The record's own id was compared with `id` already.
                local.usage.note(kind, be32(record, 4), used);
            }
        }
    }
}

fn problem(ctx: &Ctx<'_>, record: &[u8], id: u64, kind: u8) -> Option<&'static str> {
    let bigtime = record[3] & BIGTIME != 0;
    if be16(record, 0) != MAGIC || record[2] != 1 {
        return Some("wrong magic number or version");
    }
    if record[3] & !BIGTIME != kind {
        return Some("wrong type");
    }
    // The record of id 0 holds the grace periods and never has the flag.
    if bigtime && (id == 0 || !ctx.geo.has_bigtime()) {
        return Some("64-bit timestamps on a record that cannot have them");
    }
    if u64::from(be32(record, 4)) != id {
        return Some("wrong id");
    }
    if !crc::matches(record, CRC) {
        return Some("checksum does not match");
    }
    if record[120..136] != ctx.geo.meta_uuid.0 {
        return Some("UUID is another volume's");
    }
    // Hard and soft limits; where both are set, the hard one must not be lower.
    let above = |hard: usize, soft: usize| {
        let (hard, soft) = (be64(record, hard), be64(record, soft));
        hard != 0 && soft > hard
    };
    let limits = above(8, 16) || above(24, 32) || above(72, 80);
    limits.then_some("a soft limit above the hard one")
}
