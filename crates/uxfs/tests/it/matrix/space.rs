//! Allocation and sharing: `fallocate` in all its modes, shared blocks, extent size hints, flags and
//! projects.

use uxfs::{Fallocate, Fs, Fsx, NewInode, Result, Xflags};
use uxfs_oracle::Rng;

use super::script::{Expected, Shadow};

/// Runs all operations. Returns the expected content of the files.
pub(super) fn run(fs: &Fs, rng: &mut Rng) -> Result<Vec<Expected>> {
    let mut files = vec![modes(fs, rng)?, hints(fs, rng)?];
    if fs.geo.has_reflink() {
        files.extend(shared(fs, rng)?);
    }
    flags(fs)?;
    Ok(files)
}

fn expected(name: &[u8], shadow: Shadow<'_>) -> Expected {
    Expected { path: [b"/", name].concat(), content: shadow.content }
}

/// Every mode of fallocate, at edges of blocks and between them.
fn modes(fs: &Fs, rng: &mut Rng) -> Result<Expected> {
    let block = fs.geo.block_size as usize;
    let name = b"allocated";
    let mut file = Shadow::create(fs, name)?;
    file.write(0, &rng.bytes(12 * block + 100))?;
    let change = |file: &Shadow<'_>, mode, at: usize, len: usize| {
        fs.fallocate(file.ino, mode, at as u64, len as u64)
    };
    change(&file, Fallocate::PunchHole, block + 7, 2 * block)?;
    file.content[block + 7..3 * block + 7].fill(0);
    change(&file, Fallocate::ZeroRange { keep_size: true }, 4 * block - 9, block + 20)?;
    file.content[4 * block - 9..5 * block + 11].fill(0);
    change(&file, Fallocate::CollapseRange, 6 * block, 2 * block)?;
    file.content.drain(6 * block..8 * block);
    change(&file, Fallocate::InsertRange, 3 * block, 3 * block)?;
    file.content.splice(3 * block..3 * block, vec![0; 3 * block]);
    let size = file.content.len();
    change(&file, Fallocate::Allocate { keep_size: true }, size + block, 5 * block)?;
    change(&file, Fallocate::Allocate { keep_size: false }, size, block)?;
    file.content.resize(size + block, 0);
    change(&file, Fallocate::ZeroRange { keep_size: false }, size, 2 * block)?;
    file.content.resize(size + 2 * block, 0);
    change(&file, Fallocate::Unshare { keep_size: true }, 0, 4 * block)?;
    file.write(size + 3, b"into what was allocated")?;
    // Allocated beyond the end, and in more extents than an inode can hold.
    let pieces = Shadow::create(fs, b"allocated, in pieces")?;
    for number in 0..fs.geo.inode_size as usize / 16 + 10 {
        change(&pieces, Fallocate::Allocate { keep_size: true }, 2 * number * block, block)?;
    }
    Ok(expected(name, file))
}

/// Hints on a directory, which its files inherit, and on a file; a project.
fn hints(fs: &Fs, rng: &mut Rng) -> Result<Expected> {
    let block = u64::from(fs.geo.block_size);
    let cow = if fs.geo.has_reflink() { Xflags::COWEXTSIZE } else { Xflags::empty() };
    let hint = |flag: Xflags| Fsx {
        xflags: flag | cow,
        extsize: 4 * block,
        projid: 70_000,
        cowextsize: if cow.is_empty() { 0 } else { 2 * block },
        ..Fsx::default()
    };
    let dir = fs.create(fs.root(), b"hints", &NewInode::dir(0o755))?;
    fs.set_fsx(dir, &hint(Xflags::EXTSZINHERIT))?;
    let inner = fs.create(dir, b"inherited", &NewInode::file(0o644))?;
    assert_eq!(fs.get_fsx(inner)?.extsize, 4 * block);
    fs.write_at(inner, 5 * block + 3, &rng.bytes(block as usize))?;
    let name = b"hint";
    let mut file = Shadow::create(fs, name)?;
    fs.set_fsx(file.ino, &hint(Xflags::EXTSIZE))?;
    for at in [0, 9, 3, 30] {
        file.write(at * block as usize, &rng.bytes(block as usize / 2))?;
    }
    file.truncate(10 * block as usize)?;
    Ok(expected(name, file))
}

/// Whole files and ranges shared, written on either side, truncated, and unshared.
fn shared(fs: &Fs, rng: &mut Rng) -> Result<Vec<Expected>> {
    let block = fs.geo.block_size as usize;
    let mut one = Shadow::create(fs, b"shared")?;
    one.write(0, &rng.bytes(10 * block + 55))?;
    one.write(14 * block, &rng.bytes(2 * block))?;
    let mut two = Shadow::create(fs, b"shared too")?;
    fs.clone_file(one.ino, two.ino)?;
    two.content.clone_from(&one.content);
    let mut three = Shadow::create(fs, b"shared in part")?;
    three.write(0, &rng.bytes(8 * block))?;
    let (from, to, len) = (2 * block, 3 * block, 4 * block);
    fs.share(one.ino, from as u64, three.ino, to as u64, len as u64)?;
    three.content[to..to + len].copy_from_slice(&one.content[from..from + len]);
    // Within one file.
    fs.share(three.ino, 0, three.ino, 20 * block as u64, 2 * block as u64)?;
    three.content.resize(20 * block, 0);
    three.content.extend_from_within(..2 * block);
    two.write(block + 5, b"of the second")?;
    one.write(4 * block - 3, &rng.bytes(block))?;
    three.write(4 * block, &rng.bytes(2 * block + 9))?;
    two.truncate(9 * block + 1)?;
    fs.fallocate(one.ino, Fallocate::Unshare { keep_size: true }, 0, 3 * block as u64)?;
    fs.fallocate(three.ino, Fallocate::PunchHole, 20 * block as u64, block as u64)?;
    three.content[20 * block..21 * block].fill(0);
    // More shared extents than one record holds.
    let (many, other) = (Shadow::create(fs, b"pieces")?, Shadow::create(fs, b"pieces too")?);
    let count = 40;
    fs.write_at(many.ino, 0, &rng.bytes(2 * count * block))?;
    for at in (0..count).map(|number| (2 * number * block) as u64) {
        fs.share(many.ino, at, other.ino, at, block as u64)?;
    }
    let gone = Shadow::create(fs, b"pieces, gone")?;
    fs.clone_file(other.ino, gone.ino)?;
    fs.unlink(fs.root(), b"pieces, gone")?;
    let names: [&[u8]; 3] = [b"shared", b"shared too", b"shared in part"];
    Ok(names.into_iter().zip([one, two, three]).map(|(n, file)| expected(n, file)).collect())
}

/// Immutable and append-only flags are enforced and cleared; others stay.
fn flags(fs: &Fs) -> Result<()> {
    let root = fs.root();
    let file = fs.create(root, b"flags", &NewInode::file(0o644))?;
    fs.write_at(file, 0, b"text")?;
    let with = |xflags| Fsx { xflags, ..Fsx::default() };
    for flag in [Xflags::IMMUTABLE, Xflags::APPEND] {
        fs.set_fsx(file, &with(flag))?;
        assert!(fs.write_at(file, 0, b"no").is_err() && fs.unlink(root, b"flags").is_err());
    }
    fs.set_fsx(file, &with(Xflags::NODUMP | Xflags::NOATIME | Xflags::NODEFRAG))?;
    fs.write_at(file, 0, b"yes")
}
