//! Structures that depend on a volume's use rather than on its options: shared and unwritten
//! extents, hints, sparse inode chunks, trees of two levels, unlinked inodes.
//!
//! 1. They are created deliberately; `damage::the_base_volumes_have_every_kind_of_structure` checks
//!    that each exists.
//! 2. This file uses only the library, so that the fuzzers can use it.

use uxfs::{Error, Fallocate, Fs, Fsx, NewInode, Result, Xflags};
use uxfs_format::Ino;
use uxfs_format::inode::S_IFIFO;

/// Adds all of these structures; skips those that the volume's features do not allow.
pub(crate) fn enrich(fs: &Fs) -> Result<()> {
    let dir = fs.create(fs.root(), b"rich", &NewInode::dir(0o755))?;
    unwritten(fs, dir)?;
    hints(fs, dir)?;
    if fs.geo.has_reflink() {
        shared(fs, dir)?;
    }
    parents(fs, dir)?;
    if fs.geo.has_sparse() {
        parts_of_chunks(fs, dir)?;
    }
    fs.sync()
}

/// Unwritten extents in an inode and in a btree, some beyond the end of the file.
fn unwritten(fs: &Fs, dir: Ino) -> Result<()> {
    let block = u64::from(fs.geo.block_size);
    for (name, extents) in [(&b"unwritten"[..], 2), (b"unwritten, many", 90)] {
        let file = fs.create(dir, name, &NewInode::file(0o600))?;
        fs.fallocate(file, Fallocate::Allocate { keep_size: true }, 0, 3 * extents * block)?;
        for extent in 0..extents {
            fs.write_at(file, 3 * extent * block, b"written")?;
        }
    }
    Ok(())
}

/// Extent size hints, a project id and flags, on a directory and on files.
fn hints(fs: &Fs, dir: Ino) -> Result<()> {
    let block = u64::from(fs.geo.block_size);
    let (mut of_dir, mut of_file) = (Fsx::default(), Fsx::default());
    for (fsx, flag) in [(&mut of_dir, Xflags::EXTSZINHERIT), (&mut of_file, Xflags::EXTSIZE)] {
        fsx.xflags = flag | Xflags::NODUMP;
        fsx.extsize = 4 * block;
        fsx.projid = 0x12_3456;
        if fs.geo.has_reflink() {
            fsx.xflags |= Xflags::COWEXTSIZE;
            fsx.cowextsize = 8 * block;
        }
    }
    let inner = fs.create(dir, b"hints", &NewInode::dir(0o700))?;
    fs.set_fsx(inner, &of_dir)?;
    let file = fs.create(dir, b"hint", &NewInode::file(0o600))?;
    fs.set_fsx(file, &of_file)?;
    fs.write_at(file, 0, b"data")?;
    fs.write_at(fs.create(inner, b"inherited", &NewInode::file(0o600))?, 0, b"data")
}

/// Files that share blocks: all of them, or every other one, which needs a btree of two levels. One
/// of three files shares with a third, so that reference counts differ.
fn shared(fs: &Fs, dir: Ino) -> Result<()> {
    let block = u64::from(fs.geo.block_size);
    let records = block / 12 + 30;
    let file = |name: &[u8]| fs.create(dir, name, &NewInode::file(0o640));
    let (one, two, three) = (file(b"shared")?, file(b"shared too")?, file(b"shared by three")?);
    fs.write_at(one, 0, &vec![5; 9 * fs.geo.block_size as usize])?;
    fs.clone_file(one, two)?;
    fs.clone_file(one, three)?;
    fs.write_at(three, 2 * block, b"a copy of its own")?;
    let (from, to, third) = (file(b"every other")?, file(b"of another")?, file(b"of a third")?);
    // In one extent, so that all records are in the same group.
    fs.fallocate(from, Fallocate::Allocate { keep_size: false }, 0, 2 * records * block)?;
    fs.write_at(from, 0, &vec![6; (2 * records * block) as usize])?;
    for number in 0..records {
        let at = 2 * number * block;
        fs.share(from, at, to, at, block)?;
        if number % 3 == 0 {
            fs.share(from, at, third, at, block)?;
        }
    }
    Ok(())
}

/// Creates so many names of one file that its parent pointers take all forms, and a file with few
/// names.
fn parents(fs: &Fs, dir: Ino) -> Result<()> {
    let many = fs.create(dir, b"linked", &NewInode::file(0o600))?;
    let few = fs.create(dir, b"linked too", &NewInode::file(0o600))?;
    let more = fs.create(dir, b"links", &NewInode::dir(0o700))?;
    for number in 0..u64::from(fs.geo.block_size) / 24 {
        fs.link(many, more, format!("a name of the file, and so {number:04}").as_bytes())?;
    }
    for number in 0..12 {
        fs.link(few, more, format!("another name {number:04}").as_bytes())?;
    }
    Ok(())
}

/// Sparse inode chunks: splits the free space into pieces smaller than a chunk, then creates inodes
/// until a sparse chunk is allocated.
fn parts_of_chunks(fs: &Fs, dir: Ino) -> Result<()> {
    let (block, part) = (u64::from(fs.geo.block_size), u64::from(fs.geo.sparse_align));
    let chunk = u64::from(fs.geo.chunk_blocks());
    if part == 0 || part >= chunk {
        return Ok(());
    }
    let taken = fs.create(dir, b"taken", &NewInode::file(0o600))?;
    let (mut end, mut step) = (0, fs.available_blocks().next_power_of_two());
    while step > 0 {
        match fs.fallocate(taken, Fallocate::Allocate { keep_size: true }, end, step * block) {
            Ok(()) => end += step * block,
            Err(Error::NoSpace) => step /= 2,
            Err(error) => return Err(error),
        }
    }
    for extent in fs.extents(taken)?.into_iter().filter(|extent| extent.len > 80 * chunk) {
        let first = u64::from(fs.geo.fsb_agblock(extent.start).0).next_multiple_of(2 * chunk)
            - u64::from(fs.geo.fsb_agblock(extent.start).0);
        for piece in 0..30 {
            // Alternate between the parts of a chunk's range.
            let at = extent.offset.0 + first + piece * 2 * chunk + piece % (chunk / part) * part;
            fs.fallocate(taken, Fallocate::PunchHole, at * block, part * block)?;
        }
    }
    let nodes = fs.create(dir, b"nodes", &NewInode::dir(0o700))?;
    for number in 0..4000 {
        fs.create(nodes, format!("{number}").as_bytes(), &NewInode::new(S_IFIFO | 0o600))?;
        if fs.inode_counts().0 % 64 == 32 {
            break;
        }
    }
    // Free some of them again.
    for number in (0..4000).step_by(7) {
        match fs.unlink(nodes, format!("{number}").as_bytes()) {
            Err(Error::NotFound) => break,
            other => other?,
        }
    }
    fs.unlink(dir, b"taken")
}
