//! The fields of all kinds of structure, for the damage tests. Header fields are listed by name;
//! records, entries and forks are chosen at random.

use uxfs_format::btree::TreeKind;
use uxfs_format::verify::BufKind;
use uxfs_oracle::Rng;

use crate::structures::Kind;

/// A field: name, offset, length.
pub(crate) type Field = (String, usize, usize);

type Table = &'static [(&'static str, usize, usize)];

const SUPERBLOCK: Table = &[
    ("magicnum", 0, 4),
    ("blocksize", 4, 4),
    ("dblocks", 8, 8),
    ("rblocks", 16, 8),
    ("rextents", 24, 8),
    ("uuid", 32, 8),
    ("logstart", 48, 8),
    ("rootino", 56, 8),
    ("rbmino", 64, 8),
    ("rsumino", 72, 8),
    ("rextsize", 80, 4),
    ("agblocks", 84, 4),
    ("agcount", 88, 4),
    ("rbmblocks", 92, 4),
    ("logblocks", 96, 4),
    ("versionnum", 100, 2),
    ("sectsize", 102, 2),
    ("inodesize", 104, 2),
    ("inopblock", 106, 2),
    ("fname", 108, 8),
    ("blocklog", 120, 1),
    ("sectlog", 121, 1),
    ("inodelog", 122, 1),
    ("inopblog", 123, 1),
    ("agblklog", 124, 1),
    ("rextslog", 125, 1),
    ("inprogress", 126, 1),
    ("imax_pct", 127, 1),
    ("icount", 128, 8),
    ("ifree", 136, 8),
    ("fdblocks", 144, 8),
    ("frextents", 152, 8),
    ("uquotino", 160, 8),
    ("gquotino", 168, 8),
    ("qflags", 176, 2),
    ("flags", 178, 1),
    ("shared_vn", 179, 1),
    ("inoalignmt", 180, 4),
    ("unit", 184, 4),
    ("width", 188, 4),
    ("dirblklog", 192, 1),
    ("logsectlog", 193, 1),
    ("logsectsize", 194, 2),
    ("logsunit", 196, 4),
    ("features2", 200, 4),
    ("bad_features2", 204, 4),
    ("features_compat", 208, 4),
    ("features_ro_compat", 212, 4),
    ("features_incompat", 216, 4),
    ("features_log_incompat", 220, 4),
    ("spino_align", 228, 4),
    ("pquotino", 232, 8),
    ("lsn", 240, 8),
    ("meta_uuid", 248, 8),
    ("metadirino", 264, 8),
    ("tail", 400, 4),
];
const AGF: Table = &[
    ("magicnum", 0, 4),
    ("versionnum", 4, 4),
    ("seqno", 8, 4),
    ("length", 12, 4),
    ("bno_root", 16, 4),
    ("cnt_root", 20, 4),
    ("rmap_root", 24, 4),
    ("bno_level", 28, 4),
    ("cnt_level", 32, 4),
    ("rmap_level", 36, 4),
    ("flfirst", 40, 4),
    ("fllast", 44, 4),
    ("flcount", 48, 4),
    ("freeblks", 52, 4),
    ("longest", 56, 4),
    ("btreeblks", 60, 4),
    ("uuid", 64, 8),
    ("rmap_blocks", 80, 4),
    ("refcount_blocks", 84, 4),
    ("refcount_root", 88, 4),
    ("refcount_level", 92, 4),
    ("spare", 96, 8),
    ("lsn", 208, 8),
    ("spare2", 220, 4),
];
const AGI: Table = &[
    ("magicnum", 0, 4),
    ("versionnum", 4, 4),
    ("seqno", 8, 4),
    ("length", 12, 4),
    ("count", 16, 4),
    ("root", 20, 4),
    ("level", 24, 4),
    ("freecount", 28, 4),
    ("newino", 32, 4),
    ("dirino", 36, 4),
    ("unlinked0", 40, 4),
    ("unlinked7", 68, 4),
    ("uuid", 296, 8),
    ("pad", 316, 4),
    ("lsn", 320, 8),
    ("free_root", 328, 4),
    ("free_level", 332, 4),
    ("iblocks", 336, 4),
    ("fblocks", 340, 4),
];
const AGFL: Table = &[
    ("magicnum", 0, 4),
    ("seqno", 4, 4),
    ("uuid", 8, 8),
    ("lsn", 24, 8),
    ("slot0", 36, 4),
    ("slot1", 40, 4),
    ("slot2", 44, 4),
    ("slot4", 52, 4),
    ("slot100", 436, 4),
];
const SHORT: Table = &[
    ("magic", 0, 4),
    ("level", 4, 2),
    ("numrecs", 6, 2),
    ("leftsib", 8, 4),
    ("rightsib", 12, 4),
    ("blkno", 16, 8),
    ("lsn", 24, 8),
    ("uuid", 32, 8),
    ("owner", 48, 4),
];
const LONG: Table = &[
    ("magic", 0, 4),
    ("level", 4, 2),
    ("numrecs", 6, 2),
    ("leftsib", 8, 8),
    ("rightsib", 16, 8),
    ("blkno", 24, 8),
    ("lsn", 32, 8),
    ("uuid", 40, 8),
    ("owner", 56, 8),
];
const INODE: Table = &[
    ("magic", 0, 2),
    ("mode", 2, 2),
    ("version", 4, 1),
    ("format", 5, 1),
    ("onlink", 6, 2),
    ("uid", 8, 4),
    ("gid", 12, 4),
    ("nlink", 16, 4),
    ("projid_lo", 20, 2),
    ("projid_hi", 22, 2),
    ("big_nextents", 24, 8),
    ("atime", 32, 8),
    ("mtime", 40, 8),
    ("ctime", 48, 8),
    ("atime.nsec", 36, 4),
    ("size", 56, 8),
    ("nblocks", 64, 8),
    ("extsize", 72, 4),
    ("nextents", 76, 4),
    ("anextents", 80, 2),
    ("forkoff", 82, 1),
    ("aformat", 83, 1),
    ("dmevmask", 84, 4),
    ("dmstate", 88, 2),
    ("flags", 90, 2),
    ("gen", 92, 4),
    ("next_unlinked", 96, 4),
    ("changecount", 104, 8),
    ("lsn", 112, 8),
    ("flags2", 120, 8),
    ("cowextsize", 128, 4),
    ("pad2", 132, 4),
    ("crtime", 144, 8),
    ("ino", 152, 8),
    ("uuid", 160, 8),
];
const DIR_HEADER: Table = &[
    ("magic", 0, 4),
    ("blkno", 8, 8),
    ("lsn", 16, 8),
    ("uuid", 24, 8),
    ("owner", 40, 8),
    ("best0.offset", 48, 2),
    ("best0.length", 50, 2),
    ("best1.offset", 52, 2),
    ("best1.length", 54, 2),
    ("best2.offset", 56, 2),
    ("best2.length", 58, 2),
];
const FREE: Table = &[
    ("magic", 0, 4),
    ("blkno", 8, 8),
    ("lsn", 16, 8),
    ("uuid", 24, 8),
    ("owner", 40, 8),
    ("firstdb", 48, 4),
    ("nvalid", 52, 4),
    ("nused", 56, 4),
    ("best0", 64, 2),
    ("best1", 66, 2),
];
const DA: Table = &[
    ("forw", 0, 4),
    ("back", 4, 4),
    ("magic", 8, 2),
    ("blkno", 16, 8),
    ("lsn", 24, 8),
    ("uuid", 32, 8),
    ("owner", 48, 8),
    ("count", 56, 2),
    ("stale/level", 58, 2),
];
const ATTR_LEAF: Table = &[
    ("forw", 0, 4),
    ("back", 4, 4),
    ("magic", 8, 2),
    ("blkno", 16, 8),
    ("lsn", 24, 8),
    ("uuid", 32, 8),
    ("owner", 48, 8),
    ("count", 56, 2),
    ("usedbytes", 58, 2),
    ("firstused", 60, 2),
    ("holes", 62, 1),
    ("freemap0.base", 64, 2),
    ("freemap0.size", 66, 2),
];
const REMOTE: Table = &[
    ("magic", 0, 4),
    ("offset", 4, 4),
    ("bytes", 8, 4),
    ("uuid", 16, 8),
    ("owner", 32, 8),
    ("blkno", 40, 8),
    ("lsn", 48, 8),
];
const QUOTA: Table = &[
    ("magic", 0, 2),
    ("version", 2, 1),
    ("type", 3, 1),
    ("id", 4, 4),
    ("blk_hard", 8, 8),
    ("blk_soft", 16, 8),
    ("ino_hard", 24, 8),
    ("ino_soft", 32, 8),
    ("bcount", 40, 8),
    ("icount", 48, 8),
    ("itimer", 56, 4),
    ("lsn", 112, 8),
    ("uuid", 120, 8),
];
const LOG: Table = &[
    ("magic", 0, 4),
    ("cycle", 4, 4),
    ("version", 8, 4),
    ("len", 12, 4),
    ("lsn", 16, 8),
    ("tail_lsn", 24, 8),
    ("num_logops", 40, 4),
    ("cycle_data", 44, 4),
    ("fmt", 300, 4),
    ("uuid", 304, 8),
    ("size", 320, 4),
];

/// A byte, 0 beyond the end: fuzzers may damage an image several times.
fn byte(b: &[u8], at: usize) -> u8 {
    b.get(at).copied().unwrap_or(0)
}

fn be16(b: &[u8], at: usize) -> usize {
    u16::from_be_bytes([byte(b, at), byte(b, at + 1)]).into()
}

fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([byte(b, at), byte(b, at + 1), byte(b, at + 2), byte(b, at + 3)])
}

/// Names and lengths of a record's fields, in order.
fn record_fields(kind: TreeKind) -> &'static [(&'static str, usize, usize)] {
    match kind {
        TreeKind::Bno | TreeKind::Cnt => &[("start", 0, 4), ("count", 4, 4)],
        TreeKind::Ino | TreeKind::FreeIno => &[
            ("startino", 0, 4),
            ("holemask", 4, 2),
            ("count", 6, 1),
            ("freecount", 7, 1),
            ("free", 8, 8),
        ],
        TreeKind::Rmap => &[
            ("start", 0, 4),
            ("count", 4, 4),
            ("owner", 8, 8),
            ("offset", 16, 8),
            ("flags", 16, 1),
        ],
        TreeKind::Refcount => &[("start", 0, 4), ("count", 4, 4), ("refcount", 8, 4)],
        TreeKind::Bmap => &[("l0", 0, 8), ("l1", 8, 8), ("flag", 0, 1), ("count", 13, 3)],
    }
}

/// A state that only some records have: its name, and a test for it.
type State = (&'static str, fn(&[u8]) -> bool);

fn states(kind: TreeKind) -> &'static [State] {
    match kind {
        TreeKind::Ino | TreeKind::FreeIno => &[("sparse", |rec| rec[4..6] != [0, 0])],
        TreeKind::Rmap => &[
            ("metadata", |rec| rec[8] & 0x80 != 0),
            ("attr", |rec| rec[8] & 0x80 == 0 && rec[16] & 0x80 != 0),
            ("tree", |rec| rec[16] & 0x40 != 0),
            ("unwritten", |rec| rec[16] & 0x20 != 0),
        ],
        TreeKind::Refcount => &[("three", |rec| rec[11] > 2)],
        TreeKind::Bmap => &[("unwritten", |rec| rec[0] & 0x80 != 0)],
        TreeKind::Bno | TreeKind::Cnt => &[],
    }
}

fn btree_fields(kind: TreeKind, bytes: &[u8], rng: &mut Rng, out: &mut Vec<Field>) {
    let header = kind.header().len;
    let count = be16(bytes, 6);
    if count == 0 {
        return;
    }
    let index = rng.index(count);
    if be16(bytes, 4) == 0 {
        for (name, at, len) in record_fields(kind) {
            let at = header + index * kind.rec_len() + at;
            out.push((format!("rec.{name}"), at, *len));
        }
        let at = |index: usize| header + index * kind.rec_len();
        for (state, is) in states(kind) {
            let list: Vec<usize> = (0..count)
                .map(at)
                .filter(|at| bytes.get(*at..at + kind.rec_len()).is_some_and(is))
                .collect();
            if let Some(start) = list.get(rng.index(list.len().max(1))) {
                for (name, at, len) in record_fields(kind) {
                    out.push((format!("rec.{state}.{name}"), start + at, *len));
                }
            }
        }
        return;
    }
    let key = kind.key_len();
    let ptrs = header + kind.max_node(bytes.len()) * key;
    let ptr = kind.header().ptr_len;
    out.push(("key.first".into(), header + index * key, 4));
    out.push(("key.last".into(), header + (index + 1) * key - 4, 4));
    out.push(("key.middle".into(), header + index * key + key / 2, key / 2));
    out.push(("ptr".into(), ptrs + index * ptr, ptr));
}

/// Offsets of the entries and free areas of a directory's data block.
fn items(bytes: &[u8], end: usize) -> Vec<(usize, bool)> {
    let (mut at, mut items) = (64, Vec::new());
    while at + 16 <= end {
        let free = be16(bytes, at) == 0xffff;
        items.push((at, free));
        at += if free {
            be16(bytes, at + 2).max(8)
        } else {
            (usize::from(byte(bytes, at + 8)) + 12).next_multiple_of(8)
        };
    }
    items
}

fn dir_fields(bytes: &[u8], block: bool, rng: &mut Rng, out: &mut Vec<Field>) {
    let len = bytes.len();
    let mut end = len;
    if block {
        let count = be16(bytes, len - 6);
        end = len.saturating_sub(8 + 8 * count);
        let entry = end + 8 * rng.index(count);
        for (name, at, len) in [
            ("tail.count", len - 8, 4),
            ("tail.stale", len - 4, 4),
            ("leaf.hash", entry, 4),
            ("leaf.address", entry + 4, 4),
        ] {
            out.push((name.into(), at, len));
        }
    }
    let items = items(bytes, end);
    let entries: Vec<usize> = items.iter().filter(|i| !i.1).map(|i| i.0).collect();
    let free: Vec<usize> = items.iter().filter(|i| i.1).map(|i| i.0).collect();
    // In a block that is not the directory's first, an area that is free may come first.
    let dot = entries.first().copied().filter(|at| *at == 64);
    let any = entries.get(rng.index(entries.len())).copied();
    for (which, at) in [("dot", dot), ("entry", any)] {
        let Some(at) = at else { continue };
        let name = usize::from(byte(bytes, at + 8));
        let size = (name + 12).next_multiple_of(8);
        out.push((format!("{which}.inumber"), at, 8));
        out.push((format!("{which}.namelen"), at + 8, 1));
        out.push((format!("{which}.name"), at + 9 + rng.index(name), 1));
        out.push((format!("{which}.filetype"), at + 9 + name, 1));
        out.push((format!("{which}.tag"), at + size - 2, 2));
    }
    if let Some(&at) = free.get(rng.index(free.len())) {
        out.push(("free.freetag".into(), at, 2));
        out.push(("free.length".into(), at + 2, 2));
    }
}

fn entries(bytes: &[u8], start: usize, count: usize, rng: &mut Rng, out: &mut Vec<Field>) {
    let all = (0..count).map(|number| start + 8 * number).filter(|at| at + 8 <= bytes.len());
    // The entry of a name that was removed has no address.
    let (stale, live): (Vec<usize>, Vec<usize>) = all.partition(|at| be32(bytes, at + 4) == 0);
    for (which, list) in [("entry", live), ("stale", stale)] {
        if let Some(&at) = list.get(rng.index(list.len())) {
            out.push((format!("{which}.hash"), at, 4));
            out.push((format!("{which}.address"), at + 4, 4));
        }
    }
}

fn attr_fields(bytes: &[u8], rng: &mut Rng, out: &mut Vec<Field>) {
    let count = be16(bytes, 56);
    if count == 0 {
        return;
    }
    let at = 80 + 8 * rng.index(count);
    for (name, off, len) in [("hashval", 0, 4), ("nameidx", 4, 2), ("flags", 6, 1)] {
        out.push((format!("entry.{name}"), at + off, len));
    }
    let (name, local) = (be16(bytes, at + 4), byte(bytes, at + 6) & 1 != 0);
    let fields: Table = if local {
        &[("valuelen", 0, 2), ("namelen", 2, 1), ("name", 3, 1)]
    } else {
        &[("valueblk", 0, 4), ("valuelen", 4, 4), ("namelen", 8, 1), ("name", 9, 1)]
    };
    for (field, off, len) in fields {
        out.push((format!("name.{field}"), (name + off).min(bytes.len() - 8), *len));
    }
}

/// The fields of a parent pointer in a leaf or a short form; its name starts at `name`.
fn parent_fields(form: &str, namelen: usize, name: usize, len: usize, out: &mut Vec<Field>) {
    out.push((format!("{form}.parent.namelen"), namelen, 1));
    out.push((format!("{form}.parent.name"), name, 1));
    out.push((format!("{form}.parent.inumber"), name + len, 8));
    out.push((format!("{form}.parent.generation"), name + len + 8, 4));
}

/// The parent pointers among the attributes of a leaf.
fn leaf_parents(bytes: &[u8], rng: &mut Rng, out: &mut Vec<Field>) {
    let entries = (0..be16(bytes, 56)).map(|number| 80 + 8 * number);
    let list: Vec<usize> = entries.filter(|at| byte(bytes, at + 6) & 8 != 0).collect();
    if let Some(&at) = list.get(rng.index(list.len().max(1))) {
        let name = be16(bytes, at + 4);
        out.push(("leaf.parent.hashval".into(), at, 4));
        out.push(("leaf.parent.flags".into(), at + 6, 1));
        out.push(("leaf.parent.valuelen".into(), name, 2));
        parent_fields("leaf", name + 2, name + 3, byte(bytes, name + 2).into(), out);
    }
}

/// The first parent pointer among the attributes in an inode.
fn short_parents(bytes: &[u8], start: usize, out: &mut Vec<Field>) {
    let mut at = start + 4;
    for _ in 0..byte(bytes, start + 2) {
        let (name, value) = (usize::from(byte(bytes, at)), usize::from(byte(bytes, at + 1)));
        if byte(bytes, at + 2) & 8 != 0 {
            out.push(("short.parent.valuelen".into(), at + 1, 1));
            out.push(("short.parent.flags".into(), at + 2, 1));
            return parent_fields("short", at, at + 3, name, out);
        }
        at += 3 + name + value;
    }
}

/// Fields that only some inodes use: hints, sharing, unwritten extents.
fn state_fields(bytes: &[u8], out: &mut Vec<Field>) {
    let (flags, flags2) = (be16(bytes, 90), bytes[127]);
    let mut add = |name: &str, at, len| out.push((name.to_owned(), at, len));
    if flags & 0x1800 != 0 {
        add("hint.extsize", 72, 4);
        add("hint.flags", 90, 2);
    }
    if flags2 & 4 != 0 {
        add("hint.cowextsize", 128, 4);
        add("hint.flags2", 127, 1);
    }
    if flags2 & 2 != 0 {
        add("shared.flags2", 127, 1);
    }
    let fork = if bytes[82] == 0 { bytes.len() } else { 176 + 8 * usize::from(bytes[82]) };
    // Records of extents that were removed remain behind those in use.
    let used = extents(bytes)[0].saturating_mul(16).saturating_add(176);
    let mut records = (176..used.min(fork).min(bytes.len()).saturating_sub(15)).step_by(16);
    let unwritten = records.find(|at| bytes[*at] & 0x80 != 0);
    if let (2, 8, Some(at)) = (bytes[5], bytes[2] >> 4, unwritten) {
        add("unwritten.flag", at, 1);
        add("unwritten.count", at + 13, 3);
    }
    if bytes[82] != 0 && bytes[83] == 1 && fork + 4 < bytes.len() {
        short_parents(bytes, fork, out);
    }
}

/// Random offsets in a list of entries of `step` bytes in the used part of a fork, and behind it.
fn somewhere(
    name: &str,
    (start, used, room): (usize, usize, usize),
    step: usize,
    rng: &mut Rng,
    out: &mut Vec<Field>,
) {
    for part in 0..if used < step { 0 } else { 3 } {
        out.push((format!("{name}.{part}"), start + rng.index(used / step) * step, step));
    }
    if used + step <= room {
        let at = start + used + rng.index((room - used) / step) * step;
        out.push((format!("{name}.behind"), at, step));
    }
}

/// A short-form directory.
fn short_dir(bytes: &[u8], start: usize, rng: &mut Rng, out: &mut Vec<Field>) {
    let (count, wide) = (byte(bytes, start), byte(bytes, start + 1) != 0);
    let number = if wide { 8 } else { 4 };
    for (name, at, len) in [("count", 0, 1), ("i8count", 1, 1), ("parent", 2, number)] {
        out.push((format!("short.dir.{name}"), start + at, len));
    }
    let mut at = start + 2 + number;
    for _ in 0..rng.index(count.into()) {
        at += 4 + usize::from(byte(bytes, at)) + number;
    }
    if count > 0 {
        let name = usize::from(byte(bytes, at));
        for (field, from, len) in [
            ("namelen", 0, 1),
            ("offset", 1, 2),
            ("name", 3 + rng.index(name), 1),
            ("filetype", 3 + name, 1),
            ("inumber", 4 + name, number),
        ] {
            out.push((format!("short.dir.entry.{field}"), at + from, len));
        }
    }
}

/// Short-form attributes.
fn short_attrs(bytes: &[u8], start: usize, rng: &mut Rng, out: &mut Vec<Field>) {
    for (name, at, len) in [("size", 0, 2), ("count", 2, 1), ("pad", 3, 1)] {
        out.push((format!("short.attrs.{name}"), start + at, len));
    }
    let mut at = start + 4;
    for _ in 0..rng.index(byte(bytes, start + 2).into()) {
        at += 3 + usize::from(byte(bytes, at)) + usize::from(byte(bytes, at + 1));
    }
    let (name, value) = (usize::from(byte(bytes, at)), usize::from(byte(bytes, at + 1)));
    if byte(bytes, start + 2) == 0 || byte(bytes, at + 2) & 8 != 0 {
        return;
    }
    let mut fields = vec![("namelen", 0), ("valuelen", 1), ("flags", 2), ("name", 3)];
    if value > 0 {
        fields.push(("value", 3 + name + rng.index(value)));
    }
    for (field, from) in fields {
        out.push((format!("short.attrs.entry.{field}"), at + from, 1));
    }
}

/// The root of an extent btree.
fn root(
    which: &str,
    bytes: &[u8],
    (start, room): (usize, usize),
    rng: &mut Rng,
    out: &mut Vec<Field>,
) {
    let count = be16(bytes, start + 2);
    let ptrs = start + 4 + room.saturating_sub(4) / 16 * 8;
    let index = 8 * rng.index(count);
    for (name, at, len) in [
        ("level", start, 2),
        ("numrecs", start + 2, 2),
        ("key", start + 4 + index, 8),
        ("ptr", ptrs + index, 8),
        ("ptr.behind", ptrs + 8 * count, 8),
    ] {
        if at + len <= start + room {
            out.push((format!("{which}.root.{name}"), at, len));
        }
    }
}

/// The numbers of extents of both forks, data first.
fn extents(bytes: &[u8]) -> [usize; 2] {
    let low = |at: usize| be16(bytes, at) << 16 | be16(bytes, at + 2);
    let wide = bytes[127] & 16 != 0;
    if wide { [low(28), low(76)] } else { [low(76), be16(bytes, 80)] }
}

/// Fields of the forks: short forms, extents, btree roots, and the bytes behind them.
fn fork_fields(bytes: &[u8], rng: &mut Rng, out: &mut Vec<Field>) {
    let split = usize::from(bytes[82]) * 8;
    let literal = bytes.len() - 176;
    let data = if split == 0 { literal } else { split.min(literal) };
    let size = usize::from_be_bytes([0, 0, 0, 0, bytes[60], bytes[61], bytes[62], bytes[63]]);
    let extents = extents(bytes);
    let mut fork = |which: &str, start: usize, room: usize, format: u8, extents: usize| {
        let attrs = which == "attr";
        match format {
            1 if attrs => {
                short_attrs(bytes, start, rng, out);
                let used = be16(bytes, start).min(room);
                somewhere("short.attrs", (start + used, 0, room - used), 1, rng, out);
            }
            1 if bytes[2] >> 4 == 4 => {
                short_dir(bytes, start, rng, out);
                let used = size.min(room);
                somewhere("short.dir", (start + used, 0, room - used), 1, rng, out);
            }
            1 => somewhere("short.target", (start, size.min(room), room), 1, rng, out),
            2 => {
                let used = extents.saturating_mul(16).min(room);
                somewhere(&format!("{which}.extents"), (start, used, room), 8, rng, out);
            }
            3 => root(which, bytes, (start, room), rng, out),
            _ => somewhere("device", (start, 4, room), 4, rng, out),
        }
    };
    fork("data", 176, data, bytes[5], extents[0]);
    if split > 0 && split < literal {
        fork("attr", 176 + split, literal - split, bytes[83], extents[1]);
    }
}

/// All fields of a structure; `rng` chooses the record.
pub(crate) fn fields(kind: Kind, bytes: &[u8], rng: &mut Rng) -> Vec<Field> {
    let (table, mut more): (Table, Vec<Field>) = match kind {
        Kind::LogRecord => (LOG, Vec::new()),
        Kind::Quota => (QUOTA, Vec::new()),
        Kind::Inode => (INODE, Vec::new()),
        Kind::Buffer(kind) => match kind {
            BufKind::Superblock => (SUPERBLOCK, Vec::new()),
            BufKind::Agf => (AGF, Vec::new()),
            BufKind::Agi => (AGI, Vec::new()),
            BufKind::Agfl => (AGFL, Vec::new()),
            BufKind::Btree(TreeKind::Bmap) => (LONG, Vec::new()),
            BufKind::Btree(_) => (SHORT, Vec::new()),
            BufKind::DirBlock | BufKind::DirData => (DIR_HEADER, Vec::new()),
            BufKind::DirFree => (FREE, Vec::new()),
            BufKind::AttrLeaf => (ATTR_LEAF, Vec::new()),
            BufKind::AttrRemote | BufKind::Symlink => (REMOTE, Vec::new()),
            _ => (DA, Vec::new()),
        },
    };
    match kind {
        Kind::Inode => {
            fork_fields(bytes, rng, &mut more);
            state_fields(bytes, &mut more);
        }
        Kind::Buffer(BufKind::Btree(tree)) => btree_fields(tree, bytes, rng, &mut more),
        Kind::Buffer(kind @ (BufKind::DirBlock | BufKind::DirData)) => {
            dir_fields(bytes, kind == BufKind::DirBlock, rng, &mut more);
        }
        Kind::Buffer(BufKind::DirLeaf1 | BufKind::DirLeafN | BufKind::DaNode) => {
            entries(bytes, 64, be16(bytes, 56), rng, &mut more);
            if kind == Kind::Buffer(BufKind::DirLeaf1) {
                more.push(("bestcount".into(), bytes.len() - 4, 4));
                more.push(("bests".into(), bytes.len() - 6, 2));
            }
        }
        Kind::Buffer(BufKind::AttrLeaf) => {
            attr_fields(bytes, rng, &mut more);
            leaf_parents(bytes, rng, &mut more);
        }
        Kind::Buffer(BufKind::Symlink) => more.push(("target".into(), 60, 1)),
        _ => {}
    }
    let named = table.iter().map(|(name, at, len)| ((*name).to_owned(), *at, *len));
    named.chain(more).filter(|(_, at, len)| at + len <= bytes.len()).collect()
}
