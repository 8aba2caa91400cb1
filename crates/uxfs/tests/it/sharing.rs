//! Sharing, fallocate, hints and flags, case by case. The expected results are those of Linux 6.18
//! for the same sequence of calls.

use uxfs::{Error, Fallocate, Fs, Fsx, NewInode, RenameFlags, SetAttr, XattrMode, Xflags};
use uxfs_format::Ino;
use uxfs_format::inode::S_IFLNK;
use uxfs_oracle::db_value;

use crate::volume::Volume;

const EPERM: i32 = 1;
const EXDEV: i32 = 18;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const EFBIG: i32 = 27;
const EOPNOTSUPP: i32 = 95;

fn errno<T>(result: &Result<T, Error>) -> i32 {
    result.as_ref().err().map_or(0, Error::errno)
}

/// A file of `len` bytes.
fn file(fs: &Fs, name: &str, byte: u8, len: usize) -> Ino {
    let ino = fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o644)).unwrap();
    fs.write_at(ino, 0, &vec![byte; len]).unwrap();
    ino
}

fn content(fs: &Fs, ino: Ino) -> Vec<u8> {
    let mut buf = vec![0xee; fs.stat(ino).unwrap().size as usize];
    assert_eq!(fs.read_at(ino, 0, &mut buf).unwrap(), buf.len());
    buf
}

/// A file's extents: offset, length, unwritten.
fn map(fs: &Fs, ino: Ino) -> Vec<(u64, u64, bool)> {
    let mut all: Vec<(u64, u64, bool)> = Vec::new();
    for extent in fs.extents(ino).unwrap() {
        match all.last_mut() {
            // The blocks' location is not compared.
            Some(last) if last.0 + last.1 == extent.offset.0 && last.2 == extent.unwritten => {
                last.1 += extent.len;
            }
            _ => all.push((extent.offset.0, extent.len, extent.unwritten)),
        }
    }
    all
}

fn with_flags(fs: &Fs, ino: Ino, xflags: Xflags) -> Result<(), Error> {
    let old = fs.get_fsx(ino)?;
    fs.set_fsx(ino, &Fsx { xflags, ..old })
}

#[test]
fn ranges_that_can_be_shared() {
    let volume = Volume::small(64, "-m rmapbt=1");
    let fs = volume.open();
    // Source's length, target's; where from, where to, how much; errno, the target's length then.
    let cases: [(u64, u64, u64, u64, u64, i32, u64); 14] = [
        (40960, 20480, 0, 0, 8192, 0, 20480),
        (40960, 20480, 1, 0, 4096, EINVAL, 20480),
        (40960, 20480, 0, 1, 4096, EINVAL, 20480),
        (40960, 20480, 0, 0, 5000, EINVAL, 20480),
        (39000, 20480, 36864, 0, 2136, EINVAL, 20480),
        (39000, 2136, 36864, 0, 2136, 0, 2136),
        (39000, 20480, 36864, 40960, 2136, 0, 43096),
        (40960, 20480, 36864, 0, 8192, EINVAL, 20480),
        (40960, 20480, 40960, 0, 4096, EINVAL, 20480),
        (40960, 20480, 40960, 0, 0, 0, 20480),
        (40960, 20480, 45056, 0, 0, EINVAL, 20480),
        (40960, 20480, 4096, 0, 0, 0, 36864),
        (40960, 5000, 0, 65536, 4096, 0, 69632),
        (40960, 20480, 0, (1 << 63) - 4096, 4096, EFBIG, 20480),
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let (source, target, from_at, to_at, len, want, size) = case;
        let from = file(&fs, &format!("from {number}"), b'a', source as usize);
        let to = file(&fs, &format!("to {number}"), b'b', target as usize);
        let got = fs.share(from, from_at, to, to_at, len);
        assert_eq!(errno(&got), want, "{case:?}: {got:?}");
        assert_eq!(fs.stat(to).unwrap().size, size, "{case:?}");
        if want == 0 {
            let len = if len == 0 { source - from_at } else { len };
            let mut wanted = vec![b'b'; target as usize];
            wanted.resize(size as usize, 0);
            wanted[to_at as usize..(to_at + len) as usize].fill(b'a');
            assert!(content(&fs, to) == wanted, "{case:?}");
        }
        assert!(content(&fs, from).iter().all(|byte| *byte == b'a'));
    }
    let one = file(&fs, "one", b'x', 20480);
    assert_eq!(errno(&fs.share(one, 0, one, 4096, 8192)), EINVAL, "overlap");
    assert_eq!(errno(&fs.share(one, 0, one, 0, 4096)), EINVAL, "the same");
    fs.share(one, 0, one, 20480, 8192).unwrap();
    assert_eq!(content(&fs, one), vec![b'x'; 28672]);
    assert_eq!(errno(&fs.share(fs.root(), 0, one, 0, 0)), EISDIR);
    assert_eq!(errno(&fs.share(one, 0, fs.root(), 0, 0)), EISDIR);
    fs.close().unwrap();
    volume.judge("shared ranges");
    let without = Volume::small(64, "-m reflink=0");
    let fs = without.open();
    let (a, b) = (file(&fs, "a", 1, 4096), file(&fs, "b", 2, 4096));
    assert_eq!(errno(&fs.clone_file(a, b)), EOPNOTSUPP);
}

#[test]
fn what_reads_as_zeroes_is_not_shared() {
    let volume = Volume::small(64, "-m rmapbt=1");
    let fs = volume.open();
    let from = fs.create(fs.root(), b"from", &NewInode::file(0o644)).unwrap();
    fs.fallocate(from, Fallocate::Allocate { keep_size: false }, 0, 8192).unwrap();
    fs.write_at(from, 8192, &[1; 4096]).unwrap();
    fs.truncate(from, 20480).unwrap();
    assert_eq!(map(&fs, from), [(0, 2, true), (2, 1, false)]);
    let to = file(&fs, "to", 2, 20480);
    fs.clone_file(from, to).unwrap();
    assert_eq!(map(&fs, to), [(2, 1, false)]);
    assert_eq!(fs.stat(to).unwrap().blocks, 1);
    assert!(content(&fs, to) == content(&fs, from));
    fs.close().unwrap();
    volume.judge("zeroes");
}

type Step = (Fallocate, u64, u64);
/// Length in bytes and extents afterwards, or an errno.
type Outcome<'a> = Result<(u64, &'a [(u64, u64, bool)]), i32>;

#[test]
fn fallocate_as_the_kernel_does_it() {
    use Fallocate::{Allocate, CollapseRange, InsertRange, PunchHole, Unshare, ZeroRange};
    let (grow, keep) = (false, true);
    let cases: [(u64, Step, Outcome<'_>); 24] = [
        (
            20480,
            (Allocate { keep_size: grow }, 10000, 30000),
            Ok((40000, &[(0, 5, false), (5, 5, true)])),
        ),
        (
            20480,
            (Allocate { keep_size: keep }, 10000, 30000),
            Ok((20480, &[(0, 5, false), (5, 5, true)])),
        ),
        (20480, (PunchHole, 5000, 10000), Ok((20480, &[(0, 2, false), (3, 2, false)]))),
        (20480, (PunchHole, 5000, 100_000), Ok((20480, &[(0, 2, false)]))),
        (20480, (PunchHole, 50000, 100_000), Ok((20480, &[(0, 5, false)]))),
        (
            20480,
            (ZeroRange { keep_size: grow }, 5000, 10000),
            Ok((20480, &[(0, 2, false), (2, 1, true), (3, 2, false)])),
        ),
        (
            20480,
            (ZeroRange { keep_size: grow }, 5000, 100_000),
            Ok((105_000, &[(0, 2, false), (2, 24, true)])),
        ),
        (
            20480,
            (ZeroRange { keep_size: keep }, 5000, 100_000),
            Ok((20480, &[(0, 2, false), (2, 24, true)])),
        ),
        (20480, (CollapseRange, 4096, 4096), Ok((16384, &[(0, 4, false)]))),
        (20480, (CollapseRange, 4096, 5000), Err(EINVAL)),
        (20480, (CollapseRange, 4097, 4096), Err(EINVAL)),
        (20480, (CollapseRange, 4096, 16384), Err(EINVAL)),
        (20480, (CollapseRange, 4096, 20480), Err(EINVAL)),
        (20000, (CollapseRange, 0, 4096), Ok((15904, &[(0, 4, false)]))),
        (20480, (InsertRange, 4096, 8192), Ok((28672, &[(0, 1, false), (3, 4, false)]))),
        (20480, (InsertRange, 20480, 8192), Err(EINVAL)),
        (20480, (InsertRange, 40960, 8192), Err(EINVAL)),
        (20480, (InsertRange, 4096, 5000), Err(EINVAL)),
        (20000, (InsertRange, 0, 4096), Ok((24096, &[(1, 5, false)]))),
        (20480, (InsertRange, 0, (1 << 63) - 8192), Err(EFBIG)),
        (
            20480,
            (Unshare { keep_size: grow }, 4096, 40960),
            Ok((45056, &[(0, 5, false), (5, 6, true)])),
        ),
        (20480, (Allocate { keep_size: grow }, 0, 0), Err(EINVAL)),
        (20480, (Allocate { keep_size: grow }, 1 << 62, 1 << 62), Err(EFBIG)),
        (20480, (PunchHole, u64::MAX, 2), Err(EFBIG)),
    ];
    // On files without shared blocks, and on files that share all blocks.
    for shared in [false, true] {
        let volume = Volume::small(64, "-m rmapbt=1");
        let fs = volume.open();
        for (number, (size, (mode, offset, len), want)) in cases.into_iter().enumerate() {
            let case = format!("{mode:?} {offset}+{len}, shared: {shared}");
            let ino = file(&fs, &format!("{number}"), b'x', size as usize);
            let other = file(&fs, &format!("{number} too"), b'y', 100);
            if shared {
                fs.clone_file(ino, other).unwrap();
            }
            let got = fs.fallocate(ino, mode, offset, len);
            assert_eq!(errno(&got), want.err().unwrap_or(0), "{case}: {got:?}");
            if let Ok((size, extents)) = want {
                assert_eq!(fs.stat(ino).unwrap().size, size, "{case}");
                assert_eq!(map(&fs, ino), extents, "{case}");
            }
            if shared {
                assert_eq!(content(&fs, other), vec![b'x'; size as usize], "{case}: the other");
            }
        }
        fs.close().unwrap();
        volume.judge(&format!("fallocate, shared: {shared}"));
    }
}

#[test]
fn range_operations_with_space_beyond_the_end() {
    let volume = Volume::small(64, "");
    let fs = volume.open();
    let keep = Fallocate::Allocate { keep_size: true };
    let down = file(&fs, "down", 1, 20480);
    fs.fallocate(down, keep, 20480, 20480).unwrap();
    fs.fallocate(down, Fallocate::CollapseRange, 0, 4096).unwrap();
    assert_eq!(map(&fs, down), [(0, 4, false)]);
    let up = file(&fs, "up", 1, 20480);
    fs.fallocate(up, keep, 20480, 20480).unwrap();
    fs.fallocate(up, Fallocate::InsertRange, 0, 4096).unwrap();
    assert_eq!(map(&fs, up), [(1, 5, false), (6, 5, true)]);
    let data = vec![9; 30000];
    fs.write_at(up, 24576, &data).unwrap();
    assert_eq!(content(&fs, up)[24576..], data);
    fs.close().unwrap();
    volume.judge("space behind the end");
}

/// Reference counts from 1 to many in adjacent blocks, and back to 0.
#[test]
fn reference_counts_are_exact() {
    for line in ["-m rmapbt=1 -d agcount=2", "-b size=1k -d agcount=2", "-b size=1k -m rmapbt=1"] {
        let volume = Volume::small(64, line);
        let fs = volume.open();
        let free = fs.free_blocks();
        let block = u64::from(fs.geo.block_size);
        let blocks = 400;
        let first = file(&fs, "0", 7, (blocks * block) as usize);
        let copies: Vec<Ino> = (1..60u64)
            .map(|number| {
                let ino = file(&fs, &format!("{number}"), 0, 0);
                // Copies get shorter, and every fourth has holes.
                let len = blocks - 6 * number;
                fs.share(first, 0, ino, 0, len * block).unwrap();
                for hole in (0..len).step_by(2).filter(|_| number % 4 == 0) {
                    fs.fallocate(ino, Fallocate::PunchHole, hole * block, block).unwrap();
                }
                ino
            })
            .collect();
        fs.close().unwrap();
        volume.judge(&format!("{line}: shared"));
        let fs = volume.open();
        for ino in copies.iter().step_by(3) {
            fs.write_at(*ino, 3 * block + 5, &vec![8; 20 * block as usize]).unwrap();
        }
        let unshared = copies[1];
        let size = fs.stat(unshared).unwrap().size;
        let mode = Fallocate::Unshare { keep_size: true };
        fs.fallocate(unshared, mode, 0, size).unwrap();
        assert_eq!(content(&fs, unshared), vec![7; size as usize]);
        assert_eq!(content(&fs, first), vec![7; (blocks * block) as usize]);
        fs.close().unwrap();
        volume.judge(&format!("{line}: written"));
        let flag = db_value(&volume.path, &[&format!("inode {}", unshared.0)], "v3.reflink");
        assert_eq!(flag, "0", "{line}: the flag of a file that shares nothing");
        let fs = volume.open();
        for number in 0..60 {
            fs.unlink(fs.root(), format!("{number}").as_bytes()).unwrap();
        }
        fs.close().unwrap();
        volume.judge(&format!("{line}: gone"));
        let groups = volume.open().geo.ag_count;
        for ag in 0..groups {
            let head = format!("agf {ag}");
            let records = db_value(&volume.path, &[&head, "addr refcntroot"], "numrecs");
            assert_eq!(records, "0", "{line}: group {ag}");
        }
        let lost = free.saturating_sub(volume.open().free_blocks());
        assert!(lost < 20, "{line}: {lost} blocks lost");
    }
}

/// On a full volume, sharing fails before anything changes, and shared blocks can be freed.
#[test]
fn sharing_on_a_full_volume() {
    let volume = Volume::small(32, "-b size=1k -m rmapbt=1 -d agcount=2");
    let fs = volume.open();
    let from = file(&fs, "from", 1, 1 << 20);
    let mut made = Vec::new();
    let big = file(&fs, "big", 2, 0);
    for number in 0.. {
        if let Err(error) = fs.write_at(big, number << 14, &[2; 1 << 14]) {
            assert_eq!(errno(&Err::<(), _>(error)), 28);
            break;
        }
    }
    for number in 0..4000_u64 {
        let name = format!("copy {number}").into_bytes();
        let Ok(ino) = fs.create(fs.root(), &name, &NewInode::file(0o644)) else { break };
        made.push(name);
        match fs.share(from, (number % 500) * 2048, ino, 0, 1024) {
            Err(Error::NoSpace) => {}
            other => other.unwrap(),
        }
    }
    fs.close().unwrap();
    volume.judge("full and shared");
    let fs = volume.open();
    for hole in 0..512 {
        match fs.fallocate(from, Fallocate::PunchHole, hole * 2048, 1024) {
            Err(Error::NoSpace) => {}
            other => other.unwrap(),
        }
    }
    for name in made {
        fs.unlink(fs.root(), &name).unwrap();
    }
    fs.unlink(fs.root(), b"from").unwrap();
    fs.unlink(fs.root(), b"big").unwrap();
    fs.close().unwrap();
    volume.judge("let go");
}

#[test]
fn hints_are_validated_stored_and_inherited() {
    let volume = Volume::small(320, "-m rmapbt=1");
    let fs = volume.open();
    let ino = file(&fs, "f", 0, 0);
    let hint = |xflags, extsize, cowextsize| Fsx { xflags, extsize, cowextsize, ..Fsx::default() };
    let half = u64::from(fs.geo.ag_blocks / 2) * 4096;
    for (bytes, want) in
        [(1000, EINVAL), (4096, 0), (half, 0), (half + 4096, EINVAL), (1 << 31, EINVAL)]
    {
        assert_eq!(errno(&fs.set_fsx(ino, &hint(Xflags::EXTSIZE, bytes, 0))), want, "{bytes}");
        assert_eq!(errno(&fs.set_fsx(ino, &hint(Xflags::COWEXTSIZE, 0, bytes))), want, "{bytes}");
    }
    fs.set_fsx(ino, &Fsx::default()).unwrap();
    let dir = fs.create(fs.root(), b"d", &NewInode::dir(0o755)).unwrap();
    for (ino, flag, want) in [
        (ino, Xflags::EXTSZINHERIT, EINVAL),
        (dir, Xflags::EXTSIZE, EINVAL),
        (ino, Xflags::REALTIME, EINVAL),
        (ino, Xflags::PROJINHERIT, 0),
    ] {
        assert_eq!(errno(&with_flags(&fs, ino, flag)), want, "{flag:?}");
    }
    let told = fs.get_fsx(ino).unwrap().xflags - Xflags::HASATTR;
    assert_eq!(told, Xflags::empty(), "not for files");
    let flags = Xflags::PROJINHERIT
        | Xflags::NOATIME
        | Xflags::SYNC
        | Xflags::NODUMP
        | Xflags::NOSYMLINKS
        | Xflags::NODEFRAG
        | Xflags::EXTSZINHERIT
        | Xflags::COWEXTSIZE;
    let up = Fsx { projid: 42, ..hint(flags, 65536, 131_072) };
    fs.set_fsx(dir, &up).unwrap();
    let link = fs.symlink(dir, b"l", b"x", &NewInode::new(S_IFLNK | 0o777));
    assert_eq!(errno(&link), EPERM);
    let told = |name: &[u8], new: &NewInode| {
        let ino = fs.create(dir, name, new).unwrap();
        let fsx = fs.get_fsx(ino).unwrap();
        (fsx.xflags - Xflags::HASATTR, fsx.extsize, fsx.cowextsize, fsx.projid)
    };
    let below = flags - Xflags::NOSYMLINKS;
    assert_eq!(told(b"sub", &NewInode::dir(0o755)), (below, 65536, 131_072, 42));
    let file_flags = (below - Xflags::EXTSZINHERIT - Xflags::PROJINHERIT) | Xflags::EXTSIZE;
    assert_eq!(told(b"f", &NewInode::file(0o644)), (file_flags, 65536, 131_072, 42));
    assert_eq!(told(b"q", &NewInode::new(0o010644)), (Xflags::empty(), 0, 0, 42));
    // Only files of the same project can be linked or renamed into it.
    assert_eq!(errno(&fs.link(ino, dir, b"in")), EXDEV);
    assert_eq!(errno(&fs.rename(fs.root(), b"f", dir, b"in", RenameFlags::Replace)), EXDEV);
    fs.set_attr(ino, &SetAttr { projid: Some(42), ..SetAttr::default() }).unwrap();
    fs.link(ino, dir, b"in").unwrap();
    fs.close().unwrap();
    volume.judge("hints");
}

#[test]
fn hints_are_obeyed() {
    let volume = Volume::small(128, "-m rmapbt=1");
    let fs = volume.open();
    let sized = |name: &str, extsize, cowextsize| {
        let ino = file(&fs, name, 0, 0);
        let mut xflags = Xflags::empty();
        xflags.set(Xflags::EXTSIZE, extsize != 0);
        xflags.set(Xflags::COWEXTSIZE, cowextsize != 0);
        fs.set_fsx(ino, &Fsx { xflags, extsize, cowextsize, ..Fsx::default() }).unwrap();
        ino
    };
    let ino = sized("written", 65536, 0);
    fs.write_at(ino, 100_000, &[1; 1000]).unwrap();
    assert_eq!(map(&fs, ino), [(16, 8, true), (24, 1, false), (25, 7, true)]);
    fs.write_at(ino, 20000, &[1; 1000]).unwrap();
    let low = [(0, 4, true), (4, 2, false), (6, 18, true), (24, 1, false), (25, 7, true)];
    assert_eq!(map(&fs, ino), low);
    let late = Fsx { xflags: Xflags::EXTSIZE, extsize: 131_072, ..Fsx::default() };
    assert_eq!(errno(&fs.set_fsx(ino, &late)), EINVAL, "a file with data");
    let mut wanted = vec![0; 101_000];
    wanted[20000..21000].fill(1);
    wanted[100_000..].fill(1);
    assert_eq!(content(&fs, ino), wanted);
    let ino = sized("allocated", 65536, 0);
    let mode = Fallocate::Allocate { keep_size: false };
    fs.fallocate(ino, mode, 100_000, 1000).unwrap();
    assert_eq!(map(&fs, ino), [(16, 16, true)]);
    // A copy on write allocates a whole extent of the hint's size.
    let (from, to) = (file(&fs, "from", 5, 1 << 20), sized("to", 0, 65536));
    fs.clone_file(from, to).unwrap();
    fs.write_at(to, 100_000, &[6; 10]).unwrap();
    let own: Vec<(u64, u64)> = fs
        .extents(to)
        .unwrap()
        .iter()
        .filter(|e| {
            !fs.extents(from)
                .unwrap()
                .iter()
                .any(|o| o.start <= e.start && e.start.0 + e.len <= o.start.0 + o.len)
        })
        .map(|e| (e.offset.0, e.len))
        .collect();
    assert_eq!(own, [(16, 16)]);
    let mut wanted = vec![5; 1 << 20];
    wanted[100_000..100_010].fill(6);
    assert!(content(&fs, to) == wanted && content(&fs, from) == vec![5; 1 << 20]);
    let copy = file(&fs, "copy", 0, 0);
    fs.clone_file(to, copy).unwrap();
    assert_eq!(fs.get_fsx(copy).unwrap().cowextsize, 65536, "the hint comes along");
    fs.close().unwrap();
    volume.judge("hints obeyed");
}

#[test]
fn immutable_and_append_flags_are_enforced() {
    let volume = Volume::small(64, "");
    let fs = volume.open();
    let root = fs.root();
    let (ino, other) = (file(&fs, "a", 1, 8192), file(&fs, "b", 1, 8192));
    with_flags(&fs, ino, Xflags::APPEND).unwrap();
    let change = |change: SetAttr| errno(&fs.set_attr(ino, &change));
    assert_eq!(errno(&fs.share(other, 0, ino, 0, 0)), EPERM);
    fs.share(ino, 0, other, 0, 4096).unwrap();
    fs.write_at(ino, 8192, b"more").unwrap();
    fs.fallocate(ino, Fallocate::Allocate { keep_size: true }, 0, 1 << 16).unwrap();
    assert_eq!(errno(&fs.fallocate(ino, Fallocate::InsertRange, 0, 4096)), EPERM);
    assert_eq!(errno(&fs.rename(root, b"a", root, b"c", RenameFlags::Replace)), EPERM);
    assert_eq!(errno(&fs.rename(root, b"b", root, b"a", RenameFlags::Replace)), EPERM);
    assert_eq!(errno(&fs.rename(root, b"b", root, b"a", RenameFlags::Exchange)), EPERM);
    assert_eq!(errno(&fs.unlink(root, b"a")), EPERM);
    assert_eq!(change(SetAttr { permissions: Some(0), ..SetAttr::default() }), EPERM);
    assert_eq!(change(SetAttr { projid: Some(5), ..SetAttr::default() }), 0);
    with_flags(&fs, ino, Xflags::IMMUTABLE).unwrap();
    assert_eq!(errno(&fs.write_at(ino, 8196, b"more")), EPERM);
    assert_eq!(errno(&fs.set_xattr(ino, b"user.x", b"", XattrMode::Any)), EPERM);
    let dir = fs.create(root, b"d", &NewInode::dir(0o755)).unwrap();
    fs.create(dir, b"there", &NewInode::file(0)).unwrap();
    with_flags(&fs, dir, Xflags::APPEND).unwrap();
    fs.create(dir, b"new", &NewInode::file(0)).unwrap();
    fs.rename(root, b"b", dir, b"in", RenameFlags::Replace).unwrap();
    assert_eq!(errno(&fs.unlink(dir, b"there")), EPERM);
    assert_eq!(errno(&fs.unlink(dir, b"none")), 2);
    with_flags(&fs, dir, Xflags::IMMUTABLE).unwrap();
    assert_eq!(errno(&fs.create(dir, b"newer", &NewInode::file(0))), EPERM);
    assert_eq!(errno(&fs.create(dir, b"there", &NewInode::file(0))), 17);
    assert_eq!(errno(&fs.rmdir(root, b"d")), EPERM);
    fs.close().unwrap();
    volume.judge("flags");
}
