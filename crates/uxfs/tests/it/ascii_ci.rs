//! Volumes whose names compare without case (`-n version=ci`): what the library writes, kernels
//! find in any case, and the other way round.
//!
//! xfs_repair 6.1 lowers only letters of ASCII when it hashes a name, kernels and xfs_repair 7 also
//! those of ISO 8859-1. So the older one judges only volumes with names of ASCII.

use std::ops::ControlFlow;

use uxfs::copy::CopyOptions;
use uxfs::import::{ImportError, ImportOptions, run};
use uxfs::resize::{self, Method, ResizeOptions, Target};
use uxfs::{Error, Fs, NewInode, RenameFlags};
use uxfs_archive::{Entry, Kind, Meta, TarWriter};
use uxfs_check::{CheckOptions, check};
use uxfs_disk::OpenMode;
use uxfs_format::Ino;
use uxfs_oracle::vm::{self, Crash, Vm};
use uxfs_oracle::{Kernel, Rng, Xfsprogs};

use crate::edit;
use crate::kernel::{ALL, age};
use crate::listing;
use crate::volume::{MIB, Volume, device, setting};

/// Names in a directory of each form.
const FORMS: [(&str, usize); 4] = [("Short", 3), ("Block", 40), ("Leaf", 400), ("Node", 3000)];

/// The letters É and Þ of ISO 8859-1, which kernels lower, and the sign × between them, which they
/// do not.
const LATIN: &[u8] = b"\xc9\xd7\xde";

fn name(number: usize, tail: &[u8]) -> Vec<u8> {
    [format!("Entry-Number-{number}").as_bytes(), tail].concat()
}

/// The other case of each letter.
fn swapped(name: &[u8]) -> Vec<u8> {
    let swap = |byte: &u8| match *byte {
        0xc0..=0xd6 | 0xd8..=0xde => byte + 32,
        0xe0..=0xf6 | 0xf8..=0xfe => byte - 32,
        _ if byte.is_ascii_alphabetic() => byte ^ 32,
        _ => *byte,
    };
    name.iter().map(swap).collect()
}

fn create(fs: &Fs, dir: Ino, name: &[u8]) -> Ino {
    fs.create(dir, name, &NewInode::file(0o644)).unwrap()
}

/// The newer xfs_repair and the check find nothing; nor does the older one in names of ASCII.
fn judge(volume: &Volume, ascii: bool, at: &str) {
    if ascii {
        volume.judge_aged(at);
    }
    Xfsprogs::Current.repair(&volume.path).unwrap_or_else(|f| panic!("{at}: {f}"));
    let dev = device(&volume.path, OpenMode::Read);
    let report = check(&dev, &CheckOptions::default(), &|_| {}).unwrap();
    assert!(report.is_clean() && !report.incomplete, "{at}: {report}");
}

/// A volume with a directory of each form.
fn filled(line: &str, tail: &[u8]) -> Volume {
    let volume = Volume::small(400, line);
    let fs = volume.open();
    for (form, count) in FORMS {
        let dir = fs.create(fs.root(), form.as_bytes(), &NewInode::dir(0o755)).unwrap();
        let first = create(&fs, dir, &name(0, tail));
        for number in 1..count {
            fs.link(first, dir, &name(number, tail)).unwrap();
        }
    }
    fs.close().unwrap();
    volume
}

/// In the shell of a machine: the name of `number` in the other case, or as it is.
fn shell(tail: &[u8], other: bool) -> (String, String) {
    let escape = |bytes: &[u8]| bytes.iter().map(|b| format!("\\{b:03o}")).collect::<String>();
    let (stem, tail) = match other {
        true => (swapped(b"Entry-Number-"), swapped(tail)),
        false => (b"Entry-Number-".to_vec(), tail.to_vec()),
    };
    (String::from_utf8(stem).unwrap(), format!("$(printf '{}')", escape(&tail)))
}

/// The kernel finds every name in the other case, removes and renames by it, and adds names of its
/// own.
fn use_by_kernel(kernel: Kernel, volume: &Volume, tail: &[u8]) {
    let (stem, end) = shell(tail, true);
    let mut script = format!("set -e\nmount -t xfs /drive/0 /mnt\ntail={end}\n");
    for (form, count) in FORMS {
        let dir = String::from_utf8(swapped(form.as_bytes())).unwrap();
        script += &format!(
            "i=0\nwhile [ $i -lt {count} ]; do\n\
             [ -e /mnt/{dir}/{stem}$i$tail ] || {{ echo no $i in {dir}; exit 1; }}; i=$((i+1)); done\n\
             if mkdir /mnt/{dir}/{stem}1$tail 2>/dev/null; then echo made twice; exit 1; fi\n\
             rm /mnt/{dir}/{stem}2$tail\n\
             mv /mnt/{dir}/{stem}1$tail /mnt/{dir}/Renamed$tail\n\
             mv /mnt/{dir}/RENAMED$tail /mnt/{dir}/rENAMED$tail\n\
             : >/mnt/{dir}/Victim; : >/mnt/{dir}/Mover; mv /mnt/{dir}/MOVER /mnt/{dir}/VICTIM\n\
             i=0\nwhile [ $i -lt $(({count}/2)) ]; do : >/mnt/{dir}/Kernel-$i$tail; i=$((i+1)); done\n"
        );
    }
    script += "umount /mnt\n";
    let vm = Vm::new(kernel).drive(&volume.path, true).script(&script);
    vm.run().unwrap_or_else(|f| panic!("{f}"));
}

/// The library finds what the kernel left, in the other case, and takes all of it away.
fn use_by_library(volume: &Volume, tail: &[u8]) {
    let fs = volume.open();
    for (form, count) in FORMS {
        let dir = fs.lookup(fs.root(), &swapped(form.as_bytes())).unwrap();
        let first = fs.lookup(dir, &name(0, tail)).unwrap();
        for number in 3..count {
            assert_eq!(fs.lookup(dir, &swapped(&name(number, tail))).unwrap(), first);
        }
        // The second rename, to another spelling, changed nothing.
        let renamed = [b"Renamed", &swapped(tail)[..]].concat();
        assert_eq!(fs.other_spelling(dir, &swapped(&renamed)).unwrap().as_deref(), Some(&*renamed));
        assert!(fs.other_spelling(dir, b"victim").unwrap().is_some_and(|name| name == b"Victim"));
        for gone in [name(1, tail), name(2, tail), b"mover".to_vec()] {
            assert!(matches!(fs.lookup(dir, &gone), Err(Error::NotFound)));
        }
        for number in 0..count / 2 {
            fs.unlink(dir, &[format!("kERNEL-{number}").as_bytes(), tail].concat()).unwrap();
        }
        for number in 3..count {
            fs.unlink(dir, &swapped(&name(number, tail))).unwrap();
        }
    }
    fs.close().unwrap();
}

#[test]
fn kernels_and_the_library_find_names_in_any_case() {
    let old = "-n version=ci";
    let new = "-n version=ci,parent=1 -i exchange=1,nrext64=1 -m rmapbt=1";
    for (kernel, line, tail) in [
        (Kernel::Stable, old, &b""[..]),
        (Kernel::Stable, "-n version=ci -b size=1k", LATIN),
        (Kernel::Current, new, b""),
        (Kernel::Current, new, LATIN),
    ] {
        let at = format!("{kernel:?}, {line}, {}", tail.escape_ascii());
        // Release 6.1 does not know parent pointers.
        let ascii = tail.is_empty() && line != new;
        let volume = filled(line, tail);
        judge(&volume, ascii, &format!("{at}: filled"));
        use_by_kernel(kernel, &volume, tail);
        judge(&volume, ascii, &format!("{at}: used by the kernel"));
        use_by_library(&volume, tail);
        judge(&volume, ascii, &format!("{at}: used by the library"));
        let ours = listing::list(&volume.open_read_only());
        ours.assert_same(&listing::of_kernel(kernel, &[&volume.path])[0], ALL);
    }
}

/// Kernel and library change one volume in turns; the names are random bytes.
#[test]
fn the_kernel_and_the_library_alternate() {
    let base = setting("UXFS_SEED", 0) * 1000 + 70;
    for (turn, kernel, line) in [
        (0, Kernel::Stable, "-n version=ci"),
        (1, Kernel::Current, "-n version=ci,parent=1 -b size=1k"),
    ] {
        let seed = base + turn;
        let at = format!("{kernel:?}, {line}, seed {seed}");
        let volume = Volume::small(400, line);
        let mut rng = Rng::new(seed);
        for round in 0..2 {
            let aged = age(kernel, &volume, seed + 10 * round, 400);
            listing::list(&volume.open_read_only()).assert_same(&aged, ALL);
            let fs = volume.open_at(1_800_000_000 + seed as i64, 1 << 20);
            edit::edit(&fs, &mut rng, 300, &at);
            fs.close().unwrap();
            judge(&volume, false, &at);
        }
        let ours = listing::list(&volume.open_read_only());
        ours.assert_same(&listing::of_kernel(kernel, &[&volume.path])[0], ALL);
    }
}

/// What a log of a kernel holds is replayed as the kernel replays a copy of it.
#[test]
fn logs_of_kernels_are_replayed() {
    let base = setting("UXFS_SEED", 0) * 1000 + 80;
    for (turn, kernel, line) in [
        (0, Kernel::Stable, "-n version=ci"),
        (1, Kernel::Current, "-n version=ci,parent=1 -i exchange=1 -m rmapbt=1"),
    ] {
        let seed = base + turn;
        let at = format!("{kernel:?}, {line}, seed {seed}");
        let volume = Volume::small(400, line);
        age(kernel, &volume, seed, 200);
        let crash = Crash { image: &volume.path, options: "", seed, ops: 400 };
        vm::crash(kernel, &[crash]).unwrap_or_else(|f| panic!("{at}: {f}"));
        // The machine leaves the image as it is and replays the log for itself.
        let theirs = listing::of_kernel(kernel, &[&volume.path]).remove(0);
        let fs = volume.open();
        assert!(fs.recovery().is_some(), "{at}: the log was clean");
        fs.close().unwrap();
        listing::list(&volume.open_read_only()).assert_same(&theirs, ALL);
        judge(&volume, false, &at);
    }
}

#[test]
fn an_entry_is_one_in_every_spelling() {
    let volume = Volume::small(300, "-n version=ci,parent=1");
    let fs = volume.open();
    let root = fs.root();
    let a = create(&fs, root, b"Readme");
    for other in [&b"README"[..], b"readme", b"rEADME"] {
        assert_eq!(fs.lookup(root, other).unwrap(), a);
        let new = NewInode::dir(0o755);
        assert!(matches!(fs.create(root, other, &new), Err(Error::Exists)));
        assert!(matches!(fs.link(a, root, other), Err(Error::Exists)));
        assert!(matches!(fs.symlink(root, other, b"x", &NewInode::new(0)), Err(Error::Exists)));
        // As a kernel: success, and the spelling stays.
        fs.rename(root, b"Readme", root, other, RenameFlags::Replace).unwrap();
        let refused = fs.rename(root, b"Readme", root, other, RenameFlags::NoReplace);
        assert!(matches!(refused, Err(Error::Exists)));
    }
    assert_eq!(spellings(&fs, root), [b"Readme".to_vec()]);
    // What replaces an entry takes over its spelling.
    let b = create(&fs, root, b"Second");
    fs.rename(root, b"SECOND", root, b"README", RenameFlags::Replace).unwrap();
    assert_eq!(fs.lookup(root, b"readme").unwrap(), b);
    assert_eq!(spellings(&fs, root), [b"Readme".to_vec()]);
    let c = create(&fs, root, b"Third");
    fs.rename(root, b"THIRD", root, b"readme", RenameFlags::Exchange).unwrap();
    assert_eq!((fs.lookup(root, b"third").unwrap(), fs.lookup(root, b"README").unwrap()), (b, c));
    fs.rename_whiteout((root, b"tHIRD"), (root, b"Fourth"), (0, 0)).unwrap();
    assert_eq!(fs.lookup(root, b"FOURTH").unwrap(), b);
    let dir = fs.create(root, b"Dir", &NewInode::dir(0o755)).unwrap();
    fs.rename(root, b"FOURTH", dir, b"Inside", RenameFlags::Replace).unwrap();
    assert_eq!(fs.resolve(b"/dIR/iNSIDE", true).unwrap(), b);
    assert!(matches!(fs.rmdir(root, b"DIR"), Err(Error::NotEmpty)));
    fs.unlink(dir, b"INSIDE").unwrap();
    fs.unlink(root, b"third").unwrap();
    fs.unlink(root, b"rEADME").unwrap();
    assert_eq!(spellings(&fs, root), [b"Dir".to_vec()]);
    // Names of attributes have a case.
    let any = uxfs::XattrMode::Any;
    fs.set_xattr(dir, b"user.a", b"1", any).unwrap();
    fs.set_xattr(dir, b"user.A", b"2", any).unwrap();
    assert_eq!(fs.get_xattr(dir, b"user.a").unwrap(), b"1");
    fs.close().unwrap();
    judge(&volume, false, "after all operations");
}

fn spellings(fs: &Fs, dir: Ino) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    fs.read_dir(dir, 0, &mut |entry| {
        if !entry.is_dot() {
            names.push(entry.name.to_vec());
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    names.sort();
    names
}

/// A resize that makes the volume anew, here because its log is beyond the new end, keeps how names
/// compare.
#[test]
fn a_rebuilt_volume_compares_without_case() {
    let volume = filled("-n version=ci", b"");
    let done = resize::run(&ResizeOptions::new(&volume.path, Target::Bytes(200 * MIB))).unwrap();
    assert_eq!(done.method, Method::Rebuilt);
    let fs = volume.open_read_only();
    fs.resolve(b"/nODE/eNTRY-nUMBER-2999", true).unwrap();
    judge(&volume, true, &format!("{done:?}"));
}

#[test]
fn two_spellings_of_one_name_are_refused_with_both() {
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("t.tar");
    for (first, second, words) in [
        ("d/Makefile", "d/makefile", ["Makefile", "d/makefile"]),
        ("Dir/a", "dir/b", ["Dir", "dir"]),
    ] {
        let volume = Volume::small(300, "-n version=ci");
        let mut writer = TarWriter::new(std::fs::File::create(&tar).unwrap());
        for path in [first, second] {
            let kind = Kind::Symlink { target: b"x".to_vec() };
            let entry = Entry { path: path.into(), kind, meta: Meta::default() };
            writer.entry(&entry, &mut std::io::empty()).unwrap();
        }
        writer.finish().unwrap();
        let error = run(&ImportOptions::new(&tar, &volume.path), &mut |_| {}).unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, ImportError::Spelling { .. }), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    // A tree of the host with both, copied: the second is refused, the first stays as it is.
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for name in ["Notes", "NOTES"] {
        std::fs::write(tree.join(name), name).unwrap();
    }
    let volume = Volume::small(300, "-n version=ci");
    let opened = uxfs::Volume::open(&volume.path).unwrap();
    let mut options = CopyOptions::default();
    options.recursive = true;
    let mut said = Vec::new();
    let copied = opened.copy_in(&tree, "/tree", options, &mut |event| {
        if let uxfs::copy::Event::Failed(_, error) = event {
            said.push(error.to_string());
        }
    });
    assert!(!copied.unwrap());
    assert!(said.len() == 1 && said[0].contains("Notes") && said[0].contains("NOTES"), "{said:?}");
    opened.close().unwrap();
    let fs = volume.open_read_only();
    let dir = fs.resolve(b"/TREE", true).unwrap();
    let [kept] = &spellings(&fs, dir)[..] else { panic!("not one file") };
    let mut content = [0; 9];
    let len = fs.read_at(fs.lookup(dir, kept).unwrap(), 0, &mut content).unwrap();
    assert_eq!(&content[..len], &kept[..]);
}
