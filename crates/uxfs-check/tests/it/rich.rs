//! What volumes have by use rather than by their options: shared extents, unwritten ones, hints,
//! parts of inode chunks, trees of two levels, inodes without a name.
//!
//! 1. It is there by construction, not by chance: `damage::every_kind_of_structure_is_there` looks for each.
//! 2. It needs nothing but the library, so that the fuzzers have it too.

use uxfs::format::Ino;
use uxfs::format::inode::S_IFIFO;
use uxfs::{Error, Fallocate, Fs, Fsx, NewInode, Result, Xflags};

/// Adds all of it to a volume; what its features do not know is left out.
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

/// Extents allocated but not written, in an inode and in a tree, some behind the end.
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

/// Hints of sizes, a project, and flags, on a directory and on files.
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

/// Files that share: all their blocks, and every other block, which takes a tree of two levels. One
/// of three shares with a third file, so that counts differ.
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
    // Of one extent, so that the records are of one group.
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

/// As many names of one file as take its parent pointers through all forms, if it has any; and few.
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

/// Parts of inode chunks: free space is cut into pieces smaller than a chunk, and inodes are made
/// until a part of one is.
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
            // Now the one part of a chunk's place, now another.
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
    // A few are free again.
    for number in (0..4000).step_by(7) {
        match fs.unlink(nodes, format!("{number}").as_bytes()) {
            Err(Error::NotFound) => break,
            other => other?,
        }
    }
    fs.unlink(dir, b"taken")
}
