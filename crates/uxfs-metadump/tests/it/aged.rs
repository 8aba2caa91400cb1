//! Volumes that kernels aged, and volumes with quotas and dirty logs.

use uxfs::{Fs, NewInode, OpenOptions};
use uxfs_disk::OpenMode;
use uxfs_metadump::{Content, Version};
use uxfs_oracle::Xfsprogs::Current;
use uxfs_oracle::{Kernel, both_after_old_kernel, vm};

use crate::fixture::{beside, difference, dumped, filled, restored, run, shape, ways};
use crate::round::round;
use crate::volume::{FEATURES, Volume, device, setting};

#[test]
fn volumes_that_kernels_aged_are_dumped_and_restored() {
    let seed = setting("UXFS_SEED", 1);
    for (kernel, line) in Kernel::ALL.into_iter().zip([FEATURES[1], FEATURES[3]]) {
        let volume = Volume::small(96, line);
        vm::age(kernel, &volume.path, seed, 600).unwrap_or_else(|f| panic!("{f}"));
        round(
            &volume,
            &format!("{line}, aged by {kernel:?} with seed {seed}"),
            both_after_old_kernel,
        );
    }
}

#[test]
fn quotas_are_dumped_and_restored() {
    let volume = filled(FEATURES[1]);
    let script = "set -e\nmount -t xfs -o uquota,gquota,pquota /drive/0 /mnt\n\
        for n in 1 2 3 4 5 6; do echo data >/mnt/of-$n; chown 100$n:200$n /mnt/of-$n; done\n\
        umount /mnt\n";
    let machine = vm::Vm::new(Kernel::Stable).drive(&volume.path, true).script(script);
    machine.run().unwrap_or_else(|f| panic!("{f}"));
    round(&volume, "with quotas", both_after_old_kernel);
}

/// A dirty log is copied, and replayed from the restored volume as from the volume.
#[test]
fn a_dirty_log_is_dumped() {
    let volume = filled("");
    let fs = volume.open();
    for index in 0..200 {
        let name = format!("in the log {index}");
        fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o644)).unwrap();
    }
    fs.sync().unwrap();
    drop(fs);
    let (out, theirs, ours) =
        (beside(&volume, "dump"), beside(&volume, "theirs"), beside(&volume, "ours"));
    for version in [Version::One, Version::Two] {
        for (way, options) in ways(version) {
            let (bytes, summary, _) = dumped(&volume.path, &options);
            assert!(summary.content.contains(Content::DIRTY_LOG), "{way}");
            std::fs::write(&out, &bytes).unwrap();
            restored(&bytes, &ours);
            run(Current, "xfs_mdrestore", &[&out, &theirs]);
            assert_eq!(difference(&ours, &theirs), None, "{way}");
            if options.names.is_none() {
                assert_eq!(shape(&ours), shape(&volume.path), "{way}");
                let dev = device(&ours, OpenMode::Write);
                let fs = Fs::open(std::sync::Arc::new(dev), OpenOptions::default()).unwrap();
                assert!(fs.recovery().is_some(), "{way}");
                fs.close().unwrap();
                uxfs_oracle::both(&ours).unwrap_or_else(|finding| panic!("{way}: {finding}"));
            }
        }
    }
}
