//! Checks the core of an inode by rules in addition to [`InodeCore::check`]'s.
//!
//! [`InodeCore::check`]: uxfs_format::inode::InodeCore::check

use uxfs_format::extent::MAX_EXTENT_LEN;
use uxfs_format::features::Incompat;
use uxfs_format::inode::{Flags, Flags2, ForkFormat};
use uxfs_format::{Ino, inode};

use super::pass::Inode;
use crate::bytes::{be16, be32, be64};
use crate::code;
use crate::ctx::Ctx;
use crate::finding::Place;

/// Maximum link count of an inode.
const NLINK_MAX: u32 = (1 << 31) - 1;

/// Nanoseconds in a second.
const NSEC: u32 = 1_000_000_000;
/// Names and offsets of an inode's timestamps.
const TIMES: [(&str, usize); 4] = [("atime", 32), ("mtime", 40), ("ctime", 48), ("crtime", 144)];

/// Checks a free inode: its fields must be cleared.
pub(crate) fn check_free(ctx: &Ctx<'_>, ino: Ino, raw: &[u8]) {
    let zero = |what: &str, value: u64| {
        if value != 0 {
            let message = format!("free inode with {what} {value}");
            ctx.find(code::INODE_FREE, Place::inode(ino), message);
        }
    };
    zero("di_onlink", be16(raw, 6).into());
    zero("link count", be32(raw, 16).into());
    zero("blocks", be64(raw, 64));
    zero("extents", be64(raw, 24) | u64::from(be32(raw, 76)) | u64::from(be16(raw, 80)));
    zero("attribute fork at", raw[82].into());
    zero("flags", be16(raw, 90).into());
    // A free inode may keep its size.
    if be64(raw, 56) >> 63 != 0 {
        let message = format!("free inode with size {:#x}", be64(raw, 56));
        ctx.find(code::INODE_FREE, Place::inode(ino), message);
    }
    // A free inode may keep its hints, but they must have been valid.
    for hint in [be32(raw, 72), be32(raw, 128)] {
        if u64::from(hint) > hint_max(ctx) {
            let message = format!("free inode with extent size hint {hint}");
            ctx.find(code::INODE_FREE, Place::inode(ino), message);
        }
    }
    // A free inode may keep these two flags.
    let mut stay = Flags2::empty();
    stay.set(Flags2::BIGTIME, ctx.geo.has_bigtime());
    stay.set(Flags2::NREXT64, ctx.geo.has_nrext64());
    zero("flags2", be64(raw, 120) & !stay.bits());
    let next = be32(raw, inode::NEXT_UNLINKED_OFFSET);
    if next != u32::MAX {
        let message = format!("free inode on an unlinked list, next {next}");
        ctx.find(code::INODE_UNLINKED, Place::inode(ino), message);
    }
    // The formats are 0 if the inode was never in use.
    let known = [ForkFormat::Dev as u8, ForkFormat::Extents as u8];
    if !known.contains(&raw[5]) || !known.contains(&raw[83]) {
        let message = format!("free inode with fork formats {} and {}", raw[5], raw[83]);
        ctx.find(code::INODE_FREE, Place::inode(ino), message);
    }
    times(ctx, ino, raw);
}

/// Checks an inode in use.
pub(crate) fn check(ctx: &Ctx<'_>, inode: &Inode<'_>) {
    fields(ctx, inode);
    flags(ctx, inode);
    hints(ctx, inode);
    times(ctx, inode.ino, inode.raw);
}

fn fields(ctx: &Ctx<'_>, inode: &Inode<'_>) {
    let (core, raw) = (&inode.core, inode.raw);
    let bad = |message: String| ctx.find(code::INODE_FIELD, inode.place(), message);
    if core.metatype != 0 {
        bad(format!("di_onlink is {}, not 0", core.metatype));
    }
    if core.nlink > NLINK_MAX {
        bad(format!("link count {}", core.nlink));
    }
    if core.flags2.contains(Flags2::NREXT64) {
        if be16(raw, 80) != 0 {
            bad("the padding of wide extent counters is not 0".into());
        }
    } else if be64(raw, 24) != 0 {
        bad("the unused wide extent counter is not 0".into());
    }
    if raw[132..144].iter().any(|b| *b != 0) {
        bad("di_pad2 is not 0".into());
    }
    let special = matches!(core.format, ForkFormat::Dev);
    if special && core.forkoff > 1 {
        bad(format!("attribute fork of a special file at {}", core.forkoff));
    }
    if special && core.size != 0 {
        bad(format!("special file with a size of {} bytes", core.size));
    }
    if ctx.sb.rblocks.get() == 0 && ctx.geo.rt_inos.contains(&inode.ino) && core.size != 0 {
        bad(format!("size {} of a realtime inode without a realtime device", core.size));
    }
    if core.forkoff == 0 && core.aformat != ForkFormat::Extents {
        bad(format!("attribute fork format {:?} without a fork", core.aformat));
    }
    for fork in [inode::Fork::Data, inode::Fork::Attr] {
        if core.fork_extents(fork) > core.max_extents(fork) {
            bad(format!("{} extents in the {fork:?} fork", core.fork_extents(fork)));
        }
    }
    if core.nblocks > ctx.geo.dblocks && !core.flags.contains(Flags::REALTIME) {
        bad(format!("{} blocks, more than the volume has", core.nblocks));
    }
}

fn flags(ctx: &Ctx<'_>, inode: &Inode<'_>) {
    let (core, geo) = (&inode.core, &ctx.geo);
    let (flags, flags2) = (core.flags, core.flags2);
    let bad = |what: &str| ctx.find(code::INODE_FLAGS, inode.place(), what);
    if !Flags::all().contains(flags) || !Flags2::all().contains(flags2) {
        bad(&format!("unknown flags in {:#x}, {:#x}", flags.bits(), flags2.bits()));
    }
    let realtime = ctx.sb.rblocks.get() != 0;
    if flags.intersects(Flags::REALTIME | Flags::RTINHERIT) && !realtime {
        bad("realtime without a realtime device");
    }
    if flags.contains(Flags::NEWRTBM) && inode.ino != geo.rt_inos[0] {
        bad("marked as the realtime bitmap");
    }
    let of_dirs = Flags::RTINHERIT | Flags::EXTSZINHERIT | Flags::PROJINHERIT | Flags::NOSYMLINKS;
    if flags.intersects(of_dirs) && !core.is_dir() {
        bad("a directory flag on another file type");
    }
    if flags.intersects(Flags::REALTIME | Flags::EXTSIZE) && !core.is_reg() {
        bad("a regular file flag on another file type");
    }
    if flags2.contains(Flags2::DAX) && !core.is_reg() && !core.is_dir() {
        bad("the DAX flag on neither a file nor a directory");
    }
    if flags2.contains(Flags2::REFLINK) {
        if !geo.has_reflink() || !core.is_reg() {
            bad("the reflink flag on an inode that cannot share blocks");
        }
        if flags.contains(Flags::REALTIME) {
            bad("the reflink flag on a realtime file");
        }
    }
    if flags2.contains(Flags2::BIGTIME) && !geo.has_bigtime() {
        bad("64-bit timestamps on a volume without them");
    }
    if flags2.contains(Flags2::NREXT64) && !geo.has_nrext64() {
        bad("wide extent counters on a volume without them");
    }
    if flags2.contains(Flags2::METADATA) && !geo.incompat.contains(Incompat::METADIR) {
        bad("the flag of the metadata directory tree");
    }
}

/// Maximum extent size hint in blocks.
fn hint_max(ctx: &Ctx<'_>) -> u64 {
    MAX_EXTENT_LEN.min(u64::from(ctx.geo.ag_blocks) / 2)
}

fn hints(ctx: &Ctx<'_>, inode: &Inode<'_>) {
    let core = &inode.core;
    let most = hint_max(ctx);
    let own = core.flags.contains(Flags::EXTSIZE);
    let inherit = core.flags.contains(Flags::EXTSZINHERIT);
    let bad = |what: String| ctx.find(code::INODE_HINT, inode.place(), what);
    let realtime = core.flags.intersects(Flags::REALTIME | Flags::RTINHERIT);
    if (own || inherit) != (core.extsize != 0) {
        bad(format!("extent size hint {}, flags {:#x}", core.extsize, core.flags.bits()));
    } else if u64::from(core.extsize) > most && !realtime {
        bad(format!("extent size hint {}, maximum {most}", core.extsize));
    }
    let cow = core.flags2.contains(Flags2::COWEXTSIZE);
    if cow && (!ctx.geo.has_reflink() || !(core.is_reg() || core.is_dir())) {
        bad("copy-on-write extent size hint on an inode that cannot share blocks".into());
    }
    if cow && core.flags.contains(Flags::REALTIME) {
        bad("copy-on-write extent size hint on a realtime file".into());
    }
    if cow != (core.cowextsize != 0) {
        bad(format!("copy-on-write extent size hint {}, flag {cow}", core.cowextsize));
    } else if u64::from(core.cowextsize) > most {
        bad(format!("copy-on-write extent size hint {}, maximum {most}", core.cowextsize));
    }
}

/// Checks timestamps in the raw bytes, because decoding clamps invalid values.
fn times(ctx: &Ctx<'_>, ino: Ino, raw: &[u8]) {
    if be64(raw, 120) & Flags2::BIGTIME.bits() != 0 {
        return;
    }
    for (name, at) in TIMES {
        let nsec = be32(raw, at + 4);
        if nsec >= NSEC {
            let message = format!("{name} has {nsec} nanoseconds");
            ctx.find(code::INODE_TIME, Place::inode(ino), message);
        }
    }
}
