//! Label and UUID changed in the superblocks: judged by xfsprogs and kernels, and after a cut at each
//! write. `uxfs-cli` compares the bytes with those of xfs_admin.

use std::sync::Arc;

use uxfs::Device;
use uxfs::disk::{BlockDev, MemDev, OpenMode};
use uxfs::format::Uuid;
use uxfs::identity::Identity;
use uxfs_format::superblock::Superblock;
use uxfs_oracle::{Kernel, both, vm};
use uxfs_testkit::{EIO, FaultDev, Op, Rule};

use crate::kernel::{ALL, age};
use crate::listing;
use crate::volume::{Volume, device};

const NEW: Uuid = Uuid(*b"0123456789abcdef");

fn identity(volume: &Volume) -> Identity {
    Identity::read(Arc::new(device(&volume.path, OpenMode::Write))).unwrap()
}

/// Kernels mount a volume with a new UUID, write to its log, and mount it when the old one is back.
#[test]
fn kernels_use_a_volume_with_a_new_uuid() {
    let volume = Volume::real(320, "-m rmapbt=1");
    let old = identity(&volume).uuid();
    let before = age(Kernel::Stable, &volume, 1, 300);
    identity(&volume).set_uuid(NEW).unwrap();
    volume.judge_aged("a new UUID");
    for kernel in Kernel::ALL {
        listing::of_kernel(kernel, &[&volume.path])[0].assert_same(&before, ALL);
    }
    listing::list(&volume.open_read_only()).assert_same(&before, ALL);
    let changed = age(Kernel::Current, &volume, 2, 300);
    listing::list(&volume.open_read_only()).assert_same(&changed, ALL);
    volume.judge_aged("changed by a kernel");
    let mut there = identity(&volume);
    assert_eq!((there.uuid(), there.superblock().metadata_uuid()), (NEW, old));
    there.restore_uuid().unwrap();
    assert_eq!(there.uuid(), old);
    drop(there);
    volume.judge_aged("the old UUID");
    for kernel in Kernel::ALL {
        listing::of_kernel(kernel, &[&volume.path])[0].assert_same(&changed, ALL);
    }
}

/// The judges see a UUID that the log does not have: the reason for the unmount record.
#[test]
fn kernels_refuse_a_log_with_the_old_uuid() {
    let volume = Volume::real(320, "");
    let dev = Arc::new(FaultDev::new(device(&volume.path, OpenMode::Write)));
    let mut identity = Identity::read(Arc::clone(&dev) as Device).unwrap();
    let sb = *identity.superblock();
    let block = u64::from(sb.blocksize.get());
    let (group, inside) =
        (sb.logstart.get() >> sb.agblklog, sb.logstart.get() % (1 << sb.agblklog));
    let start = (group * u64::from(sb.agblocks.get()) + inside) * block;
    let log = start..start + u64::from(sb.logblocks.get()) * block;
    dev.add(Rule::on(Op::WRITES).within(log).lose());
    identity.set_uuid(NEW).unwrap();
    drop((identity, dev));
    for kernel in Kernel::ALL {
        let finding = vm::list(kernel, &[&volume.path]).unwrap_err();
        assert!(finding.says("mismatched uuid"), "{finding}");
    }
    // A new UUID once more makes it whole.
    self::identity(&volume).set_uuid(NEW).unwrap();
    listing::of_kernel(Kernel::Current, &[&volume.path]);
}

/// The labels and UUIDs of all superblocks.
fn all(bytes: &[u8]) -> Vec<([u8; 12], [u8; 16])> {
    let sb = Superblock::verify(bytes).unwrap();
    let group = sb.agblocks.get() as usize * sb.blocksize.get() as usize;
    let copies = bytes.chunks(group).map(|group| Superblock::verify(group).unwrap());
    copies.map(|sb| (sb.fname, sb.uuid)).collect()
}

/// Does `change` on a device that fails from its first, second, … write or flush on. Each time the
/// primary superblock has the old or the new value, and the change done again succeeds.
fn cut_everywhere(change: impl Fn(&mut Identity) -> uxfs::Result<()>) {
    let volume = Volume::small(64, "-d agcount=4");
    let before = std::fs::read(&volume.path).unwrap();
    let mut cuts = 0;
    loop {
        let dev = Arc::new(FaultDev::new(MemDev::from_bytes(&before)));
        dev.add(Rule::on(Op::CHANGES).after(cuts).fail(EIO));
        let done = change(&mut Identity::read(Arc::clone(&dev) as Device).unwrap());
        assert_eq!(done.is_err(), dev.failed(), "a failure was not reported");
        dev.clear();
        let cut = done.is_err();
        change(&mut Identity::read(Arc::clone(&dev) as Device).unwrap()).unwrap();
        let mut after = vec![0; before.len()];
        dev.below().read_at(0, &mut after).unwrap();
        let named = all(&after);
        assert!(named.iter().all(|each| *each == named[0]), "cut {cuts}: {named:?}");
        std::fs::write(&volume.path, &after).unwrap();
        both(&volume.path).unwrap_or_else(|finding| panic!("cut {cuts}: {finding}"));
        if !cut {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 5, "only {cuts} writes");
}

#[test]
fn a_label_cut_at_each_write_can_be_set_again() {
    cut_everywhere(|identity| identity.set_label(b"twelve bytes"));
}

#[test]
fn a_uuid_cut_at_each_write_can_be_set_again() {
    cut_everywhere(|identity| identity.set_uuid(NEW));
}

/// Nothing is written where a replay would undo it, and nothing to a volume with a damaged copy.
#[test]
fn dirty_logs_and_damaged_copies_are_refused() {
    let volume = Volume::small(64, "-d agcount=4");
    let clean = std::fs::read(&volume.path).unwrap();
    let mut broken = clean.clone();
    let group = Superblock::view(&clean).unwrap().agblocks.get() as usize * 4096;
    broken[2 * group] = 0;
    let fs = volume.open();
    fs.create(fs.root(), b"new", &uxfs::NewInode::file(0o644)).unwrap();
    fs.sync().unwrap();
    drop(fs);
    let dirty = std::fs::read(&volume.path).unwrap();
    for (bytes, why) in [(dirty, "the log is dirty"), (broken, "wrong magic number")] {
        let dev = Arc::new(FaultDev::new(MemDev::from_bytes(&bytes)));
        let mut identity = Identity::read(Arc::clone(&dev) as Device).unwrap();
        for error in [identity.set_label(b"x").unwrap_err(), identity.set_uuid(NEW).unwrap_err()] {
            assert!(error.to_string().contains(why), "{error}");
        }
        assert_eq!(dev.calls(Op::CHANGES), 0, "{why}: it was written to");
        assert!(identity.set_label(b"thirteen byte").is_err());
    }
}
