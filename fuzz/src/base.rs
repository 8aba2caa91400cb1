//! Small volumes with every kind of structure, made in memory, and the seeds taken from them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use uxfs::clock::Clock;
use uxfs::{Fs, NewInode, OpenOptions, XattrMode, export, mkfs};
use uxfs_disk::{BlockDev, MemDev};
use uxfs_format::inode::{S_IFBLK, S_IFCHR, S_IFIFO};
use uxfs_format::timestamp::Timestamp;
use uxfs_format::verify::BufKind;
use uxfs_format::{Geometry, Ino, superblock::Superblock};

use crate::rich;
use crate::structures::{Kind, Structure, find};

/// Feature sets, as options of mkfs: the first half are for single structures too.
pub(crate) const FEATURES: [&str; 6] = [
    "-b size=1024 -m rmapbt=1",
    "-b size=4096 -m rmapbt=1 -i nrext64=1",
    "-b size=1024 -n size=8192 -m finobt=0,reflink=0,bigtime=0,inobtcount=0 -i sparse=0",
    "-b size=1024 -m rmapbt=1 -n parent=1 -i nrext64=1,exchange=1",
    "-b size=2048 -i size=1024",
    "-b size=4096 -s size=4096 -d su=64k,sw=2",
];

/// Smallest that both mkfs and the check take.
const BYTES: u64 = 64 << 20;
pub(crate) const MOMENT: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 123_456_789 };

/// A sound volume and its content.
pub(crate) struct Base {
    pub(crate) memory: Arc<MemDev>,
    pub(crate) geo: Geometry,
    pub(crate) structures: Vec<Structure>,
}

/// An empty volume made with these options.
pub(crate) fn empty(line: &str) -> Arc<MemDev> {
    let mut options = mkfs::Options::default();
    options.unsupported = true;
    options.uuid = Some(uxfs_format::Uuid(*b"uxfs-fuzz-volume"));
    let words: Vec<&str> = line.split_whitespace().collect();
    for pair in words.chunks(2) {
        let letter = pair[0].chars().nth(1).unwrap_or('?');
        options.apply(letter, pair[1]).unwrap_or_else(|e| panic!("{line}: {e}"));
    }
    let layout = mkfs::Layout::new(&options, BYTES).unwrap_or_else(|e| panic!("{line}: {e}"));
    let dev = Arc::new(MemDev::new(BYTES));
    let mut how = mkfs::WriteOptions::default();
    how.zero_log = true;
    how.now = Some(MOMENT);
    mkfs::write(&layout, &*dev, &how).unwrap_or_else(|e| panic!("{line}: {e}"));
    dev
}

pub(crate) fn open(dev: Arc<dyn BlockDev>) -> Fs {
    let mut options = OpenOptions::default();
    options.clock = Clock::Fixed(MOMENT);
    options.seed = Some(7);
    options.cache_bytes = 4 << 20;
    Fs::open(dev, options).unwrap_or_else(|e| panic!("opening a sound volume: {e}"))
}

impl Base {
    /// The content of a sound volume.
    pub(crate) fn new(dev: Arc<MemDev>) -> Self {
        let mut sector = vec![0; 4096];
        dev.read_at(0, &mut sector).unwrap_or_else(|e| panic!("{e}"));
        let sb = Superblock::verify(&sector).unwrap_or_else(|e| panic!("{e}"));
        Self { geo: Geometry::new(sb), structures: find(&*dev), memory: dev }
    }
}

/// Volumes with every kind of structure.
pub(crate) fn full() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let volume = |line: &&str| {
            let dev = empty(line);
            let fs = open(Arc::clone(&dev) as Arc<dyn BlockDev>);
            fill(&fs)
                .and_then(|()| rich::enrich(&fs))
                .and_then(|()| fs.close())
                .unwrap_or_else(|e| panic!("{line}: {e}"));
            Base::new(dev)
        };
        FEATURES.iter().map(volume).collect()
    })
}

/// Empty volumes.
pub(crate) fn fresh() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| FEATURES[..4].iter().map(|line| Base::new(empty(line))).collect())
}

fn fill(fs: &Fs) -> uxfs::Result<()> {
    let root = fs.root();
    let block = fs.geo.block_size as usize;
    let file = fs.create(root, b"file", &NewInode::file(0o644))?;
    fs.write_at(file, 0, &vec![7; 3 * block])?;
    // Numbers of names for each directory form, in blocks of 1 KiB.
    let kib = block.div_ceil(1024);
    for (name, count, len) in
        [("short", 3, 5), ("one", 16, 12), ("leaf", 70 * kib.min(2), 14), ("node", 160 * kib, 30)]
    {
        let dir = fs.create(root, name.as_bytes(), &NewInode::dir(0o755))?;
        for number in 0..count {
            let mut name = format!("{number}-").into_bytes();
            name.resize(len.max(name.len()), b'n');
            fs.link(file, dir, &name)?;
        }
        fs.create(dir, b"inner", &NewInode::dir(0o700))?;
        if name == "node" {
            for number in (0..count).step_by(12) {
                let mut name = format!("{number}-").into_bytes();
                name.resize(len.max(name.len()), b'n');
                fs.unlink(dir, &name)?;
            }
        }
    }
    let dir = fs.create(root, b"files", &NewInode::dir(0o750))?;
    for (name, extents) in [("b", 12), ("c", 70), ("d", 200)] {
        let file = fs.create(dir, name.as_bytes(), &NewInode::file(0o640))?;
        for extent in 0..extents {
            fs.write_at(file, extent * 2 * block as u64, &vec![9; block])?;
        }
    }
    for (name, len) in [("near", 20), ("far", 1000)] {
        fs.symlink(dir, name.as_bytes(), &vec![b'x'; len], &NewInode::new(0o777))?;
    }
    for (name, kind) in [("chr", S_IFCHR), ("blk", S_IFBLK), ("pipe", S_IFIFO)] {
        let mut new = NewInode::new(kind | 0o600);
        new.rdev = (5, 1);
        fs.create(dir, name.as_bytes(), &new)?;
    }
    attributes(fs, dir)
}

fn attributes(fs: &Fs, dir: Ino) -> uxfs::Result<()> {
    for (name, count, len) in [("few", 2, 10), ("some", 10, 40), ("lots", 60, 90)] {
        let file = fs.create(dir, name.as_bytes(), &NewInode::file(0o600))?;
        for number in 0..count {
            let key = format!("user.attribute-{number}");
            fs.set_xattr(file, key.as_bytes(), &vec![b'v'; len], XattrMode::Any)?;
        }
    }
    let file = fs.create(dir, b"large", &NewInode::file(0o600))?;
    fs.set_xattr(file, b"user.big", &[b'w'; 5000], XattrMode::Any)?;
    fs.set_xattr(file, b"security.x", b"small", XattrMode::Any)
}

/// Seeds of one structure.
fn target_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Inode => "inode",
        Kind::LogRecord => "log",
        Kind::Quota => "quota",
        Kind::Buffer(kind) => match kind {
            BufKind::Superblock => "superblock",
            BufKind::Agf => "agf",
            BufKind::Agi => "agi",
            BufKind::Agfl => "agfl",
            BufKind::Btree(uxfs_format::btree::TreeKind::Bmap) => "bmbt",
            BufKind::Btree(_) => "btree",
            BufKind::InodeCluster => "inode",
            BufKind::Symlink => "symlink",
            BufKind::DirBlock => "dir_block",
            BufKind::DirData => "dir_data",
            BufKind::DirLeaf1 => "dir_leaf1",
            BufKind::DirLeafN => "dir_leafn",
            BufKind::DirFree => "dir_free",
            BufKind::DaNode => "da_node",
            BufKind::AttrLeaf => "attr_leaf",
            BufKind::AttrRemote => "attr_remote",
            BufKind::Dquot(_) => "quota",
        },
    }
}

/// Seeds by target.
type Seeds = BTreeMap<&'static str, Vec<Vec<u8>>>;

/// Most seeds of one target from one volume.
const SEEDS_EACH: usize = 12;

/// Writes the seeds of every target into `dir`, each target's into a directory of its name.
///
/// # Errors
/// An I/O error of the host.
pub fn write_seeds(dir: &Path) -> std::io::Result<()> {
    let mut seeds = Seeds::new();
    for (number, base) in full().iter().enumerate() {
        let mut counts = BTreeMap::new();
        for structure in &base.structures {
            let target = target_of(structure.kind);
            let count: &mut usize = counts.entry(target).or_default();
            *count += 1;
            if *count > SEEDS_EACH {
                continue;
            }
            let mut bytes = vec![0; structure.len];
            base.memory.read_at(structure.at, &mut bytes)?;
            if structure.kind == Kind::Inode {
                forks(&bytes, &mut seeds);
            }
            bytes.insert(0, number as u8);
            seeds.entry(target).or_default().push(bytes);
        }
    }
    streams(&mut seeds)?;
    for (target, text) in WORDS {
        seeds.entry(target).or_default().push(text.as_bytes().to_vec());
    }
    seeds.entry("acl").or_default().push(
        b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x04\0\x04\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff"
            .to_vec(),
    );
    more(&mut seeds);
    seeds.entry("mdrestore").or_default().extend(crate::dumps::seeds());
    for dump in [
        &include_bytes!("../../crates/uxfs-archive/tests/dumps/three.zst")[..],
        &include_bytes!("../../crates/uxfs-archive/tests/dumps/two.zst")[..],
    ] {
        seeds.entry("xfsdump").or_default().push(zstd::decode_all(dump)?);
    }
    for number in 0..60u8 {
        let record = |salt: u8| {
            let mix = |by: u8| number.wrapping_mul(by).wrapping_add(salt);
            [mix(37), mix(3) & 1, mix(5), mix(11), 0, mix(7), salt, mix(13)]
        };
        let mut seed = vec![number];
        (0..1 + number % 4).for_each(|salt| seed.extend(record(salt)));
        seeds.entry("resize").or_default().push([&[number, number % 4], &seed[..]].concat());
        seeds.entry("replay").or_default().push(seed.clone());
        seeds.entry("metadump").or_default().push([&seed[..1], &[number], &seed[1..]].concat());
        seeds.entry("image").or_default().push(seed);
    }
    for (target, list) in seeds {
        let dir = dir.join(target);
        std::fs::create_dir_all(&dir)?;
        for (number, seed) in list.into_iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}

/// Seeds of partition tables, dynamic VHD images and documents.
fn more(seeds: &mut Seeds) {
    let mut add = |target, seed: Vec<u8>| seeds.entry(target).or_default().push(seed);
    // A boot record with four entries, the last of them extended, and the record that leads to.
    let record = |entries: &[(u8, u32, u32)]| {
        let mut sector = vec![0; 512];
        for (slot, (kind, start, sectors)) in entries.iter().enumerate() {
            let entry = &mut sector[446 + 16 * slot..][..16];
            entry[4] = *kind;
            entry[8..12].copy_from_slice(&start.to_le_bytes());
            entry[12..].copy_from_slice(&sectors.to_le_bytes());
        }
        sector
    };
    let first = record(&[(0x83, 10, 100), (0x83, 200, 50), (5, 1, 900)]);
    let second = record(&[(0x83, 20, 30), (5, 1, 9)]);
    add("partition", [&[0][..], &first, &second, &record(&[(0x83, 5, 5)])].concat());
    for how in [2u8, 3, 6, 7] {
        let mut header = vec![0; 92];
        header[80..84].copy_from_slice(&4u32.to_le_bytes());
        header[84..88].copy_from_slice(&128u32.to_le_bytes());
        let mut entries = vec![0; 512];
        for (slot, entry) in entries.chunks_exact_mut(128).take(3).enumerate() {
            entry[..32].fill(slot as u8 + 1);
            entry[32] = 40 + 20 * slot as u8;
            entry[40] = 50 + 20 * slot as u8;
            entry[56..64].copy_from_slice(b"r\0o\0o\0t\0");
        }
        add("partition", [&[how][..], &[0; 512], &header, &entries].concat());
    }
    add("vhd", dynamic_vhd());
    for line in MANIFESTS {
        add("manifest", line.as_bytes().to_vec());
    }
    for text in PROTOFILES {
        add("protofile", text.as_bytes().to_vec());
    }
    for text in LAYOUTS {
        add("oci", text.as_bytes().to_vec());
    }
}

/// A dynamic VHD image of three blocks of 4 KiB, as the target takes it: the second has no place, the third is
/// cut by the disk's end, and one bit in eight of the bitmaps is clear.
fn dynamic_vhd() -> Vec<u8> {
    let mut raw = vec![0; 2048];
    let mut put = |at: usize, bytes: &[u8]| raw[at..at + bytes.len()].copy_from_slice(bytes);
    put(12, &0x0001_0000_u32.to_be_bytes());
    put(16, &512_u64.to_be_bytes());
    put(48, &(2 * 4096 + 1024_u64).to_be_bytes());
    put(60, &3_u32.to_be_bytes());
    put(512 + 16, &1536_u64.to_be_bytes());
    put(512 + 24, &0x0001_0000_u32.to_be_bytes());
    put(512 + 28, &3_u32.to_be_bytes());
    put(512 + 32, &4096_u32.to_be_bytes());
    for (slot, entry) in [4, u32::MAX, 13].into_iter().enumerate() {
        put(1536 + 4 * slot, &entry.to_be_bytes());
    }
    for content in [1, 2] {
        let bitmap = raw.len();
        raw.resize(bitmap + 512, 0);
        raw[bitmap] = 0xef;
        raw.resize(bitmap + 512 + 4096, content);
    }
    raw
}

/// Lines in composefs' format.
const MANIFESTS: [&str; 3] = [
    "/ 0 40755 4 0 0 0 1700000000.5 - - -\n/dir 0 40755 2 7 8 0 1.0 - - - user.a=b\n\
     /dir/file 5000 100644 1 0 0 0 1.0 payload - - security.x=\\x00\\x01\n",
    "/ 0 40755 4 0 0 0 0.0 - - -\n/a\\x20b 3 100644 2 0 0 0 -5.1 - abc -\n\
     /link 0 @100644 2 0 0 0 0.0 /a\\x20b - -\n/far 0 120777 1 0 0 0 0.0 /target - -\n",
    "/ 0 40755 4 0 0 0 0.0 - - -\n/n 0 20600 1 0 0 1281 0.0 - - -\n/p 0 10600 1 0 0 0 0.0 - - -\n\
     /x 5000 100644 1 0 0 0 0.0 out/payload - -\n",
];

/// Protofiles as the target takes them.
const PROTOFILES: [&str; 3] = [
    "0boot\n0 0\nd--755 0 0\nusr d--755 3 1\nsh -ug755 3 1 @\nken dug777 6 1\n$\n\
     b0 b--644 3 1 8 1\nc0 c--644 3 1 1 3\nfifo p--644 3 1\nslink l--777 3 1 a/b\n: comment\n$\n$\n",
    "1x 1 1 d--755 0 0 a/b ---644 1 2 @ r r--600 0 0 70000 $",
    "0x 0 0 d--755 0 0 a d--700 0 0 a d--700 0 0 a p--600 4294967294 0 $ $ $",
];

/// Layouts as the target takes them.
const LAYOUTS: [&str; 2] = [
    "layer@@@@{\"architecture\":\"amd64\",\"os\":\"linux\",\"rootfs\":{\"type\":\"layers\",\
     \"diff_ids\":[\"@0\"]}}@@@@{\"schemaVersion\":2,\"config\":{\"mediaType\":\
     \"application/vnd.oci.image.config.v1+json\",\"digest\":\"@1\",\"size\":#1},\"layers\":[{\
     \"mediaType\":\"application/vnd.oci.image.layer.v1.tar\",\"digest\":\"@0\",\"size\":#0}]}@@@@{\
     \"schemaVersion\":2,\"manifests\":[{\"mediaType\":\
     \"application/vnd.oci.image.manifest.v1+json\",\"digest\":\"@2\",\"size\":#2,\"platform\":{\
     \"os\":\"linux\",\"architecture\":\"amd64\"}}]}",
    "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\
     \"digest\":\"sha256:00\",\"size\":3,\"annotations\":{\
     \"org.opencontainers.image.ref.name\":\"v1\"}}]}",
];

/// The short forms in an inode's forks.
fn forks(raw: &[u8], seeds: &mut Seeds) {
    let split = usize::from(raw[82]) * 8;
    let literal = &raw[176..];
    if raw[2] >> 4 == 4 && raw[5] == 1 {
        let size = usize::from(u16::from_be_bytes([raw[62], raw[63]])).min(literal.len());
        seeds.entry("dir_short").or_default().push(literal[..size].to_vec());
    }
    if split > 0 && split < literal.len() && raw[83] == 1 {
        seeds.entry("attr_short").or_default().push(literal[split..].to_vec());
    }
}

const WORDS: [(&str, &str); 14] = [
    ("mkfs", "\x01b size=1024\nd agcount=2,su=64k,sw=2\nl size=8m"),
    ("mkfs", "\x02i size=1024,maxpct=5,sparse=0,nrext64=1\nm rmapbt=1,finobt=0"),
    ("mkfs", "\x03n size=8192,parent=1\ns size=4096\nL label\nl sunit=64"),
    ("mkfs", "\x00d agsize=32m,size=16384b,noalign\nm uuid=12345678-1234-1234-1234-123456789abc"),
    ("cli", "u+rwx,g-s,o=u,a+t"),
    ("cli", "0644"),
    ("cli", "12MiB"),
    ("cli", "*.[a-z]?\\*[!x]"),
    ("cli", "image.img:/path/./to//file"),
    ("cli", "+%Y-%m-%d %H:%M:%S.%N %z %s %j"),
    ("cli", "long-iso"),
    ("xattr", "\x00\x01user.name\x05value"),
    ("xattr", "\x08system.posix_acl_access"),
    ("xattr", "\x03trusted.large-value-and-more"),
];

/// A small tree with every kind of file, as a tar, plain and compressed.
fn streams(seeds: &mut Seeds) -> std::io::Result<()> {
    let fs =
        open(Arc::new(uxfs_disk::Overlay::new(Arc::clone(&fresh()[0].memory) as _, usize::MAX)));
    small_tree(&fs).map_err(std::io::Error::other)?;
    let (tar, _) = export::export(&fs, fs.root(), Vec::new()).map_err(std::io::Error::other)?;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&tar)?;
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(&tar)?;
    let compressed = vec![gzip.finish()?, xz.finish()?, zstd::encode_all(&tar[..], 1)?];
    seeds.entry("compressed").or_default().extend(compressed);
    for target in ["tar", "import"] {
        seeds.entry(target).or_default().push(tar.clone());
    }
    let (_, documents) = LAYOUTS[0].split_once("@@@@").unwrap_or_default();
    let layout = [&tar[..], b"@@@@", documents.as_bytes()].concat();
    seeds.entry("oci").or_default().push(layout);
    Ok(())
}

fn small_tree(fs: &Fs) -> uxfs::Result<()> {
    let root = fs.root();
    let dir = fs.create(root, b"dir", &NewInode::dir(0o755))?;
    let file = fs.create(dir, b"sparse", &NewInode::file(0o644))?;
    fs.write_at(file, 0, b"data")?;
    fs.write_at(file, 5000, b"more data")?;
    fs.set_xattr(file, b"user.name", b"value", XattrMode::Any)?;
    fs.link(file, root, b"link")?;
    fs.symlink(dir, b"symlink", &[b'x'; 200], &NewInode::new(0o777))?;
    let mut new = NewInode::new(S_IFCHR | 0o600);
    new.rdev = (5, 1);
    fs.create(dir, b"device", &new)?;
    fs.create(dir, &[b'n'; 180], &NewInode::file(0o600))?;
    Ok(())
}
